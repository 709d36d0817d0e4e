"""The simulated chip: ``pic18/*.c`` compiled with gcc, and a USB host that speaks to it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import subprocess
import tempfile
import weakref
from functools import cache
from pathlib import Path
from typing import Any

from tests.firmware.images import Board, FirmwareError

SOURCES = Path(__file__).resolve().parent / "pic18"
FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")

CYCLES_PER_S = 12_000_000
BLANK_EEPROM = b"\xff" * 256

_NAK_TIMEOUT, _STALL, _FAULT = (-1, -4), -2, -5
_PACKET_BYTES = 64
_DEVICE, _CONFIGURATION = 0x0100, 0x0200

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "unit_new": (ctypes.c_void_p, (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)),
    "unit_free": (None, ()),
    "unit_run": (None, (ctypes.c_uint64,)),
    "unit_now": (ctypes.c_uint64, ()),
    "unit_pc": (ctypes.c_uint32, ()),
    "unit_fault": (ctypes.c_char_p, ()),
    "unit_peek": (ctypes.c_uint8, (ctypes.c_int,)),
    "unit_poke": (None, (ctypes.c_int, ctypes.c_uint8)),
    "unit_eeprom": (ctypes.c_uint8, (ctypes.c_int,)),
    "unit_unmodelled": (ctypes.c_int, (ctypes.c_int,)),
    "unit_attached": (ctypes.c_int, ()),
    "unit_set_address": (None, (ctypes.c_int, ctypes.c_int)),
    "unit_set_poll": (None, (ctypes.c_uint64,)),
    "unit_set_pins": (None, (ctypes.c_int, ctypes.c_uint8)),
    "unit_set_current": (None, (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint16)),
    "unit_set_voltage": (None, (ctypes.c_int, ctypes.c_int, ctypes.c_uint16)),
    "unit_set_temperature": (None, (ctypes.c_uint16,)),
    "unit_output": (ctypes.c_int, (ctypes.c_int,)),
    "host_bus_reset": (None, ()),
    "host_in": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64)),
    "host_out": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64)),
    "host_control": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64)),
}


@cache
def library() -> ctypes.CDLL:
    """The compiled simulator. It is kept in the folder for temporary files, by the hash of its sources."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    sources = sorted(SOURCES.glob("*.[ch]"))
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"joulefleet-pic18-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{digest.hexdigest()[:16]}.so"
    if not target.exists():
        fresh = folder / f".{os.getpid()}.so"
        command = ["gcc", *FLAGS, "-o", str(fresh), *(str(s) for s in sources if s.suffix == ".c")]
        subprocess.run(command, check=True)
        fresh.replace(target)  # in one step: several test workers may do this at once
    loaded = ctypes.CDLL(str(target))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments if name == "unit_new" else (ctypes.c_void_p, *arguments)
    return loaded


class Stalled(Exception):
    """The device refused a transfer."""


