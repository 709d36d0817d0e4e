"""Monsoon HVPM and reflashed LVPM: bulk packets to amperes and volts, vectorised, with every loss counted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from power.model import Finding, FindingLog, Severity
from power.wire.decoder import Decoded
from power.wire.hvpm_calibration import RangeCalibration
from power.wire.hvpm_control import SAMPLE_RATE_HZ
from power.wire.hvpm_packets import (
    HEADER_BYTES,
    IMPOSSIBLE,
    INVALID,
    MAX_OBSERVATIONS,
    MEASUREMENT,
    OBSERVATION_BYTES,
    OUTPUT_ON,
    OVER_CURRENT,
    REFERENCE_CALIBRATION,
    SAMPLE_TYPE_MASK,
    SEQUENCE_MASK,
    UNKNOWN,
    Packets,
    find_confirmed,
    find_packets,
    packet_bytes,
)
from power.wire.hvpm_scaling import COARSE_OFFSET_A, FINE_OFFSET_A, ChannelScale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Counts = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

COUNTER_MODULUS: Final = 2**16
NO_COUNT_YET: Final = 0xFFFF
"""What units often report as dropped when they start (ACTS ``sampling/hvpm/transformers.py``)."""
SETTLING_OBSERVATIONS: Final = round(SAMPLE_RATE_HZ)
"""The first second, in which ACTS does not trust the counter. We only disregard what cannot be a count:
`NO_COUNT_YET`, and falls."""

_HEADER_WORDS: Final = HEADER_BYTES // 2
_OBSERVATION_WORDS: Final = OBSERVATION_BYTES // 2
_COLUMNS: Final = {"main": (0, 1, 6, 8), "usb": (2, 3, 7, 8), "aux": (4, 5, 6, 8)}
"""Big-endian words of an observation: coarse, fine, the channel's voltage, and the two gain bytes, the second
of which holds the sample type. The aux voltage takes the place of main's (see `Opcode.VOLTAGE_CHANNEL`)."""


