"""REFL-style selection: of the devices here now, those that are seldom here.

Implements the participant selection of Abdelmoniem et al., EuroSys 2023 (arXiv 2111.01108): devices least
likely to be available later go first, ties at random.

Deviations: the paper asks each device for the probability that it is available in the next window; here the
share of past rounds in which it checked in stands for it. Its other half, aggregation of stale updates, is
not a matter of selection and left out. No switches.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import top_k


class Refl(Selector):
    """Least available first."""

    name: ClassVar[str] = "refl"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = "Abdelmoniem et al., EuroSys 2023, arXiv 2111.01108"
    deviations: ClassVar[str] = "availability is the share of past check-ins; no stale updates"
    needs: ClassVar[frozenset[str]] = frozenset({"check_ins"})

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` rarest guests."""
        shuffled = rng.permutation(candidates)  # top_k settles ties by position, so position must be random
        return shuffled[top_k(-view.check_ins[shuffled], k)]
