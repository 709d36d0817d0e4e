"""Sets of intervals: made from readings and change events, joined, subtracted and measured, all exactly.

Readings and change events are the two forms in which phones log their state. Their times must not decrease
(`ValueError`): a source that runs backwards is the reader's to report. Of several readings at one time the
last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traces.model import Intervals

if TYPE_CHECKING:
    from numpy.typing import NDArray


Runs = tuple[Intervals, "NDArray[Any]"]


def runs_from_samples(
    t_ns: NDArray[np.int64], value: NDArray[Any], *, hold_ns: int | None, end_ns: int
) -> Runs:
    """Each reading holds until the next one, but at most ``hold_ns`` and not beyond ``end_ns``.

    With ``hold_ns=None`` they are change events: each value holds until the next change.

    Returns:
        Intervals of constant value (equal neighbours that touch are joined) and the value of each.
    """
    t_ns = np.asarray(t_ns, np.int64)
    value = np.asarray(value)
    if np.any(t_ns[1:] < t_ns[:-1]):
        raise ValueError("t_ns: times run backwards")
    end = np.append(t_ns[1:], end_ns)
    if hold_ns is not None:
        end = np.minimum(end, t_ns + hold_ns)
    end = np.minimum(end, end_ns)
    keep = end > t_ns
    start, end, value = t_ns[keep], end[keep], value[keep]
    if not len(start):
        return Intervals.none(), value
    first = np.ones(len(start), bool)
    first[1:] = (start[1:] != end[:-1]) | (value[1:] != value[:-1])
    last = np.append(first[1:], True)
    return Intervals(start[first], end[last]), value[first]


def union(*parts: Intervals) -> Intervals:
    """The union of intervals: sorted, disjoint, joined where they touch; empty and reversed ones vanish."""
    start = np.concatenate([part.start_ns for part in parts])
    end = np.concatenate([part.end_ns for part in parts])
    real = end > start
    order = np.argsort(start[real], kind="stable")
    start, end = start[real][order], end[real][order]
    if not len(start):
        return Intervals.none()
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > reach[:-1]
    last = np.append(first[1:], True)
    return Intervals(start[first], reach[last])


def difference(whole: Intervals, part: Intervals) -> Intervals:
    """What of ``whole`` lies outside ``part``; both are taken as unions."""
    whole, part = union(whole), union(part)
    edges = np.sort(np.concatenate([whole.start_ns, whole.end_ns, part.start_ns, part.end_ns]))
    start, end = edges[:-1], edges[1:]
    keep = (end > start) & contains(whole, start) & ~contains(part, start)
    return union(Intervals(start[keep], end[keep]))


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