@dataclass(frozen=True, slots=True)
class _Observations:
    """All observations of some packets, of one channel.

    Attributes:
        kind: Sample type of each.
        coarse: Current in counts of the coarse range.
        fine: Current in counts of the fine range.
        voltage: Voltage in counts.
    """

    kind: Bytes
    coarse: Floats
    fine: Floats
    voltage: Floats


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
        self._columns = _COLUMNS[scale.channel]
        self._coarse = RangeCalibration(scale.coarse, COARSE_OFFSET_A)
        self._fine = RangeCalibration(scale.fine, FINE_OFFSET_A)
        self._findings = FindingLog()
        self._rest = b""
        self._in_sync = False
        self._skipped_bytes = 0
        self._sequence = -1  # this and the next two: of the last packet
        self._dropped = 0
        self._packet_observations = 0
        self._observations = 0
        self._next_tick = 0
        self._lost = 0  # samples, since the last one that was delivered
        self._delivered = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """See `power.wire.decoder.Decoder`."""
        return self._findings.as_tuple()

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
            expected, wait = self._expected(packets)
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
            self._resume(find_packets(buffer, found).first(1))
            self._skipped_bytes = 0
        return found

    def _resume(self, packet: Packets) -> None:
        """Continue with a packet that does not simply follow the one before; count what lies between."""
        sequence, dropped = int(packet.sequence[0]), int(packet.dropped[0])
        if self._skipped_bytes:
            self._note(
                "corrupt_bytes",
                Severity.ERROR,
                "bytes that cannot be packets were left out; the number of samples in them is estimated",
                count=self._skipped_bytes,
            )
        if self._sequence < 0:
            self._dropped = dropped
        else:
            self._count_missing((sequence - self._sequence - 1) & SEQUENCE_MASK)
            if int(self._rises(packet)[0]) >= COUNTER_MODULUS // 2:
                self._note(
                    "drop_counter_fell",
                    Severity.ERROR,
                    "the unit's count of dropped samples fell: losses around there are not known",
                )
                self._dropped = dropped
        self._sequence = (sequence - 1) & SEQUENCE_MASK

    def _count_missing(self, missing: int) -> None:
        """Account for packets that never came: their number modulo 16, and the bytes left out instead."""
        if not self._skipped_bytes:
            if missing:
                self._note(
                    "lost_packets",
                    Severity.WARNING,
                    "packets did not arrive; each is taken to have held as many samples as the one before",
                    count=missing,
                )
            lost = missing * self._packet_observations
        else:
            size = packet_bytes(self._packet_observations)
            cycles = round((self._skipped_bytes / size - missing) / (SEQUENCE_MASK + 1))
            packets = missing + (SEQUENCE_MASK + 1) * max(0, cycles)
            lost, rest = divmod(self._skipped_bytes - HEADER_BYTES * packets, OBSERVATION_BYTES)
            if rest or not packets <= lost <= MAX_OBSERVATIONS * packets:
                lost = packets * self._packet_observations  # bytes are missing or were added
        self._next_tick += lost
        self._lost += lost

    def _expected(self, packets: Packets) -> tuple[Packets, bool]:
        """The packets from the first on that continue what came before, and whether to wait for more bytes.

        A packet of another size than the one before is believed only when the header behind it continues:
        a wrong size would take what lies behind it for observations, even for calibration.
        """
        if not len(packets):
            return packets, packets.following != IMPOSSIBLE
        sequence = np.concatenate(([self._sequence], packets.sequence, [packets.following]))
        jumps = (sequence[1:] - sequence[:-1]) & SEQUENCE_MASK != 1
        jumps[-1] |= packets.following == IMPOSSIBLE
        previous = np.concatenate(([self._packet_observations], packets.observations[:-1]))
        resized = packets.observations != previous
        waits = bool(resized[-1]) and packets.following == UNKNOWN
        jumps[-1] &= packets.following != UNKNOWN
        strange = jumps[:-1] | (resized & jumps[1:]) | (self._rises(packets) >= COUNTER_MODULUS // 2)
        if strange.any():
            return packets.first(int(np.argmax(strange))), False
        return packets.first(len(packets) - waits), waits

    def _rises(self, packets: Packets) -> Counts:
        """By how much the drop counter rose before each packet; half the modulus or more is a fall."""
        previous = np.concatenate(([self._dropped], packets.dropped[:-1]))
        rises: Counts = (packets.dropped - previous) % COUNTER_MODULUS
        if self._observations < SETTLING_OBSERVATIONS:
            before = self._observations + np.cumsum(packets.observations) - packets.observations
            no_count = (packets.dropped == NO_COUNT_YET) | (previous == NO_COUNT_YET)
            no_count |= rises >= COUNTER_MODULUS // 2
            rises[no_count & (before < SETTLING_OBSERVATIONS)] = 0
        return rises

    def _take(self, buffer: Bytes, packets: Packets) -> list[Decoded]:
        """Decode packets that follow each other."""
        rises = self._rises(packets)
        first = np.cumsum(packets.observations) - packets.observations
        seen = self._observe(buffer, packets, first)
        lost_before = {int(first[i]): int(rises[i]) for i in np.flatnonzero(rises)}
        self._note_flags(packets.flags, self._next_tick + first + np.cumsum(rises))
        self._sequence = int(packets.sequence[-1])
        self._dropped = int(packets.dropped[-1])
        self._packet_observations = int(packets.observations[-1])
        self._observations += len(seen.kind)
        decoded: list[Decoded] = []
        for a, b in pairwise(_edges(seen.kind, lost_before)):
            lost = lost_before.get(a, 0)
            self._lost += lost
            self._next_tick += lost
            if seen.kind[a] == MEASUREMENT:
                decoded += self._deliver(seen, a, b)
            else:
                self._take_special(int(seen.kind[a]), int(seen.coarse[a]), int(seen.fine[a]))
            self._next_tick += b - a
        return decoded

    def _observe(self, buffer: Bytes, packets: Packets, first: Counts) -> _Observations:
        """Cut the observations out of their packets; ``first`` is the number of each packet's first."""
        words = buffer[packets.start[0] : packets.end].view(">u2")
        count = int(packets.observations[0])
        if (packets.observations == count).all():
            table = words.reshape(len(packets), -1)[:, _HEADER_WORDS:].reshape(-1, count, _OBSERVATION_WORDS)
            columns = [table[:, :, i].reshape(-1) for i in self._columns]
        else:
            place = (packets.start - packets.start[0]) // 2 + _HEADER_WORDS - _OBSERVATION_WORDS * first
            places = np.repeat(place, packets.observations)
            places += _OBSERVATION_WORDS * np.arange(len(places))
            columns = [words[places + i] for i in self._columns]
        coarse, fine, voltage, gains = columns
        number = ">i2" if self._scale.signed else ">u2"
        return _Observations(
            kind=(gains & np.uint16(SAMPLE_TYPE_MASK)).astype(np.uint8),
            coarse=coarse.view(number).astype(np.float64),
            fine=fine.view(number).astype(np.float64),
            voltage=voltage.astype(np.float64),
        )

    def _take_special(self, kind: int, coarse: int, fine: int) -> None:
        """An observation that is no measurement."""
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

    def _deliver(self, seen: _Observations, a: int, b: int) -> list[Decoded]:
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
        self._note_each(
            "clipping",
            Severity.ERROR,
            "the current was beyond what the converter can express",
            tick,
            (raw == low) | (raw == high),
        )
        zero = np.where(in_fine, self._fine.zero, self._coarse.zero)
        slope = np.where(in_fine, self._fine.amperes_per_count, self._coarse.amperes_per_count)
        current_a: Floats = (raw - zero) * slope
        return current_a

    def _note_flags(self, flags: Bytes, tick: Counts) -> None:
        self._note_each(
            "over_current",
            Severity.ERROR,
            "packets with the over-current or thermal flag: the unit has cut the output off",
            tick,
            flags & OVER_CURRENT != 0,
        )
        if self._scale.channel == "main":
            self._note_each(
                "output_off",
                Severity.WARNING,
                "packets that say the main output was off",
                tick,
                flags & OUTPUT_ON == 0,
            )

    def _note_each(self, code: str, severity: Severity, message: str, tick: Counts, mask: Mask) -> None:
        """A finding for every place in a mask, with the first and the last tick."""
        where = np.flatnonzero(mask)
        if not len(where):
            return
        self._findings.add(code, severity, message, index=int(tick[where[0]]))
        if len(where) > 1:
            self._findings.add(code, severity, message, index=int(tick[where[-1]]), count=len(where) - 1)

    def _note_run(self, code: str, severity: Severity, message: str, count: int) -> None:
        """A finding for so many observations from here on."""
        self._findings.add(code, severity, message, index=self._next_tick)
        if count > 1:
            self._findings.add(code, severity, message, index=self._next_tick + count - 1, count=count - 1)

    def _note(self, code: str, severity: Severity, message: str, *, count: int = 1) -> None:
        self._findings.add(code, severity, message, index=self._next_tick, count=count)


def _edges(kind: Bytes, lost_before: dict[int, int]) -> list[int]:
    """Where observations begin that cannot be delivered together with those before them."""
    special = np.flatnonzero(kind != MEASUREMENT).tolist()
    return sorted({0, len(kind), *special, *(i + 1 for i in special), *lost_before})
