"""Exact amounts of time: how much of a set of intervals lies before a moment, or between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.model import Intervals


def time_before(intervals: Intervals, t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds of (clean) intervals that lie before each time."""
    if not len(intervals):
        return np.zeros(len(t_ns), np.int64)
    length = intervals.end_ns - intervals.start_ns
    before = np.cumsum(length) - length
    i = np.searchsorted(intervals.start_ns, t_ns, side="right") - 1
    j = np.maximum(i, 0)
    inside = np.minimum(np.asarray(t_ns) - intervals.start_ns[j], length[j])
    return np.where(i >= 0, before[j] + inside, 0)


def time_between(
    intervals: Intervals, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Nanoseconds of (clean) intervals between each pair of times."""
    return time_before(intervals, end_ns) - time_before(intervals, start_ns)


def total_ns(intervals: Intervals) -> int:
    """Summed length of the intervals."""
    return int(np.sum(intervals.end_ns - intervals.start_ns))


def contains(intervals: Intervals, t_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each time lies inside one of the (clean) intervals."""
    return position(intervals, t_ns) >= 0


def position(intervals: Intervals, t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of the (clean) intervals each time lies in, -1 for none."""
    if not len(intervals):
        return np.full(len(t_ns), -1)
    i = np.searchsorted(intervals.start_ns, t_ns, side="right") - 1
    inside = (i >= 0) & (np.asarray(t_ns) < intervals.end_ns[i])
    return np.where(inside, i, -1)


def sorted_once(t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted without repeats. numpy's own `unique` hashes, which is ten times slower on round numbers."""
    ordered = np.sort(t_ns)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
