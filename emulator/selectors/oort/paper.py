"""Oort's decision as the paper describes it (Lai et al., OSDI 2021, algorithm 1), on the published skeleton.

Differences from `OfficialRules`: the pacer relaxes T when the utility falls, sum U(R-2W:R-W) > sum U(R-W:R);
devices never tried are drawn by speed, 1/d; placeholders take no part in the normalisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.selectors.oort.official import SHORTEST_S, OfficialRules, OortCall

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PaperRules(OfficialRules):
    """The paper's pacer and exploration."""

    def _move_threshold(self, before: float, now: float) -> None:
        if before > now:
            self.threshold_percent = min(100.0, self.threshold_percent + self.settings.threshold_step_percent)

    def _rated(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return allowed & (self.arms.count > 0) & (self.arms.utility > 0)

    def _explore_weights(self, ids: NDArray[np.int64], now: OortCall) -> NDArray[np.float64]:
        weights = 1.0 / np.maximum(self.arms.duration_s[ids], SHORTEST_S)
        return weights if now.factor is None else weights * now.factor[ids]
