"""Generated people, a block at a time: every channel of a trace as flat arrays.

Person ``i`` depends on the model, the seed and the days only: chance is drawn for whole batches of people,
from streams that carry the number of the batch, however many of them are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from joulefleet.seeds import generator
from traces.model import Intervals
from traces.synth.draw.battery import BatteryDrawing, BatteryReadings
from traces.synth.draw.process import DrawnPeriods, Sampler, sampler_of
from traces.synth.model import WEEK_H, AppMix, UsageModel

BATCH_PEOPLE = 8192
"""Drawn together for a week, which makes long arrays of the many small steps of a walk."""
FEWEST_IN_BATCH = 16
BLOCK_PEOPLE = 512
"""Handed out together for a week: what is worked out about them stays small."""
MS_PER_H = 3_600_000
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ChannelStretches:
    """Times of many people, sorted by person and time, in whole milliseconds from Monday 0:00 on.

    Attributes:
        person: Whose.
        start_ms: From when.
        end_ms: Until when.
        on: Whether the channel is on.
    """

    person: Indices
    start_ms: Indices
    end_ms: Indices
    on: NDArray[np.bool_]

    def where(self, chosen: NDArray[np.bool_]) -> ChannelStretches:
        """Some of them."""
        return ChannelStretches(
            self.person[chosen], self.start_ms[chosen], self.end_ms[chosen], self.on[chosen]
        )

    def one_behind_another(self, span_ms: int) -> Intervals:
        """The stretches on one axis on which each person has a span of time."""
        base = self.person * span_ms
        return Intervals(self.start_ms + base, self.end_ms + base)


@dataclass(frozen=True, slots=True, eq=False)
class PeopleBlock:
    """Some generated people.

    Attributes:
        first: Number of the first.
        people: How many.
        span_ms: For how long.
        channels: Stretches per channel, off ones too.
        app: Category number per screen-on stretch, if the model has apps.
        battery: Readings, if the model has a battery.
    """

    first: int
    people: int
    span_ms: int
    channels: dict[str, ChannelStretches]
    app: NDArray[np.int8] | None
    battery: BatteryReadings | None


class AppDrawing:
    """The apps of a batch of people.

    Every person's popularities fall by one ratio from category to category, so that the number of the
    category is geometric, cut off at the last one.

    Args:
        mix: Of categories.
        people: How many there are in the batch.
        rng: Where chance comes from; a person's draws follow those of the persons before.
    """

    def __init__(self, mix: AppMix, people: int, rng: np.random.Generator) -> None:
        self._last = len(mix.categories)
        self._ratio = mix.ratio_low + (mix.ratio_high - mix.ratio_low) * rng.random(people)
        self._rng = rng

    def draw(self, who: slice, person: NDArray[np.int64]) -> NDArray[np.int8]:
        """The category of each session, by number.

        Args:
            who: The people who come next in the batch.
            person: Whose session, counted from the first of them; sorted.
        """
        own = self._ratio[who][person]
        u = self._rng.random(len(person)) * (1.0 - own**self._last)
        number = np.floor(np.log1p(-u) / np.log(own)).astype(np.int8)
        return np.asarray(np.minimum(number, np.int8(self._last - 1)))


def draw_people(model: UsageModel, users: int, days: int, seed: int) -> Iterator[PeopleBlock]:
    """Everybody, a block at a time."""
    samplers = [sampler_of(process) for process in model.processes]
    batch = max(_in_the_memory_of_a_week(BATCH_PEOPLE, days), FEWEST_IN_BATCH)
    for number, first in enumerate(range(0, users, batch)):
        chance = partial(_chance, seed, number)
        for block in _batch(model, samplers, min(users - first, batch), batch, days, chance):
            yield replace(block, first=first + block.first)


def _in_the_memory_of_a_week(people: int, days: int) -> int:
    """How many people take as much memory for longer as these do for a week."""
    return max(people * 7 // max(days, 7), 1)


def _chance(seed: int, batch_number: int, what: str) -> np.random.Generator:
    return generator(seed, "synthetic traces", what, batch_number)


def _batch(
    model: UsageModel,
    samplers: list[Sampler],
    people: int,
    batch: int,
    days: int,
    chance: Callable[[str], np.random.Generator],
) -> Iterator[PeopleBlock]:
    """The first ``people`` of a batch, numbered from 0."""
    drawn: dict[str, DrawnPeriods] = {}
    for sampler in samplers:
        process = sampler.process
        given = drawn[process.given] if process.given is not None else None
        drawn[process.channel] = sampler.draw(
            people, 24.0 * days, chance(process.channel), given, batch=batch
        )
    apps = AppDrawing(model.apps, batch, chance("apps")) if model.apps is not None else None
    batteries = BatteryDrawing(model.battery, batch, chance("battery")) if model.battery is not None else None
    span_ms = days * 24 * MS_PER_H
    size = _in_the_memory_of_a_week(BLOCK_PEOPLE, days)
    for begin in range(0, people, size):
        who = slice(begin, min(begin + size, people))
        channels = {name: _stretches(changes, who, span_ms) for name, changes in drawn.items()}
        screen = channels.get("screen")
        yield PeopleBlock(
            begin,
            who.stop - begin,
            span_ms,
            channels,
            apps.draw(who, screen.person[screen.on]) if apps is not None and screen is not None else None,
            batteries.readings(who, span_ms, channels["plugged"], screen) if batteries is not None else None,
        )


def _stretches(changes: DrawnPeriods, who: slice, span_ms: int) -> ChannelStretches:
    """Of some people, numbered from 0: without the lead-in, cut to the span, in whole milliseconds."""
    mine = slice(*np.searchsorted(changes.person, (who.start, who.stop)))
    person, on = changes.person[mine] - who.start, changes.on[mine]
    start = np.rint((changes.start_h[mine] - WEEK_H) * MS_PER_H)
    start = np.clip(start, 0, span_ms).astype(np.int64)
    # Everybody's last stretch reaches the end of the span; each other one, the begin of the next.
    end = np.append(start[1:], span_ms)
    end[:-1][person[1:] != person[:-1]] = span_ms
    # A stretch of less than half a millisecond vanishes; its neighbours then touch.
    keep = np.flatnonzero(end > start)
    return ChannelStretches(person[keep], start[keep], end[keep], on[keep])
