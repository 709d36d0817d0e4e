"""Amounts of time by hour of the user's day.

Time is cut at every quarter of an hour: offsets from UTC are multiples of 15 minutes today (India is at
5:30, Nepal at 5:45), so each piece lies in one local hour, also across a change to summer time.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

import numpy as np

from traces.measure import time_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.model import InteractionTrace, Intervals

QUARTER_NS = 900 * 10**9
_QUARTERS_PER_DAY = 96


class LocalHours:
    """The quarters of an hour of one trace and the local hour of each; without a time zone, UTC."""

    def __init__(self, trace: InteractionTrace) -> None:
        first = trace.start_ns // QUARTER_NS
        quarters = np.arange(first, -(-trace.end_ns // QUARTER_NS), dtype=np.int64)
        self._start_ns = quarters * QUARTER_NS
        offset = _offsets(quarters, UTC if trace.zone is None or trace.relative_time else trace.zone)
        self._hour = (quarters + offset) % _QUARTERS_PER_DAY // 4

    def seconds(self, intervals: Intervals) -> NDArray[np.float64]:
        """Seconds of (clean) intervals in each of the 24 local hours."""
        spent_ns = time_between(intervals, self._start_ns, self._start_ns + QUARTER_NS)
        return np.asarray(np.bincount(self._hour, weights=spent_ns * 1e-9, minlength=24), np.float64)


def _offsets(quarters: NDArray[np.int64], zone: tzinfo) -> NDArray[np.int64]:
    """Offset from UTC at each quarter, in quarters."""
    days, day_of = np.unique(quarters // _QUARTERS_PER_DAY, return_inverse=True)
    begin = np.array([_offset(int(day) * _QUARTERS_PER_DAY, zone) for day in days], np.int64)
    end = np.array([_offset((int(day) + 1) * _QUARTERS_PER_DAY, zone) for day in days], np.int64)
    offset = begin[day_of]
    # Clocks change on few days; only those are looked at quarter by quarter.
    for i in np.flatnonzero((begin != end)[day_of]):
        offset[i] = _offset(int(quarters[i]), zone)
    return offset


def _offset(quarter: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(quarter * 900, UTC).astimezone(zone).utcoffset()
    return round(offset.total_seconds() / 900) if offset is not None else 0
