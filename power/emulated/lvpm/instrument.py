"""An emulated Monsoon LVPM (white, stock firmware): the serial protocol on a pty.

Written from what the instrument's own firmware (version 20) does, see ``tests/firmware``: one frame per
write, each answered by a status packet; the sequence of calibrations; packets of 15 samples; what it counts
as lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from power.emulated.faults import Fault, FaultKind, FaultPlan, parse_faults
from power.emulated.lvpm.converter import LvpmConverter
from power.emulated.lvpm.variant import initial_status, variant_words
from power.emulated.options import EmulatorOptions
from power.emulated.pacer import Pacer
from power.emulated.pty_port import PtyPort
from power.emulated.service import Emulator
from power.emulated.signals import Signal, TruthLog
from power.wire.lvpm_frames import (
    DATA,
    FLAG_OUTPUT_ON,
    REFERENCE_CALIBRATION,
    SEQUENCE_MODULUS,
    ZERO_CALIBRATION,
    Status,
    StatusBit,
    encode_frame,
    split_frames,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PACKET_SAMPLES = 15
CALIBRATIONS_AT_START = 100
ROW_PAIRS_AT_START = 7
FIRST_CALIBRATION_NS = 5_500_000
CALIBRATION_NS = 2_175_000
FIRST_SAMPLE_NS = 212_200_000
FIRST_DATA_NS = 223_200_000
"""After start: the first calibration packet, the time from one to the next, the first sample, its packet."""

PACKETS_BEFORE_CALIBRATION = (997, 1000)
"""Data packets before the first calibration in the stream, and from one to the next (3 s)."""

BUFFERED_SAMPLES = 80
"""What the instrument keeps for a host that does not read."""

REPLY_NS = 3_000_000
VOLTAGE_NS = {False: 40_200_000, True: 130_300_000}
"""How long commands take; a voltage until it is off, or on."""

STOP_NS = 3_400_000
"""From the command until sampling ends, and the packet that was begun is sent."""

_PACKET_FAULTS = (FaultKind.BAD_CHECKSUM, FaultKind.TRUNCATED_FRAME, FaultKind.LOST_PACKETS)
_FAULTS = {
    *_PACKET_FAULTS,
    FaultKind.STALL,
    FaultKind.DISCONNECT,
    FaultKind.RECALIBRATE,
    FaultKind.OVER_CURRENT,
}


@dataclass(slots=True)
class LvpmSampling:
    """One run of sampling, from Start to Stop."""

    start_ns: int
    pacer: Pacer
    faults: FaultPlan
    waiting: NDArray[np.float64]  # rows of (amperes, volts)
    sequence: int = 0
    calibrations: int = 0
    to_calibration: int = PACKETS_BEFORE_CALIBRATION[0]
    lost: int = 0  # samples, since the last packet
    before_loss: int = 0  # samples that wait and were taken before these
    places: int = 0  # of samples to come, taken by a calibration
    stop_ns: int | None = None


class EmulatedLvpm(Emulator):
    """See `power.emulated.service.Emulator`.

    The output is on from the beginning, at 4.0 V and up to 3 A, as if somebody had prepared it: drivers do
    not touch it. The load model says what is measured; a voltage that a client sets takes the place of the
    model's.
    """

    def __init__(self, options: EmulatorOptions) -> None:
        self._options = options
        self._faults = parse_faults("an LVPM", options.faults, _FAULTS)
        self._rate_hz = options.rate_hz or 5000.0
        words = variant_words(options.variant)
        self._joined_writes = "joined-writes" in words
        self._fields = initial_status(options.serial, self._rate_hz, words)
        self._signal: Signal = options.build_signal()
        self._truth = TruthLog(options.truth) if options.truth else None
        self._converter = LvpmConverter(self.status.voltage_step_v)
        self._port = PtyPort()
        self._commands: list[bytes] = []
        self._replies: list[tuple[int, int]] = []  # when, and bits of the status
        self._busy_until_ns = 0
        self._to_send: list[bytes] = []
        self._sampling: LvpmSampling | None = None
        self._set_voltage_v: float | None = None
        self.output_on = "fresh" not in words
        self._over_current = False
        self._error_bits = 0
        self._counts = {"samples": 0, "packets": 0, "lost_packets": 0, "lost_samples": 0}

    @property
    def address(self) -> str:
        """The pty."""
        return self._port.path

    @property
    def status(self) -> Status:
        """What GetStatus answers now, without the load."""
        return Status(dict(self._fields))

    @property
    def statistics(self) -> dict[str, int]:
        """Samples taken and lost, packets sent and never sent, bytes the client was too slow for."""
        return {**self._counts, "discarded_bytes": self._port.discarded_bytes}

    def cut_output(self, over_current: bool) -> None:
        """The board cuts the output off, or recovers."""
        self._over_current = over_current

    def step(self, now_ns: int) -> None:
        """See `power.emulated.service.Emulator`."""
        if not self._port.is_open:
            return
        self._take_commands(now_ns)
        if self._sampling is not None:
            self._sample(self._sampling, now_ns)
        while self._replies and self._replies[0][0] <= now_ns and self._sampling is None:
            self._send_status(*self._replies.pop(0))
        out, self._to_send = b"".join(self._to_send), []
        if out and self._port.is_open:
            self._port.write(out)

    def close(self) -> None:
        """See `power.emulated.service.Emulator`."""
        self._port.close()
        if self._truth is not None:
            self._truth.close()

    # ---- commands ----

    def _take_commands(self, now_ns: int) -> None:
        """What the client wrote since the last step counts as one write."""
        data = self._port.read()
        if data:
            bodies, rest = split_frames(data)
            if not bodies and rest != data:
                bodies = [b""]  # a wrong checksum
            self._commands += bodies if self._joined_writes else bodies[:1]
        while self._commands and now_ns >= self._busy_until_ns:
            self._command(self._commands.pop(0), now_ns)

    def _command(self, body: bytes, now_ns: int) -> None:
        if self._sampling is not None:
            # While it samples the instrument obeys a stop only, and says afterwards that it missed something.
            if body[:1] == b"\x03":
                self._sampling.stop_ns = now_ns + STOP_NS
                # The firmware says so, whatever it means by it.
                odd = self._error_bits or StatusBit.BAD_CHECKSUM
                self._reply(now_ns + STOP_NS - REPLY_NS, StatusBit.STOPPED | odd)
            else:
                self._error_bits |= StatusBit.UNKNOWN_COMMAND
        elif not body:
            self._reply(now_ns, StatusBit.BAD_CHECKSUM)
        elif body[:1] == b"\x02" and len(body) == 7:
            self._start(now_ns)
        elif body[:1] == b"\x03":
            self._reply(now_ns, StatusBit.STOPPED)
        elif body[:1] == b"\x01" and len(body) == 3:
            self._set(body[1], body[2], now_ns)
        else:
            self._reply(now_ns, 0)

    def _set(self, what: int, value: int, now_ns: int) -> None:
        bits = 0
        if what == 0x01:
            was_on, self.output_on = self.output_on, value != 0
            if value:  # switching off leaves the setting as it was
                self._fields["outputVoltageSetting"] = value
                self._set_voltage_v = self.status.output_setting_v
            if was_on != self.output_on:
                now_ns += VOLTAGE_NS[self.output_on] - REPLY_NS
        elif what in (0x08, 0x09, 0x0A, 0x0B):
            name = "powerUpCurrentLimit" if what < 0x0A else "runTimeCurrentLimit"
            old = self._fields[name]
            self._fields[name] = old & 0xFF | value << 8 if what & 1 else old & 0xFF00 | value
        elif what == 0x10:
            self._fields["usbPassthroughMode"] = value
        elif what not in (0x00, 0x1B):
            bits = StatusBit.UNKNOWN_COMMAND
        self._reply(now_ns, bits)

    def _reply(self, begun_ns: int, bits: int) -> None:
        self._error_bits = 0
        self._busy_until_ns = begun_ns + REPLY_NS
        self._replies.append((self._busy_until_ns, bits))

    def _send_status(self, now_ns: int, bits: int) -> None:
        current_a, voltage_v = self._options.misread(*self._load(np.array([now_ns], np.int64)))
        bits |= 0 if self.output_on else StatusBit.OUTPUT_OFF
        bits |= StatusBit.OVER_CURRENT if self._over_current else 0
        leds = 6 if self._over_current else 4
        load = self._converter.status(float(current_a[0]), float(voltage_v[0]))
        status = Status({**self._fields, **load, "status": bits, "leds": leds})
        self._to_send.append(encode_frame(status.encode()))

    # ---- sampling ----

    def _start(self, now_ns: int) -> None:
        if self._over_current:
            self._reply(now_ns, StatusBit.STREAM_ENDED)
            return
        pacer = Pacer(self._rate_hz, self._options.skew_ppm, now_ns + FIRST_SAMPLE_NS)
        self._sampling = LvpmSampling(now_ns, pacer, FaultPlan(self._faults), np.empty((0, 2)))

    def _load(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        current_a, voltage_v = self._signal.sample(t_ns)
        if self._set_voltage_v is not None:
            voltage_v = np.full(len(t_ns), self._set_voltage_v)
        if not self.output_on and "fresh" not in self._options.variant:
            current_a = voltage_v = np.zeros(len(t_ns))
        return current_a, voltage_v

    def _sample(self, run: LvpmSampling, now_ns: int) -> None:
        self._calibrate_at_start(run, now_ns)
        if run.stop_ns is not None:
            now_ns = min(now_ns, run.stop_ns)
        if now_ns - run.start_ns < FIRST_DATA_NS and run.stop_ns is None:
            return
        _, t_ns = run.pacer.due(now_ns)
        if len(t_ns):
            current_a, voltage_v = self._load(t_ns)
            if self._truth is not None:
                self._truth.add(t_ns, current_a, voltage_v)
            self._counts["samples"] += len(t_ns)
            read = self._options.misread(current_a, voltage_v)
            run.waiting = np.concatenate([run.waiting, np.column_stack(read)])
        self._send_packets(run)
        if self._over_current:
            self._end(run)
            self._replies.append((now_ns, StatusBit.STREAM_ENDED))
        elif run.stop_ns is not None and now_ns >= run.stop_ns:
            self._end(run)

    def _calibrate_at_start(self, run: LvpmSampling, now_ns: int) -> None:
        elapsed_ns = now_ns - run.start_ns - FIRST_CALIBRATION_NS
        due = min(CALIBRATIONS_AT_START, elapsed_ns // CALIBRATION_NS + 1) if elapsed_ns >= 0 else 0
        while run.calibrations < due:
            self._calibrate(run, ROW_PAIRS_AT_START)

    def _send_packets(self, run: LvpmSampling) -> None:
        while len(run.waiting) >= PACKET_SAMPLES and self._port.is_open:
            run.waiting, run.places = run.waiting[run.places :], max(0, run.places - len(run.waiting))
            index = run.pacer.next_index - len(run.waiting)
            for fault in run.faults.due(index / self._rate_hz):
                self._begin_fault(run, fault)
            if len(run.waiting) < PACKET_SAMPLES or self._over_current:
                return
            load, run.waiting = run.waiting[:PACKET_SAMPLES], run.waiting[PACKET_SAMPLES:]
            self._packet(run, DATA, self._converter.measure(load[:, 0], load[:, 1]))
            run.to_calibration -= 1
            if not run.to_calibration:
                run.to_calibration = PACKETS_BEFORE_CALIBRATION[1]
                self._calibrate(run, 1)

    def _begin_fault(self, run: LvpmSampling, fault: Fault) -> None:
        if fault.kind is FaultKind.DISCONNECT:
            self._port.close()
        elif fault.kind is FaultKind.OVER_CURRENT:
            self._over_current = True
        elif fault.kind is FaultKind.RECALIBRATE:
            self._converter.drift()
            for _ in range(4):  # zero and reference, and both again: one alone may be damage
                self._calibrate(run, 1)
        elif fault.kind is FaultKind.STALL:
            self._lose(run, round(fault.amount * self._rate_hz))
        else:
            run.faults.damage(fault.kind, int(fault.amount))

    def _lose(self, run: LvpmSampling, samples: int) -> None:
        """The host does not read: the oldest samples stay, those that find no place are lost and counted."""
        lost = max(0, samples - BUFFERED_SAMPLES)
        # Whole packets that wait go out first; the packet behind the gap says what is missing.
        run.before_loss = len(run.waiting) // PACKET_SAMPLES * PACKET_SAMPLES
        left_out = len(run.waiting) - run.before_loss
        run.waiting = run.waiting[: run.before_loss]
        run.lost += lost + left_out
        self._counts["lost_samples"] += lost + left_out
        t_ns = run.pacer.skip(lost)
        if self._truth is not None and len(t_ns):
            self._truth.add(t_ns, *self._signal.sample(t_ns))

    def _calibrate(self, run: LvpmSampling, pairs: int) -> None:
        kind = ZERO_CALIBRATION if run.calibrations % 2 else REFERENCE_CALIBRATION
        run.calibrations += 1
        voltage_v = float(self._load(np.array([run.start_ns], np.int64))[1][0])
        self._packet(run, kind, self._converter.calibration(kind, pairs, voltage_v))
        if pairs == 1:
            run.places += 2  # its rows take the place of samples

    def _end(self, run: LvpmSampling) -> None:
        """Sampling ends; samples that make no whole packet go out in a shorter one."""
        left = run.waiting[: PACKET_SAMPLES - 1]
        if len(left) and self._over_current:
            self._packet(run, DATA, self._converter.measure(left[:, 0], left[:, 1]))
        self._sampling = None

    def _packet(self, run: LvpmSampling, kind: int, measurements: NDArray[np.void]) -> None:
        hit = {fault for fault in _PACKET_FAULTS if run.faults.hits(fault)}
        flags = run.sequence | FLAG_OUTPUT_ON
        run.sequence = (run.sequence + 1) % SEQUENCE_MODULUS
        lost = 0
        if run.before_loss > 0:
            run.before_loss -= PACKET_SAMPLES if kind == DATA else 0
        else:
            lost, run.lost = run.lost % 256, 0
        # The trailing byte matters: without it every client would lose one sample per packet.
        frame = encode_frame(bytes([flags, kind, 0, lost]) + measurements.tobytes() + b"\0")
        if FaultKind.LOST_PACKETS in hit:
            self._counts["lost_packets"] += 1
            return
        if FaultKind.BAD_CHECKSUM in hit:
            frame = frame[:-1] + bytes([frame[-1] ^ 0x5A])
        if FaultKind.TRUNCATED_FRAME in hit:
            frame = frame[: len(frame) // 2]
        self._counts["packets"] += 1
        self._to_send.append(frame)
