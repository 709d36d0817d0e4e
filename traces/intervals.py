"""From readings and change events to intervals: the two forms in which phones log their state.

For readers. Times must not decrease (`ValueError`): a source that runs backwards is the reader's to report.
Of several readings at one time the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traces.measure import contains
from traces.model import Fact, Intervals, NetworkSpans

if TYPE_CHECKING:
    from numpy.typing import NDArray

Runs = tuple[Intervals, "NDArray[Any]"]


def runs_from_changes(t_ns: NDArray[np.int64], value: NDArray[Any], *, end_ns: int) -> Runs:
    """Each value holds until the next change, the last one until ``end_ns``; equal neighbours are joined."""
    return runs_from_samples(t_ns, value, hold_ns=None, end_ns=end_ns)


def runs_from_samples(
    t_ns: NDArray[np.int64], value: NDArray[Any], *, hold_ns: int | None, end_ns: int
) -> Runs:
    """Each reading holds until the next one, but at most ``hold_ns`` and not beyond ``end_ns``.

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


def fact_from_changes(t_ns: NDArray[np.int64], on: NDArray[np.bool_], *, end_ns: int) -> Fact:
    """A fact from on/off events; unknown before the first one."""
    return _fact(runs_from_changes(t_ns, np.asarray(on, bool), end_ns=end_ns))


def fact_from_samples(t_ns: NDArray[np.int64], on: NDArray[np.bool_], *, hold_ns: int, end_ns: int) -> Fact:
    """A fact from readings; unknown where the last reading is older than ``hold_ns``."""
    return _fact(runs_from_samples(t_ns, np.asarray(on, bool), hold_ns=hold_ns, end_ns=end_ns))


def network_from_samples(
    t_ns: NDArray[np.int64], kind: NDArray[np.int8], *, hold_ns: int | None, end_ns: int
) -> NetworkSpans:
    """Network spans from readings (or from change events, with ``hold_ns=None``)."""
    runs, kinds = runs_from_samples(t_ns, kind, hold_ns=hold_ns, end_ns=end_ns)
    return NetworkSpans(runs.start_ns, runs.end_ns, kinds)


def coverage_from_samples(t_ns: NDArray[np.int64], *, hold_ns: int, end_ns: int) -> Intervals:
    """When readings arrived at least every ``hold_ns``."""
    return runs_from_samples(t_ns, np.zeros(len(t_ns), bool), hold_ns=hold_ns, end_ns=end_ns)[0]


def _fact(runs: Runs) -> Fact:
    intervals, on = runs
    return Fact(
        on=Intervals(intervals.start_ns[on], intervals.end_ns[on]),
        known=union(intervals),
    )


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
