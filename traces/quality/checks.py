"""What is wrong with a trace. An *error* makes its answers wrong, so replay refuses it; a *warning* is odd.

Nothing is changed here; `traces.quality.repairs` does that, when asked, and lists what it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, SupportsInt

import numpy as np

from joulefleet.errors import DataQualityError
from traces.intervals import sorted_once, time_between, total_ns, union
from traces.model import (
    BatteryPoints,
    InteractionTrace,
    Intervals,
    interval_channels,
    is_time_zone,
    point_channels,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
LONG_SESSION_NS = DAY_NS
SILENCE_NS = 2 * DAY_NS
LOW_COVERAGE = 0.5
# The fastest charging on sale fills a phone in 9.5 min (realme GT3, 240 W, 2023); nothing empties one faster.
MAX_BATTERY_RATE_PER_NS = 1.0 / (9.5 * 60e9)
GAUGE_STEP = 0.02  # two counts of a gauge that reports whole per cents
# No phone logged its state before 2000; an unset clock says 1970 (or 1980, the GPS epoch).
EARLIEST_NS = 946_684_800 * 10**9
LATEST_NS = 4_102_444_800 * 10**9  # 2100


class TraceSeverity(StrEnum):
    """What a finding means for replay."""

    ERROR = "error"
    WARNING = "warning"


MEANING: dict[str, tuple[TraceSeverity, str]] = {
    "backwards": (TraceSeverity.ERROR, "time runs backwards"),
    "repeated": (TraceSeverity.ERROR, "several readings at one time"),
    "reversed": (TraceSeverity.ERROR, "an interval ends before or when it begins"),
    "overlap": (TraceSeverity.ERROR, "intervals overlap"),
    "outside": (TraceSeverity.ERROR, "outside the recording"),
    "level-range": (TraceSeverity.ERROR, "a battery level that is not between 0 and 1"),
    "negative": (TraceSeverity.ERROR, "a throughput below zero"),
    "intensity-range": (TraceSeverity.ERROR, "a measured intensity that is not between 0 and 1"),
    "time-zone": (TraceSeverity.ERROR, "the time zone is no IANA name"),
    "clock": (TraceSeverity.ERROR, "the calendar cannot be right: before 2000 or after 2100"),
    "no-channel": (TraceSeverity.WARNING, "nothing is recorded"),
    "no-time-zone": (TraceSeverity.WARNING, "the time zone is unknown, so hours of the day are UTC"),
    "long-session": (TraceSeverity.WARNING, "longer than a day"),
    "silence": (
        TraceSeverity.WARNING,
        "no event for two days inside the coverage: clock jump or dead recorder",
    ),
    "low-coverage": (TraceSeverity.WARNING, "less than half of the time is covered"),
    "battery-jump": (TraceSeverity.WARNING, "the level changes faster than any battery can"),
    "battery-rises": (TraceSeverity.WARNING, "the level rises while unplugged"),
}
"""Every kind of finding: its severity and what it means."""


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """Something about one trace.

    Attributes:
        user: Whose trace.
        code: A key of `MEANING`.
        channel: Which part of the trace.
        count: How many intervals or readings.
    """

    user: str
    code: str
    channel: str
    count: int = 1

    @property
    def severity(self) -> TraceSeverity:
        """Whether replay refuses."""
        return MEANING[self.code][0]

    def __str__(self) -> str:
        return f"{self.channel}: {MEANING[self.code][1]} ({self.count:,})"


def validate(trace: InteractionTrace) -> list[TraceFinding]:
    """Everything that is wrong or odd about a trace; warnings only if there are no errors."""
    # What the warnings measure means nothing on unsorted intervals.
    return errors(trace) or list(_found(trace, _warnings(trace)))


def errors(trace: InteractionTrace) -> list[TraceFinding]:
    """What makes the trace unfit for replay."""
    return list(_found(trace, _errors(trace)))


def require_replayable(trace: InteractionTrace) -> None:
    """Refuse a trace with errors.

    Raises:
        DataQualityError: Names the first errors.
    """
    found = errors(trace)
    if found:
        raise DataQualityError(
            f"trace of user {trace.user!r} has errors: " + "; ".join(str(finding) for finding in found[:3]),
            hint="`joulefleet traces validate DIR` shows them all, `--repair OUT` writes a repaired copy",
        )


Found = Iterator[tuple[str, str, SupportsInt]]


def _found(trace: InteractionTrace, findings: Found) -> Iterator[TraceFinding]:
    return (TraceFinding(trace.user, code, channel, int(count)) for code, channel, count in findings if count)


def _errors(trace: InteractionTrace) -> Found:
    for channel, intervals in interval_channels(trace):
        yield from _interval_errors(trace, channel, intervals)
    for channel, points in point_channels(trace):
        step_ns = np.diff(points.t_ns)
        yield "backwards", channel, np.count_nonzero(step_ns < 0)
        yield "repeated", channel, np.count_nonzero(step_ns == 0)
        yield "outside", channel, _outside(trace, points.t_ns, points.t_ns)
    yield from _value_errors(trace)
    yield "time-zone", "time_zone", bool(trace.time_zone) and not is_time_zone(trace.time_zone)
    if not trace.relative_time:
        yield "clock", "trace", trace.start_ns < EARLIEST_NS or trace.end_ns > LATEST_NS


def _interval_errors(trace: InteractionTrace, channel: str, intervals: Intervals) -> Found:
    start, end = intervals.start_ns, intervals.end_ns
    yield "reversed", channel, np.count_nonzero(end <= start)
    yield "backwards", channel, np.count_nonzero(start[1:] < start[:-1])
    yield "outside", channel, _outside(trace, start, end)
    if len(start) > 1 and not intervals.is_clean:
        order = np.argsort(start, kind="stable")
        reach = np.maximum.accumulate(end[order])
        yield "overlap", channel, np.count_nonzero(start[order][1:] < reach[:-1])


def _outside(trace: InteractionTrace, start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    return int(np.count_nonzero((start < trace.start_ns) | (end > trace.end_ns)))


def _value_errors(trace: InteractionTrace) -> Found:
    if trace.battery is not None:
        level = trace.battery.level
        yield "level-range", "battery", np.count_nonzero(~((level >= 0) & (level <= 1)))
    if trace.throughput is not None:
        for name in ("down_bps", "up_bps"):
            yield "negative", f"throughput.{name}", np.count_nonzero(getattr(trace.throughput, name) < 0)
    if trace.apps is not None:
        for name in ("cpu", "memory"):
            share = getattr(trace.apps, name)
            if share is not None:
                yield "intensity-range", f"apps.{name}", np.count_nonzero((share < 0) | (share > 1))


def _warnings(trace: InteractionTrace) -> Found:
    recorded = {channel for channel, _ in interval_channels(trace)} | {c for c, _ in point_channels(trace)}
    yield "no-channel", "trace", not recorded - {"coverage"}
    if not trace.relative_time:
        yield "no-time-zone", "time_zone", not trace.time_zone
    for channel, intervals in interval_channels(trace):
        if channel in ("screen", "apps"):
            yield "long-session", channel, np.count_nonzero(_lengths(intervals) > LONG_SESSION_NS)
    yield "silence", "coverage", _silences(trace)
    yield "low-coverage", "coverage", total_ns(trace.covered) < LOW_COVERAGE * trace.span_ns
    if trace.battery is not None and len(trace.battery) > 1:
        yield from _battery_warnings(trace, trace.battery)


def _lengths(intervals: Intervals) -> NDArray[np.int64]:
    return intervals.end_ns - intervals.start_ns


def _silences(trace: InteractionTrace) -> int:
    """Stretches of `SILENCE_NS` inside the coverage in which nothing at all happens."""
    covered = union(trace.covered)
    times = [covered.start_ns, covered.end_ns]
    times += [points.t_ns for _, points in point_channels(trace)]
    for channel, intervals in interval_channels(trace):
        if channel != "coverage":
            times += [intervals.start_ns, intervals.end_ns]
    events = sorted_once(np.concatenate(times))
    silent = np.diff(events) > SILENCE_NS
    return int(np.count_nonzero(silent & (time_between(covered, events[:-1], events[1:]) > SILENCE_NS)))


def _battery_warnings(trace: InteractionTrace, battery: BatteryPoints) -> Found:
    begin, end = battery.t_ns[:-1], battery.t_ns[1:]
    change = np.diff(battery.level)
    # A phone that was off or out of sight may have been charged meanwhile.
    watched = time_between(union(trace.covered), begin, end) == end - begin
    possible = GAUGE_STEP + MAX_BATTERY_RATE_PER_NS * (end - begin)
    yield "battery-jump", "battery", np.count_nonzero(watched & (np.abs(change) > possible))
    if trace.plugged is not None:
        known_ns = time_between(union(trace.known(trace.plugged)), begin, end)
        plugged_ns = time_between(union(trace.plugged.on), begin, end)
        unplugged = watched & (known_ns == end - begin) & (plugged_ns == 0)
        yield "battery-rises", "battery", np.count_nonzero(unplugged & (change > GAUGE_STEP))
