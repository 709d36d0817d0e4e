"""How leaving a state depends on the time spent in it.

Of changes that were seen: the distribution of the periods on a clock of the fitted rates. Of sources read at
fixed times: by which factor the chance to leave differs with the readings spent in the state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.fit.classes import curve
from traces.synth.fit.periods import Counts, Periods, count, cut_at_hours, day_type, sum_at
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


Indices = NDArray[np.int64]
FACTOR_PRIOR = 4.0
"""Departures that the prior "the time spent does not matter" is worth."""

# Readings spent in a state are told apart one by one at first, later six by six, from the 96th on no more.
_FIRST = np.array([*range(12), *range(12, 97, 6)])


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Every reading of every period: at which of them the state was found left."""

    unit: Indices
    state: Indices
    spent: Indices
    hour: Indices
    left: NDArray[np.bool_]
    begun: NDArray[np.bool_]


def _steps(own: Periods, step_h: float) -> _Steps:
    readings = np.maximum(np.rint(own.length_h / step_h).astype(np.int64), 1)
    period = np.repeat(np.arange(len(own)), readings)
    spent = np.arange(len(period)) - np.repeat(np.cumsum(readings) - readings, readings)
    hour = np.floor(own.start_h[period] + spent * step_h).astype(np.int64)
    left = (spent == readings[period] - 1) & (own.next_state[period] >= 0)
    return _Steps(own.unit[period], own.state[period], spent, hour, left, own.begun[period])


def grid_counts(own: Periods, step_h: float) -> Counts:
    """Time and departures as `counts.count` has them, with the time weighted by the factor of the time spent.

    With that weight departures are as irregular as chance makes them, and the rates are those of a state in
    which the time spent did not matter. Where the begin of a period was not seen, the weight is 1.
    """
    steps = _steps(own, step_h)
    place = (steps.unit, steps.state, day_type(steps.hour), steps.hour % HOURS)
    left = sum_at((own.units, 2, 2, HOURS), place, steps.left.astype(float))
    spent_h = sum_at((own.units, 2, 2, HOURS), place, np.full(len(steps.unit), step_h))
    common = curve(left.sum(axis=(0, 2)), spent_h.sum(axis=(0, 2)))
    off, on = step_factors(own, np.broadcast_to(common[:, None, :], spent_h.shape), step_h)
    weight = np.where(
        steps.begun, np.array([off, on])[steps.state, np.minimum(steps.spent, len(on) - 1)], 1.0
    )
    at_midnight = count(own, np.ones(2)).at_midnight
    return Counts(sum_at((own.units, 2, 2, HOURS), place, step_h * weight), left, at_midnight)


def step_factors(own: Periods, rate: Array, step_h: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For off and for on: departures over those that the rate of the hour leads to expect.

    These are proportional hazards (Cox, 1972) in discrete time.

    Args:
        own: Periods of one channel.
        rate: Departures per hour: person x state x kind of day x hour.
        step_h: How far apart the readings are.
    """
    steps = _steps(own, step_h)
    expected = rate[steps.unit, steps.state, day_type(steps.hour), steps.hour % HOURS] * step_h
    place = np.searchsorted(_FIRST, steps.spent, side="right") - 1
    off, on = (
        _factors(place[chosen], steps.left[chosen], expected[chosen])
        for chosen in (steps.begun & (steps.state == state) for state in range(2))
    )
    return off, on


def _factors(place: NDArray[np.int64], left: NDArray[np.bool_], expected: Array) -> tuple[float, ...]:
    """One per reading spent, up to the last that is told apart."""
    found = np.bincount(place, weights=left, minlength=len(_FIRST)) + FACTOR_PRIOR
    factor = found / (np.bincount(place, weights=expected, minlength=len(_FIRST)) + FACTOR_PRIOR)
    return tuple(float(f"{value:.4g}") for value in np.repeat(factor, np.diff(_FIRST, append=_FIRST[-1] + 1)))
