"""Firmware images: what is accepted, what is refused and why, and what each of them says of itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.firmware.assembler import op, program
from tests.firmware.chip import Chip
from tests.firmware.images import RELEASES, FirmwareError, Release, find_image, read_image
from tests.firmware.monsoon import Lvpm, Unit


def record(address: int, data: bytes, kind: int = 0) -> str:
    body = struct.pack(">BHB", len(data), address, kind) + data
    return ":" + (body + bytes([-sum(body) & 0xFF])).hex().upper()


def hex_file(path: Path, *records: str, header: bytes = b"") -> Path:
    path.write_bytes(header + "\r\n".join((*records, ":00000001FF")).encode() + b"\r\n")
    return path


LOOP = program(op("goto", 0x400))  # at 0x800: jumps to itself


def test_an_image_gets_the_vectors_of_the_boot_loader(tmp_path: Path) -> None:
    flash = read_image(hex_file(tmp_path / "a.fwm", record(0x0800, LOOP), header=b"Monsoon\x01\xb9\x2a"))
    assert len(flash) == 0x8000
    assert flash[0x800:0x804] == LOOP
    assert flash[:4] == program(op("goto", 0x400))
    assert flash[0x08:0x0C] == program(op("goto", 0x404))
    assert flash[0x18:0x1C] == program(op("goto", 0x40C))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record(0x0000, LOOP)], "image of another chip"),  # e.g. for an AVR: begins at 0
        ([record(0x7FFE, LOOP)], "image of another chip"),  # larger than this chip
        ([record(0x0800, b"\x0c\x94\x34\x00")], "does not begin with a jump of the PIC18"),
        ([record(0, b"\x08\x00", 4), record(0, LOOP)], "image of another chip"),  # for an ARM: 0x08000000
        ([], "holds no program"),
        ([record(0x0800, LOOP)[:-1] + "0"], "checksum"),
        ([":zz"], "no record of an Intel HEX file"),
        (
            [record(0x0800, LOOP), record(0, b"\x00\x30", 4), record(0x0006, b"\xc5")],
            "extended instruction set",
        ),
    ],
)
def test_images_of_other_chips_are_refused(tmp_path: Path, records: list[str], message: str) -> None:
    with pytest.raises(FirmwareError, match=message):
        read_image(hex_file(tmp_path / "odd.hex", *records))


def test_what_is_no_hex_file_at_all(tmp_path: Path) -> None:
    (tmp_path / "elf").write_bytes(b"\x7fELF\x01\x01" + bytes(200))
    with pytest.raises(FirmwareError, match="no whole Intel HEX file"):
        read_image(tmp_path / "elf")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b":",
        b"Monsoon" * 30,
        record(0x0800, LOOP).encode(),
        (record(0x0800, LOOP) + "\r\n:0400").encode(),
    ],
)
def test_empty_and_truncated_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cut.hex").write_bytes(content)
    with pytest.raises(FirmwareError, match=r"cut\.hex: (no whole Intel HEX file|damaged)"):
        read_image(tmp_path / "cut.hex")
    assert [path.name for path in tmp_path.iterdir()] == ["cut.hex"]


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FirmwareError, match="is not a folder"):
        find_image(tmp_path / "nowhere", RELEASES[0])
    with pytest.raises(FirmwareError, match=RELEASES[0].file_name):
        find_image(tmp_path, RELEASES[0])


def test_a_program_that_never_attaches_is_no_monsoon(tmp_path: Path) -> None:
    flash = read_image(hex_file(tmp_path / "loop.hex", record(0x0800, LOOP)))
    with pytest.raises(FirmwareError, match="does not attach to USB"):
        Chip(flash).plug_in(patience_s=0.05)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.file_name)
def test_every_image_boots_and_enumerates(images: Path, release: Release) -> None:
    unit = Lvpm(images) if release.serial else Unit(images, release)
    vendor, product, version = struct.unpack_from("<HHH", unit.device, 8)
    assert (vendor, product) == ((0x04D8, 0xFE23) if release.serial else (0x2AB9, 0x0001))
    assert version == (0 if release.serial else release.version)
    strings = [unit.chip.control(0x80, 6, 0x0300 + i, 0x0409, 64)[2:].decode("utf-16-le") for i in (1, 2)]
    assert strings[0].startswith("Monsoon Solutions")
    assert strings[1] == "Mobile Device Power Monitor"
    assert unit.chip.unmodelled() == []
