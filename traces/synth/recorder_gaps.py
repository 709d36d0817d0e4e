"""Looking at generated people the way a recorder looked at real ones: with its gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traces.synth.draw.process import Changes
from traces.synth.fit.periods import Periods
from traces.synth.model import WEEK_H

Array = NDArray[np.float64]
_PERSON_H = 1e5  # more hours than anybody is generated for


def windows_of(periods: Periods) -> list[tuple[Array, Array]]:
    """Per unit, begin and end of the stretches in which it was watched without a gap."""
    found = []
    for unit in range(periods.units):
        mine = periods.unit == unit
        start, end = periods.start_h[mine], periods.end_h[mine]
        first = np.append(True, start[1:] > end[:-1])
        found.append((start[first], end[np.append(first[1:], True)]))
    return found


def joined(channels: Sequence[Changes]) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    """Person, begin (hours since Monday 0:00; the day before is there, too) and joint state of channels."""
    person = np.concatenate([part.person for part in channels])
    start_h = np.concatenate([part.start_h for part in channels]) - WEEK_H
    order = np.lexsort((start_h, person))
    person, start_h = person[order], start_h[order]
    state = np.zeros(len(person), np.int64)
    for bit, part in enumerate(channels):
        latest = (
            np.searchsorted(_key(part.person, part.start_h - WEEK_H), _key(person, start_h), side="right") - 1
        )
        state |= part.on[latest].astype(np.int64) << bit
    return person, start_h, state


def _key(person: NDArray[np.int64], t_h: Array) -> Array:
    return np.asarray(person * _PERSON_H + t_h)


def seen_through(channels: Sequence[Changes], windows: list[tuple[Array, Array]]) -> Periods:
    """What would be on record of person ``i``, watched in the stretches ``windows[i]`` only.

    Args:
        channels: Of as many people as there are windows.
        windows: Begin and end of the stretches that are watched, hours since Monday 0:00.
    """
    person, start_h, state = joined(channels)
    bound = np.searchsorted(person, np.arange(len(windows) + 1))
    parts = []
    for unit, stretches in enumerate(windows):
        mine = slice(bound[unit], bound[unit + 1])
        for begin, end in zip(*stretches, strict=True):
            seen = _in_window(start_h[mine], state[mine], begin, end)
            parts.append((np.full(len(seen[0]), unit), *seen))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Periods.of_columns(columns, len(windows), len(channels))


def _in_window(
    start: Array, state: NDArray[np.int64], begin_h: float, end_h: float
) -> tuple[NDArray[np.generic], ...]:
    """State, begin, end, whether begun in sight, next state."""
    first = int(np.searchsorted(start, begin_h, side="right")) - 1
    last = int(np.searchsorted(start, end_h, side="left"))
    inside, states = np.maximum(start[first:last], begin_h), state[first:last]
    changed = np.append(True, states[1:] != states[:-1])
    inside, states = inside[changed], states[changed]
    until = np.append(inside[1:], end_h)
    begun = np.append(False, np.ones(len(states) - 1, bool))
    return states, inside, until, begun, np.append(states[1:], -1)
