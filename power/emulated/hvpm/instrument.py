"""An emulated Monsoon HVPM (black) or reflashed LVPM, at the end of a USB cable made of a Unix socket."""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from power.emulated.faults import Fault, FaultKind, FaultPlan
from power.emulated.hvpm.front_end import (
    DROPPED_MAX,
    INVALID,
    QUEUE_DEPTH,
    REFERENCE,
    ZERO,
    ObservationQueue,
    hvpm_front_end,
    lvpm_front_end,
)
from power.emulated.hvpm.registers import FIRST_WITH_STATUS, LVPM_RESISTOR_OFFSET, Registers
from power.emulated.hvpm.variant import HvpmVariant
from power.emulated.options import EmulatorOptions
from power.emulated.pacer import Pacer
from power.emulated.service import Emulator
from power.emulated.signals import TruthLog
from power.emulated.usb.cable import ADDRESS_PREFIX, ControlRequest, TransferError, UsbSocketServer
from power.wire.hvpm_control import (
    SAMPLE_RATE_HZ,
    VOLT,
    HardwareModel,
    Opcode,
    Request,
    RequestType,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BURST_NS: Final = 5_000_000
"""How often samples are made: a load model that reads /proc cannot be asked 5000 times a second."""

LATE_NS: Final = 1_000_000
"""A host that stayed away for longer may have lost samples: they are made at once to find out which."""

POLL_NS: Final = 1_000_000
"""How often a read that waits looks for new samples."""

FULL_PACKET: Final = 3
"""Observations that fit a packet. A real unit gives a quick host each by itself, 5000 packets a second."""

CALIBRATIONS_AT_START: Final = {30: 2}
"""Observations after the first, invalid one: by firmware, if it is not 101."""

STOP_S: Final = 0.0446
"""How long a unit takes to stop, also if it does not sample."""

PATIENT_DEPTH: Final = 60 * round(SAMPLE_RATE_HZ)
"""Queue of the variant ``patient``, which forgives a host that is a minute late."""

_UNREAD_NS: Final = 1_000_000_000
"""How long nobody reads until the host counts as gone: memory stays bounded after a client was killed."""


@dataclass(slots=True)
class HvpmSampling:
    """One run, from Start to Stop.

    Attributes:
        pacer: The unit's crystal.
        calibration_period: Observations from one calibration to the next.
        calibrations: How many come before the first measurement.
        limit: Samples after which the unit stops by itself.
        queue: What the host has not read yet.
        to_drop: Samples that are still to be dropped on purpose.
    """

    pacer: Pacer
    calibration_period: int
    calibrations: int
    limit: int
    queue: ObservationQueue
    plan: FaultPlan
    extra_drops: int = 0
    packets: int = 0
    stalled_until_ns: int = 0
    to_drop: int = 0


class EmulatedHvpm(Emulator):
    """See `power.emulated.service.Emulator`; `power.emulated.hvpm.variant` lists its variants.

    The main output is on from the beginning, at the load model's voltage; a voltage that a client sets takes
    its place, and 0 switches a load there off.
    """

    def __init__(self, options: EmulatorOptions) -> None:
        self._variant = variant = HvpmVariant.parse(options)
        self._skew_ppm = options.skew_ppm
        low = variant.model is HardwareModel.LVPM
        load = variant.load
        self._front_end = lvpm_front_end(load, LVPM_RESISTOR_OFFSET) if low else hvpm_front_end(load)
        self._registers = Registers(variant)
        self._first_voltage_word = self._registers[Opcode.MAIN_VOLTAGE]
        self._signal, self._misread = options.build_signal(), options.misread
        self._truth = TruthLog(options.truth) if options.truth else None
        self._counts = {"samples": 0, "packets": 0, "lost_packets": 0, "dropped": 0, "discarded_bytes": 0}
        self._over_current = False
        self._left: list[bytes] = []  # packets made up before a stop
        self._lock = threading.RLock()
        self._sampling: HvpmSampling | None = None
        self._server = UsbSocketServer(self)

    @property
    def address(self) -> str:
        """What goes into `power.meter.MeterConfig.port`."""
        return ADDRESS_PREFIX + self._server.path

    @property
    def statistics(self) -> dict[str, int]:
        """Samples made, samples and bytes the host was too late for, packets sent and never sent."""
        return dict(self._counts)

    def step(self, now_ns: int) -> None:
        """See `power.emulated.service.Emulator`; transfers are answered by threads of their own."""
        with self._lock:
            run = self._sampling
            if run is not None:
                self._make(run, now_ns)
                self._forget_unread(run, now_ns - _UNREAD_NS)

    def close(self) -> None:
        """See `power.emulated.service.Emulator`."""
        self._server.close()
        with self._lock:
            self._sampling = None
            if self._truth is not None:
                self._truth.close()
                self._truth = None

    def open_error(self) -> int:
        """See `power.emulated.usb.cable.UsbDevice`."""
        return errno.EACCES if self._variant.forbidden else 0

    def reset(self) -> None:
        """See `power.emulated.usb.cable.UsbDevice`; settings, and so the output, outlive it."""
        with self._lock:
            self._stop()

    def cut_output(self, over_current: bool) -> None:
        """The board cuts the output off, or recovers."""
        self._over_current = over_current

    def control(self, request: ControlRequest) -> bytes:
        """See `power.emulated.usb.cable.UsbDevice`."""
        with self._lock:
            busy_s, answer = self._answer(request)
        if busy_s:
            time.sleep(busy_s)
        return answer

    def _answer(self, request: ControlRequest) -> tuple[float, bytes]:
        if request.request_type == RequestType.OUT and request.request == Request.START:
            self._start(request.value, int.from_bytes(request.data, "little"))
            return 0.0, b""
        if request.request_type == RequestType.OUT and request.request == Request.STOP:
            self._stop()
            return STOP_S, b""
        if request.request == Request.RESET_TO_BOOTLOADER or _is_reset(request):
            self._server.close()
            raise TransferError(errno.ENODEV)
        answer = self._registers.answer(request)
        return self._registers.takes_s(request), answer

    def bulk_read(self, size: int, requested_ns: int, deadline_ns: int) -> bytes:
        """See `power.emulated.usb.cable.UsbDevice`."""
        packet = self._poll(requested_ns, is_first=True)
        while packet is None:
            now_ns = time.monotonic_ns()
            if now_ns >= deadline_ns:
                raise TransferError(errno.ETIMEDOUT)
            time.sleep(min(POLL_NS, deadline_ns - now_ns) * 1e-9)
            packet = self._poll(requested_ns, is_first=False)
        return packet[:size]

    def _poll(self, requested_ns: int, *, is_first: bool) -> bytes | None:
        now_ns = time.monotonic_ns()
        with self._lock:
            run = self._sampling
            if run is None:
                return self._left.pop(0) if self._left else None
            late = is_first and requested_ns - run.queue.away_since_ns > LATE_NS
            self._make(run, now_ns, at_once=late)
            if is_first:
                self._forget_unread(run, requested_ns)
            return self._packet(run, now_ns)

    def _start(self, calibration: int, limit: int) -> None:
        if self._sampling is not None and self._variant.firmware >= FIRST_WITH_STATUS:
            raise TransferError(errno.EPIPE)
        now_ns = time.monotonic_ns()
        depth = PATIENT_DEPTH if self._variant.patient else QUEUE_DEPTH
        wrap = sum(f.amount for f in self._variant.faults if f.kind is FaultKind.DROP_COUNTER_WRAP)
        self._left = []
        self._sampling = HvpmSampling(
            pacer=Pacer(SAMPLE_RATE_HZ, self._skew_ppm, now_ns),
            calibration_period=calibration + 2,
            calibrations=CALIBRATIONS_AT_START.get(self._variant.firmware, 101),
            limit=limit,
            queue=ObservationQueue(depth, 0, now_ns),
            plan=FaultPlan(self._variant.faults),
            extra_drops=0x10000 - round(wrap / 2) if wrap else 0,
        )
        self._registers.sampling = True

    def _stop(self) -> None:
        run, self._sampling = self._sampling, None
        self._registers.sampling = False
        if run is not None and len(run.queue):
            packet = self._next_packet(run)
            self._left = [packet] if packet else []

    def _make(self, run: HvpmSampling, now_ns: int, *, at_once: bool = False) -> None:
        """Begin the faults and take the samples that are due, unless it is too early to bother."""
        elapsed_ns = now_ns - run.pacer.start_ns
        for fault in run.plan.due(elapsed_ns * 1e-9):
            self._begin(fault, run, now_ns)
        if not at_once and elapsed_ns < run.pacer.next_index * run.pacer.period_ns + BURST_NS:
            return
        first, t_ns = run.pacer.due(now_ns)
        t_ns = t_ns[: max(0, run.limit - first)]
        if len(t_ns):
            self._measure(run, first, t_ns)
        elif first >= run.limit and not len(run.queue):
            self._stop()  # the host has got the number of samples it asked for

    def _measure(self, run: HvpmSampling, first: int, t_ns: NDArray[np.int64]) -> None:
        current_a, voltage_v = self._signal.sample(t_ns)
        word = self._registers[Opcode.MAIN_VOLTAGE]
        if self._variant.load == "main" and word != self._first_voltage_word:
            voltage_v = np.full(len(t_ns), word / VOLT)
            current_a = current_a if word else np.zeros(len(t_ns))
        if self._truth is not None:
            self._truth.add(t_ns, current_a, voltage_v)
        current_a, voltage_v = self._misread(current_a, voltage_v)
        rows = self._front_end.measure(current_a, voltage_v)
        if first == 0:
            rows[0] = self._front_end.measure(current_a[:1], voltage_v[:1], INVALID)
        for i in np.flatnonzero(_is_calibration(run, first + np.arange(len(t_ns)))).tolist():
            kind = _calibration_kind(run, first + i)
            rows[i] = self._front_end.calibrate(kind, float(voltage_v[i]))
        dropped = min(run.to_drop, len(t_ns))
        run.to_drop -= dropped
        run.queue.dropped += dropped
        self._counts["samples"] += len(t_ns)
        self._counts["dropped"] += dropped
        for t, row in zip(t_ns[dropped:].tolist(), rows[dropped:], strict=True):
            run.queue.add(t, row.tobytes())

    def _forget_unread(self, run: HvpmSampling, until_ns: int) -> None:
        """What the host did not read in time is lost."""
        before = run.queue.dropped
        run.queue.host_was_away(until_ns)
        lost = run.queue.dropped - before
        self._counts["dropped"] += lost
        self._counts["discarded_bytes"] += 18 * lost

    def _begin(self, fault: Fault, run: HvpmSampling, now_ns: int) -> None:
        if fault.kind is FaultKind.STALL:
            run.stalled_until_ns = now_ns + round(fault.amount * 1e9)
        elif fault.kind is FaultKind.DISCONNECT:
            self._server.close()
        elif fault.kind is FaultKind.DROP_COUNTER_WRAP:
            run.to_drop += round(fault.amount)
        elif fault.kind is FaultKind.RECALIBRATE:
            self._front_end.drift()
        else:
            run.plan.damage(fault.kind, round(fault.amount))

    def _packet(self, run: HvpmSampling, now_ns: int) -> bytes | None:
        """The next packet, if there is one now."""
        if now_ns < run.stalled_until_ns:
            return None
        if run.stalled_until_ns:
            self._forget_unread(run, run.stalled_until_ns)
            run.stalled_until_ns = 0
        while self._is_ready(run, now_ns):
            packet = self._next_packet(run)
            if packet is not None:
                return packet
        return None

    def _is_ready(self, run: HvpmSampling, now_ns: int) -> bool:
        """Samples come in bursts here, so a packet waits for three; what has waited for long goes alone."""
        waiting = len(run.queue)
        if waiting >= FULL_PACKET or not waiting:
            return waiting > 0
        return run.pacer.next_index >= run.limit or now_ns - run.queue.oldest_ns > 2 * BURST_NS

    def _next_packet(self, run: HvpmSampling) -> bytes | None:
        """A packet, or None where a fault lets it disappear."""
        dropped, observations = run.queue.take(FULL_PACKET, time.monotonic_ns())
        flags = run.packets & 0x0F | (0x20 if self._registers[Opcode.MAIN_VOLTAGE] else 0)
        if self._over_current or run.plan.hits(FaultKind.OVER_CURRENT):
            flags |= 0x10
        # Only a test of clients lets the count turn; the firmware's stops at its end.
        dropped = (dropped + run.extra_drops) % 0x10000 if run.extra_drops else min(dropped, DROPPED_MAX)
        run.packets += 1
        if run.plan.hits(FaultKind.LOST_PACKETS):
            self._counts["lost_packets"] += 1
            return None
        self._counts["packets"] += 1
        packet = dropped.to_bytes(2, "little") + bytes([flags, len(observations)]) + b"".join(observations)
        return packet[: len(packet) // 2] if run.plan.hits(FaultKind.TRUNCATED_FRAME) else packet


def _is_calibration(run: HvpmSampling, number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which observations are calibrations: those of the start but the first, then one in so many."""
    since: NDArray[np.int64] = number - run.calibrations
    due: NDArray[np.bool_] = (number > 0) & ((since <= 0) | (since % run.calibration_period == 0))
    return due


def _calibration_kind(run: HvpmSampling, number: int) -> int:
    """Zero first, then in turn."""
    since = number - run.calibrations
    order = number - 1 if since <= 0 else run.calibrations - 1 + since // run.calibration_period
    return REFERENCE if order % 2 else ZERO


def _is_reset(request: ControlRequest) -> bool:
    return (
        request.request_type == RequestType.OUT
        and request.request == Request.VALUE
        and request.index & 0xFF == Opcode.RESET
    )
