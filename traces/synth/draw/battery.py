"""Battery levels that follow from charging and screen time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces.intervals import sorted_once, time_before
from traces.synth.model import BatteryModel

if TYPE_CHECKING:
    from traces.synth.draw.people import ChannelStretches

MS_PER_H = 3_600_000
READING_MS = 2 * MS_PER_H
"""Readings come this often, and whenever a charger is connected or taken off."""
EMPTY = 0.01
"""The level stops here: the model does not know phones that switch themselves off."""

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BatteryReadings:
    """Battery levels of many people, sorted by person and time.

    Attributes:
        person: Whose.
        t_ms: When.
        level: 0 to 1.
    """

    person: Indices
    t_ms: Indices
    level: Array


class BatteryDrawing:
    """The batteries of a batch of people."""

    def __init__(self, model: BatteryModel, people: int, rng: np.random.Generator) -> None:
        self._model = model
        self._drain_per_h = _from_quantiles(model.drain_per_h, rng.random(people))
        self._fill_per_h = _from_quantiles(model.fill_per_h, rng.random(people))
        self._level = _from_quantiles(model.level_at_midnight, rng.random(people))

    def readings(
        self, who: slice, span_ms: int, plugged: ChannelStretches, screen: ChannelStretches | None
    ) -> BatteryReadings:
        """Levels of some of them, numbered from 0, at even times and at every change of the charger."""
        people = who.stop - who.start
        person, t_ms = _times(people, span_ms, plugged)
        first = np.searchsorted(person, np.arange(people))
        step_h = np.diff(t_ms, append=0) / MS_PER_H
        step_h[np.append(first[1:], len(t_ms)) - 1] = 0.0
        charger = plugged.where(plugged.on).one_behind_another(span_ms)
        at = person * span_ms + t_ms
        # A charger changes at readings only, so one that is on just after a reading is on until the next.
        charged = np.diff(time_before(charger, at), append=0) > 0
        on_h = np.zeros(len(at))
        share = np.zeros(people)
        if screen is not None:
            lit = time_before(screen.where(screen.on).one_behind_another(span_ms), at) / MS_PER_H
            on_h = np.where(step_h > 0, np.diff(lit, append=lit[-1:]), 0.0)
            share = np.bincount(person, weights=on_h, minlength=people) / (span_ms / MS_PER_H)
        more = self._model.screen_factor - 1.0
        drain_per_h = np.minimum(self._drain_per_h[who], 1.0 / _longest_off_h(people, plugged))
        # The mean drain is given; with the screen off it is so much less that the mean comes out right.
        dark_per_h = drain_per_h / (1.0 + more * share)
        change = np.where(
            charged, self._fill_per_h[who][person] * step_h, -dark_per_h[person] * (step_h + more * on_h)
        )
        return BatteryReadings(person, t_ms, _levels(self._level[who], first, change))


def _levels(now: Array, first: Indices, change: Array) -> Array:
    """Add up the changes, everybody at once, between empty and full.

    Args:
        now: The level of each person at the begin.
        first: The first reading of each person.
        change: From each reading to the next.
    """
    level = np.empty(len(change))
    end = np.append(first[1:], len(change))
    at, now = first.copy(), now.copy()
    going = np.arange(len(first))
    while len(going):
        level[at[going]] = now[going]
        now[going] = np.clip(now[going] + change[at[going]], EMPTY, 1.0)
        at[going] += 1
        going = going[at[going] < end[going]]
    return np.round(level, 5)


def _longest_off_h(people: int, plugged: ChannelStretches) -> Array:
    """Longest time that each person spends off the charger.

    A full battery outlasts it: chargers are drawn without regard to the level, but people who stay away from
    one for long do not do so with a phone that is empty by then.
    """
    off = plugged.where(~plugged.on)
    longest = np.ones(people)
    np.maximum.at(longest, off.person, (off.end_ms - off.start_ms) / MS_PER_H)
    return longest


def _times(people: int, span_ms: int, plugged: ChannelStretches) -> tuple[Indices, Indices]:
    even = np.arange(0, span_ms + 1, READING_MS)
    if even[-1] != span_ms:
        even = np.append(even, span_ms)
    at = np.concatenate(
        [
            np.repeat(np.arange(people), len(even)) * (span_ms + 1) + np.tile(even, people),
            plugged.person * (span_ms + 1) + plugged.start_ms,
        ]
    )
    at = sorted_once(at)
    return at // (span_ms + 1), at % (span_ms + 1)


def _from_quantiles(quantiles: tuple[float, ...], u: Array) -> Array:
    return np.interp(u, np.linspace(0.0, 1.0, len(quantiles)), quantiles)
