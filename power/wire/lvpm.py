"""Monsoon LVPM sample stream: bytes to amperes and volts, vectorised, with every loss accounted for."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from power.model import Finding, FindingLog, Severity
from power.wire.decoder import Decoded
from power.wire.lvpm_calibration import Calibration, Change
from power.wire.lvpm_frames import (
    COARSE_REFERENCE_A,
    DATA,
    FINE_REFERENCE_A,
    FLAG_OUTPUT_ON,
    FLAG_OVER_CURRENT,
    FLAGS_RESERVED,
    REFERENCE_CALIBRATION,
    SEQUENCE_MODULUS,
    STATUS_STRUCT,
    STATUS_TYPE,
    Status,
    StatusBit,
    sample_frame,
    samples_in,
)
from power.wire.lvpm_held import LOST_MODULUS, HeldNote, HeldPiece, SampleCount
from power.wire.lvpm_sync import count_following, count_good, equal_frames, find_chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

_NOT_A_SAMPLE_PACKET = 255
_RAILS = (-32768, 32766)  # of a 16-bit converter whose bit 0 names the range


class LvpmDecoder:
    """Decodes the main channel. See `power.wire.decoder.Decoder`.

    The tick is the sample's number, counted from the first sample packet, lost ones included. Losses show in
    two places: a byte of each packet counts the samples that the instrument had no room for before it, and
    the sequence number skips where whole packets did not arrive; such a packet is taken to have held as many
    samples as its neighbours. A skip is believed once the packet behind it is followed by its successor, a
    calibration unlike those before once the next one agrees: an 8-bit sum lets damage through. The rows of a
    calibration in the stream take the place of samples, so a block ends there, but nothing was lost.
    (Firmware 20 does it so, see ``docs/emulated-meters.md``.)

    Both counters turn, so a loss may be larger than they show. Then reads stay late by as much: from the
    first late one on samples are held back until it is clear how many turns there were (0.2 s); these are
    counted where the counters show the loss. Where they show none, the stretch in which it lies is an error.

    Samples depend on the bytes alone, their numbers behind such a loss on ``arrival_ns`` too.

    Args:
        voltage_step_v: Volts per count, see `power.wire.lvpm_frames.Status.voltage_step_v`.
        rate_hz: Nominal samples per second.
        references_a: Currents behind a reference calibration, of the fine and of the coarse range.
    """

    def __init__(
        self,
        *,
        voltage_step_v: float,
        rate_hz: float,
        references_a: tuple[float, float] = (FINE_REFERENCE_A, COARSE_REFERENCE_A),
    ) -> None:
        self._voltage_step_v = voltage_step_v
        self._calibration = Calibration.of(*references_a)
        self._findings = FindingLog()
        self._rest = b""
        self._in_sync = True
        self._jumped = False  # whether a number that does not follow is all that speaks against sync
        self._skipped_bytes = 0  # since the last sample packet
        self._sequence: int | None = None
        self._packet_samples = 0
        self._count = SampleCount(rate_hz)
        self._started = False
        self._ended = ""
        self._heard: Counter[str] = Counter()

    @property
    def ended(self) -> str:
        """Why the instrument ended the stream by itself; empty while it goes on."""
        return self._ended

    @property
    def findings(self) -> tuple[Finding, ...]:
        """See `power.wire.decoder.Decoder`."""
        return self._findings.as_tuple()

    @property
    def heard(self) -> dict[str, int]:
        """See `power.wire.decoder.Decoder`."""
        return dict(self._heard)

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`."""
        if not data:
            self._count.note_silence(arrival_ns)
            return []
        buffer = np.frombuffer(self._rest + data, np.uint8)
        index_before = self._count.next_index
        position = self._walk(buffer, arrival_ns)
        self._rest = buffer[position:].tobytes()
        if self._count.next_index > index_before and self._packet_samples:
            self._count.check(arrival_ns, SEQUENCE_MODULUS * self._packet_samples)
        self._count.note_arrival(arrival_ns)
        return self._count.take(self._findings)

    def finish(self) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`."""
        return self._count.take(self._findings, over=True)

    def _walk(self, buffer: Bytes, arrival_ns: int) -> int:
        """Take all frames that are complete; returns where the first incomplete one starts."""
        position = 0
        while position < len(buffer):
            believed = False
            if not self._in_sync:
                position, believed = self._find(buffer, position)  # two packets that follow each other
                if not believed:
                    break
            rows = equal_frames(buffer, position)
            if not len(rows):
                break
            size = rows.shape[1]
            good = count_good(rows)
            if believed and not self._in_time(rows[0], len(buffer) - position, arrival_ns):
                message = "a packet that tells of a loss without time for it was left out"
                self._note("odd_packet", Severity.WARNING, message)
                self._in_sync, self._jumped = False, True
                self._skipped_bytes += size
                position += size
                continue
            follow = count_following(rows[:good], self._sequence, believed=believed)
            self._take(rows[:follow])
            position += follow * size
            if follow < good:
                self._in_sync, self._jumped = False, True
            elif good < len(rows):
                self._note("bad_checksum", Severity.WARNING, "a packet with a wrong checksum was left out")
                self._in_sync = False
                self._count.note_damage()
                self._skipped_bytes += 1
                position += 1
        return position

    def _find(self, buffer: Bytes, position: int) -> tuple[int, bool]:
        """Where packets begin again, and True; or where to go on when there are more bytes."""
        found, self._in_sync = find_chain(buffer, position)
        self._skipped_bytes += found - position
        self._jumped &= found == position
        if self._in_sync:
            if not self._jumped:
                self._note("resync", Severity.WARNING, "the packet boundaries were lost and found again")
            self._jumped = False
        return found, self._in_sync

    def _in_time(self, frame: Bytes, size_bytes: int, arrival_ns: int) -> bool:
        """Whether a sample packet's number and count leave time for the losses that they tell of."""
        if self._sequence is None or not self._started:
            return True
        skipped = (int(frame[1]) - self._sequence - 1) % SEQUENCE_MODULUS
        arrived = size_bytes // len(frame) * samples_in(len(frame) - 1)
        return self._count.allows(skipped * self._packet_samples + int(frame[4]), arrived, arrival_ns)

    def _take(self, rows: Bytes) -> None:
        """Frames of one length with good checksums."""
        size = rows.shape[1]
        samples = samples_in(size - 1)
        if not len(rows):
            return
        if samples:
            self._take_sample_packets(np.ascontiguousarray(rows).view(sample_frame(samples))[:, 0], samples)
        elif size == STATUS_STRUCT.size + 2 and (rows[:, 1] == STATUS_TYPE).all():
            self._heard["status packets"] += len(rows)
            self._take_status(Status.decode(rows[-1, 1:-1].tobytes()))
        elif size == 1:
            self._note("empty_packet", Severity.INFO, "packets without content came", len(rows))
        else:
            self._unknown(len(rows), rows.size)

    def _take_status(self, status: Status) -> None:
        """The late answer to a question asked before the stream, or the end of it."""
        if StatusBit.STREAM_ENDED not in status.bits:
            return
        self._ended = "it ended the stream by itself"
        if StatusBit.OVER_CURRENT in status.bits:
            self._ended = "over-current or thermal shutdown: it cut the output and ended the stream"
            self._note("over_current", Severity.ERROR, "the instrument cut the output and ended the stream")

    def _take_sample_packets(self, packets: NDArray[Any], samples: int) -> None:
        reserved = (packets["flags"] & FLAGS_RESERVED != 0) | (packets["type"] > REFERENCE_CALIBRATION)
        reserved |= (packets["type"] != DATA) & (samples % 2 == 1)  # a calibration has pairs of rows
        kind = np.where(reserved, _NOT_A_SAMPLE_PACKET, packets["type"])
        sequence: Bytes = packets["flags"] % SEQUENCE_MODULUS
        jump = (sequence[1:] - sequence[:-1]) % SEQUENCE_MODULUS != 1  # 256 is a multiple: wrapping is fine
        cuts = np.flatnonzero((kind[1:] != kind[:-1]) | jump | (packets["lost"][1:] != 0)) + 1
        edges = [0, *cuts.tolist(), len(packets)]
        for first, last in pairwise(edges):
            run = packets[first:last]
            if kind[first] == _NOT_A_SAMPLE_PACKET:
                self._unknown(len(run), run.nbytes)
                continue
            self._count_lost(int(sequence[first]), samples, run.itemsize)
            if self._started:  # while it calibrates before the first sample nothing is missed
                self._count.lose(int(run["lost"][0]), LOST_MODULUS)
            self._sequence = int(sequence[last - 1])
            self._note_flags(run["flags"], samples if kind[first] == DATA else 0)
            if kind[first] == DATA:
                self._packet_samples = samples
                self._take_data(run["measurements"].reshape(-1))
            else:
                self._take_calibration(int(kind[first]), run["measurements"]["main"])

    def _count_lost(self, sequence: int, samples: int, packet_bytes: int) -> None:
        """Packets missing before this one. Skipped bytes tell how often the 4-bit number wrapped."""
        skipped_bytes, self._skipped_bytes = self._skipped_bytes, 0
        if self._sequence is None:
            return
        lost = (sequence - self._sequence - 1) % SEQUENCE_MODULUS
        lost += SEQUENCE_MODULUS * max(0, round((skipped_bytes / packet_bytes - lost) / SEQUENCE_MODULUS))
        self._count.lose(lost * (self._packet_samples or samples), SEQUENCE_MODULUS * self._packet_samples)

    def _take_calibration(self, kind: int, readings: NDArray[Any]) -> None:
        self._heard["calibration packets"] += len(readings)
        for packet in readings:
            change = self._calibration.add(kind, packet)
            if change is Change.DOUBTED:
                message = "a calibration unlike those before: not used unless the next one agrees"
                self._note("odd_calibration", Severity.WARNING, message)
            elif change is Change.CONFIRMED:
                self._note("recalibrated", Severity.INFO, "the instrument's own calibration changed")
        if self._started:
            self._count.next_index += readings.size

    def _take_data(self, measurements: NDArray[Any]) -> None:
        count = len(measurements)
        if not self._calibration.complete:
            self._leave_out(count)
            return
        main = measurements["main"].astype(np.int32)
        clipped = np.isin(main & ~1, _RAILS)
        self._note_where(clipped, 1, "clipping", Severity.ERROR, "the converter was at its limit")
        # The low two bits of the voltage are not part of it (Catapult masks them).
        voltage_v = (measurements["voltage"] & 0xFFFC).astype(np.float64) * self._voltage_step_v
        dropped = self._count.lost if self._started else 0
        current_a = self._calibration.current_a(main)
        self._count.held.pieces.append(HeldPiece(self._count.next_index, dropped, current_a, voltage_v))
        self._count.next_index += count
        self._count.lost, self._started = 0, True

    def _leave_out(self, count: int) -> None:
        """Samples that cannot be scaled: expected in the beginning, lost in the middle of a stream."""
        if self._started:
            message = "samples left out: the instrument's zero and reference calibration are equal"
            self._note("bad_calibration", Severity.ERROR, message, count, self._count.next_index + count - 1)
            self._count.lose(count)
            return
        message = "samples before the first calibration cannot be scaled and were left out"
        self._note("before_calibration", Severity.INFO, message, count)
        self._count.next_index += count

    def _note_flags(self, flags: Bytes, samples: int) -> None:
        over = (flags & FLAG_OVER_CURRENT) != 0
        message = "over-current or thermal shutdown of the instrument"
        self._note_where(over, samples, "over_current", Severity.ERROR, message)
        off = (flags & FLAG_OUTPUT_ON) == 0
        self._note_where(off, samples, "output_off", Severity.WARNING, "the instrument's output was off")

    def _unknown(self, count: int, size_bytes: int) -> None:
        self._skipped_bytes += size_bytes
        self._note("unknown_packet", Severity.WARNING, "packets of an unknown kind were left out", count)

    def _note(
        self, code: str, severity: Severity, message: str, count: int = 1, last_index: int | None = None
    ) -> None:
        at = np.array([self._count.next_index])
        last = at if last_index is None else np.array([last_index])
        self._count.held.notes.append(HeldNote(code, severity, message, at, last, count))

    def _note_where(
        self, hit: NDArray[np.bool_], samples: int, code: str, severity: Severity, message: str
    ) -> None:
        """HeldNote the places of a run that were hit, each so many samples long."""
        first = self._count.next_index + np.flatnonzero(hit) * samples
        if len(first):
            last = first + max(samples, 1) - 1
            self._count.held.notes.append(HeldNote(code, severity, message, first, last, len(first)))
