"""How irregularly a state is left: the distribution of its periods on a clock of the fitted rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.fit.periods import Periods, cut_at_hours, day_type
from traces.synth.model import BLOCKS, DWELL_LEVELS, HOURS

Array = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]
FEWEST_PERIODS = 30
"""Below this, a distribution is taken from more people, from the whole day, or from a constant rate."""

_LEVELS = np.array(DWELL_LEVELS)
_LAST = 2.0**-11
"""Where the open end of a tail is cut: half of what the last level but one leaves."""


def clock_amounts(periods: Periods, rate: Array) -> Array:
    """The amount of clock that each period lasted.

    Args:
        periods: Recorded.
        rate: Departures per hour: person x state x kind of day x hour.
    """
    period, hour, spent = cut_at_hours(periods)
    pace = rate[periods.unit[period], periods.state[period], day_type(hour), hour % HOURS]
    return summed(period, pace * spent, len(periods))


def summed(group: NDArray[np.int64], amount: Array, groups: int) -> Array:
    """The sum of the amounts of each group."""
    return np.asarray(np.bincount(group, weights=amount, minlength=groups), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class DwellAmounts:
    """How long periods of one state lasted, on their clock.

    Attributes:
        amount: How much.
        left: Whether it was left at all before the recording ended.
        part: Of the day, in which it began.
    """

    amount: Array
    left: NDArray[np.bool_]
    part: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_]) -> DwellAmounts:
        """Those of some periods."""
        return DwellAmounts(self.amount[chosen], self.left[chosen], self.part[chosen])


def dwell_quantiles(periods: DwellAmounts, fallback: Rows | None = None) -> Rows:
    """Quantiles at `DWELL_LEVELS` of the amounts, per part of the day, scaled to mean 1 over all.

    Args:
        periods: Those whose begin was seen.
        fallback: What is known of everybody, for a part of the day with too few periods.
    """
    rows, means = [], []
    for k in range(BLOCKS):
        mine = periods.part == k
        if np.count_nonzero(periods.left[mine]) < FEWEST_PERIODS:
            if fallback is not None:
                rows.append(np.array(fallback[k]))
                means.append(_mean(rows[-1]))
                continue
            mine = np.ones(len(mine), bool)
        rows.append(_quantiles(periods.amount[mine], periods.left[mine]))
        means.append(_mean(rows[-1]))
    begun = np.bincount(periods.part, minlength=BLOCKS) + 1.0
    mean = float(np.sum(begun * means) / begun.sum())
    return tuple(tuple(float(f"{value:.4g}") for value in row / mean) for row in rows)


def _quantiles(amount: Array, left: NDArray[np.bool_]) -> Array:
    """Quantiles of amounts of which some were cut short (Kaplan and Meier, 1958).

    What remains beyond the longest goes on at the rate of 1, the mean rate of the clock.
    """
    if np.count_nonzero(left) < FEWEST_PERIODS:
        return -np.log(np.maximum(1.0 - _LEVELS, _LAST))
    order = np.lexsort((~left, amount))
    amount, left = amount[order], left[order]
    at_risk = len(amount) - np.arange(len(amount))
    surviving = np.cumprod(np.where(left, 1.0 - 1.0 / at_risk, 1.0))
    times, reached = amount[left], 1.0 - surviving[left]
    # In the middle of each step, so that the quantiles are neither all too long nor all too short.
    quantile = np.interp(_LEVELS, (reached + np.append(0.0, reached[:-1])) / 2, times)
    rest = 1.0 - reached[-1]
    if rest > 0:
        beyond = reached[-1] < _LEVELS
        quantile[beyond] = times[-1] - np.log(np.maximum((1.0 - _LEVELS[beyond]) / rest, _LAST))
    return np.asarray(np.maximum.accumulate(quantile))


def _mean(quantile: Array) -> float:
    """When interpolated linearly between the levels, as drawing does."""
    return float(np.sum(np.diff(_LEVELS) * (quantile[1:] + quantile[:-1]) / 2))
