"""A Monsoon made of its own firmware, in simulated time: boots an image, sets the load, speaks its protocol.

The analogue side is ours, so nothing here is about accuracy: a `Load` becomes readings of the converters,
with round numbers for zero and reference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.firmware.chip import BLANK_EEPROM, CYCLES_PER_S, Chip
from tests.firmware.images import LVPM_20, Board, Release, find_image, read_image

PORT_B, PORT_D = 1, 3
OVER_CURRENT = 0x04  # RB2: high while the board has cut the output off
NO_SUPPLY = 0x20  # RD5: high keeps the output and sampling off

_MEASURE, _ZERO, _REFERENCE = range(3)
_CURRENTS, _COARSE, _FINE = range(3), 0, 1

SERIAL_ENDPOINT = 3
BULK_ENDPOINT = 1
_VALUE, _START, _STOP = 1, 2, 3
_OUT, _IN = 0x40, 0xC0


@dataclass(frozen=True, slots=True)
class Range:
    """What one converter shows: at zero, at the reference current, and beyond which it clips."""

    zero: int
    reference: int
    reference_a: float
    low: int
    high: int
    offset: int = 0  # counts by which measurements, but not the zero calibration, are too high

    def counts(self, current_a: float) -> int:
        """The reading at a current."""
        zero = self.zero + self.offset
        exact = zero + current_a / self.reference_a * (self.reference - zero)
        return min(self.high, max(self.low, round(exact)))


_SIGNED = (-0x8000, 0x7FFF)
_UNSIGNED = (0, 0xFFFF)

# References as every client of stock units takes them (LVPM), and the factory scales (HVPM).
RANGES: dict[Board, tuple[tuple[Range, Range], ...]] = {
    Board.LVPM: 3 * ((Range(-64, 15_536, 2.88, *_SIGNED), Range(120, 24_120, 0.0332, *_SIGNED)),),
    Board.HVPM: (
        (
            Range(3000, 36_000, 6.4, *_UNSIGNED, offset=15),
            Range(3010, 36_010, 36.5e-3, *_UNSIGNED, offset=15),
        ),
        (Range(3020, 36_020, 0.6, *_UNSIGNED), Range(3030, 36_030, 14e-3, *_UNSIGNED)),
        (Range(120, 20_000, 0.25, *_SIGNED), Range(120, 20_000, 3.1e-3, *_SIGNED)),
    ),
}
VOLTAGE_STEP_V = {Board.LVPM: 125e-6, Board.HVPM: 4 * 62.5e-6}


def factory_eeprom(board: Board) -> bytes:
    """The EEPROM of a new unit. Addresses were found by writing each value and looking what changed.

    Without these a unit has serial number 65535, and an HVPM no scales. Scales and offsets are those of
    ``HVPM.setDefaultScaleValues`` in the vendor's package; the serial numbers are those of our emulators.
    """
    eeprom = bytearray(BLANK_EEPROM)
    eeprom[0x08:0x0A] = struct.pack("<H", 12345 if board is Board.LVPM else 20001)
    if board is Board.HVPM:
        eeprom[0x03:0x07] = struct.pack("<HH", 0xE000, 0xC800)  # the output converter's calibration
        eeprom[0x16:0x2E] = struct.pack("<6I", 36_500, 6_400, 14_000, 600, 3_100, 250)
        eeprom[0x2E:0x36] = struct.pack("<4h", 15, 15, 0, 0)
    return bytes(eeprom)


@dataclass(frozen=True, slots=True)
class Load:
    """What is connected to the main output; nothing hangs on the other channels."""

    current_a: float = 0.25
    voltage_v: float = 4.0


class Unit:
    """A booted and enumerated unit. Time passes in its methods only.

    Args:
        folder: Where the images are.
        release: Which to boot.
        load: What it measures.
    """

    def __init__(self, folder: Path, release: Release, load: Load | None = None) -> None:
        self.release = release
        flash = read_image(find_image(folder, release))
        self.chip = Chip(flash, release.board, factory_eeprom(release.board))
        self.chip.set_temperature(25.0)
        self.set_board()
        self.set_load(load or Load())
        self.device, self.configuration = self.chip.plug_in()

    @property
    def seconds(self) -> float:
        """Simulated time since power-up."""
        return self.chip.seconds

    def wait(self, seconds: float) -> None:
        """Let time pass without a host that reads."""
        self.chip.run(int(seconds * CYCLES_PER_S))

    def set_board(self, *, over_current: bool = False, no_supply: bool = False) -> None:
        """Drive the lines by which the board reports trouble."""
        self.chip.set_pins(PORT_B, 0xFF if over_current else 0xFF & ~OVER_CURRENT)
        self.chip.set_pins(PORT_D, 0xFF if no_supply else 0xFF & ~NO_SUPPLY)

    def set_load(self, load: Load) -> None:
        """Connect something else."""
        for channel in _CURRENTS:
            for index, in_range in enumerate(RANGES[self.release.board][channel]):
                current_a = load.current_a if channel == 0 else 0.0
                readings = (in_range.counts(current_a), in_range.zero, in_range.reference)
                for state, reading in zip((_MEASURE, _ZERO, _REFERENCE), readings, strict=True):
                    self.chip.set_current(channel, index, state, reading)
        counts = round(load.voltage_v / VOLTAGE_STEP_V[self.release.board])
        for which in (0, 1):
            self.chip.set_voltage(_COARSE, which, counts)
            # The fine converter of an HVPM reads the voltage of USB, where nothing is connected.
            self.chip.set_voltage(_FINE, which, counts if self.release.board is Board.LVPM else 0)

    def packets(self, endpoint: int, seconds: float) -> Iterator[tuple[float, bytes]]:
        """What an endpoint sends in so many seconds to a host that reads at once: times and packets."""
        end = self.chip.cycles + int(seconds * CYCLES_PER_S)
        while self.chip.cycles < end:
            packet = self.chip.read(endpoint, end)
            if packet is not None:
                yield self.seconds, packet


class Lvpm(Unit):
    """A stock LVPM: a serial port on USB (CDC)."""

    def __init__(self, folder: Path, load: Load | None = None) -> None:
        super().__init__(folder, LVPM_20, load)
        # As the kernel's driver does when the port is opened: 9600 bits a second, 8 bits; DTR and RTS on.
        self.chip.control(0x21, 0x20, 0, 0, bytes([0x80, 0x25, 0, 0, 0, 0, 8]))
        self.chip.control(0x21, 0x22, 3, 0, b"")

    def write(self, data: bytes) -> None:
        """One ``write`` of a client: as few USB packets as it takes, as the kernel's driver sends it."""
        for start in range(0, len(data), 64):
            self.chip.write(SERIAL_ENDPOINT, data[start : start + 64])

    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]:
        """USB packets as they come, with their times."""
        return self.packets(SERIAL_ENDPOINT, seconds)


class Hvpm(Unit):
    """An HVPM, or an LVPM with the USB firmware: control requests and a bulk endpoint."""

    def get(self, opcode: int) -> bytes:
        """The four bytes that it answers to a read."""
        return self.chip.control(_IN, _VALUE, 0, opcode, 4)

    def set(self, opcode: int, value: int) -> None:
        """Write a value as the vendor's package does."""
        word = value & 0xFFFFFFFF
        data = word.to_bytes(4, "little")
        self.chip.control(_OUT, _VALUE, word & 0xFFFF, opcode | (word >> 16 & 0xFF) << 8, data)

    def start(self, calibration: int = 1250, samples: int = 0xFFFFFFFF) -> None:
        """Begin to sample."""
        self.chip.control(_OUT, _START, calibration, 0, samples.to_bytes(4, "little"))

    def stop(self) -> None:
        """Stop sampling."""
        self.chip.control(_OUT, _STOP, 0, 0, b"")

    def control(self, setup: tuple[int, int, int, int], data: int | bytes) -> bytes:
        """Any control transfer: request type, request, value, index."""
        return self.chip.control(*setup, data)

    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]:
        """Bulk packets as they come, with their times."""
        return self.packets(BULK_ENDPOINT, seconds)
