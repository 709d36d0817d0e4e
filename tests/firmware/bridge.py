"""The vendor's firmware in real time: an LVPM behind a pseudo-terminal, an HVPM behind our USB link.

Simulated time follows the host's monotonic clock. Where this process does not get the processor for a while,
the simulation runs late and then catches up; the firmware notices nothing of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
import tty
from collections import deque

from power.emulated.usb.cable import ADDRESS_PREFIX, ControlRequest, TransferError, UsbSocketServer
from tests.firmware.chip import CYCLES_PER_S, Chip, Stalled
from tests.firmware.monsoon import BULK_ENDPOINT, SERIAL_ENDPOINT, Hvpm, Lvpm

SLICE_CYCLES = CYCLES_PER_S // 1000
PAUSE_S = 0.0003
PACKET_BYTES = 64
CONTROL_TIMEOUT_S = 2.0


class WallClock:
    """Which cycle the chip should be in: now, and at another moment of the host's monotonic clock."""

    def __init__(self, chip: Chip) -> None:
        self._zero_ns = time.monotonic_ns() - chip.cycles * 1_000_000_000 // CYCLES_PER_S

    def cycle(self, at_ns: int | None = None) -> int:
        """The cycle at a host time, now by default."""
        now_ns = time.monotonic_ns() if at_ns is None else at_ns
        return (now_ns - self._zero_ns) * CYCLES_PER_S // 1_000_000_000


class LvpmOnPty:
    """A stock LVPM whose serial port is a pseudo-terminal; a context manager.

    What a client puts into one ``write`` goes out as one USB transfer, as with the kernel's own driver. (A
    pseudo-terminal joins writes that follow each other faster than this thread reads.) A client that does not
    read makes the host stop asking, not lose bytes.

    Attributes:
        path: What a client opens.
    """

    def __init__(self, unit: Lvpm) -> None:
        self.unit = unit
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self._to_unit: deque[bytes] = deque()
        self._to_client = b""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="firmware-lvpm", daemon=True)

    def __enter__(self) -> LvpmOnPty:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        for end in (self._slave, self._master):
            os.close(end)

    def _serve(self) -> None:
        clock = WallClock(self.unit.chip)
        while not self._stop.is_set():
            self._take_writes(PAUSE_S)
            target = clock.cycle()
            while self.unit.chip.cycles < target and not self._stop.is_set():
                self._run_slice(min(target, self.unit.chip.cycles + SLICE_CYCLES))
                self._take_writes(0.0)

    def _take_writes(self, timeout_s: float) -> None:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return
        with contextlib.suppress(OSError):
            data = os.read(self._master, 4096)
            self._to_unit.extend(data[i : i + PACKET_BYTES] for i in range(0, len(data), PACKET_BYTES))

    def _run_slice(self, until: int) -> None:
        chip = self.unit.chip
        if self._to_unit:
            with contextlib.suppress(TimeoutError):  # it is busy: once more in the next slice
                chip.write(SERIAL_ENDPOINT, self._to_unit[0], timeout_s=SLICE_CYCLES / CYCLES_PER_S)
                self._to_unit.popleft()
        while chip.cycles < until:
            if self._to_client and not self._flush():
                chip.run_until(until)
                return
            self._to_client = chip.read(SERIAL_ENDPOINT, until) or b""
        self._flush()

    def _flush(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._to_client = self._to_client[os.write(self._master, self._to_client) :]
        return not self._to_client


class HvpmOnUsb:
    """An HVPM at the end of an emulated USB cable; a context manager.

    Time passes when the host asks for something: first up to that moment, then until there is an answer.

    Args:
        unit: The firmware.
        queued_transfers: Reads that the host keeps under way beside those that its program has queued, for
            tests on machines that are busy.

    Attributes:
        address: What goes into `power.meter.MeterConfig.port`.
        late_s: How late a read was served at most, be it the program or this bridge that had no processor.
    """

    def __init__(self, unit: Hvpm, queued_transfers: int = 0) -> None:
        self.unit = unit
        self.late_s = 0.0
        self._depth = queued_transfers
        self._queue: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._clock = WallClock(unit.chip)
        self._server = UsbSocketServer(self)
        self.address = ADDRESS_PREFIX + self._server.path

    def __enter__(self) -> HvpmOnUsb:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.close()

    def open_error(self) -> int:
        """See `power.emulated.usb.cable.UsbDevice`."""
        return 0

    def reset(self) -> None:
        """See `power.emulated.usb.cable.UsbDevice`; a reset of the port is not simulated."""

    def control(self, request: ControlRequest) -> bytes:
        """See `power.emulated.usb.cable.UsbDevice`."""
        to_host = request.request_type & 0x80
        setup = (request.request_type, request.request, request.value, request.index)
        with self._lock:
            self._pass_time(self._clock.cycle())
            if setup[:2] == (0x40, 2):  # a host that starts anew has let go of its old transfers
                self._queue.clear()
            try:
                answer = self.unit.chip.control(
                    *setup, request.length if to_host else request.data, CONTROL_TIMEOUT_S
                )
            except Stalled as error:
                raise TransferError(errno.EPIPE) from error
            except TimeoutError as error:
                raise TransferError(errno.ETIMEDOUT) from error
            ahead = self.unit.chip.cycles - self._clock.cycle()
        if ahead > 0:
            time.sleep(ahead / CYCLES_PER_S)
        return answer

    def bulk_read(self, size: int, requested_ns: int, deadline_ns: int) -> bytes:
        """See `power.emulated.usb.cable.UsbDevice`."""
        while True:
            with self._lock:
                self.late_s = max(self.late_s, (self._clock.cycle() - self.unit.chip.cycles) / CYCLES_PER_S)
                self._pass_time(self._clock.cycle(requested_ns))
                packet = self._next(self._clock.cycle(min(time.monotonic_ns(), deadline_ns)))
            if packet is not None:
                return packet[:size]
            if time.monotonic_ns() >= deadline_ns:
                raise TransferError(errno.ETIMEDOUT)
            time.sleep(PAUSE_S)

    def _next(self, until: int) -> bytes | None:
        if self._queue:
            return self._queue.popleft()
        chip = self.unit.chip
        return chip.read(BULK_ENDPOINT, until) if chip.cycles < until else None

    def _pass_time(self, until: int) -> None:
        """The program at the host is busy with something else; queued transfers go on."""
        chip = self.unit.chip
        while chip.cycles < until and len(self._queue) < self._depth:
            packet = chip.read(BULK_ENDPOINT, until)
            if packet is not None:
                self._queue.append(packet)
        if chip.cycles < until:
            chip.run_until(until)
