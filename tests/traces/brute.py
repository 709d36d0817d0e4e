"""Random traces, and answers about them worked out the slow way, straight from the model's definition."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from traces.model import (
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
    Throughput,
)
from traces.replay.intensity import IntensityTable, default_table

APPS = ("com.king.candy", "SpringBoard", "nobody.knows.it")


@st.composite
def intervals(draw: st.DrawFn, start: int, end: int, most: int = 4) -> Intervals:
    """Clean intervals in a range; they may touch."""
    edges = sorted(draw(st.lists(st.integers(start, end), max_size=2 * most)))
    if len(edges) % 2:
        edges.pop()
    pairs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    return Intervals([a for a, _ in pairs], [b for _, b in pairs])


@st.composite
def facts(draw: st.DrawFn, start: int, end: int) -> Fact | None:
    if not draw(st.booleans()):
        return None
    known = draw(st.none() | intervals(start, end, 2))
    return Fact(draw(intervals(start, end)), known)


@st.composite
def readings(draw: st.DrawFn, start: int, end: int) -> list[int]:
    return sorted(draw(st.sets(st.integers(start, end), max_size=5)))


@st.composite
def app_sessions(draw: st.DrawFn, start: int, end: int) -> AppSessions:
    spans = draw(intervals(start, end))
    n = len(spans)
    measured = draw(st.none() | st.lists(st.sampled_from([math.nan, 0.5]), min_size=n, max_size=n))
    return AppSessions(
        spans.start_ns,
        spans.end_ns,
        np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int32),
        APPS,
        categories=draw(st.sampled_from([(), ("", "game", "no-such-category")])),
        cpu=None if measured is None else np.array(measured, float),
        known=draw(st.none() | intervals(start, end, 2)),
    )


@st.composite
def traces(draw: st.DrawFn, user: str = "u", scale: int = 1) -> InteractionTrace:
    """A clean trace of at most 40 units; every time is a multiple of ``scale``."""
    start = draw(st.integers(-20, 20))
    end = start + draw(st.integers(1, 40))
    network = draw(st.none() | intervals(start, end))
    battery = draw(st.none() | readings(start, end))
    throughput = draw(st.none() | readings(start, end))
    trace = InteractionTrace(
        user,
        start,
        end,
        coverage=draw(st.none() | intervals(start, end, 3)),
        screen=draw(facts(start, end)),
        plugged=draw(facts(start, end)),
        available=draw(facts(start, end)),
        apps=draw(st.none() | app_sessions(start, end)),
        network=None
        if network is None
        else NetworkSpans(
            network.start_ns,
            network.end_ns,
            draw(st.lists(st.sampled_from(NetworkKind), min_size=len(network), max_size=len(network))),
        ),
        battery=None
        if battery is None
        else BatteryPoints(
            battery,
            [x / 8 for x in draw(st.lists(st.integers(0, 8), min_size=len(battery), max_size=len(battery)))],
        ),
        throughput=None
        if throughput is None
        else Throughput(throughput, np.arange(len(throughput)) * 1.0, np.arange(len(throughput)) * 2.0),
        relative_time=True,
    )
    return trace if scale == 1 else scaled(trace, scale)


def scaled(trace: InteractionTrace, scale: int) -> InteractionTrace:
    """The same trace with every time multiplied."""
    from dataclasses import fields, is_dataclass, replace

    def stretch(value: object) -> object:
        if not is_dataclass(value):
            return value
        changes = {}
        for field in fields(value):
            inner = getattr(value, field.name)
            is_time = field.name.endswith("_ns")
            changes[field.name] = inner * scale if is_time else stretch(inner)
        return replace(value, **changes)

    return stretch(trace)


def inside(spans: Intervals, t: int) -> int | None:
    """The interval that holds t, by looking at each."""
    for i, (a, b) in enumerate(zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True)):
        if a <= t < b:
            return i
    return None


def fact_at(trace: InteractionTrace, name: str, t: int) -> bool | None:
    fact = getattr(trace, name)
    if fact is None:
        return None
    if inside(fact.on, t) is not None:
        return True
    return False if inside(trace.known(fact), t) is not None else None


def app_at(trace: InteractionTrace, t: int) -> int | str | None:
    """Index of the session, None for no app, "?" for unknown."""
    if trace.apps is None:
        return "?"
    session = inside(trace.apps.intervals, t)
    if session is not None:
        return session
    return None if inside(trace.known(trace.apps), t) is not None else "?"


@dataclass(frozen=True)
class Moment:
    """What is true at one time, NaN as None."""

    screen: bool | None = None
    plugged: bool | None = None
    available: bool | None = None
    network: NetworkKind | None = None
    covered: bool = False
    app: str | None = "?"
    cpu: float | None = None
    memory: float | None = None


def moment(trace: InteractionTrace, t: int, table: IntensityTable | None = None) -> Moment:
    """The state at a time."""
    if not trace.start_ns <= t < trace.end_ns:
        return Moment()
    table = table or default_table()
    span = None if trace.network is None else inside(trace.network.intervals, t)
    app = app_at(trace, t)
    name: str | None = app if isinstance(app, str) else None
    screen = fact_at(trace, "screen", t)
    cpu = memory = None
    if isinstance(app, int):
        name = trace.apps.names[trace.apps.app[app]]
        given = trace.apps.categories[trace.apps.app[app]] if trace.apps.categories else ""
        row = table.row(name, given)
        cpu, memory = row.cpu, row.memory
        if trace.apps.cpu is not None and not math.isnan(trace.apps.cpu[app]):
            cpu = float(trace.apps.cpu[app])
    elif app is None or screen is False:
        cpu = memory = 0.0
    elif screen:
        cpu, memory = table.screen_on.cpu, table.screen_on.memory
    return Moment(
        screen,
        fact_at(trace, "plugged", t),
        fact_at(trace, "available", t),
        None if span is None else NetworkKind(trace.network.kind[span]),
        inside(trace.covered, t) is not None,
        name,
        cpu,
        memory,
    )


def _watched(trace: InteractionTrace, a: int, b: int) -> bool:
    """Whether the recorder ran all the time from a to b, both included."""
    return all(inside(trace.covered, t) is not None for t in range(a, b + 1))


def reading_at(trace: InteractionTrace, times: list[int], t: int) -> tuple[int, int | None] | None:
    """The reading in force and the next one (None if none follows without a gap)."""
    if not trace.start_ns <= t < trace.end_ns:
        return None
    before = [i for i, u in enumerate(times) if u <= t]
    if not before or not _watched(trace, times[before[-1]], t):
        return None
    i = before[-1]
    joined = i + 1 < len(times) and _watched(trace, times[i], times[i + 1])
    return i, i + 1 if joined else None


def battery_at(trace: InteractionTrace, t: int) -> float | None:
    """The battery level at a time."""
    if trace.battery is None:
        return None
    times, level = trace.battery.t_ns.tolist(), trace.battery.level.tolist()
    found = reading_at(trace, times, t)
    if found is None:
        return None
    i, j = found
    if j is None:
        return level[i]
    return level[i] + (level[j] - level[i]) * (t - times[i]) / (times[j] - times[i])


def mean_intensity(trace: InteractionTrace, times: list[int]) -> tuple[float, float, float]:
    """CPU, memory and known share over one-nanosecond slices."""
    moments = [moment(trace, t) for t in times]
    known = [m for m in moments if m.cpu is not None]
    if not known:
        return math.nan, math.nan, 0.0
    cpu = sum(m.cpu for m in known) / len(known)
    memory = sum(m.memory for m in known) / len(known)
    return cpu, memory, len(known) / len(moments)
