"""Monsoon HVPM and reflashed LVPM: bulk packets to amperes and volts, vectorised, with every loss counted."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from power.model import Finding, FindingLog, Severity
from power.wire.decoder import Decoded
from power.wire.hvpm_continuity import NO_COUNT_YET, SETTLING_OBSERVATIONS, Continuity
from power.wire.hvpm_packets import (
    INVALID,
    MEASUREMENT,
    OUTPUT_ON,
    OVER_CURRENT,
    REFERENCE_CALIBRATION,
    Observations,
    Packets,
    cut_observations,
    find_confirmed,
    find_packets,
)
from power.wire.hvpm_scaling import COARSE_OFFSET_A, FINE_OFFSET_A, ChannelScale, HvpmRangeCalibration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Counts = NDArray[np.int64]
    Floats = NDArray[np.float64]


class HvpmDecoder:
    """Decodes one channel. See `power.wire.decoder.Decoder`.

    The tick is the number of the observation since sampling began, lost ones included. Calibration takes the
    place of measurements, so a block ends there, but nothing was lost. A rise of the drop counter is a gap
    before the packet that shows it, although up to 16 older samples may still be in the unit's queue.

    Results depend on the bytes alone, not on their portions nor on ``arrival_ns``. A last packet of another
    size than the one before it is held back until the next header has come.

    Args:
        scale: The channel, and what its counts mean.
    """

    def __init__(self, scale: ChannelScale) -> None:
        self._scale = scale
        self._coarse = HvpmRangeCalibration(scale.coarse, COARSE_OFFSET_A)
        self._fine = HvpmRangeCalibration(scale.fine, FINE_OFFSET_A)
        self._findings = FindingLog()
        self._continuity = Continuity(self._findings)
        self._rest = b""
        self._in_sync = False
        self._skipped_bytes = 0
        self._next_tick = 0
        self._lost = 0  # samples, since the last one that was delivered
        self._delivered = False
        self._heard: Counter[str] = Counter()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """See `power.wire.decoder.Decoder`."""
        return self._findings.as_tuple()

    @property
    def heard(self) -> dict[str, int]:
        """See `power.wire.decoder.Decoder`."""
        return dict(self._heard)

    def finish(self) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`: nothing is."""
        return []

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`."""
        del arrival_ns
        buffer = np.frombuffer(self._rest + data, np.uint8)
        decoded: list[Decoded] = []
        position, wait = 0, False
        while not wait:
            if not self._in_sync:
                position = self._search(buffer, position)
                if not self._in_sync:
                    break
            packets = find_packets(buffer, position)
            expected, wait = self._continuity.expected(packets)
            if len(expected):
                decoded += self._take(buffer, expected)
                position = expected.end
            # An unexpected header may mean lost packets or lost bytes: those that follow will tell.
            self._in_sync = wait or 0 < len(expected) == len(packets)
        self._rest = buffer[position:].tobytes()
        return decoded

    def _search(self, buffer: Bytes, position: int) -> int:
        """Find the next packet that others confirm; returns where it, or what may become it, begins."""
        found, self._in_sync = find_confirmed(buffer, position)
        self._skipped_bytes += found - position
        if self._in_sync:
            packet = find_packets(buffer, found).first(1)
            self._lose(self._continuity.resume(packet, self._skipped_bytes, self._next_tick))
            self._skipped_bytes = 0
        return found

    def _lose(self, samples: int) -> None:
        self._lost += samples
        self._next_tick += samples

    def _take(self, buffer: Bytes, packets: Packets) -> list[Decoded]:
        """Decode packets that follow each other."""
        seen = cut_observations(buffer, packets, self._scale)
        rises = self._continuity.accept(packets)
        self._note_flags(packets, self._next_tick + packets.first_observation + np.cumsum(rises))
        gaps = np.flatnonzero(rises)
        lost_before = dict(zip(packets.first_observation[gaps].tolist(), rises[gaps].tolist(), strict=True))
        decoded: list[Decoded] = []
        for a, b in pairwise(_edges(seen.kind, lost_before)):
            self._lose(lost_before.get(a, 0))
            if seen.kind[a] == MEASUREMENT:
                decoded += self._deliver(seen, a, b)
            else:
                self._take_special(int(seen.kind[a]), int(seen.coarse[a]), int(seen.fine[a]))
            self._next_tick += b - a
        return decoded

    def _take_special(self, kind: int, coarse: int, fine: int) -> None:
        """An observation that is no measurement."""
        self._heard["invalid observations" if kind == INVALID else "calibrations"] += 1
        if kind == INVALID and self._next_tick == 0:
            return  # with this every stream begins
        if kind == INVALID:
            self._lost += 1  # as lost as one that never came
            self._note("invalid_sample", Severity.WARNING, "samples that the unit itself called invalid")
            return
        is_reference = kind == REFERENCE_CALIBRATION
        moved = [self._coarse.add(coarse, is_reference=is_reference)]
        moved += [self._fine.add(fine, is_reference=is_reference)]
        if any(moved):
            self._note(
                "recalibrated",
                Severity.WARNING,
                "the unit's own calibration moved; readings follow over the next five calibrations",
            )

    def _deliver(self, seen: Observations, a: int, b: int) -> list[Decoded]:
        """Measurements without a hole, under one calibration."""
        if not (self._coarse.is_complete and self._fine.is_complete):
            self._note_run(
                "calibrating", Severity.INFO, "samples withheld until the unit had calibrated itself", b - a
            )
            return []
        if not (self._coarse.amperes_per_count and self._fine.amperes_per_count):
            self._lost += b - a
            self._note_run(
                "bad_calibration",
                Severity.ERROR,
                "samples left out: the unit's zero and reference calibration are equal",
                b - a,
            )
            return []
        tick = np.arange(self._next_tick, self._next_tick + b - a)
        current_a = self._current_a(seen.coarse[a:b], seen.fine[a:b], tick)
        voltage_v = seen.voltage[a:b] * self._scale.volts_per_count
        dropped = self._lost if self._delivered else 0
        self._lost, self._delivered = 0, True
        return [Decoded(self._next_tick, dropped, tick, current_a, voltage_v)]

    def _current_a(self, coarse: Floats, fine: Floats, tick: Counts) -> Floats:
        in_fine = fine < self._scale.fine_limit
        raw = np.where(in_fine, fine, coarse)
        low, high = self._scale.raw_limits
        self._findings.add_each(
            "clipping",
            Severity.ERROR,
            "the current was beyond what the converter can express",
            tick[(raw == low) | (raw == high)],
        )
        zero = np.where(in_fine, self._fine.zero, self._coarse.zero)
        slope = np.where(in_fine, self._fine.amperes_per_count, self._coarse.amperes_per_count)
        current_a: Floats = (raw - zero) * slope
        return current_a

    def _note_flags(self, packets: Packets, tick: Counts) -> None:
        """What the flags of packets say about their observations, the first of which has this tick."""
        over = packets.flags & OVER_CURRENT != 0
        last = tick + packets.observations - 1
        message = "packets with the over-current or thermal flag: the unit has cut the output off"
        self._findings.add_each("over_current", Severity.ERROR, message, tick[over], last[over])
        # The firmware's counter stops there (docs/emulated-meters.md), so it no longer shows what is lost.
        full = (packets.dropped == NO_COUNT_YET) & (tick >= SETTLING_OBSERVATIONS)
        message = (
            "the unit's count of dropped samples is at its end: losses and times behind it are not known"
        )
        self._findings.add_each("drop_counter_full", Severity.ERROR, message, tick[full], last[full])
        if self._scale.channel == "main":
            off = packets.flags & OUTPUT_ON == 0
            message = "packets that say the main output was off"
            self._findings.add_each("output_off", Severity.WARNING, message, tick[off], last[off])

    def _note_run(self, code: str, severity: Severity, message: str, count: int) -> None:
        """A finding for so many observations from here on."""
        last = self._next_tick + count - 1
        self._findings.add(code, severity, message, index=self._next_tick, last_index=last, count=count)

    def _note(self, code: str, severity: Severity, message: str) -> None:
        self._findings.add(code, severity, message, index=self._next_tick)


def _edges(kind: Bytes, lost_before: dict[int, int]) -> list[int]:
    """Where observations begin that cannot be delivered together with those before them."""
    special = np.flatnonzero(kind != MEASUREMENT).tolist()
    return sorted({0, len(kind), *special, *(i + 1 for i in special), *lost_before})
