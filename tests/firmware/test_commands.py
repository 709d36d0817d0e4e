"""The commands of ``joulefleet meter`` hold the same conversations with the firmware and our emulators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from power.emulated.hvpm.instrument import EmulatedHvpm
from power.emulated.options import EmulatorOptions
from power.emulated.service import in_thread
from tests.firmware.answers import late_answers, serial_answers, stored_answers, usb_answers
from tests.firmware.commands import COMMANDS, Tap, run_commands
from tests.firmware.emulated import LOAD, EmulatedSerial, EmulatedUsb
from tests.firmware.images import HVPM
from tests.firmware.record import command_conversations, firmware_answers
from tests.firmware.transcript import Conversation, differences, load

UNITS = [("lvpm", 20), *(("hvpm", version) for version in HVPM)]


def succeeded(name: str, code: int) -> None:
    """A busy machine may lose samples of a stream, which the command then says."""
    assert code in {"record": (0, 6), "selftest": (0, 5)}.get(name, (0,)), name


ATTEMPTS = 4


def compare(
    unit: str, version: int, converse: Callable[[Path], dict[str, Conversation]], folder: Path
) -> None:
    """Commands run in real time: on a busy machine an answer may be late, and then the driver asks again."""
    stored = load(f"commands-{unit}-{version}")
    for attempt in range(ATTEMPTS):
        try:
            found = converse(folder / str(attempt))
        except AssertionError as error:
            different = [str(error)]
            continue
        assert list(stored) == list(found) == list(COMMANDS)
        assert all(stored.values())
        different = [d for name in COMMANDS for d in differences(stored[name], found[name], 0.0)]
        if not different:
            return
    assert not different


@pytest.mark.parametrize(("unit", "version"), UNITS)
def test_commands_talk_to_the_firmware_as_written_down(
    images: Path, tmp_path: Path, unit: str, version: int
) -> None:
    def converse(folder: Path) -> dict[str, Conversation]:
        with pytest.MonkeyPatch.context() as patch:
            return command_conversations(images, unit, version, folder, patch, succeeded)

    compare(unit, version, converse, tmp_path)


@pytest.mark.parametrize(("unit", "version"), UNITS)
def test_commands_talk_to_our_emulator_in_the_same_way(tmp_path: Path, unit: str, version: int) -> None:
    kind = f"monsoon-{unit}"
    variant = "fresh" if unit == "lvpm" else f"fresh,patient,firmware-{version}"
    options = EmulatorOptions(serial="12345" if unit == "lvpm" else "20001", signal=LOAD, variant=variant)

    def converse(folder: Path) -> dict[str, Conversation]:
        tap = Tap()
        with in_thread(kind, options) as emulator, pytest.MonkeyPatch.context() as patch:
            if unit == "lvpm":
                tap.on_serial(patch)
            else:
                tap.on_usb(patch, EmulatedHvpm)
            return run_commands(tap, kind, emulator.address, folder, succeeded)

    compare(unit, version, converse, tmp_path)


SERIAL_TOLERANCE_S, USB_TOLERANCE_S = 0.005, 0.002


@pytest.mark.parametrize(("unit", "version"), UNITS)
def test_the_firmware_takes_as_long_as_is_written_down(images: Path, unit: str, version: int) -> None:
    assert firmware_answers(images, unit, version) == stored_answers(f"{unit}-{version}")


@pytest.mark.parametrize(("unit", "version"), UNITS)
def test_our_emulator_takes_as_long_as_the_firmware(
    monkeypatch: pytest.MonkeyPatch, unit: str, version: int
) -> None:
    commands = load(f"commands-{unit}-{version}")
    if unit == "lvpm":
        with contextlib.closing(EmulatedSerial()) as serial:
            found, tolerance_s = serial_answers(serial, commands), SERIAL_TOLERANCE_S
    else:
        with contextlib.closing(EmulatedUsb(version, monkeypatch)) as usb:
            found, tolerance_s = usb_answers(usb, commands), USB_TOLERANCE_S
    assert not late_answers(stored_answers(f"{unit}-{version}"), found, tolerance_s)
