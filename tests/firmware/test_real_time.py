"""The firmware behind a pseudo-terminal and behind our USB link, with clients that know nothing of it."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import serial

from power.meter import MeterConfig, open_meter
from power.meters.hvpm_unit import QUEUED_READS, USB_ID, HvpmUnit
from power.meters.usb.link import UsbLink
from tests.firmware.bridge import HvpmOnUsb, LvpmOnPty
from tests.firmware.frames import GET_STATUS, PREPARE, START, STATUS_BYTES, STOP, frame, split
from tests.firmware.images import HVPM
from tests.firmware.monsoon import Hvpm, Load, Lvpm

pytestmark = pytest.mark.usefixtures("real_time")

PATIENT = 1_000_000
"""Queued transfers of a host that is never late, however busy this machine is."""


PAUSE_S = 0.005
"""What a program does beside reading: more than the unit's 2.6 ms."""

MAY_BE_LATE_S = 0.025
"""Less than 128 transfers and the unit hold together (28 ms)."""


def require_no_thread() -> None:
    """Nothing of the bridges runs on. The threads of a USB cable end a moment after it was pulled."""
    deadline = time.monotonic() + 5
    while [t for t in threading.enumerate() if t.name.startswith(("firmware", "usb"))]:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def test_lvpm_behind_a_pseudo_terminal(images: Path) -> None:
    unit = Lvpm(images)
    started = time.monotonic()
    with LvpmOnPty(unit) as bridge, serial.Serial(bridge.path, timeout=5, exclusive=True) as port:
        for body in (STOP, GET_STATUS, PREPARE):
            port.write(frame(body))
            assert port.read(STATUS_BYTES)[:3] == bytes([59, 0x10, 20])
        port.write(frame(START))
        frames, _ = split(port.read(50_000))
        taken_s = time.monotonic() - started
        samples = sum((len(f) - 7) // 8 for f in frames if f[2] == 0)
        # Calibration comes first, then 5 kHz: never faster, and slower only while this machine is busy.
        assert 0.3 * 5000 * (taken_s - 0.2) < samples <= 5000 * (taken_s - 0.2)
    require_no_thread()


@pytest.mark.parametrize("version", [25, 32])
def test_hvpm_behind_our_usb_link(images: Path, version: int) -> None:
    unit = Hvpm(images, HVPM[version], Load(0.25, 4.0))
    blocks = []
    with HvpmOnUsb(unit, queued_transfers=PATIENT) as bridge:
        config = {
            "kind": "monsoon-hvpm",
            "port": bridge.address,
            "voltage_v": 4.0,
            "voltage_max_v": 4.2,
            "current_limit_a": 5.0,
            "options": {"usb_passthrough_off": True},
        }
        with open_meter(MeterConfig.model_validate(config)) as meter:
            assert meter.info.firmware.startswith(f"{version} ")
            for block in meter.stream():
                blocks.append(block)
                if block.ticks[-1] > 2000:
                    meter.stop()
    current_a = np.concatenate([block.current_a for block in blocks])
    voltage_v = np.concatenate([block.voltage_v for block in blocks])
    assert len(current_a) > 1800
    assert current_a == pytest.approx(0.25, abs=1e-4)  # half a step of the coarse range
    assert voltage_v == pytest.approx(4.0, abs=1.3e-4)
    assert {block.dropped_before for block in blocks} == {0}
    require_no_thread()


def busy_program(images: Path, transfers: int) -> tuple[list[bytes], float]:
    """The packets of one second of a program that pauses between reads, and how late they were served."""
    packets: list[bytes] = []
    with HvpmOnUsb(Hvpm(images, HVPM[32], Load(0.25, 4.0))) as bridge:
        unit = HvpmUnit(UsbLink(USB_ID, port=bridge.address))
        unit.start(1250, transfers=transfers)
        started_s, bridge.late_s = time.monotonic(), 0.0
        while time.monotonic() < started_s + 1.0:
            packets += unit.read()
            time.sleep(PAUSE_S)
        late_s = bridge.late_s
        unit.stop()
        unit.close()
    return packets, late_s


def test_queued_transfers_lose_nothing_where_single_ones_do(images: Path) -> None:
    single, _ = busy_program(images, transfers=1)
    dropped = int.from_bytes(single[-1][:2], "little")
    assert dropped > 2500  # at most three observations every 5 ms get through
    for _ in range(10):
        queued, late_s = busy_program(images, QUEUED_READS)
        if late_s < MAY_BE_LATE_S:
            break
    else:
        pytest.skip(f"this machine stops for longer than {MAY_BE_LATE_S * 1e3:g} ms again and again")
    assert {int.from_bytes(packet[:2], "little") for packet in queued} == {0}
    assert sum(packet[3] for packet in queued) > 4500
    numbers = [packet[2] & 15 for packet in queued]
    assert all(b == (a + 1) % 16 for a, b in pairwise(numbers))
    require_no_thread()
