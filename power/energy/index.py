"""Energy of many windows of a long recording, from its index.

The integral from the first sample on is known at the edges of every batch from the index alone. Only the
batches in which a window begins or ends are read, and of those the shorter side is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.errors import DataQualityError
from power.energy.integration import antiderivative, exact_ns, held, piece
from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy, WindowSums, window_energies
from power.model import SampleBlock
from power.recording.channels import POWER, RangeChannels
from power.recording.reader import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray


def integrate_recording(
    recording: Recording, windows: Sequence[Window], *, policy: GapPolicy = DEFAULT_POLICY
) -> tuple[WindowEnergy, ...]:
    """Energy of each window of a recording.

    It agrees with `power.energy.integration.integrate` over the same samples to about 1e-9.
    """
    return EnergyIndex(recording, policy).integrate(windows)


class EnergyIndex:
    """A recording's index on its final time scale; answers for any number of windows.

    Attributes:
        first_ns: Time of the first sample of each batch.
        last_ns: Time of its last sample, or the end of it if it is an average.
        between_ns: Time from the last sample of a batch to the first of the next.
        lost: Samples lost in between; -1 where that is not known.
        broken: Whether a gap there is too long to be bridged.
    """

    def __init__(self, recording: Recording, policy: GapPolicy = DEFAULT_POLICY) -> None:
        info, index, timebase = recording.info, recording.index, recording.record.timebase
        self.recording = recording
        self.policy = policy
        self.channels = RangeChannels.of(info.accuracy)
        self.first_ns = timebase.to_host_ns(index["first_tick"])
        self._hold_ns = info.hold_ns
        self.last_ns = timebase.to_host_ns(index["last_tick"]) + self._hold_ns
        if self._hold_ns:  # printed times are rounded: an average never reaches into the next
            self.last_ns[:-1] = np.minimum(self.last_ns[:-1], self.first_ns[1:])
        self.between_ns = self.first_ns[1:] - self.last_ns[:-1]
        backwards = np.flatnonzero(self.between_ns < 0)
        if len(backwards):
            raise DataQualityError(
                f"{recording.folder}: sample times run backwards after batch {backwards[0]}",
                hint="decode the recording again from raw.bin",
            )
        self.lost = index["dropped_before"][1:]
        self.broken = (self.lost != 0) & (self.between_ns * 1e-9 > policy.longest_bridge_s(info.rate_hz))
        self._index = index
        self._step = round(info.tick_hz / info.rate_hz)
        # The stored sums are of straight lines from sample to sample, which averages have not.
        self._straight = _lies_on_one_line(recording) & (self._hold_ns == 0)
        self._even = self._straight & info.uniform_ticks
        # From the rounded times of the outermost samples, so that batches join without a nanosecond lost.
        self._ns_per_tick = (self.last_ns - self.first_ns) / np.maximum(
            index["last_tick"] - index["first_tick"], 1
        )
        self._rows_before = np.concatenate(([0], np.cumsum(index["rows"])))
        self._whole = self._batch_integrals()
        self._first = self.channels.values(index["first_current_a"], index["first_voltage_v"])
        self._last = self.channels.values(index["last_current_a"], index["last_voltage_v"])
        between = (self._last[:, :-1] + self._first[:, 1:]) * (self.between_ns * ~self.broken * 0.5e-9)
        self._before = np.zeros(self._whole.shape)
        np.cumsum(self._whole[:, :-1] + between, axis=1, out=self._before[:, 1:])

    def _batch_integrals(self) -> NDArray[np.float64]:
        """Integral over each batch; one that a knot of the timebase bends is added up sample by sample."""
        sums = np.stack([self._index[f"{name}_ticks"] for name in self.channels.names])
        whole: NDArray[np.float64] = sums * (self._ns_per_tick * 1e-9)
        for i in np.flatnonzero(~self._straight):
            x_ns, values = self._line(self.recording.block(int(i)))
            whole[:, i] = np.trapezoid(values, x_ns) * 1e-9
        return whole

    def _line(self, block: SampleBlock) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is integrated, from the first sample of a block on."""
        values = self.channels.values(block.current_a, block.voltage_v)
        return held(exact_ns(block.t_ns, block.ticks), values, self._hold_ns)

    def integrate(self, windows: Sequence[Window]) -> tuple[WindowEnergy, ...]:
        """Energy of each window."""
        record = self.recording.record
        return window_energies(windows, self.sums(windows), self.recording.info, self.policy, record.findings)

    def power_w(self, start_ns: int, end_ns: int) -> NDArray[np.float64]:
        """The power of each sample from a time up to, but not including, another."""
        low = int(np.searchsorted(self.last_ns, start_ns))
        high = int(np.searchsorted(self.first_ns, end_ns))
        found = [np.empty(0)]
        for i in range(low, high):
            block = self.recording.block(i)
            inside = slice(*np.searchsorted(block.t_ns, (start_ns, end_ns)))
            found.append(self.channels.values(block.current_a[inside], block.voltage_v[inside])[POWER])
        return np.concatenate(found)

    def sums(self, windows: Sequence[Window]) -> WindowSums:
        """The sums of every window."""
        n = len(windows)
        if not n or not len(self.first_ns):
            return WindowSums.zero(len(self.channels.names), n)
        given_ns = np.array([w.start_ns for w in windows] + [w.end_ns for w in windows], np.int64)
        t_ns = np.clip(given_ns, self.first_ns[0], self.last_ns[-1])
        batch = np.searchsorted(self.first_ns, t_ns, side="right") - 1
        # Windows often touch: what ends one begins the next.
        distinct, back = np.unique(t_ns, return_inverse=True)
        integrals, rows = self._up_to(distinct, np.searchsorted(self.first_ns, distinct, side="right") - 1)
        integrals, rows = (
            integrals[:, back],
            rows[back] + (given_ns > self.last_ns[-1]) * (self._hold_ns == 0),
        )
        number = self._index["first_index"][batch] + rows
        rows = self._rows_before[batch] + rows
        known = np.maximum(self.lost, 0)
        bridged_s = self._gap_time_to(t_ns, batch, (known > 0).astype(np.float64))
        lost_s = self._gap_time_to(t_ns, batch, known / np.maximum(known + (self._hold_ns == 0), 1.0))
        return WindowSums(
            integrals=integrals[:, n:] - integrals[:, :n],
            n_samples=np.maximum(rows[n:] - rows[:n], 0),
            first_index=number[:n],
            last_index=number[n:] - 1,
            bridged_s=bridged_s[n:] - bridged_s[:n],
            lost_s=lost_s[n:] - lost_s[:n],
            broken=self._meets(self.broken, t_ns[:n], t_ns[n:]),
            unknown=self._meets(self.lost < 0, t_ns[:n], t_ns[n:]),
            span_ns=(int(self.first_ns[0]), int(self.last_ns[-1])),
        )

    def _up_to(
        self, t_ns: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Integral up to each of these increasing times, and how many samples of its batch lie before it."""
        integrals = self._before[:, batch]
        rows = np.zeros(len(t_ns), np.int64)
        after = t_ns >= self.last_ns[batch]
        integrals[:, after] += self._whole[:, batch[after]]
        at_last = (t_ns[after] == self.last_ns[batch[after]]) & (self._hold_ns == 0)
        rows[after] = self._index["rows"][batch[after]] - at_last
        self._add_between(integrals, t_ns, batch, after & (batch < len(self.first_ns) - 1))
        inside = np.flatnonzero(~after & (t_ns > self.first_ns[batch]))
        even = self._even[batch[inside]]
        for some, method in ((inside[even], self._inside_even), (inside[~even], self._inside)):
            if len(some):
                integral, rows[some] = method(t_ns[some], batch[some])
                integrals[:, some] += integral
        return integrals, rows

    def _add_between(
        self,
        integrals: NDArray[np.float64],
        t_ns: NDArray[np.int64],
        batch: NDArray[np.int64],
        where: NDArray[np.bool_],
    ) -> None:
        """Add the part of the straight line between two batches that lies before each time."""
        i = batch[where]
        part_ns = (t_ns[where] - self.last_ns[i]) * ~self.broken[i]
        area = piece(self._last[:, i], self._first[:, i + 1], part_ns, self.between_ns[i])
        integrals[:, where] += area * 1e-9

    def _inside(
        self, t_ns: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Integral from the first sample of a batch to times in it, and how many samples lie before them.

        For any spacing of the samples. Times come by batch.
        """
        integrals, before = [], []
        for here in np.split(np.arange(len(batch)), np.flatnonzero(np.diff(batch)) + 1):
            block = self.recording.block(int(batch[here[0]]))
            integrals.append(antiderivative(*self._line(block), t_ns[here] - block.t_ns[0]))
            before.append(np.searchsorted(block.t_ns, t_ns[here]))
        return np.concatenate(integrals, axis=1), np.concatenate(before)

    def _inside_even(
        self, t_ns: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The same for evenly spaced samples: only those on the shorter side of the time are added up."""
        row, before = self._even_row(t_ns, batch)
        upper = 2 * row >= self._index["rows"][batch]
        sums, left, right = np.empty((3, len(self.channels.names), len(t_ns)))
        loaded = None
        for i, (b, j, is_upper) in enumerate(zip(batch.tolist(), row.tolist(), upper.tolist(), strict=True)):
            if b != loaded:
                current_a, voltage_v = self.recording.values(b)
                loaded = b
            side = slice(j, None) if is_upper else slice(0, j + 2)
            values = self.channels.values(current_a[side], voltage_v[side])
            at = 0 if is_upper else j
            left[:, i], right[:, i] = values[:, at], values[:, at + 1]
            sums[:, i] = (values if is_upper else values[:, : j + 1]).sum(axis=1)
        width_ns = (self._ns_per_tick * self._step)[batch]
        part_ns = t_ns - self.first_ns[batch] - row * width_ns
        # A trapezoid counts its outermost samples half.
        outermost = np.where(upper, self._last[:, batch], self._first[:, batch])
        side_integral = (sums - (left + outermost) / 2) * (width_ns * 1e-9)
        up_to_row = np.where(upper, self._whole[:, batch] - side_integral, side_integral)
        return up_to_row + piece(left, right, part_ns, width_ns) * 1e-9, before

    def _even_row(
        self, t_ns: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The last sample at or before each time, and how many lie before it; corrects rounded ticks."""
        timebase = self.recording.record.timebase
        first_tick = self._index["first_tick"][batch]
        row = (timebase.to_ticks(t_ns) - first_tick) // self._step
        row += timebase.to_host_ns(first_tick + (row + 1) * self._step) <= t_ns
        row -= timebase.to_host_ns(first_tick + row * self._step) > t_ns
        return row, row + (timebase.to_host_ns(first_tick + row * self._step) < t_ns)

    def _gap_time_to(
        self, t_ns: NDArray[np.int64], batch: NDArray[np.int64], share: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Time in gaps up to each time, weighted, seconds."""
        share = np.append(share, 0.0)
        before = np.concatenate(([0.0], np.cumsum(share[:-1] * self.between_ns)))
        since_ns = np.maximum(t_ns - self.last_ns[batch], 0)
        seconds: NDArray[np.float64] = (before[batch] + since_ns * share[batch]) * 1e-9
        return seconds

    def _meets(
        self, gaps: NDArray[np.bool_], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether each window overlaps one of these gaps."""
        # More gaps have begun before the window's end than are over at its start.
        begun = np.searchsorted(self.last_ns[:-1][gaps], end_ns)
        over = np.searchsorted(self.first_ns[1:][gaps], start_ns, side="right")
        return np.asarray(begun > over)


def _lies_on_one_line(recording: Recording) -> NDArray[np.bool_]:
    """Whether each batch lies within one linear part of the timebase."""
    knots = np.asarray(recording.record.timebase.ticks[1:-1])
    first = np.searchsorted(knots, recording.index["first_tick"])
    return np.asarray(first == np.searchsorted(knots, recording.index["last_tick"]))
