"""Generated people, a block at a time: every channel of a trace as flat arrays.

Person ``i`` depends on the model, the seed and the days only: blocks are always drawn whole, from streams
that carry the number of the block, and cut to the people wanted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedjoule.seeds import generator
from traces.model import Intervals
from traces.synth.apps import draw_apps
from traces.synth.battery import BatteryDrawing, Readings
from traces.synth.model import UsageModel
from traces.synth.process import Changes, ProcessSampler
from traces.synth.spells import WEEK_H

BLOCK_PEOPLE = 4096
MS_PER_H = 3_600_000
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
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

    def where(self, chosen: NDArray[np.bool_]) -> Stretches:
        """Some of them."""
        return Stretches(self.person[chosen], self.start_ms[chosen], self.end_ms[chosen], self.on[chosen])

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
    channels: dict[str, Stretches]
    app: NDArray[np.int8] | None
    battery: Readings | None


def draw_people(model: UsageModel, users: int, days: int, seed: int) -> Iterator[PeopleBlock]:
    """Everybody, a block at a time."""
    samplers = [ProcessSampler(process) for process in model.processes]
    for first in range(0, users, BLOCK_PEOPLE):
        yield _block(model, samplers, first, min(users - first, BLOCK_PEOPLE), days, seed)


def _block(
    model: UsageModel, samplers: list[ProcessSampler], first: int, people: int, days: int, seed: int
) -> PeopleBlock:
    number = first // BLOCK_PEOPLE
    drawn: dict[str, Changes] = {}
    for sampler in samplers:
        process = sampler.process
        rng = generator(seed, "synthetic traces", process.channel, number)
        given = drawn[process.given] if process.given is not None else None
        drawn[process.channel] = sampler.draw(BLOCK_PEOPLE, 24.0 * days, rng, given)
    span_ms = days * 24 * MS_PER_H
    channels = {name: _stretches(changes, people, span_ms) for name, changes in drawn.items()}
    app, battery = None, None
    if model.apps is not None:
        screen = channels["screen"]
        rng = generator(seed, "synthetic traces", "apps", number)
        app = draw_apps(model.apps, screen.person[screen.on], BLOCK_PEOPLE, rng)
    if model.battery is not None:
        rng = generator(seed, "synthetic traces", "battery", number)
        drawing = BatteryDrawing(model.battery, BLOCK_PEOPLE, rng)
        battery = drawing.readings(people, span_ms, channels["plugged"], channels.get("screen"))
    return PeopleBlock(first, people, span_ms, channels, app, battery)


def _stretches(changes: Changes, people: int, span_ms: int) -> Stretches:
    """Without the lead-in, cut to the span and to the people wanted, in whole milliseconds."""
    wanted = slice(0, int(np.searchsorted(changes.person, people)))
    person, on = changes.person[wanted], changes.on[wanted]
    start = np.rint((changes.start_h[wanted] - WEEK_H) * MS_PER_H)
    start = np.clip(start, 0, span_ms).astype(np.int64)
    # Everybody's last stretch reaches the end of the span; each other one, the begin of the next.
    end = np.append(start[1:], span_ms)
    end[:-1][person[1:] != person[:-1]] = span_ms
    # A stretch of less than half a millisecond vanishes; its neighbours then touch.
    keep = np.flatnonzero(end > start)
    return Stretches(person[keep], start[keep], end[keep], on[keep])
