"""What the fit needs of the spells: time spent in and departures from each state, by person and hour."""

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


def count(spells: Periods, dispersion: Array) -> Counts:
    """Count time and departures, in effective numbers: each state's divided by its dispersion."""
    shape = (spells.units, 2**spells.channels, 2, HOURS)
    spell, hour, spent = cut_at_hours(spells)
    place = (spells.unit[spell], spells.state[spell], day_type(hour), hour % HOURS)
    spent_h = sum_at(shape, place, spent)
    gone = np.flatnonzero((spells.next_state >= 0) & ((spells.next_state ^ spells.state) & 1 == 1))
    # A spell that ends on the hour was left in the hour before: that is where its time was spent.
    gone_hour = np.ceil(spells.end_h[gone]).astype(np.int64) - 1
    left = sum_at(shape, (spells.unit[gone], spells.state[gone], day_type(gone_hour), gone_hour % HOURS))
    # The piece in the first hour of a day tells the state at midnight where the spell was there at 0:00.
    midnight = (hour % HOURS == 0) & (spells.start_h[spell] <= hour)
    at_midnight = sum_at(shape[:2], (spells.unit[spell][midnight], spells.state[spell][midnight]))
    scale = np.tile(dispersion, spells.regimes)[:, None, None]
    return Counts(spent_h / scale, left / scale, at_midnight)


def sum_at(
    shape: tuple[int, ...], place: tuple[NDArray[np.int64], ...], amount: Array | None = None
) -> Array:
    """The sum of the amounts (or how many there are) at each place of a table."""
    flat = np.ravel_multi_index(place, shape)
    return np.bincount(flat, weights=amount, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
