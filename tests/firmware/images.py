"""Firmware images of Monsoon power monitors: found in a folder, checked, and laid out in memory.

The images are the vendor's and are never part of this repository. ``JOULEFLEET_MONSOON_FIRMWARE`` names a
folder that holds them, e.g. a copy of the folder ``Firmware`` of ``msoon/PyMonsoon``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

VARIABLE = "JOULEFLEET_MONSOON_FIRMWARE"

FLASH_BYTES = 0x8000
APPLICATION = 0x0800
"""Where the images begin. Below it is the vendor's boot loader, which is not published."""

_VECTORS = (0x0000, 0x0008, 0x0018)  # reset, high and low priority interrupt
_SETTINGS = range(0x200000, 0xF00100)  # identification, configuration and EEPROM
_CONFIGURATION = 0x300000
_EXTENDED_SET = 0x40  # bit XINST of CONFIG4L


class Board(IntEnum):
    """Which board an image is for; the numbers are those of ``pic18/board.h``."""

    LVPM = 0
    HVPM = 1


@dataclass(frozen=True, slots=True)
class Release:
    """One published image."""

    board: Board
    version: int
    file_name: str
    serial: bool = False  # speaks the serial protocol, not the one over USB


LVPM_20 = Release(Board.LVPM, 20, "PM_RevD_Prot17_Ver20.hex", serial=True)
LVPM_USB_32 = Release(Board.LVPM, 32, "LVPM_RevE_Prot_1_Ver32.fwm")
HVPM = {
    version: Release(Board.HVPM, version, f"HVPM_RevE_Prot1_Ver{version}.fwm") for version in (25, 30, 31, 32)
}
RELEASES = (LVPM_20, LVPM_USB_32, *HVPM.values())


class FirmwareError(Exception):
    """An image that cannot be run; the message says which and why."""


def firmware_folder() -> Path | None:
    """The folder with the images, if one was named."""
    name = os.environ.get(VARIABLE, "")
    return Path(name) if name else None


def find_image(folder: Path, release: Release) -> Path:
    """The file of a release, in the folder or below it."""
    if not folder.is_dir():
        raise FirmwareError(f"{VARIABLE}: {folder} is not a folder")
    found = sorted(folder.rglob(release.file_name))
    if not found:
        raise FirmwareError(f"{folder}: no {release.file_name} in it or below it")
    return found[0]


def read_image(path: Path) -> bytes:
    """The program memory of a chip with this image in it.

    Three jumps of our own take the place of the boot loader: it sends the reset and both interrupts on to the
    image, 0x800 higher, and takes two cycles for it.

    Raises:
        FirmwareError: It is no Intel HEX file, or one for another chip.
    """
    memory = _parse_hex(path)
    program = {address: byte for address, byte in memory.items() if address not in _SETTINGS}
    if not program:
        raise FirmwareError(f"{path.name}: holds no program")
    lowest, highest = min(program), max(program)
    if lowest < APPLICATION or highest >= FLASH_BYTES:
        raise FirmwareError(
            f"{path.name}: program at 0x{lowest:x} to 0x{highest:x}, not within 0x{APPLICATION:x} and"
            f" 0x{FLASH_BYTES - 1:x} as for a PIC18F4550 with Monsoon's boot loader:"
            " an image of another chip?"
        )
    flash = bytearray(b"\xff" * FLASH_BYTES)
    for address, byte in program.items():
        flash[address] = byte
    first = flash[APPLICATION + 1]
    if first not in (0xEF, *range(0xD0, 0xD8)):
        raise FirmwareError(
            f"{path.name}: does not begin with a jump of the PIC18 (0x{first:02x} at 0x{APPLICATION + 1:x}):"
            " an image of another chip?"
        )
    if memory.get(_CONFIGURATION + 6, 0) & _EXTENDED_SET:
        raise FirmwareError(f"{path.name}: uses the extended instruction set, which is not simulated")
    for vector in _VECTORS:
        flash[vector : vector + 4] = _goto(vector + APPLICATION)
    return bytes(flash)


def _goto(address: int) -> bytes:
    words = address >> 1
    return struct.pack("<HH", 0xEF00 | words & 0xFF, 0xF000 | words >> 8)


def _parse_hex(path: Path) -> dict[int, int]:
    """Bytes by address. The vendor's ``.fwm`` files have a header of their own before the first colon."""
    raw = path.read_bytes()
    start = raw.find(b":")
    memory: dict[int, int] = {}
    base, ended = 0, False
    for line in raw[start:].split() if start >= 0 else []:
        if ended or not line.startswith(b":"):
            break
        try:
            record = bytes.fromhex(line[1:].decode("ascii"))
        except ValueError as error:
            raise FirmwareError(f"{path.name}: {line[:20]!r} is no record of an Intel HEX file") from error
        if len(record) < 5 or len(record) != record[0] + 5 or sum(record) & 0xFF:
            raise FirmwareError(f"{path.name}: damaged, a record has a wrong length or checksum")
        address, kind, data = record[1] << 8 | record[2], record[3], record[4:-1]
        if kind == 0:
            memory.update({base + address + i: byte for i, byte in enumerate(data)})
        elif kind in (2, 4):
            base = int.from_bytes(data, "big") << (4 if kind == 2 else 16)
        ended = kind == 1
    if not ended:
        raise FirmwareError(f"{path.name}: no whole Intel HEX file")
    return memory
