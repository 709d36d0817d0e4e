"""FedAvg: K devices uniformly at random among the eligible ones. It probes nobody and learns nothing.

Implements the selection step of McMahan et al. 2017 as the FedRank paper's appendix restates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from emulator.outcome import RoundOutcome
from emulator.view import ServerView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FedAvg:
    """Uniform random selection."""

    name: ClassVar[str] = "fedavg"
    probes: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    privileged: ClassVar[bool] = False

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Everyone eligible: without a probe, a candidate costs nothing."""
        return view.eligible_ids

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """``k`` of them without replacement, or all if there are fewer."""
        return rng.choice(candidates, min(k, len(candidates)), replace=False)

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    def state_dict(self) -> dict[str, Any]:
        """No state: the generator belongs to the engine."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""
