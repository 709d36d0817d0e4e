"""How the chance to leave a state depends on the readings spent in it, for sources read at fixed times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.fit.classes import curve
from traces.synth.fit.periods import Counts, Periods, count, day_type, sum_at
from traces.synth.model import HOURS

Array = NDArray[np.float64]
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
