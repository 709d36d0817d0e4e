"""The vendor's firmware, in a simulator of its chip, on the USB bus of a real kernel, enumeration included.

Needs the images (``JOULEFLEET_MONSOON_FIRMWARE``, docs/emulated-meters.md) beside the guest. Nothing marks
such a unit as emulated: it is the vendor's program.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from power import open_recording
from power.emulated.usb.cable import ControlRequest
from power.wire.hvpm_control import Request, RequestType
from tests.firmware.bridge import HvpmOnUsb, WallClock
from tests.firmware.images import HVPM as RELEASES
from tests.firmware.images import VARIABLE, firmware_folder
from tests.firmware.monsoon import Hvpm, Load
from tests.kernel.bench import Bench, Instrument
from tests.kernel.gadgets import MonsoonUsb

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2700)]

NEVER_LATE = 1_000_000
"""Packets that the simulated cable holds: the guest is slower than 5000 a second."""

CURRENT_A, VOLTAGE_V = 0.25, 4.0


class FirmwareUsb(MonsoonUsb):
    """Answers every request with the firmware's own words, the kernel's standard ones included."""

    def __init__(self, unit: HvpmOnUsb) -> None:
        super().__init__(unit)
        self._bridge, self._sampling = unit, False
        self.device = unit.control(ControlRequest(0x80, 6, 0x0100, 0, 18, b""))
        self.configuration = unit.control(ControlRequest(0x80, 6, 0x0200, 0, 255, b""))

    def control(self, setup: bytes, data: bytes) -> bytes:
        """See `Gadget`. Idle time is left out: for simulating it, a busy machine would answer too late."""
        if not self._sampling:
            with self._bridge._lock:
                self._bridge._clock = WallClock(self._bridge.unit.chip)
        if setup[0] == RequestType.OUT and setup[1] in (Request.START, Request.STOP):
            self._sampling = setup[1] == Request.START
        return super().control(setup, data)

    def _standard(self, request: ControlRequest) -> bytes:
        return self._unit.control(request)


def test_an_hvpm_with_its_own_firmware(
    bench: Bench, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    images = firmware_folder()
    if images is None:
        pytest.skip(f"{VARIABLE} is not set: needs the vendor's firmware images (docs/emulated-meters.md)")
    with HvpmOnUsb(Hvpm(images, RELEASES[32], Load(CURRENT_A, VOLTAGE_V)), NEVER_LATE) as unit:
        gadget = FirmwareUsb(unit)
        serial = unit.control(ControlRequest(0x80, 6, 0x0303, 0x0409, 255, b""))[2:].decode("utf-16-le")
        instrument = Instrument("1-9", "monsoon-hvpm", serial, "2ab9:0001")
        bench.gadgets[instrument.bus_id] = gadget
        try:
            bench.attach(instrument)
            info = bench.meter("info", instrument, "--json").json
            assert info["firmware"].startswith("32 ")
            bench.guest.run("joulefleet", "meter", "output", *instrument.words, "--set", "4.0", "--yes")
            facts = bench.meter("info", instrument, "--json").json["facts"]
            assert facts["output_voltage_v"] == pytest.approx(4.0, abs=0.006)
            for name in ("run_time_current_limit_a", "power_up_current_limit_a"):
                assert 2.98 < facts[name] <= 3.0
            before = len(gadget.sent)
            done = bench.meter("record", instrument, "--seconds", "4", "--out", "/tmp/firmware", "--json")
            time.sleep(0.5)
            sent = b"".join(gadget.sent[before:])
        finally:
            bench.unplug(instrument)
            del bench.gadgets[instrument.bus_id]
    recording = open_recording(bench.guest.fetch("/tmp/firmware", tmp_path))
    raw = (recording.folder / "raw.bin").read_bytes()
    assert raw in sent
    current_a = np.concatenate([block.current_a for block in recording.blocks()])
    voltage_v = np.concatenate([block.voltage_v for block in recording.blocks()])
    assert len(current_a) > 100  # how many come through is the guest's speed, not the driver's
    assert current_a.mean() == pytest.approx(CURRENT_A, rel=0.01)
    assert voltage_v.mean() == pytest.approx(VOLTAGE_V, rel=0.01)
    assert [each.code for each in recording.record.findings if each.severity.value == "error"] == []
    record_property("samples", len(current_a))
    record_property("mean_a", round(float(current_a.mean()), 5))
    record_property("packets", len(gadget.sent) - before)
    record_property("lost", done.json["dropped"])
