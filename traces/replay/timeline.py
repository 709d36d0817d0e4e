"""From traces to step functions: at which moments anything changes, and what holds from then on.

Users are laid end to end on one long time axis, so that a block of any number of them is merged by a handful
of array operations. This is the only place that gives the channels of a trace their meaning (`traces.model`);
a single trace is a block of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.intervals import contains, position, sorted_once, union
from traces.model import FACTS, InteractionTrace, Intervals
from traces.replay import flags as packed
from traces.replay.intensity import IntensityTable

NO_APP = -1
"""No app was in the foreground."""
UNKNOWN_APP = -2
"""Which app was in the foreground, if any, was not observed."""

# Times on the common axis must fit 63 bits: 2**62 ns are 146 user-years.
MAX_BLOCK_NS = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class AppTable:
    """Every app of a block, once: its name, its category and the intensities of the table."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]


class AppIndex:
    """Gives every app one number, across any number of traces."""

    def __init__(self, table: IntensityTable) -> None:
        self.table = table
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, name: str, given_category: str) -> int:
        """The number of an app; apps of one name in different categories are different apps."""
        key = (name, self.table.category_of(name, given_category))
        return self._numbers.setdefault(key, len(self._numbers))

    def apps(self) -> AppTable:
        """All apps so far, by number."""
        rows = [self.table.row(name, category) for name, category in self._numbers]
        return AppTable(
            names=tuple(name for name, _ in self._numbers),
            categories=tuple(category for _, category in self._numbers),
            cpu=np.array([row.cpu for row in rows], np.float32),
            memory=np.array([row.memory for row in rows], np.float32),
        )


class TimeAxis:
    """The users of a block, end to end; each one's span is followed by one free nanosecond."""

    def __init__(self, traces: Sequence[InteractionTrace]) -> None:
        self.traces = traces
        self.start_ns = np.array([trace.start_ns for trace in traces], np.int64)
        self.span_ns = np.array([trace.span_ns for trace in traces], np.int64)
        reach = np.cumsum(self.span_ns + 1)
        self.base_ns = reach - (self.span_ns + 1)
        self.end_ns = self.base_ns + self.span_ns

    def place(self, parts: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64]:
        """Times on the axis, given one array per user; None counts as no times."""
        none = np.empty(0, np.int64)
        arrays = [none if part is None else part for part in parts]
        counts = [len(array) for array in arrays]
        return np.concatenate(arrays) + np.repeat(self.base_ns - self.start_ns, counts)

    def intervals(self, of: Callable[[InteractionTrace], Intervals | None]) -> Intervals:
        """Intervals of all users on the axis."""
        found = [of(trace) for trace in self.traces]
        start = self.place([None if part is None else part.start_ns for part in found])
        end = self.place([None if part is None else part.end_ns for part in found])
        return Intervals(start, end)

    def offsets(self, t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each user's part of sorted times begins, and the total."""
        return np.append(np.searchsorted(t_ns, self.base_ns), len(t_ns))


@dataclass(frozen=True, slots=True, eq=False)
class StateBlock:
    """What holds from each moment on; the arrays go side by side.

    Attributes:
        offset: First step of each user, and the total.
        t_ns: Begin of each step since the start of the user's recording.
        flags: Facts and network, packed (`traces.replay.flags`).
        app: Number of the foreground app, `NO_APP` or `UNKNOWN_APP`.
        cpu: CPU intensity, NaN where unknown.
        memory: Memory intensity, NaN where unknown.
    """

    offset: NDArray[np.int64]
    t_ns: NDArray[np.int64]
    flags: NDArray[np.uint16]
    app: NDArray[np.int32]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]


def state_block(axis: TimeAxis, apps: AppIndex) -> StateBlock:
    """The state of every user of a block at every moment it changes."""
    channels = _Channels(axis)
    edges = [axis.base_ns, axis.end_ns]
    edges += [part for intervals in channels.all() for part in (intervals.start_ns, intervals.end_ns)]
    t = sorted_once(np.concatenate(edges))
    flags = channels.flags(t)
    app, cpu, memory = _foreground(axis, channels, apps, flags, t)
    # Keep the first and last step of every user, and in between those that change something.
    keep = np.zeros(len(t), bool)
    keep[np.searchsorted(t, axis.base_ns)] = True
    keep[np.searchsorted(t, axis.end_ns)] = True
    for values in (flags, app, cpu.view(np.uint32), memory.view(np.uint32)):
        keep[1:] |= values[1:] != values[:-1]
    t = t[keep]
    offset = axis.offsets(t)
    local = t - np.repeat(axis.base_ns, np.diff(offset))
    return StateBlock(offset, local, flags[keep], app[keep], cpu[keep], memory[keep])