class Chip:
    """One chip with a program, on a board, at the end of a USB cable.

    Time stands still unless a method is called. Not for several threads at once.

    Args:
        flash: The program memory.
        board: What is around the chip.
        eeprom: The data memory; blank chips hold 0xFF.
    """

    def __init__(self, flash: bytes, board: Board = Board.HVPM, eeprom: bytes = BLANK_EEPROM) -> None:
        self._lib = library()
        self._unit = self._lib.unit_new(board, flash.ljust(0x8000, b"\xff"), eeprom)
        self._free = weakref.finalize(self, self._lib.unit_free, self._unit)
        self._packet = ctypes.create_string_buffer(_PACKET_BYTES)

    # ---- the chip ----

    @property
    def cycles(self) -> int:
        """Instruction cycles since power-up."""
        return int(self._lib.unit_now(self._unit))

    @property
    def seconds(self) -> float:
        """Simulated time since power-up."""
        return self.cycles / CYCLES_PER_S

    @property
    def fault(self) -> str:
        """Why the chip stopped; empty while it runs."""
        return str(self._lib.unit_fault(self._unit).decode())

    @property
    def program_counter(self) -> int:
        """Address of the next instruction."""
        return int(self._lib.unit_pc(self._unit))

    def run(self, cycles: int) -> None:
        """Let so many cycles pass, to the end of the instruction."""
        self.run_until(self.cycles + cycles)

    def run_until(self, cycle: int) -> None:
        """Let time pass until a cycle; no host looks meanwhile."""
        self._lib.unit_run(self._unit, max(0, cycle))
        self.require_running()

    def require_running(self) -> None:
        """Raise `FirmwareError` if the chip has stopped."""
        if self.fault:
            raise FirmwareError(f"the simulated chip stopped: {self.fault}")

    def peek(self, address: int) -> int:
        """A byte of data memory or a register, without side effects."""
        return int(self._lib.unit_peek(self._unit, address))

    def poke(self, address: int, value: int) -> None:
        """Change a byte of data memory or a register, without side effects."""
        self._lib.unit_poke(self._unit, address, value)

    def eeprom(self) -> bytes:
        """The data EEPROM."""
        return bytes(self._lib.unit_eeprom(self._unit, a) for a in range(256))

    def unmodelled(self) -> list[int]:
        """Registers that the program touched and that have no model."""
        return [0xF00 + a for a in range(0x100) if self._lib.unit_unmodelled(self._unit, a)]

    # ---- the board ----

    def set_pins(self, port: int, levels: int) -> None:
        """What the board puts on the inputs of port A (0) to E (4)."""
        self._lib.unit_set_pins(self._unit, port, levels)

    def set_current(self, channel: int, in_range: int, state: int, reading: int) -> None:
        """What a converter reads of a current; the numbers are those of ``board.h``."""
        self._lib.unit_set_current(self._unit, channel, in_range, state, reading & 0xFFFF)

    def set_voltage(self, converter: int, which: int, reading: int) -> None:
        """What converter 0 or 1 reads on its input 6 (``which`` 0) or 7 (1)."""
        self._lib.unit_set_voltage(self._unit, converter, which, reading & 0xFFFF)

    def set_temperature(self, celsius: float) -> None:
        """What the temperature sensor says."""
        self._lib.unit_set_temperature(self._unit, round(celsius * 128) & 0xFFFF)

    def output(self, which: int) -> int:
        """A register behind port D of an HVPM (0 to 2), or the shift register of an LVPM (3)."""
        return int(self._lib.unit_output(self._unit, which))

    # ---- the bus ----

    def plug_in(self, *, patience_s: float = 3.0) -> tuple[bytes, bytes]:
        """Do what a host does with a new device: wait for it, reset it, address it, choose its configuration.

        Returns:
            Its device and its configuration descriptor.

        Raises:
            FirmwareError: It does not show up, or answers what is no descriptor.
        """
        deadline = self.cycles + int(patience_s * CYCLES_PER_S)
        while not self._lib.unit_attached(self._unit):
            self.run(CYCLES_PER_S // 1000)
            if self.cycles > deadline:
                raise FirmwareError("the firmware does not attach to USB: an image of another board?")
        self.run(CYCLES_PER_S // 10)  # USB 2.0, 7.1.7.3: a host lets the connection settle for 100 ms
        self._lib.host_bus_reset(self._unit)
        self.run(CYCLES_PER_S // 50)
        try:
            device = self.control(0x80, 6, _DEVICE, 0, 18)
            self.control(0x00, 5, 1, 0, b"")
            self.run(CYCLES_PER_S // 500)
            self._lib.unit_set_address(self._unit, 1, device[7])
            configuration = self.control(0x80, 6, _CONFIGURATION, 0, 255)
            self.control(0x00, 9, configuration[5], 0, b"")
        except (Stalled, IndexError, TimeoutError) as error:
            raise FirmwareError(f"the firmware attaches to USB but does not enumerate ({error!r})") from error
        return device, configuration

    def control(
        self,
        request_type: int,
        request: int,
        value: int,
        index: int,
        data: int | bytes,
        timeout_s: float = 1.0,
    ) -> bytes:
        """A control transfer: so many bytes to read, or these to write.

        Raises:
            Stalled: The device refuses it.
            TimeoutError: It does not answer.
        """
        size = data if isinstance(data, int) else len(data)
        room = ctypes.create_string_buffer(b"" if isinstance(data, int) else data, max(size, _PACKET_BYTES))
        setup = struct.pack("<BBHHH", request_type, request, value, index, size)
        got = self._lib.host_control(self._unit, setup, room, self._deadline(timeout_s))
        return b"" if self._refused(got) else room.raw[:got] if isinstance(data, int) else b""

    def read(self, endpoint: int, until_cycle: int) -> bytes | None:
        """The next packet of an endpoint, or None if there is none up to that cycle."""
        got = self._lib.host_in(self._unit, endpoint, self._packet, until_cycle)
        if got in _NAK_TIMEOUT:
            return None
        self._refused(got)
        return self._packet.raw[:got]

    def write(self, endpoint: int, packet: bytes, timeout_s: float = 1.0) -> None:
        """One packet to an endpoint.

        Raises:
            TimeoutError: The firmware does not take it.
        """
        self._refused(
            self._lib.host_out(self._unit, endpoint, packet, len(packet), self._deadline(timeout_s))
        )

    def set_poll(self, cycles: int) -> None:
        """How long the host waits before it asks again after a NAK."""
        self._lib.unit_set_poll(self._unit, cycles)

    def _deadline(self, timeout_s: float) -> int:
        return self.cycles + int(timeout_s * CYCLES_PER_S)

    def _refused(self, got: int) -> bool:
        if got == _STALL:
            raise Stalled
        if got == _FAULT:
            self.require_running()
        if got < 0:
            raise TimeoutError("the device does not answer")
        return False
