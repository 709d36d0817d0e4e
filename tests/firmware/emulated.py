"""Our emulators as units of `tests.firmware.conversations`, in simulated time."""

from __future__ import annotations

import os
import tty
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from power.emulated.hvpm.instrument import EmulatedHvpm
from power.emulated.lvpm.instrument import EmulatedLvpm
from power.emulated.options import EmulatorOptions
from power.emulated.usb.cable import ControlRequest, TransferError
from tests.firmware.chip import Stalled

STEP_NS = 100_000
CONTROL_S = 0.00016
"""What a short control transfer takes on the bus."""

LOAD = "constant:current=0.25,voltage=4.0"


class EmulatedSerial:
    """An emulated LVPM and the client's end of its pseudo-terminal."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000_000
        self._emulator = EmulatedLvpm(EmulatorOptions(serial="12345", signal=LOAD, variant="fresh"))
        self._port = os.open(self._emulator.address, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self._port)

    def close(self) -> None:
        os.close(self._port)
        self._emulator.close()

    @property
    def seconds(self) -> float:
        return self._now_ns * 1e-9

    def write(self, data: bytes) -> None:
        os.write(self._port, data)
        self._emulator.step(self._now_ns)

    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]:
        end_ns = self._now_ns + round(seconds * 1e9)
        while self._now_ns < end_ns:
            self._now_ns += STEP_NS
            self._emulator.step(self._now_ns)
            try:
                yield self.seconds, os.read(self._port, 65536)
            except BlockingIOError:
                continue

    def set_board(self, *, over_current: bool = False) -> None:
        self._emulator.cut_output(over_current)


class EmulatedUsb:
    """An emulated HVPM, asked without a cable; its clock is ours."""

    def __init__(self, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_ns = 1_000_000_000_000
        clock = SimpleNamespace(monotonic_ns=lambda: self._now_ns, sleep=self.wait)
        monkeypatch.setattr("power.emulated.hvpm.instrument.time", clock)
        monkeypatch.setattr("power.emulated.hvpm.instrument.BURST_NS", STEP_NS)
        monkeypatch.setattr("power.emulated.hvpm.instrument.POLL_NS", STEP_NS)
        options = EmulatorOptions(serial="20001", signal=LOAD, variant=f"fresh,firmware-{version}")
        self._emulator = EmulatedHvpm(options)

    def close(self) -> None:
        self._emulator.close()

    @property
    def seconds(self) -> float:
        return self._now_ns * 1e-9

    def control(self, setup: tuple[int, int, int, int], data: int | bytes) -> bytes:
        size, out = (data, b"") if isinstance(data, int) else (len(data), data)
        self.wait(CONTROL_S)
        try:
            return self._emulator.control(ControlRequest(*setup, size, out))
        except TransferError as error:
            raise Stalled(error.code) from error

    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]:
        end_ns = self._now_ns + round(seconds * 1e9)
        while self._now_ns < end_ns:
            try:
                packet = self._emulator.bulk_read(64, self._now_ns, end_ns)
            except TransferError:  # nothing more came
                return
            yield self.seconds, packet

    def wait(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def set_board(self, *, over_current: bool = False) -> None:
        self._emulator.cut_output(over_current)
