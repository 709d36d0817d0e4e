"""Cohorts that balance labels, and the pool of fast devices that they are grown from.

Shared by FedRank+ and its control without probes, so that they differ in nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids, ServerView
from emulator.selectors.harmony_like import divergence
from emulator.selectors.parts.draws import draw_uniform, draw_weighted, log_of
from emulator.selectors.parts.estimates import epoch_s, label_shares, worth_asking


@dataclass(frozen=True, slots=True)
class FastAndBalanced:
    """The candidate rule of FedRank+.

    Attributes:
        factor: Candidates per device wanted.
        fast_share: Share of the eligible devices, fastest first, that candidates come from.
    """

    factor: float
    fast_share: float

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """The best balanced of a random pool of devices that are fast enough, in proportion to their data.

        Args:
            view: What the server knows.
            m: The most.
            rng: Draws the pool.
        """
        ids = view.eligible_ids
        m = min(m, math.ceil(self.factor * view.k), len(ids))
        worth = ids[worth_asking(view, ids, rng)]
        if m >= len(worth):
            return ids if m == len(ids) else np.sort(np.concatenate([worth, others(ids, worth, m, rng)]))
        # Per sample: a device with little data is not a fast one.
        sample_s = epoch_s(view)[worth] / view.data_size[worth]
        fast = np.argsort(sample_s, kind="stable")[: max(m, math.ceil(self.fast_share * len(worth)))]
        pool = worth[fast[draw_weighted(rng, log_of(view.data_size[worth[fast]]), 3 * m)]]
        return np.sort(pool[grown(label_shares(view.bias_delta[pool]), np.zeros(len(pool)), m)])


def grown(
    shares: NDArray[np.float64], penalty: NDArray[np.float64], count: int, *, coverage: float = 1.0
) -> Ids:
    """Positions of ``count`` devices, each the best addition to those before it.

    Args:
        shares: Label shares of each device.
        penalty: What else speaks against each.
        count: How many, of at least as many.
        coverage: Weight of the imbalance: the Kullback-Leibler divergence of the cohort's mean shares from
            uniform ones, in units of the worst possible, one class alone.
    """
    classes = shares.shape[1]
    left = penalty.astype(np.float64).copy()
    total = np.zeros(classes)
    found = np.empty(count, np.int64)
    for i in range(count):
        imbalance = divergence((total + shares) / (i + 1), classes) / math.log(max(2, classes))
        found[i] = best = int(np.argmin(coverage * imbalance + left))
        total += shares[best]
        left[best] = np.inf
    return found


def others(ids: Ids, taken: Ids, m: int, rng: np.random.Generator) -> Ids:
    """Devices that are not worth asking, as many as ``m`` lacks beside those taken."""
    return draw_uniform(rng, np.setdiff1d(ids, taken, assume_unique=True), m - len(taken))
