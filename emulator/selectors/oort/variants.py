"""Two other readings of Oort's decision, on the skeleton of the published class (`OfficialRules`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids
from emulator.selectors.oort.official import NOBODY, SHORTEST_S, Norm, OfficialRules, OortCall
from emulator.selectors.parts.draws import top_k

POOL_FACTOR = 10


class PaperRules(OfficialRules):
    """As the paper describes it (Lai et al., OSDI 2021, algorithm 1).

    The pacer relaxes T when the utility falls, sum U(R-2W:R-W) > sum U(R-W:R); devices never tried are drawn
    by speed, 1/d; placeholders take no part in the normalisation.
    """

    def _move_threshold(self, before: float, now: float) -> None:
        if before > now:
            self.threshold_percent = min(100.0, self.threshold_percent + self.settings.threshold_step_percent)

    def _rated(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return allowed & (self.arms.count > 0) & (self.arms.utility > 0)

    def _explore_weights(self, ids: Ids, now: OortCall) -> NDArray[np.float64]:
        weights = 1.0 / np.maximum(self.arms.duration_s[ids], SHORTEST_S)
        return weights if now.factor is None else weights * now.factor[ids]


class FedScaleRules(OfficialRules):
    """As FedScale's copy of the class decides (``thirdparty/oort/oort.py``), to replay it.

    K - int(K eps) devices are exploited; scores are absolute values; the pool holds more than ten times as
    many as are drawn; eps never resets; when nobody is left to explore, the last explored devices are
    returned again and nothing is filled. So a decision may hold more or fewer than K devices, and some
    twice: the selector repairs that.
    """

    def _scores(self, ids: Ids, norm: Norm, now: OortCall) -> NDArray[np.float64]:
        return np.abs(super()._scores(ids, norm, now))

    def _exploit_len(self, k: int, scored: int) -> int:
        return max(0, min(k - int(k * self.exploration), scored - 1))  # fix: one is left for the border

    def _pool(self, scores: NDArray[np.float64], exploit_len: int) -> tuple[float, Ids]:
        cut_off, pool = super()._pool(scores, exploit_len)
        at_least = min(POOL_FACTOR * exploit_len + 1, len(scores))
        return cut_off, pool if len(pool) >= at_least else top_k(scores, at_least)

    def _complete(self, exploited: Ids, now: OortCall) -> tuple[Ids, Ids]:
        explored = NOBODY
        if np.any(now.feasible & (self.arms.count == 0)):
            self.last_explored = explored = self._explore(now.k - len(exploited), now)
        return explored, np.concatenate([self.last_explored, exploited])
