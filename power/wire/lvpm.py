"""Monsoon LVPM sample stream: bytes to amperes and volts, vectorised, with every loss accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from power.model import Finding, FindingLog, Severity
from power.wire.decoder import Decoded
from power.wire.lvpm_calibration import Calibration
from power.wire.lvpm_elapsed import ElapsedCheck
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
from power.wire.lvpm_sync import count_good, equal_frames, find_chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

LOST_MODULUS = 256
"""After so many samples a packet's count of lost ones is back at 0."""

_NOT_A_SAMPLE_PACKET = 255
_RAILS = (-32768, 32766)  # of a 16-bit converter whose bit 0 names the range


@dataclass(frozen=True, slots=True)
class _Piece:
    """Samples of adjacent packets under one calibration."""

    first_index: int
    dropped_before: int
    current_a: NDArray[np.float64]
    voltage_v: NDArray[np.float64]


class LvpmDecoder:
    """Decodes the main channel. See `power.wire.decoder.Decoder`.

    The tick is the sample's number, counted from the first sample packet, lost ones included. Losses show in
    two places: a byte of each packet counts the samples that the instrument had no room for before it, and
    the sequence number skips where whole packets did not arrive; such a packet is taken to have held as many
    samples as its neighbours. The rows of a calibration in the stream take the place of samples, so a block
    ends there, but nothing was lost. (Firmware 20 does it so, see ``docs/power.md``.)

    Samples depend on the bytes alone. Only the check for losses of whole turns of these counters looks at
    ``arrival_ns``, so the point where such a loss is counted depends on the portions.

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
        self._elapsed = ElapsedCheck(rate_hz)
        self._findings = FindingLog()
        self._rest = b""
        self._in_sync = True
        self._skipped_bytes = 0  # since the last sample packet
        self._sequence: int | None = None
        self._packet_samples = 0
        self._next_index = 0
        self._lost = 0  # samples, since the last piece
        self._started = False
        self._pieces: list[_Piece] = []
        self._ended = ""
        self._turn_memory = round(3 * rate_hz)  # as long as a loss may take to be noticed
        self._no_room_index = -self._turn_memory

    @property
    def ended(self) -> str:
        """Why the instrument ended the stream by itself; empty while it goes on."""
        return self._ended

    @property
    def findings(self) -> tuple[Finding, ...]:
        """See `power.wire.decoder.Decoder`."""
        return self._findings.as_tuple()

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`."""
        buffer = np.frombuffer(self._rest + data, np.uint8)
        index_before = self._next_index
        position = self._walk(buffer)
        self._rest = buffer[position:].tobytes()
        if self._next_index > index_before:
            self._check_elapsed(arrival_ns)
        pieces, self._pieces = self._pieces, []
        return _join(pieces)

    def _walk(self, buffer: Bytes) -> int:
        """Take all frames that are complete; returns where the first incomplete one starts."""
        position = 0
        while position < len(buffer):
            if not self._in_sync:
                found, self._in_sync = find_chain(buffer, position)
                self._skipped_bytes += found - position
                position = found
                if not self._in_sync:
                    break
                self._note("resync", Severity.WARNING, "the packet boundaries were lost and found again")
            rows = equal_frames(buffer, position)
            if not len(rows):
                break
            good = count_good(rows)
            self._take(rows[:good])
            position += good * rows.shape[1]
            if good < len(rows):
                self._note("bad_checksum", Severity.WARNING, "a packet with a wrong checksum was left out")
                self._in_sync = False
                self._skipped_bytes += 1
                position += 1
        return position

    def _take(self, rows: Bytes) -> None:
        """Frames of one length with good checksums."""
        size = rows.shape[1]
        samples = samples_in(size - 1)
        if not len(rows):
            return
        if samples:
            self._take_sample_packets(np.ascontiguousarray(rows).view(sample_frame(samples))[:, 0], samples)
        elif size == STATUS_STRUCT.size + 2 and (rows[:, 1] == STATUS_TYPE).all():
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
                self._count_no_room(int(run["lost"][0]))
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
        self._lose(lost * (self._packet_samples or samples))

    def _count_no_room(self, samples: int) -> None:
        if samples:
            self._lose(samples)
            self._no_room_index = self._next_index

    def _lose(self, samples: int) -> None:
        self._lost += samples
        self._next_index += samples

    def _take_calibration(self, kind: int, readings: NDArray[Any]) -> None:
        for packet in readings:
            if self._calibration.add(kind, packet):
                self._note("recalibrated", Severity.INFO, "the instrument's own calibration changed")
        if self._started:
            self._next_index += readings.size

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
        dropped = self._lost if self._started else 0
        current_a = self._calibration.current_a(main)
        self._pieces.append(_Piece(self._next_index, dropped, current_a, voltage_v))
        self._next_index += count
        self._lost, self._started = 0, True

    def _leave_out(self, count: int) -> None:
        """Samples that cannot be scaled: expected in the beginning, lost in the middle of a stream."""
        if self._started:
            self._findings.add(
                "bad_calibration",
                Severity.ERROR,
                "samples left out: the instrument's zero and reference calibration are equal",
                index=self._next_index,
                last_index=self._next_index + count - 1,
                count=count,
            )
            self._lose(count)
            return
        message = "samples before the first calibration cannot be scaled and were left out"
        self._note("before_calibration", Severity.INFO, message, count)
        self._next_index += count

    def _note_flags(self, flags: Bytes, samples: int) -> None:
        over = (flags & FLAG_OVER_CURRENT) != 0
        message = "over-current or thermal shutdown of the instrument"
        self._note_where(over, samples, "over_current", Severity.ERROR, message)
        off = (flags & FLAG_OUTPUT_ON) == 0
        self._note_where(off, samples, "output_off", Severity.WARNING, "the instrument's output was off")

    def _check_elapsed(self, arrival_ns: int) -> None:
        if not self._packet_samples:
            return
        # A whole turn leaves no trace, but an instrument without room rarely loses just that.
        no_room = self._next_index - self._no_room_index < self._turn_memory
        turn = LOST_MODULUS if no_room else SEQUENCE_MODULUS * self._packet_samples
        missing = self._elapsed.add(self._next_index, arrival_ns, turn)
        if missing > 0:
            self._note(
                "late_gap",
                Severity.WARNING,
                "a loss that the counters cannot show (whole turns of them) was counted up to 2 s late",
                missing,
            )
            self._lose(missing)
        elif missing < 0:
            self._note(
                "surplus", Severity.WARNING, "samples come sooner than their number allows for", -missing
            )

    def _unknown(self, count: int, size_bytes: int) -> None:
        self._skipped_bytes += size_bytes
        self._note("unknown_packet", Severity.WARNING, "packets of an unknown kind were left out", count)

    def _note(self, code: str, severity: Severity, message: str, count: int = 1) -> None:
        self._findings.add(code, severity, message, index=self._next_index, count=count)

    def _note_where(
        self, hit: NDArray[np.bool_], samples: int, code: str, severity: Severity, message: str
    ) -> None:
        """Note the places of a run that were hit, each so many samples long."""
        first = self._next_index + np.flatnonzero(hit) * samples
        self._findings.add_each(code, severity, message, first, first + max(samples, 1) - 1)


def _join(pieces: list[_Piece]) -> list[Decoded]:
    """Pieces without a gap between them as one block."""
    if not pieces:
        return []
    ends = [0, *(piece.first_index + len(piece.current_a) for piece in pieces)]
    starts = [i for i, piece in enumerate(pieces) if i == 0 or piece.first_index != ends[i]]
    blocks = []
    for first, last in zip(starts, [*starts[1:], len(pieces)], strict=True):
        part = pieces[first:last]
        current_a = np.concatenate([piece.current_a for piece in part])
        index = part[0].first_index
        blocks.append(
            Decoded(
                first_index=index,
                dropped_before=part[0].dropped_before,
                ticks=np.arange(index, index + len(current_a), dtype=np.int64),
                current_a=current_a,
                voltage_v=np.concatenate([piece.voltage_v for piece in part]),
            )
        )
    return blocks
