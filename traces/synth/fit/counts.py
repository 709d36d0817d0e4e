"""What the fit needs of the periods: time spent in and departures from each state, by person and hour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.fit.periods import Periods, cut_at_hours, day_type
from traces.synth.model import HOURS

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Statistics of people; a *case* is a regime and a state of channel 0: ``2 * regime + state``.

    Attributes:
        spent_h: Hours spent: person x case x kind of day x hour.
        left: Departures from the state, likewise.
        at_midnight: How often each case was seen at midnight: person x case.
    """

    spent_h: Array
    left: Array
    at_midnight: Array


def count(periods: Periods, dispersion: Array) -> Counts:
    """Count time and departures, in effective numbers: each state's divided by its dispersion."""
    shape = (periods.units, 2**periods.channels, 2, HOURS)
    period, hour, spent = cut_at_hours(periods)
    place = (periods.unit[period], periods.state[period], day_type(hour), hour % HOURS)
    spent_h = sum_at(shape, place, spent)
    gone = np.flatnonzero((periods.next_state >= 0) & ((periods.next_state ^ periods.state) & 1 == 1))
    # A period that ends on the hour was left in the hour before: that is where its time was spent.
    gone_hour = np.ceil(periods.end_h[gone]).astype(np.int64) - 1
    left = sum_at(shape, (periods.unit[gone], periods.state[gone], day_type(gone_hour), gone_hour % HOURS))
    # The piece in the first hour of a day shows the state at midnight where the period was there at 0:00.
    midnight = (hour % HOURS == 0) & (periods.start_h[period] <= hour)
    at_midnight = sum_at(shape[:2], (periods.unit[period][midnight], periods.state[period][midnight]))
    scale = np.tile(dispersion, periods.regimes)[:, None, None]
    return Counts(spent_h / scale, left / scale, at_midnight)


def sum_at(
    shape: tuple[int, ...], place: tuple[NDArray[np.int64], ...], amount: Array | None = None
) -> Array:
    """The sum of the amounts (or how many there are) at each place of a table."""
    flat = np.ravel_multi_index(place, shape)
    return np.bincount(flat, weights=amount, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