class _Channels:
    """The channels of a block on its axis."""

    def __init__(self, axis: TimeAxis) -> None:
        self.covered = axis.intervals(lambda trace: trace.covered)
        self.on = {name: axis.intervals(_on(name)) for name in FACTS}
        self.known = {name: axis.intervals(_known(name)) for name in (*FACTS, "apps")}
        self.apps = axis.intervals(_spans("apps"))
        self.network = axis.intervals(_spans("network"))
        kinds = [trace.network.kind for trace in axis.traces if trace.network is not None]
        self.kind: NDArray[np.int8] = np.concatenate([*kinds, np.array([-1], np.int8)])

    def all(self) -> list[Intervals]:
        return [self.covered, *self.on.values(), *self.known.values(), self.apps, self.network]

    def flags(self, t: NDArray[np.int64]) -> NDArray[np.uint16]:
        flags = packed.pack_covered(contains(self.covered, t))
        for name in FACTS:
            flags |= packed.pack_fact(name, contains(self.on[name], t), contains(self.known[name], t))
        flags |= packed.pack_fact("app", contains(self.apps, t), contains(self.known["apps"], t))
        flags |= packed.pack_network(self.kind.take(position(self.network, t)))  # -1 takes the last: unknown
        return flags


def _on(name: str) -> Callable[[InteractionTrace], Intervals | None]:
    return lambda trace: None if (fact := getattr(trace, name)) is None else fact.on


def _spans(name: str) -> Callable[[InteractionTrace], Intervals | None]:
    return lambda trace: None if (spans := getattr(trace, name)) is None else spans.intervals


def _known(name: str) -> Callable[[InteractionTrace], Intervals | None]:
    return lambda trace: None if (channel := getattr(trace, name)) is None else trace.known(channel)


def _foreground(
    axis: TimeAxis, channels: _Channels, apps: AppIndex, flags: NDArray[np.uint16], t: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """App, CPU and memory intensity at each time.

    The intensity is that of the foreground app (measured, else from the table) and nothing without one. Where
    the app was not observed, the screen decides: on is the table's row for it, off is nothing, else unknown.
    """
    numbers = [_numbers(trace, apps) for trace in axis.traces]
    session_app = np.concatenate([*numbers, np.array([UNKNOWN_APP], np.int32)])
    session = position(channels.apps, t)
    app = session_app.take(session)
    app[(session < 0) & (packed.fact(flags, "app") == 0)] = NO_APP
    table = apps.apps()
    unobserved = app == UNKNOWN_APP
    screen = packed.fact(flags, "screen")
    result = []
    for name, of_screen in (("cpu", apps.table.screen_on.cpu), ("memory", apps.table.screen_on.memory)):
        measured = _measured(axis, name).take(session)
        of_app = np.append(getattr(table, name), np.float32(0.0))  # NO_APP, -1, takes the last: nothing
        value = of_app.take(np.maximum(app, NO_APP))
        value = np.where(np.isnan(measured), value, measured)
        value[unobserved] = np.array([np.nan, 0.0, of_screen], np.float32)[screen[unobserved] + 1]
        result.append(value)
    return app, result[0], result[1]


def _numbers(trace: InteractionTrace, apps: AppIndex) -> NDArray[np.int32]:
    if trace.apps is None:
        return np.empty(0, np.int32)
    categories = trace.apps.categories or ("",) * len(trace.apps.names)
    numbers = [apps.number(*pair) for pair in zip(trace.apps.names, categories, strict=True)]
    return np.array(numbers, np.int32)[trace.apps.app] if numbers else np.empty(0, np.int32)


def _measured(axis: TimeAxis, name: str) -> NDArray[np.float32]:
    """Measured intensity per session, and one NaN at the end for "no session"."""
    parts: list[NDArray[Any]] = []
    for trace in axis.traces:
        if trace.apps is not None:
            share = getattr(trace.apps, name)
            parts.append(np.full(len(trace.apps), np.nan) if share is None else share)
    return np.concatenate([*parts, [np.nan]]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ReadingBlock:
    """Readings of every user with the moments from which on there is none.

    Attributes:
        offset: First step of each user, and the total.
        t_ns: Begin of each step since the start of the user's recording.
        reading: Index of the reading (counted through the block), -1 where there is none.
    """

    offset: NDArray[np.int64]
    t_ns: NDArray[np.int64]
    reading: NDArray[np.int64]


def reading_block(axis: TimeAxis, times: Sequence[NDArray[np.int64] | None]) -> ReadingBlock:
    """Each reading holds until the next one or until the coverage around it ends."""
    t = axis.place(times)
    covered = union(axis.intervals(lambda trace: trace.covered))
    stretch = position(covered, t)
    # A reading outside the coverage says something about no time at all.
    used = np.flatnonzero(stretch >= 0)
    ends = covered.end_ns[sorted_once(stretch[used])]
    marks = np.concatenate([axis.base_ns, ends, axis.end_ns])
    times_all = np.concatenate([marks, t[used]])
    reading = np.concatenate([np.full(len(marks), -1), used])
    # At equal times the later entry counts: a reading beats a mark.
    order = np.argsort(times_all, kind="stable")
    sorted_t = times_all[order]
    last = np.append(sorted_t[1:] != sorted_t[:-1], True)
    sorted_t, reading = sorted_t[last], reading[order][last]
    offset = axis.offsets(sorted_t)
    return ReadingBlock(offset, sorted_t - np.repeat(axis.base_ns, np.diff(offset)), reading)
