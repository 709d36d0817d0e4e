"""On and off periods: stretches in which the joint state of some channels of a trace does not change.

Also what a fit counts in them: time spent in each state and departures from it.

All times here are on the user's own clock on the wall, in hours since a Monday at 0:00, so that the hour and
the kind of day are plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.intervals import contains, sorted_once, union
from traces.model import InteractionTrace, Intervals, NetworkKind
from traces.synth.model import HOURS, WEEK_H, WEEKEND_H

HOUR_NS = 3_600_000_000_000
DAY_NS = HOURS * HOUR_NS
WEEK_NS = 7 * DAY_NS
MONDAY_NS = 4 * DAY_NS  # 1970-01-05, the first Monday of the POSIX count
UNKNOWN = -1
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Periods of many units (people, or days of one person), sorted by unit and time.

    Channel 0 is the one of interest; a further one is what it is given.

    Attributes:
        unit: Whose period.
        state: Bit ``k`` is channel ``k``.
        start_h: Begin, hours since a Monday at 0:00.
        end_h: End.
        begun: Whether the begin was seen (else the period was under way when the recording began).
        next_state: The state it was left for, -1 if the recording ended first.
        units: How many units there are.
        channels: How many channels.
    """

    unit: NDArray[np.int64]
    state: NDArray[np.int64]
    start_h: NDArray[np.float64]
    end_h: NDArray[np.float64]
    begun: NDArray[np.bool_]
    next_state: NDArray[np.int64]
    units: int
    channels: int

    def __len__(self) -> int:
        return len(self.unit)

    @classmethod
    def of_columns(cls, columns: Sequence[NDArray[Any]], units: int, channels: int) -> Periods:
        """From unit, state, begin, end, begun and next state."""
        unit, state, start_h, end_h, begun, next_state = columns
        return cls(unit, state, start_h, end_h, begun, next_state, units, channels)

    @property
    def length_h(self) -> NDArray[np.float64]:
        """Length of each period."""
        return self.end_h - self.start_h

    @property
    def days(self) -> float:
        """How long all of them last together."""
        return round(float(self.length_h.sum()) / HOURS, 1)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Periods whose begin and end were seen."""
        return self.begun & (self.next_state >= 0)

    def on(self, channel: int) -> NDArray[np.bool_]:
        """Whether a channel is on in each period."""
        return (self.state >> channel & 1).astype(bool)

    @property
    def regimes(self) -> int:
        """How many states the further channels can be in."""
        return int(2 ** (self.channels - 1))

    def of_units(self, wanted: NDArray[np.int64]) -> Periods:
        """The periods of some units, which are numbered anew in the order given."""
        number = np.full(self.units, -1)
        number[wanted] = np.arange(len(wanted))
        unit = number[self.unit]
        keep = np.flatnonzero(unit >= 0)
        keep = keep[np.argsort(unit[keep], kind="stable")]
        return self._taken(keep, unit[keep], len(wanted))

    def where(self, chosen: NDArray[np.bool_]) -> Periods:
        """Some of the periods."""
        keep = np.flatnonzero(chosen)
        return self._taken(keep, self.unit[keep], self.units)

    def as_one(self) -> Periods:
        """All units as one."""
        return replace(self, unit=np.zeros_like(self.unit), units=1)

    def by_day(self, boundary_h: int = 4) -> Periods:
        """Every day of every unit as a unit of its own; a day begins at ``boundary_h`` in the morning."""
        day = np.floor((self.start_h - boundary_h) / HOURS).astype(np.int64)
        pair = self.unit * (day.max(initial=0) + 2) + day
        found, unit = np.unique(pair, return_inverse=True)
        return self._taken(np.arange(len(self)), unit.astype(np.int64), len(found))

    def _taken(self, keep: NDArray[np.int64], unit: NDArray[np.int64], units: int) -> Periods:
        arrays: dict[str, Any] = {
            name: getattr(self, name)[keep] for name in ("state", "start_h", "end_h", "begun", "next_state")
        }
        return Periods(unit=unit, units=units, channels=self.channels, **arrays)


def periods_of(traces: Iterable[InteractionTrace], channels: Sequence[str]) -> Periods:
    """The periods of every trace that has all the channels; others are left out."""
    parts: list[tuple[NDArray[Any], ...]] = []
    units = 0
    for trace in traces:
        known_on = [_channel(trace, name) for name in channels]
        if any(part is None for part in known_on):
            continue
        found = _of_trace(trace, [part for part in known_on if part is not None])
        if len(found[0]):
            parts.append((np.full(len(found[0]), units), *found))
            units += 1
    empty = (np.empty(0, np.int64),) * 2 + (np.empty(0),) * 2 + (np.empty(0, bool), np.empty(0, np.int64))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else list(empty)
    return Periods.of_columns(columns, units, len(channels))


def _channel(trace: InteractionTrace, name: str) -> tuple[Intervals, Intervals] | None:
    """When a channel was observed, and when it was on; None if the trace does not have it."""
    if name == "wifi":
        spans = trace.network
        if spans is None:
            return None
        on = spans.kind == NetworkKind.WIFI
        return union(spans.intervals), union(Intervals(spans.start_ns[on], spans.end_ns[on]))
    fact = getattr(trace, name)
    return None if fact is None else (union(trace.known(fact), fact.on), union(fact.on))


def _of_trace(
    trace: InteractionTrace, known_on: list[tuple[Intervals, Intervals]]
) -> tuple[NDArray[Any], ...]:
    """State, begin, end, whether begun in sight, and next state."""
    edges = [side for pair in known_on for part in pair for side in (part.start_ns, part.end_ns)]
    edge = sorted_once(np.concatenate(edges))
    begin, end = edge[:-1], edge[1:]
    state = np.zeros(len(begin), np.int64)
    for bit, (known, on) in enumerate(known_on):
        state |= contains(on, begin).astype(np.int64) << bit
        state[~contains(known, begin)] = UNKNOWN
    first = np.ones(len(begin), bool)
    first[1:] = state[1:] != state[:-1]
    last = np.append(first[1:], True) if len(begin) else first
    state, begin, end = state[first], begin[first], end[last]
    seen_before = np.append(False, state[:-1] >= 0) if len(state) else np.empty(0, bool)
    after = np.append(state[1:], UNKNOWN) if len(state) else state
    keep = state >= 0
    start_h, end_h = wall_hours(trace, begin[keep]), wall_hours(trace, end[keep])
    # Clocks that are set back in autumn would give a period of less than no time.
    end_h = np.maximum(end_h, start_h)
    return state[keep], start_h, end_h, seen_before[keep], after[keep]


def wall_hours(trace: InteractionTrace, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hours on the user's clock since the Monday before the recording; without a zone, UTC."""
    zone = None if trace.relative_time else trace.zone
    offset_ns = np.zeros(len(t_ns), np.int64)
    if zone is not None and len(t_ns):
        hours, place = np.unique(t_ns // HOUR_NS, return_inverse=True)
        offset_ns = np.array([_offset_ns(int(hour), zone) for hour in hours], np.int64)[place]
    week_ns = MONDAY_NS + (trace.start_ns - MONDAY_NS) // WEEK_NS * WEEK_NS
    return np.asarray((t_ns + offset_ns - week_ns) / HOUR_NS, np.float64)


def _offset_ns(hour: int, zone: Any) -> int:
    offset = datetime.fromtimestamp(hour * 3600, UTC).astimezone(zone).utcoffset()
    return round(offset.total_seconds()) * 10**9 if offset is not None else 0


def day_type(hour: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 on weekdays, 1 on weekends, of hours since a Monday at 0:00."""
    return np.asarray(hour % WEEK_H >= WEEKEND_H, np.int64)


def of_first_channel(periods: Periods) -> tuple[Periods, NDArray[np.int64]]:
    """The periods of channel 0 alone, and to which of them each of the given periods belongs."""
    state = periods.state & 1
    goes_on = np.zeros(len(periods), bool)
    same = (state[1:] == state[:-1]) & (periods.unit[1:] == periods.unit[:-1])
    goes_on[1:] = same & periods.begun[1:] & (periods.start_h[1:] == periods.end_h[:-1])
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], len(periods)) - 1
    after = periods.next_state[last]
    joined = Periods(
        periods.unit[first],
        state[first],
        periods.start_h[first],
        periods.end_h[last],
        periods.begun[first],
        # Left for the same state: the recording or the unit of counting ends in the middle of it.
        np.where((after >= 0) & (after & 1 != state[last]), after & 1, UNKNOWN),
        periods.units,
        1,
    )
    return joined, np.cumsum(~goes_on) - 1


def first_month(periods: Periods) -> Periods:
    """Without what lies more than five weeks on: a recording may resume after months."""
    return periods.where(periods.end_h <= 5 * WEEK_H)


def bridged(periods: Periods, longest_h: float) -> Periods:
    """Without the gaps of at most ``longest_h``; where the state differs behind one, it changed half-way.

    A recorder that sleeps misses changes. Left out, there would be too few for the time in each state.
    """
    gap_h = np.append(periods.start_h[1:] - periods.end_h[:-1], np.inf)
    gap_h[:-1][periods.unit[1:] != periods.unit[:-1]] = np.inf
    before = np.flatnonzero((gap_h > 0) & (gap_h <= longest_h))
    start_h, end_h = periods.start_h.copy(), periods.end_h.copy()
    begun, next_state = periods.begun.copy(), periods.next_state.copy()
    middle = end_h[before] + gap_h[before] / 2
    end_h[before] = start_h[before + 1] = middle
    begun[before + 1] = True
    next_state[before] = periods.state[before + 1]
    first = np.ones(len(periods), bool)
    first[before + 1] = periods.state[before + 1] != periods.state[before]
    last = np.append(np.flatnonzero(first)[1:], len(periods)) - 1
    return replace(
        periods,
        unit=periods.unit[first],
        state=periods.state[first],
        start_h=start_h[first],
        end_h=end_h[last],
        begun=begun[first],
        next_state=next_state[last],
    )


def swapped(periods: Periods) -> Periods:
    """The same periods of two channels, the second first."""
    turn = np.array([0, 2, 1, 3, UNKNOWN])
    return replace(periods, state=turn[periods.state], next_state=turn[periods.next_state])


def cut_at_hours(periods: Periods) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Periods in pieces that each lie in one hour: the period, the hour, and the time in it (h)."""
    first = np.floor(periods.start_h).astype(np.int64)
    last = np.maximum(np.ceil(periods.end_h).astype(np.int64), first + 1)
    count = last - first
    period = np.repeat(np.arange(len(periods)), count)
    hour = np.arange(len(period)) - np.repeat(np.cumsum(count) - count, count) + first[period]
    spent = np.minimum(hour + 1, periods.end_h[period]) - np.maximum(hour, periods.start_h[period])
    return period, hour, spent


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


def count(periods: Periods, dispersion: Array) -> Counts:
    """Count time and departures, in effective numbers: each state's divided by its dispersion."""
    shape = (periods.units, 2**periods.channels, 2, HOURS)
    period, hour, spent = cut_at_hours(periods)
    place = (periods.unit[period], periods.state[period], day_type(hour), hour % HOURS)
    spent_h = sum_at(shape, place, spent)
    gone = np.flatnonzero((periods.next_state >= 0) & ((periods.next_state ^ periods.state) & 1 == 1))
    # A period that ends on the hour was left in the hour before: that is where its time was spent.
    gone_hour = np.ceil(periods.end_h[gone]).astype(np.int64) - 1
    left = sum_at(shape, (periods.unit[gone], periods.state[gone], day_type(gone_hour), gone_hour % HOURS))
    # The piece in the first hour of a day shows the state at midnight where the period was there at 0:00.
    midnight = (hour % HOURS == 0) & (periods.start_h[period] <= hour)
    at_midnight = sum_at(shape[:2], (periods.unit[period][midnight], periods.state[period][midnight]))
    scale = np.tile(dispersion, periods.regimes)[:, None, None]
    return Counts(spent_h / scale, left / scale, at_midnight)


def sum_at(
    shape: tuple[int, ...], place: tuple[NDArray[np.int64], ...], amount: Array | None = None
) -> Array:
    """The sum of the amounts (or how many there are) at each place of a table."""
    flat = np.ravel_multi_index(place, shape)
    return np.bincount(flat, weights=amount, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
