"""Writes the golden transcripts anew: ``python -m tests.firmware.record``, with the images at hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.firmware.answers import Times, serial_answers, usb_answers
from tests.firmware.bridge import HvpmOnUsb, LvpmOnPty
from tests.firmware.commands import Tap, run_commands
from tests.firmware.conversations import HVPM_SCENARIOS, LVPM_SCENARIOS, SerialTalk, UsbTalk
from tests.firmware.images import HVPM, VARIABLE, firmware_folder
from tests.firmware.monsoon import Hvpm, Lvpm
from tests.firmware.transcript import GOLDEN, Conversation, dump, load


def record_lvpm(folder: Path, scenario: str) -> Conversation:
    """A conversation with the stock LVPM, freshly switched on."""
    talk = SerialTalk(Lvpm(folder))
    LVPM_SCENARIOS[scenario](talk)
    return talk.conversation()


def record_hvpm(folder: Path, version: int, scenario: str) -> Conversation:
    """A conversation with an HVPM, freshly switched on."""
    talk = UsbTalk(Hvpm(folder, HVPM[version]))
    HVPM_SCENARIOS[scenario](talk)
    return talk.conversation()


def command_conversations(
    folder: Path,
    unit: str,
    version: int,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[str, int], None] = lambda *_: None,
) -> dict[str, Conversation]:
    """What the commands of the command line say to a unit that was just switched on, and its answers."""
    tap = Tap()
    if unit == "lvpm":
        with LvpmOnPty(Lvpm(folder)) as serial:
            tap.on_serial(monkeypatch)
            return run_commands(tap, "monsoon-lvpm", serial.path, out, check)
    with HvpmOnUsb(Hvpm(folder, HVPM[version]), queued_transfers=1_000_000) as usb:
        tap.on_usb(monkeypatch, HvpmOnUsb)
        return run_commands(tap, "monsoon-hvpm", usb.address, out, check)


def firmware_answers(folder: Path, unit: str, version: int) -> Times:
    """How long the firmware takes to answer what commands say."""
    commands = load(f"commands-{unit}-{version}")
    if unit == "lvpm":
        return serial_answers(Lvpm(folder), commands)
    return usb_answers(Hvpm(folder, HVPM[version]), commands)


def main() -> None:
    """Write all of them."""
    folder = firmware_folder()
    if folder is None:
        sys.exit(f"{VARIABLE} is not set")
    GOLDEN.mkdir(exist_ok=True)
    lvpm = {scenario: record_lvpm(folder, scenario) for scenario in LVPM_SCENARIOS}
    (GOLDEN / "lvpm-20.jsonl").write_text(dump("LVPM", 20, lvpm), encoding="ascii")
    for version in HVPM:
        hvpm = {scenario: record_hvpm(folder, version, scenario) for scenario in HVPM_SCENARIOS}
        (GOLDEN / f"hvpm-{version}.jsonl").write_text(dump("HVPM", version, hvpm), encoding="ascii")
    for unit, version in (("lvpm", 20), *(("hvpm", version) for version in HVPM)):
        path = GOLDEN / f"commands-{unit}-{version}.jsonl"
        path.write_text(dump(unit.upper(), version, _agreed(folder, unit, version)), encoding="ascii")
    write_answers(folder)


def write_answers(folder: Path) -> None:
    """Behind the commands, whose messages it repeats."""
    units = (("lvpm", 20), *(("hvpm", version) for version in HVPM))
    times = {f"{unit}-{version}": firmware_answers(folder, unit, version) for unit, version in units}
    (GOLDEN / "answers.json").write_text(json.dumps(times, indent=0) + "\n", encoding="ascii")


def _agreed(folder: Path, unit: str, version: int) -> dict[str, Conversation]:
    """What commands say twice in a row: a busy machine makes an answer late now and then."""
    last: dict[str, Conversation] = {}
    while True:
        with TemporaryDirectory() as out, pytest.MonkeyPatch.context() as monkeypatch:
            said = command_conversations(folder, unit, version, Path(out), monkeypatch)
        if said == last:
            return said
        last = said


if __name__ == "__main__":
    main()
