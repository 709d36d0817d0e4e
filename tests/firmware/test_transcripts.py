"""Golden transcripts: the firmware still says what is written down, and our emulators say the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.firmware.conversations import HVPM_SCENARIOS, LVPM_SCENARIOS, SerialTalk, UsbTalk
from tests.firmware.emulated import EmulatedSerial, EmulatedUsb
from tests.firmware.images import HVPM
from tests.firmware.record import record_hvpm, record_lvpm
from tests.firmware.transcript import Message, by_observation, condense, differences, dump, load

SERIAL_TOLERANCE_S = 0.005
USB_TOLERANCE_S = 0.002


@pytest.fixture
def emulated_serial() -> Iterator[EmulatedSerial]:
    unit = EmulatedSerial()
    yield unit
    unit.close()


@pytest.mark.parametrize("scenario", LVPM_SCENARIOS)
def test_lvpm_firmware_says_what_is_written_down(images: Path, scenario: str) -> None:
    stored = load("lvpm-20")[scenario]
    assert dump("LVPM", 20, {"": record_lvpm(images, scenario)}) == dump("LVPM", 20, {"": stored})


@pytest.mark.parametrize("version", HVPM)
@pytest.mark.parametrize("scenario", HVPM_SCENARIOS)
def test_hvpm_firmware_says_what_is_written_down(images: Path, version: int, scenario: str) -> None:
    stored = load(f"hvpm-{version}")[scenario]
    assert dump("HVPM", 0, {"": record_hvpm(images, version, scenario)}) == dump("HVPM", 0, {"": stored})


@pytest.mark.parametrize("scenario", LVPM_SCENARIOS)
def test_emulated_lvpm_says_the_same(emulated_serial: EmulatedSerial, scenario: str) -> None:
    talk = SerialTalk(emulated_serial)
    LVPM_SCENARIOS[scenario](talk)
    assert not differences(load("lvpm-20")[scenario], talk.conversation(), SERIAL_TOLERANCE_S)


@pytest.mark.parametrize("version", HVPM)
@pytest.mark.parametrize("scenario", HVPM_SCENARIOS)
def test_emulated_hvpm_says_the_same(monkeypatch: pytest.MonkeyPatch, version: int, scenario: str) -> None:
    unit = EmulatedUsb(version, monkeypatch)
    talk = UsbTalk(unit)
    HVPM_SCENARIOS[scenario](talk)
    unit.close()
    stored, found = (by_observation(c) for c in (load(f"hvpm-{version}")[scenario], talk.conversation()))
    assert not differences(stored, found, USB_TOLERANCE_S)


def test_messages_that_are_alike_are_joined() -> None:
    data = [bytes([0x7E, 0x20 | n % 16, 0, 0, 0]) + bytes(121) + bytes([n]) for n in range(40)]
    joined = condense(Message(n * 0.003, "unit", frame) for n, frame in enumerate(data))
    assert [(m.count, m.t_s, m.until_s) for m in joined] == [(40, 0.0, 39 * 0.003)]


def test_differences_are_named() -> None:
    one = [Message(0.0, "host", b"\x03"), Message(0.003, "unit", b"\x3b"), Message(0.2, "unit", b"\x10")]
    assert differences(one, one, 0.001) == []
    late = [*one[:2], Message(0.21, "unit", b"\x10")]
    assert "+10.00 ms later" in differences(one, late, 0.005)[0]
    assert "expected 3 messages, found 2" in differences(one, one[:2], 0.001)[0]
    other = [*one[:2], Message(0.2, "unit", b"\x11")]
    assert "message 2: expected" in differences(one, other, 0.001)[0]
