"""Energy of windows: power is volts times amperes of each sample, integrated by the trapezoid rule.

Between two samples power is taken as linear, also where a window begins or ends between them and where
lost samples leave a gap short enough to be bridged. An average holds for the whole of its period instead.
Times are those of the sample clock. `integrate` works on any stream of blocks; `power.energy.index` gives
the same for a recording on disk without reading it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy, WindowSums, window_energies
from power.model import Finding, InstrumentInfo, SampleBlock
from power.recording.channels import RangeChannels

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDED_NS = 1.5  # three roundings: of the sample's time, and of the two that the line goes through


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
    return window_energies(windows, intake.in_given_order(), info, policy, findings)


class _Intake:
    """Adds blocks up. Windows are kept by start, so that a block meets only those it may overlap."""

    def __init__(self, windows: Sequence[Window], info: InstrumentInfo, policy: GapPolicy) -> None:
        self._order = np.argsort([w.start_ns for w in windows], kind="stable")
        self._starts = np.array([windows[i].start_ns for i in self._order], np.int64)
        self._ends = np.array([windows[i].end_ns for i in self._order], np.int64)
        self._latest_ends = np.maximum.accumulate(self._ends) if len(windows) else self._ends
        self._channels = RangeChannels.of(info.accuracy)
        self._longest_s = policy.longest_bridge_s(info.rate_hz)
        self._hold_ns = info.hold_ns
        self._sums = WindowSums.zero(len(self._channels.names), len(windows))
        self._last_ns: int | None = None
        self._last_values = np.empty((0, 0))

    def add(self, block: SampleBlock) -> None:
        """Take the next block."""
        t_ns = np.maximum.accumulate(block.t_ns)
        if self._last_ns is not None:
            t_ns = np.maximum(t_ns, self._last_ns)
        origin_ns, x_ns = int(t_ns[0]), exact_ns(t_ns, block.ticks)
        x_ns, values = held(x_ns, self._channels.values(block.current_a, block.voltage_v), self._hold_ns)
        end_ns, joined = int(t_ns[-1]) + self._hold_ns, values
        if self._last_ns is not None and self._join(block.dropped_before, origin_ns):
            origin_ns, x_ns = self._last_ns, np.concatenate(([0.0], x_ns + (origin_ns - self._last_ns)))
            joined = np.concatenate((self._last_values, values), axis=1)
        self._integrate(origin_ns, x_ns, joined)
        self._count(t_ns, block.first_index)
        first_ns = int(t_ns[0]) if self._sums.span_ns is None else self._sums.span_ns[0]
        self._last_ns, self._last_values = end_ns, values[:, -1:]
        self._sums.span_ns = (first_ns, self._last_ns)

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
            self._sums.broken[at] |= overlap_ns > 0
        if dropped is None:
            self._sums.unknown[at] |= overlap_ns > 0
        else:
            self._sums.bridged_s[at] += overlap_s
            # Between the samples around k lost ones lie k + 1 periods, between averages the k lost.
            self._sums.lost_s[at] += overlap_s * (1.0 if self._hold_ns else dropped / (dropped + 1))
        return bridgeable

    def _integrate(self, origin_ns: int, x_ns: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        if len(x_ns) < 2:
            return
        at = self._active(origin_ns, origin_ns + int(x_ns[-1]))
        start = np.clip(self._starts[at] - origin_ns, 0, x_ns[-1])
        end = np.maximum(np.clip(self._ends[at] - origin_ns, 0, x_ns[-1]), start)
        integrals = antiderivative(x_ns, values, np.concatenate((start, end)))
        self._sums.integrals[:, at] += integrals[:, len(start) :] - integrals[:, : len(start)]

    def _count(self, t_ns: NDArray[np.int64], first_index: int) -> None:
        at = self._active(int(t_ns[0]), int(t_ns[-1]))
        low = np.searchsorted(t_ns, self._starts[at])
        high = np.maximum(np.searchsorted(t_ns, self._ends[at]), low)
        some, none_before = high > low, self._sums.n_samples[at] == 0
        self._sums.first_index[at] = np.where(none_before, first_index + low, self._sums.first_index[at])
        self._sums.last_index[at] = np.where(some, first_index + high - 1, self._sums.last_index[at])
        self._sums.n_samples[at] += high - low

    def in_given_order(self) -> WindowSums:
        """The sums in the order in which the windows were given."""
        return self._sums.taken(np.argsort(self._order, kind="stable"))


def exact_ns(t_ns: NDArray[np.int64], ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Time of each sample after the first without the rounding of ``t_ns`` to whole nanoseconds.

    A timebase is straight between its knots, so the ticks tell where the samples lie on the line from the
    first to the last. Times that do not lie on it, because a knot bends it, are taken as they are.
    """
    since: NDArray[np.float64] = (t_ns - t_ns[0]).astype(np.float64)
    if len(ticks) < 3 or ticks[-1] == ticks[0]:
        return since
    straight: NDArray[np.float64] = (ticks - ticks[0]) * (since[-1] / float(ticks[-1] - ticks[0]))
    return straight if float(np.abs(straight - since).max()) <= _ROUNDED_NS else since


def held(
    x_ns: NDArray[np.float64], values: NDArray[np.float64], hold_ns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The corners of the line through these values: each holds up to the next if it is an average."""
    if not hold_ns:
        return x_ns, values
    corners = np.append(np.repeat(x_ns, 2)[1:], x_ns[-1] + hold_ns)
    return corners, np.repeat(values, 2, axis=1)


def antiderivative(
    x_ns: NDArray[np.float64], values: NDArray[np.float64], at_ns: NDArray[Any]
) -> NDArray[np.float64]:
    """Integral from the first sample up to each time inside them, per channel, unit times seconds."""
    width = np.diff(x_ns)
    whole = np.zeros(values.shape)
    np.cumsum((values[:, :-1] + values[:, 1:]) * (width / 2), axis=1, out=whole[:, 1:])
    j = np.clip(np.searchsorted(x_ns, at_ns, side="right") - 1, 0, len(x_ns) - 2)
    return (whole[:, j] + piece(values[:, j], values[:, j + 1], at_ns - x_ns[j], width[j])) * 1e-9


def piece(
    left: NDArray[np.float64], right: NDArray[np.float64], part: NDArray[Any], width: NDArray[Any]
) -> NDArray[np.float64]:
    """Integral over the first ``part`` of a straight line of this width; nothing where it has no width."""
    share = part / np.where(width > 0, width, 1)
    area: NDArray[np.float64] = part * (left + (right - left) * (share / 2))
    return area
