"""Control: devices at random in proportion to how many samples they hold.

Decides how much of a method's gain is "avoid empty clients": on splits with many near-empty devices this
alone reaches the accuracies that learned selectors report. Devices without samples come last. Nothing is
observed but the data sizes of registration; there are no switches.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_weighted, log_of


class RandomBySize(Selector):
    """Weighted random selection."""

    name: ClassVar[str] = "random_by_size"
    family: ClassVar[Family] = Family.CONTROL

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """``k`` of them, drawn one after another in proportion to their sizes."""
        return candidates[draw_weighted(rng, log_of(view.data_size[candidates]), k)]
