"""FedAvg: K devices uniformly at random among the eligible ones. It probes nobody and learns nothing.

Implements the selection step of McMahan et al. 2017 as the FedRank paper's appendix restates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from emulator.round.selector import Family, Selector
from emulator.round.view import ServerView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FedAvg(Selector):
    """Uniform random selection."""

    name: ClassVar[str] = "fedavg"
    family: ClassVar[Family] = Family.RANDOM
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """``k`` of them without replacement, or all if there are fewer."""
        return rng.choice(candidates, min(k, len(candidates)), replace=False)
