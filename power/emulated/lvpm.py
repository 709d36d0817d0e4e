"""An emulated Monsoon LVPM (white, stock firmware): the serial protocol on a pty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.errors import ConfigError
from power.emulated.faults import Fault, FaultKind, FaultPlan, parse_faults
from power.emulated.options import EmulatorOptions
from power.emulated.pacer import Pacer
from power.emulated.pty_port import PtyPort
from power.emulated.service import Emulator
from power.emulated.signals import Signal, TruthLog
from power.wire.lvpm_frames import (
    COARSE_REFERENCE_A,
    DATA,
    FINE_REFERENCE_A,
    FLAG_OUTPUT_ON,
    FLAG_OVER_CURRENT,
    MEASUREMENT,
    REFERENCE_CALIBRATION,
    SEQUENCE_MODULUS,
    STATUS_FIELDS,
    STATUS_TYPE,
    ZERO_CALIBRATION,
    Status,
    current_limit_code,
    encode_frame,
    split_frames,
    voltage_code,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PACKET_SAMPLES = 7
"""As many as fit a USB bulk packet of 64 bytes; the clients take any number."""

CALIBRATIONS_AT_START = 5
"""Mobly is content with one pair, ACTS averages five and waits for them."""

CALIBRATION_S = 1.0
FINE_LIMIT = 30_000
"""Reading at which the fine range gives way to the coarse one (from the vendor's library for USB)."""

_PACKET_FAULTS = {
    FaultKind.BAD_CHECKSUM,
    FaultKind.TRUNCATED_FRAME,
    FaultKind.LOST_PACKETS,
    FaultKind.OVER_CURRENT,
}
_FAULTS = {*_PACKET_FAULTS, FaultKind.STALL, FaultKind.DISCONNECT, FaultKind.RECALIBRATE}

_HARDWARE_REVISIONS = {"": 2, "revision-1": 1}
"""By variant; the first revision has half the voltage step."""


@dataclass(slots=True)
class LvpmConverter:
    """The instrument's analogue side: amperes and volts to counts, and the readings that calibrate them.

    The counts are of our choosing. With these the fine range ends at 41 mA in steps of 2.8 µA, the coarse
    one at 6 A in steps of 0.37 mA (the low bit names the range, so a step is two counts).
    """

    voltage_step_v: float
    fine_zero: int = 120
    fine_span: int = 24_000
    coarse_zero: int = -64
    coarse_span: int = 15_600

    def measure(self, current_a: NDArray[np.float64], voltage_v: NDArray[np.float64]) -> NDArray[np.void]:
        """The measurements of a data packet; nothing is connected to USB and aux."""
        fine = current_a / FINE_REFERENCE_A * self.fine_span + self.fine_zero
        coarse = current_a / COARSE_REFERENCE_A * self.coarse_span + self.coarse_zero
        in_fine = np.abs(fine) < FINE_LIMIT
        counts = 2 * np.rint(np.where(in_fine, fine, np.clip(coarse, -32768, 32766)) / 2)
        rows = np.zeros(len(current_a), MEASUREMENT)
        rows["main"] = counts.astype(np.int16) | ~in_fine
        rows["usb"] = rows["aux"] = self.fine_zero
        # Clients must mask the low two bits, so they are not left zero here.
        rows["voltage"] = 4 * np.rint(voltage_v / self.voltage_step_v / 4).clip(0, 0x3FFF) + 3
        return rows

    def calibration(self, kind: int) -> NDArray[np.void]:
        """The measurements of a calibration packet: a fine row, then a coarse one."""
        rows = np.zeros(2, MEASUREMENT)
        at_reference = kind == REFERENCE_CALIBRATION
        readings = [self.fine_zero + at_reference * self.fine_span]
        readings += [self.coarse_zero + at_reference * self.coarse_span]
        for channel in ("main", "usb", "aux"):
            rows[channel] = readings
        return rows

    def drift(self) -> None:
        """Become another converter, as after warming up: both zeros and both gains move."""
        self.fine_zero += 400
        self.fine_span -= 600
        self.coarse_zero += 100
        self.coarse_span += 300


@dataclass(slots=True)
class LvpmSampling:
    """One run of sampling, from Start to Stop."""

    pacer: Pacer
    faults: FaultPlan
    sequence: int = 0
    next_calibration_s: float = 0.0
    waiting: list[NDArray[np.float64]] = field(default_factory=list)  # rows of (amperes, volts)


class EmulatedLvpm(Emulator):
    """See `power.emulated.service.Emulator`.

    The output is on from the beginning, at 4.0 V and up to 3 A: drivers do not touch it. The load model
    says what is measured; a voltage that a client sets takes the place of the model's.
    """

    def __init__(self, options: EmulatorOptions) -> None:
        self._options = options
        self._faults = parse_faults("an LVPM", options.faults, _FAULTS)
        self._rate_hz = options.rate_hz or 5000.0
        self._fields = _initial_status(options.serial, self._rate_hz, options.variant)
        self._signal: Signal = options.build_signal()
        self._truth = TruthLog(options.truth) if options.truth else None
        self._converter = LvpmConverter(self.status.voltage_step_v)
        self._port = PtyPort()
        self._received = b""
        self._to_send: list[bytes] = []
        self._sampling: LvpmSampling | None = None
        self._set_voltage_v: float | None = None
        self.output_on = True
        self._counts = {"samples": 0, "packets": 0, "lost_packets": 0}

    @property
    def address(self) -> str:
        """The pty."""
        return self._port.path

    @property
    def status(self) -> Status:
        """What GetStatus answers now."""
        return Status(dict(self._fields))

    @property
    def statistics(self) -> dict[str, int]:
        """Samples taken, packets sent and never sent, bytes the client was too slow for."""
        return {**self._counts, "discarded_bytes": self._port.discarded_bytes}

    def step(self, now_ns: int) -> None:
        """See `power.emulated.service.Emulator`."""
        if not self._port.is_open:
            return
        bodies, self._received = split_frames(self._received + self._port.read())
        for body in bodies:
            self._command(body, now_ns)
        if self._sampling is not None:
            self._sample(self._sampling, now_ns)
        out, self._to_send = b"".join(self._to_send), []
        if out and self._port.is_open:
            self._port.write(out)

    def close(self) -> None:
        """See `power.emulated.service.Emulator`."""
        self._port.close()
        if self._truth is not None:
            self._truth.close()

    def _command(self, body: bytes, now_ns: int) -> None:
        if body == b"\x01\x00\x00":
            self._to_send.append(encode_frame(self.status.encode()))
        elif body[:1] == b"\x01" and len(body) == 3:
            self._set(body[1], body[2])
        elif body[:1] == b"\x02" and self._sampling is None:
            pacer = Pacer(self._rate_hz, self._options.skew_ppm, now_ns)
            self._sampling = LvpmSampling(pacer, FaultPlan(self._faults))
            for _ in range(CALIBRATIONS_AT_START - 1):
                self._calibrate(self._sampling)
        elif body[:1] == b"\x03":
            self._sampling = None

    def _set(self, what: int, value: int) -> None:
        if what == 0x01:
            self.output_on = value != 0
            if value:  # switching off leaves the setting as it was
                self._fields["outputVoltageSetting"] = value
                self._set_voltage_v = self.status.output_setting_v
        elif what in (0x08, 0x09, 0x0A, 0x0B):
            name = "powerUpCurrentLimit" if what < 0x0A else "runTimeCurrentLimit"
            old = self._fields[name]
            self._fields[name] = old & 0xFF | value << 8 if what & 1 else old & 0xFF00 | value
        elif what == 0x10:
            self._fields["usbPassthroughMode"] = value

    def _sample(self, run: LvpmSampling, now_ns: int) -> None:
        _, t_ns = run.pacer.due(now_ns)
        if not len(t_ns):
            return
        current_a, voltage_v = self._signal.sample(t_ns)
        if self._set_voltage_v is not None:
            voltage_v = np.full(len(t_ns), self._set_voltage_v)
        if not self.output_on:
            current_a = voltage_v = np.zeros(len(t_ns))
        if self._truth is not None:
            self._truth.add(t_ns, current_a, voltage_v)
        self._counts["samples"] += len(t_ns)
        run.waiting.append(np.column_stack([current_a, voltage_v]))
        waiting = np.concatenate(run.waiting)
        first = run.pacer.next_index - len(waiting)
        whole = len(waiting) - len(waiting) % PACKET_SAMPLES
        for start in range(0, whole, PACKET_SAMPLES):
            self._data_packet(run, (first + start) / self._rate_hz, waiting[start : start + PACKET_SAMPLES])
        run.waiting = [waiting[whole:]]

    def _data_packet(self, run: LvpmSampling, elapsed_s: float, load: NDArray[np.float64]) -> None:
        for fault in run.faults.due(elapsed_s):
            self._begin_fault(run, fault)
        if elapsed_s >= run.next_calibration_s:
            self._calibrate(run)
            run.next_calibration_s += CALIBRATION_S
        self._packet(run, DATA, self._converter.measure(load[:, 0], load[:, 1]))

    def _begin_fault(self, run: LvpmSampling, fault: Fault) -> None:
        if fault.kind is FaultKind.DISCONNECT:
            self._port.close()
        elif fault.kind is FaultKind.RECALIBRATE:
            self._converter.drift()
            self._calibrate(run)
        elif fault.kind is FaultKind.STALL:
            # The instrument has no memory to speak of: what it cannot send is lost.
            packets = round(fault.amount * self._rate_hz / PACKET_SAMPLES)
            run.faults.damage(FaultKind.LOST_PACKETS, packets)
        else:
            run.faults.damage(fault.kind, int(fault.amount))

    def _calibrate(self, run: LvpmSampling) -> None:
        for kind in (ZERO_CALIBRATION, REFERENCE_CALIBRATION):
            self._packet(run, kind, self._converter.calibration(kind))

    def _packet(self, run: LvpmSampling, kind: int, measurements: NDArray[np.void]) -> None:
        hit = {kind for kind in _PACKET_FAULTS if run.faults.hits(kind)}
        flags = run.sequence | self.output_on * FLAG_OUTPUT_ON
        flags |= (FaultKind.OVER_CURRENT in hit) * FLAG_OVER_CURRENT
        run.sequence = (run.sequence + 1) % SEQUENCE_MODULUS
        # The unknown bytes hold values that ACTS has seen. The last one matters: without it every client
        # would lose one sample per packet.
        frame = encode_frame(bytes([flags, kind, 0x00, 0xC4]) + measurements.tobytes() + b"\x84")
        if FaultKind.LOST_PACKETS in hit:
            self._counts["lost_packets"] += 1
            return
        if FaultKind.BAD_CHECKSUM in hit:
            frame = frame[:-1] + bytes([frame[-1] ^ 0x5A])
        if FaultKind.TRUNCATED_FRAME in hit:
            frame = frame[: len(frame) // 2]
        self._counts["packets"] += 1
        self._to_send.append(frame)


def _initial_status(serial: str, rate_hz: float, variant: str) -> dict[str, int]:
    """Plausible contents; fields that no client interprets are 0."""
    if variant not in _HARDWARE_REVISIONS:
        raise ConfigError(f"variant {variant!r}: an LVPM has no such", hint="revision-1, or none")
    number = serial or "12345"
    if not number.isdecimal() or int(number) > 0xFFFF:
        raise ConfigError(f"serial {serial!r}: an LVPM's is a number up to 65535")
    if rate_hz % 1000 or rate_hz > 255_000:
        raise ConfigError(f"rate_hz {rate_hz:g}: an LVPM states its rate in whole kHz, up to 255")
    return dict.fromkeys(STATUS_FIELDS, 0) | {
        "packetType": STATUS_TYPE,
        "firmwareVersion": 18,
        "protocolVersion": 14,
        "hardwareRevision": _HARDWARE_REVISIONS[variant],
        "serialNumber": int(number),
        "sampleRate": int(rate_hz / 1000),
        "outputVoltageSetting": voltage_code(4.0),
        "powerUpCurrentLimit": current_limit_code(3.0),
        "runTimeCurrentLimit": current_limit_code(3.0),
        "voltage1": round(4.0 / 125e-6),
        "voltage2": round(4.0 / 125e-6),
    }
