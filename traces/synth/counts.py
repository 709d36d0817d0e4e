"""What the fit needs of the spells: time spent in and departures from each state, by person and hour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.model import BLOCKS, HOURS
from traces.synth.spells import Spells, cut_at_hours, day_type

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Sufficient statistics of people.

    Attributes:
        spent_h: Hours spent: person x state x kind of day x hour.
        left: Departures, likewise.
        went_to: Departures: person x state x part of the day x next state.
        at_midnight: How often each state was seen at midnight: person x state.
    """

    spent_h: Array
    left: Array
    went_to: Array
    at_midnight: Array

    def of_units(self, wanted: NDArray[np.int64]) -> Counts:
        """The statistics of some people."""
        return Counts(
            self.spent_h[wanted], self.left[wanted], self.went_to[wanted], self.at_midnight[wanted]
        )

    @property
    def units(self) -> int:
        """How many people."""
        return len(self.spent_h)


def count(spells: Spells) -> Counts:
    """Count time and departures."""
    states = 2**spells.channels
    shape = (spells.units, states, 2, HOURS)
    spell, hour, spent = cut_at_hours(spells)
    place = (spells.unit[spell], spells.state[spell], day_type(hour), hour % HOURS)
    spent_h = _tally(shape, place, spent)
    gone = np.flatnonzero(spells.next_state >= 0)
    gone_hour = np.floor(spells.end_h[gone]).astype(np.int64)
    who, state = spells.unit[gone], spells.state[gone]
    left = _tally(shape, (who, state, day_type(gone_hour), gone_hour % HOURS))
    block = gone_hour % HOURS // (HOURS // BLOCKS)
    went_to = _tally((spells.units, states, BLOCKS, states), (who, state, block, spells.next_state[gone]))
    # The piece in the first hour of a day tells the state at midnight where the spell was there at 0:00.
    midnight = (hour % HOURS == 0) & (spells.start_h[spell] <= hour)
    at_midnight = _tally((spells.units, states), (spells.unit[spell][midnight], spells.state[spell][midnight]))
    return Counts(spent_h, left, went_to, at_midnight)


def _tally(
    shape: tuple[int, ...], place: tuple[NDArray[np.int64], ...], amount: Array | None = None
) -> Array:
    flat = np.ravel_multi_index(place, shape)
    return np.bincount(flat, weights=amount, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
