"""Writes the golden transcripts anew: ``python -m tests.firmware.record``, with the images at hand."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.firmware.conversations import HVPM_SCENARIOS, LVPM_SCENARIOS, SerialTalk, UsbTalk
from tests.firmware.images import HVPM, VARIABLE, firmware_folder
from tests.firmware.monsoon import Hvpm, Lvpm
from tests.firmware.transcript import GOLDEN, Conversation, dump


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


if __name__ == "__main__":
    main()
