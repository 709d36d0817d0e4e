"""Paired statistics: permutation test, correction for many tests, effect size.

All of them work on per-seed values of two methods that ran on the same seeds (same partition, fleet, traces,
initial weights), so most of the noise between seeds cancels in the differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulefleet.seeds import generator

Values = NDArray[np.float64]

EXACT_PAIRS = 14
"""Up to so many pairs every sign change is tried, so the p-value is exact."""
RESAMPLES = 1 << EXACT_PAIRS
"""Random sign changes beyond that."""

INTERVAL_NOTE = (
    "[95 %]: Student's t interval of the mean over seeds, on the logit scale for accuracies, on the "
    "logarithmic scale for times, energies, counts and ratios, linear for differences; it covers 95 % if "
    "seeds vary normally, 93 to 94 % (differences 88 to 90 %, three to ten seeds) if they vary as skewedly "
    "as an exponential distribution; fewer than three seeds are shown themselves: (11.9 and 12.7)"
)
"""For legends; the numbers are those of tests/emulator/compare/test_statistics.py."""


def permutation_p(differences: Values) -> float:
    """Two-sided p-value of a paired test: were the signs of the differences random?

    Exact for few pairs; otherwise by random signs, counting the observed ones too, so it is never 0.
    """
    from scipy.stats import permutation_test

    known = differences[~np.isnan(differences)]
    if len(known) < 2 or not known.any():
        return 1.0
    total = np.abs(known).sum()

    def statistic(values: Values, axis: int) -> Values:
        # Rounded: sums that are equal on paper have to tie, whatever the order of their parts.
        return np.asarray(np.round(values.sum(axis=axis) / total, 12))

    found = permutation_test(
        (known,),
        statistic,
        permutation_type="samples",  # of a single sample: every pair may change its sign
        n_resamples=RESAMPLES,
        random_state=generator(0, "permutation", len(known)),
    )
    return float(found.pvalue)


def smallest_p(pairs: int, tests: int) -> float:
    """What `permutation_p` of so many pairs, then `holm` over so many tests, cannot go below."""
    alone = 2 / 2**pairs if pairs <= EXACT_PAIRS else 2 / (RESAMPLES + 1)  # both tails count
    return min(1.0, tests * alone)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979), in the order given."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return [float(p) for p in corrected]


def cliffs_delta(a: Values, b: Values) -> float:
    """P(a > b) - P(a < b) over all pairs of values: from -1 to 1, 0 for no difference."""
    if len(a) == 0 or len(b) == 0:
        return float("nan")
    return float(np.sign(a[:, None] - b[None, :]).mean())


def interquartile_mean(values: Values) -> float:
    """Mean of the middle half, with the two values at its edges counted in part (Agarwal et al. 2021)."""
    if len(values) == 0:
        return float("nan")
    ordered = np.sort(values)
    cut = len(ordered) / 4
    edges = np.arange(len(ordered))
    share = np.clip(edges + 1 - cut, 0, 1) * np.clip(len(ordered) - cut - edges, 0, 1)
    return float((share * ordered).sum() / share.sum())
