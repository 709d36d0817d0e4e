"""FedAvg: K devices uniformly at random among the eligible ones. It probes nobody and learns nothing.

Implements the selection step of McMahan et al. 2017 as the FedRank paper's appendix restates it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView


class FedAvg(Selector):
    """Uniform random selection."""

    name: ClassVar[str] = "fedavg"
    family: ClassVar[Family] = Family.RANDOM
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """``k`` of them without replacement, or all if there are fewer."""
        return rng.choice(candidates, min(k, len(candidates)), replace=False)
