"""FedRank+: FedRank with what the evidence says it lacks. Not in the paper, and kept apart from ``fedrank``.

Three repairs, each with its switch:

1. Fewer probes. What a probe tells is mostly known from earlier rounds, so ``probe_factor`` times K devices
   are probed instead of three times K.
2. Known speeds before probing. Candidates come from the fastest ``fast_share`` of the devices with data, by
   what is known of their time per sample, in proportion to their data; nobody is probed only to be found slow
   or empty, and whoever failed lately is seldom asked (`emulator.selectors.parts.estimates`).
3. A cohort, not a list. An additive score picks the same kind of device K times; on skewed labels such
   cohorts miss classes. The cohort grows greedily: the device that best balances the labels, estimated from
   the output bias of earlier updates, with FedRank's rank as the other half of the score (``coverage``).

Labels, true speeds and the test set stay unseen.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids, ServerView
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.harmony_like import divergence
from emulator.selectors.parts.draws import draw_uniform, draw_weighted, log_of
from emulator.selectors.parts.estimates import epoch_s, label_shares, worth_asking
from emulator.selectors.parts.options import within


class FedRankPlus(FedRank):
    """Set-aware ranking of fewer, better candidates.

    Args:
        probe_factor: Candidates per device wanted; the scenario's M is the most.
        fast_share: Share of the eligible devices, fastest first, that candidates come from.
        coverage: Weight of the label balance; 0 ranks as FedRank does.
        **options: Those of `FedRank`.
    """

    name: ClassVar[str] = "fedrank_plus"
    paper: ClassVar[str] = "own, after FedRank (ICML 2024)"
    deviations: ClassVar[str] = (
        "set-aware choice, fewer probes, known speeds before probing; not in the paper"
    )
    needs: ClassVar[frozenset[str]] = FedRank.needs | {"bias_delta", "capability_s", "failures"}

    def __init__(
        self, *, probe_factor: float = 1.5, fast_share: float = 0.6, coverage: float = 1.0, **options: Any
    ) -> None:
        within(self.name, "probe_factor", probe_factor, 1.0, 1e9)
        within(self.name, "fast_share", fast_share, 0.0, 1.0)
        within(self.name, "coverage", coverage, 0.0, 1e9)
        super().__init__(**options)
        self._probe_factor = probe_factor
        self._fast_share = fast_share
        self._coverage = coverage

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """The best balanced of a random pool of devices that are fast enough, in proportion to their data."""
        ids = view.eligible_ids
        m = min(m, math.ceil(self._probe_factor * view.k), len(ids))
        worth = ids[worth_asking(view, ids, rng)]
        if m >= len(worth):
            return ids if m == len(ids) else np.sort(np.concatenate([worth, _rest(ids, worth, m, rng)]))
        ids = worth
        # Per sample: a device with little data is not a fast one.
        sample_s = epoch_s(view)[ids] / view.data_size[ids]
        fast = np.argsort(sample_s, kind="stable")[: max(m, math.ceil(self._fast_share * len(ids)))]
        pool = ids[fast[draw_weighted(rng, log_of(view.data_size[ids[fast]]), 3 * m)]]
        return np.sort(pool[self._grown(view, pool, np.zeros(len(pool)), m)])

    def _picks(self, view: ServerView, candidates: Ids, rank: NDArray[np.float32], k: int) -> Ids:
        # By place and not by value: how far apart two ranks are has no meaning beside a divergence.
        place = np.argsort(np.argsort(-rank, kind="stable"), kind="stable") / max(1, len(rank) - 1)
        return self._grown(view, candidates, place, k)

    def _grown(self, view: ServerView, devices: Ids, penalty: NDArray[np.float64], count: int) -> Ids:
        """Positions of ``count`` devices, each the best addition to those before it."""
        shares = label_shares(view.bias_delta[devices])
        classes = shares.shape[1]
        left = penalty.astype(np.float64).copy()
        total = np.zeros(classes)
        grown = np.empty(count, np.int64)
        for i in range(count):
            # In units of the worst possible imbalance, one class alone.
            imbalance = divergence((total + shares) / (i + 1), classes) / math.log(max(2, classes))
            grown[i] = best = int(np.argmin(self._coverage * imbalance + left))
            total += shares[best]
            left[best] = np.inf
        return grown


def _rest(ids: Ids, taken: Ids, m: int, rng: np.random.Generator) -> Ids:
    """Devices that are not worth asking, where the others are too few."""
    return draw_uniform(rng, np.setdiff1d(ids, taken, assume_unique=True), m - len(taken))
