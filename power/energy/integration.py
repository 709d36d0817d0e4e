"""Energy of windows: power is volts times amperes of each sample, integrated by the trapezoid rule.

Between two samples power is taken as linear, also where a window begins or ends between them and where
lost samples leave a gap short enough to be bridged. Times are those of the sample clock. `integrate` works
on any stream of blocks; `integrate_recording` gives the same for a recording on disk from its index,
without reading it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from power.energy.index import integrate_recording
from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy, WindowSums, results
from power.model import Finding, InstrumentInfo, SampleBlock
from power.recording.channels import RangeChannels, antiderivative, exact_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DEFAULT_POLICY",
    "GapPolicy",
    "Window",
    "WindowEnergy",
    "integrate",
    "integrate_recording",
]


def integrate(
    blocks: Iterable[SampleBlock],
    windows: Sequence[Window],
    info: InstrumentInfo,
    *,
    policy: GapPolicy = DEFAULT_POLICY,
    findings: tuple[Finding, ...] = (),
) -> tuple[WindowEnergy, ...]:
    """Energy of each window over a stream of blocks, in memory bounded by block and windows.

    Blocks of a live meter carry provisional times, which may step back a little when the fit improves;
    such a step counts as no time at all.

    Args:
        blocks: In the order of time.
        windows: Any windows.
        info: The instrument: its rate, its ranges, whether it counts losses.
        policy: How gaps are treated.
        findings: Errors among them make the windows that they touch invalid.
    """
    intake = _Intake(windows, info, policy)
    for block in blocks:
        if len(block):
            intake.add(block)
    return results(windows, intake.in_given_order(), info, policy, findings)


class _Intake:
    """Adds blocks up. Windows are kept by start, so that a block meets only those it may overlap."""

    def __init__(self, windows: Sequence[Window], info: InstrumentInfo, policy: GapPolicy) -> None:
        self._order = np.argsort([w.start_ns for w in windows], kind="stable")
        self._starts = np.array([windows[i].start_ns for i in self._order], np.int64)
        self._ends = np.array([windows[i].end_ns for i in self._order], np.int64)
        self._latest_ends = np.maximum.accumulate(self._ends) if len(windows) else self._ends
        self._channels = RangeChannels.of(info.accuracy)
        self._longest_s = policy.longest_bridge_s(info.rate_hz)
        self._tally = WindowSums.zero(len(self._channels.names), len(windows))
        self._last_ns: int | None = None
        self._last_values = np.empty((0, 0))

    def add(self, block: SampleBlock) -> None:
        """Take the next block."""
        t_ns = np.maximum.accumulate(block.t_ns)
        if self._last_ns is not None:
            t_ns = np.maximum(t_ns, self._last_ns)
        origin_ns, x_ns = int(t_ns[0]), exact_ns(t_ns, block.ticks)
        values = joined = self._channels.values(block.current_a, block.voltage_v)
        if self._last_ns is not None and self._join(block.dropped_before, origin_ns):
            origin_ns, x_ns = self._last_ns, np.concatenate(([0.0], x_ns + (origin_ns - self._last_ns)))
            joined = np.concatenate((self._last_values, values), axis=1)
        self._integrate(origin_ns, x_ns, joined)
        self._count(t_ns, block.first_index)
        first_ns = int(t_ns[0]) if self._tally.span_ns is None else self._tally.span_ns[0]
        self._last_ns, self._last_values = int(t_ns[-1]), values[:, -1:]
        self._tally.span_ns = (first_ns, self._last_ns)

    def _active(self, from_ns: int, to_ns: int) -> slice:
        """The windows that may overlap a stretch of time."""
        low = int(np.searchsorted(self._latest_ends, from_ns))
        return slice(low, max(low, int(np.searchsorted(self._starts, to_ns, side="right"))))

    def _join(self, dropped: int | None, next_ns: int) -> bool:
        """Account for what lies between two blocks; whether a straight line may cross it."""
        if dropped == 0 or self._last_ns is None:
            return True
        at = self._active(self._last_ns, next_ns)
        start, end = self._starts[at], self._ends[at]
        overlap_ns = np.minimum(end, next_ns) - np.maximum(start, self._last_ns)
        overlap_s = np.clip(overlap_ns, 0, None) * 1e-9
        bridgeable = (next_ns - self._last_ns) * 1e-9 <= self._longest_s
        if not bridgeable:
            self._tally.broken[at] |= overlap_ns > 0
        if dropped is None:
            self._tally.unknown[at] |= overlap_ns > 0
        else:
            self._tally.bridged_s[at] += overlap_s
            self._tally.lost_s[at] += overlap_s * (dropped / (dropped + 1))
        return bridgeable

    def _integrate(self, origin_ns: int, x_ns: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        if len(x_ns) < 2:
            return
        at = self._active(origin_ns, origin_ns + int(x_ns[-1]))
        start = np.clip(self._starts[at] - origin_ns, 0, x_ns[-1])
        end = np.maximum(np.clip(self._ends[at] - origin_ns, 0, x_ns[-1]), start)
        integrals = antiderivative(x_ns, values, np.concatenate((start, end)))
        self._tally.integrals[:, at] += integrals[:, len(start) :] - integrals[:, : len(start)]

    def _count(self, t_ns: NDArray[np.int64], first_index: int) -> None:
        at = self._active(int(t_ns[0]), int(t_ns[-1]))
        low = np.searchsorted(t_ns, self._starts[at])
        high = np.maximum(np.searchsorted(t_ns, self._ends[at]), low)
        some, none_before = high > low, self._tally.n_samples[at] == 0
        self._tally.first_index[at] = np.where(
            some & none_before, first_index + low, self._tally.first_index[at]
        )
        self._tally.last_index[at] = np.where(some, first_index + high - 1, self._tally.last_index[at])
        self._tally.n_samples[at] += high - low

    def in_given_order(self) -> WindowSums:
        """The sums in the order in which the windows were given."""
        return self._tally.taken(np.argsort(self._order, kind="stable"))
