"""Makes a trace fit for replay and lists every change. Errors are repaired; warnings are left alone.

* out of order: sorted (a stable sort, so the source's order decides between equal times)
* empty or reversed intervals: dropped
* overlaps of a yes-or-no fact: joined; of app sessions and network spans: the earlier one ends where the
  later one begins
* outside the recording: cut at its ends
* several readings at one time: the last one counts
* levels, throughputs and intensities that cannot be: dropped
* a time zone that is no IANA name: removed, so hours of the day become UTC with a warning

A calendar that cannot be right cannot be repaired and stays an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from traces.intervals import union
from traces.model import FACTS, AppSessions, BatteryPoints, Fact, InteractionTrace, Intervals, NetworkSpans
from traces.quality.checks import TraceFinding, errors
from traces.storage.trace_set import RepairRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

Labelled = TypeVar("Labelled", AppSessions, NetworkSpans)
_ACTION = {
    "backwards": "sorted",
    "repeated": "all but the last reading at a time dropped",
    "reversed": "empty or reversed intervals dropped",
    "overlap": "overlaps removed",
    "outside": "cut at the ends of the recording",
    "level-range": "impossible levels dropped",
    "negative": "negative throughput made unknown",
    "intensity-range": "impossible intensities made unknown",
    "time-zone": "unknown time zone removed",
}


def repair(trace: InteractionTrace) -> tuple[InteractionTrace, list[RepairRecord]]:
    """A copy without repairable errors, and what was changed; the same trace if there are none."""
    found = [finding for finding in errors(trace) if finding.code in _ACTION]
    if not found:
        return trace, []
    return _rebuilt(trace, found), [
        RepairRecord(user=trace.user, channel=f.channel, action=_ACTION[f.code], count=f.count) for f in found
    ]


def _rebuilt(trace: InteractionTrace, found: list[TraceFinding]) -> InteractionTrace:
    changes: dict[str, Any] = {}
    if any(finding.code == "time-zone" for finding in found):
        changes["time_zone"] = ""
    if trace.coverage is not None:
        changes["coverage"] = _united(trace, trace.coverage)
    for name in FACTS:
        fact: Fact | None = getattr(trace, name)
        if fact is not None:
            changes[name] = Fact(_united(trace, fact.on), _known(trace, fact.known))
    if trace.apps is not None:
        changes["apps"] = _apps(trace, trace.apps)
    if trace.network is not None:
        changes["network"] = _one_at_a_time(trace, trace.network)
    if trace.battery is not None:
        changes["battery"] = _battery(trace, trace.battery)
    if trace.throughput is not None:
        keep = _readings(trace, trace.throughput.t_ns)
        down, up = (
            np.where(rate < 0, np.nan, rate)
            for rate in (trace.throughput.down_bps[keep], trace.throughput.up_bps[keep])
        )
        changes["throughput"] = type(trace.throughput)(trace.throughput.t_ns[keep], down, up)
    return replace(trace, **changes)


def _united(trace: InteractionTrace, intervals: Intervals) -> Intervals:
    if intervals.is_clean:  # keep the boundaries of touching intervals as the source has them
        return _clipped(trace, intervals)
    return _clipped(trace, union(intervals))


def _known(trace: InteractionTrace, known: Intervals | None) -> Intervals | None:
    return None if known is None else _united(trace, known)


def _clipped(trace: InteractionTrace, intervals: Intervals) -> Intervals:
    start = np.maximum(intervals.start_ns, trace.start_ns)
    end = np.minimum(intervals.end_ns, trace.end_ns)
    keep = end > start
    return Intervals(start[keep], end[keep])


def _apps(trace: InteractionTrace, apps: AppSessions) -> AppSessions:
    sessions = _one_at_a_time(trace, apps)
    shares: dict[str, Any] = {
        name: np.where((share < 0) | (share > 1), np.nan, share)
        for name in ("cpu", "memory")
        if (share := getattr(sessions, name)) is not None
    }
    return replace(sessions, known=_known(trace, apps.known), **shares)


def _one_at_a_time(trace: InteractionTrace, spans: Labelled) -> Labelled:
    """Sorted, cut to the trace, each ending at the latest where the next begins."""
    start = np.maximum(spans.start_ns, trace.start_ns)
    end = np.minimum(spans.end_ns, trace.end_ns)
    order = np.argsort(start, kind="stable")
    order = order[(end > start)[order]]
    start, end = start[order], end[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    keep = end > start
    columns: dict[str, Any] = {name: values[order][keep] for name, values in _labels(spans)}
    return replace(spans, start_ns=start[keep], end_ns=end[keep], **columns)


def _labels(spans: AppSessions | NetworkSpans) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in ("kind",) if isinstance(spans, NetworkSpans) else ("app", "cpu", "memory"):
        values = getattr(spans, name)
        if values is not None:
            yield name, values


def _battery(trace: InteractionTrace, battery: BatteryPoints) -> BatteryPoints:
    possible = np.flatnonzero((battery.level >= 0) & (battery.level <= 1))
    keep = possible[_readings(trace, battery.t_ns[possible])]
    return BatteryPoints(battery.t_ns[keep], battery.level[keep])


def _readings(trace: InteractionTrace, t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which readings to keep, in time order: inside the trace, the last one of each time."""
    order = np.argsort(t_ns, kind="stable")
    t = t_ns[order]
    last = np.append(t[1:] != t[:-1], True)[: len(t)]
    return order[last & (t >= trace.start_ns) & (t <= trace.end_ns)]
