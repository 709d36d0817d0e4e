"""Our drivers and the vendor's firmware, in real time."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import MeterError
from power.calibration import MeterCalibration
from power.meter import MeterConfig, PowerMeter, open_meter
from power.meters.monsoon_hvpm import MonsoonHvpm
from power.meters.monsoon_lvpm import MonsoonLvpm
from power.meters.safety import switch_output_on
from power.model import SampleBlock, Severity
from power.recording import open_recording
from power.recording.recorder import record as store
from power.recording.redecode import compare_with_raw
from power.wire.lvpm import LvpmDecoder
from power.wire.lvpm_frames import GET_STATUS, PREPARE, START, STOP, StatusBit, find_status
from tests.firmware.bridge import HvpmOnUsb, LvpmOnPty
from tests.firmware.images import HVPM
from tests.firmware.monsoon import Hvpm, Load, Lvpm

pytestmark = pytest.mark.usefixtures("real_time")


@contextlib.contextmanager
def lvpm(images: Path, load: Load | None = None, **changes: object) -> Iterator[tuple[Lvpm, MonsoonLvpm]]:
    unit = Lvpm(images, load)
    with LvpmOnPty(unit) as bridge:
        values = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 3.0, **changes}
        config = MeterConfig.model_validate({"kind": "monsoon-lvpm", "port": bridge.path, **values})
        with MonsoonLvpm(config) as meter:
            yield unit, meter


def record(meter: PowerMeter, samples: int) -> list[SampleBlock]:
    blocks = []
    for block in meter.stream():
        blocks.append(block)
        if block.ticks[-1] >= samples:
            meter.stop()
    return blocks


@pytest.mark.parametrize("current_a", [0.25])
def test_lvpm_records_with_nothing_to_remark(images: Path, current_a: float) -> None:
    """Long enough for the calibration that the firmware sends after 3 s.

    Too short for its rate, which is judged in simulated time (test_long_streams.py): 1.6 ms of delay at one
    end take the fit to its limit of 500 ppm.
    """
    with lvpm(images, Load(current_a, 4.0)) as (_, meter):
        switch_output_on(meter, meter.config, 4.0)
        blocks = record(meter, 16_000)
        findings = meter.findings
    assert [(f.code, f.message) for f in findings if f.severity is not Severity.INFO] == []
    assert {block.dropped_before for block in blocks} == {0}
    assert np.concatenate([b.current_a for b in blocks]) == pytest.approx(current_a, abs=2e-4)
    assert np.concatenate([b.voltage_v for b in blocks]) == pytest.approx(4.0, abs=5e-4)
    assert [len(block.ticks) for block in blocks if block.ticks[0]]  # the calibration ends a block


def test_lvpm_limits_and_voltage_arrive_as_asked(images: Path) -> None:
    with lvpm(images, current_limit_a=3.0) as (_, meter):
        setting = switch_output_on(meter, meter.config, 4.1)
        status = meter.status()
    for limit_a in (setting.limits.run_time_a, setting.limits.power_up_a):
        assert 3.0 - 8 / 1023 < limit_a <= 3.0
    assert (status.run_time_limit_a, status.power_up_limit_a) == (
        setting.limits.run_time_a,
        setting.limits.power_up_a,
    )
    assert status.output_setting_v == pytest.approx(4.1)


def test_lvpm_over_current_is_said_at_once(images: Path) -> None:
    with lvpm(images) as (unit, meter):
        switch_output_on(meter, meter.config, 4.0)
        with pytest.raises(MeterError, match="cut the output and ended the stream"):
            for _ in meter.stream():
                unit.set_board(over_current=True)
        assert "over_current" in {finding.code for finding in meter.findings}


def test_lvpm_that_a_dead_client_left_sampling(images: Path) -> None:
    """It streams into the port of whoever opens it next."""
    unit = Lvpm(images, Load(0.25, 4.0))
    with LvpmOnPty(unit) as bridge:
        dead = os.open(bridge.path, os.O_RDWR | os.O_NOCTTY)
        for body in (PREPARE, START):
            os.write(dead, body)
            os.read(dead, 4096)
        os.close(dead)
        values = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 3.0}
        config = MeterConfig.model_validate({"kind": "monsoon-lvpm", "port": bridge.path, **values})
        with MonsoonLvpm(config) as meter:
            switch_output_on(meter, config, 4.0)
            blocks = record(meter, 1000)
    assert blocks[0].ticks[0] == 0
    assert np.concatenate([b.current_a for b in blocks]) == pytest.approx(0.25, abs=2e-4)


def test_lvpm_misses_a_stop_at_its_first_calibration(images: Path) -> None:
    """It says that it knows no such command, and then nothing until a second stop."""
    unit = Lvpm(images)
    unit.write(PREPARE)
    list(unit.read(0.02))
    unit.write(START)
    list(unit.read(0.00525))
    answers = []
    for command in (STOP, GET_STATUS, STOP, GET_STATUS):
        unit.write(command)
        answers.append(find_status(b"".join(data for _, data in unit.read(0.3))))
    missed, nothing, stopped, known = answers
    assert missed is not None
    assert StatusBit.UNKNOWN_COMMAND in missed.bits
    assert StatusBit.STOPPED not in missed.bits
    assert nothing is None
    assert stopped is not None
    assert StatusBit.STOPPED in stopped.bits
    assert known is not None


def test_lvpm_samples_lost_to_a_slow_host_are_counted(images: Path) -> None:
    """What the instrument has no room for shows in the packet behind the gap, not in its sequence number."""
    unit = Lvpm(images)
    decoder = LvpmDecoder(voltage_step_v=125e-6, rate_hz=5000.0)
    unit.write(PREPARE)
    list(unit.read(0.02))
    unit.write(START)
    started_s, blocks = unit.seconds, []
    for listen_s, away_s in ((0.5, 0.045), (0.5, 0.0)):
        for t_s, packet in unit.read(listen_s):
            blocks += decoder.feed(packet, round(t_s * 1e9))
        unit.wait(away_s)
    (lost,) = [block.dropped_before for block in blocks if block.dropped_before]
    assert lost == pytest.approx(0.045 * 5000 - 80, abs=15)
    sampled_s = unit.seconds - started_s - 0.212  # calibration comes first
    assert blocks[-1].ticks[-1] == pytest.approx(sampled_s * 5000, abs=20)


def test_lvpm_data_packet_comes_as_two_usb_packets(images: Path) -> None:
    unit = Lvpm(images)
    unit.write(PREPARE)
    list(unit.read(0.02))
    unit.write(START)
    sizes = [len(packet) for _, packet in unit.read(0.5)][-60:]
    assert set(sizes) == {63, 64}
    assert all(sum(pair) == 127 for pair in itertools.pairwise(sizes))


@pytest.mark.parametrize("version", HVPM)
def test_hvpm_records_with_nothing_to_remark(images: Path, version: int) -> None:
    """A host that is never late, as one with queued transfers; what is recorded starts with no complaint."""
    with HvpmOnUsb(Hvpm(images, HVPM[version], Load(0.25, 4.0)), queued_transfers=1_000_000) as bridge:
        values = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 5.0}
        config = MeterConfig.model_validate({"kind": "monsoon-hvpm", "port": bridge.address, **values})
        with open_meter(config) as meter:
            assert isinstance(meter, MonsoonHvpm)
            setting = switch_output_on(meter, config, 4.0)
            assert 5.0 - 16 / 0xFFFF < setting.limits.run_time_a <= 5.0
            assert 5.0 - 16 / 0xFFFF < setting.limits.power_up_a <= 5.0
        with open_meter(config) as meter:
            blocks = record(meter, 4000)
            findings = meter.findings
    assert [(f.code, f.message) for f in findings if f.severity is not Severity.INFO] == []
    assert {block.dropped_before for block in blocks} == {0}
    assert np.concatenate([b.current_a for b in blocks]) == pytest.approx(0.25, abs=2e-4)
    assert np.concatenate([b.voltage_v for b in blocks]) == pytest.approx(4.0, abs=2e-4)


CURRENT = {"gain": 1.02, "offset_a": -0.001, "gain_uncertainty": 0.001, "offset_uncertainty_a": 1e-4}
CALIBRATION = {
    "current": {"fine": CURRENT, "coarse": CURRENT},
    "voltage": {"gain": 0.995, "offset_v": 0.01, "gain_uncertainty": 0.001, "offset_uncertainty_v": 1e-3},
    "k": 2,
    "date": "2026-10-01",
}


def record_calibrated(meter: MonsoonLvpm | MonsoonHvpm, folder: Path, **stated: object) -> None:
    """What the firmware sends is stored as it came, and read with gain and offset applied."""
    switch_output_on(meter, meter.config, 4.0)
    calibration = MeterCalibration.model_validate({**CALIBRATION, "serial": meter.info.serial, **stated})
    config = meter.config.model_copy(update={"calibration": calibration})
    store(meter, folder, config=config, seconds=0.4)
    recording = open_recording(folder)
    blocks = list(recording.blocks())
    assert np.concatenate([b.current_a for b in blocks]) == pytest.approx(0.25 * 1.02 - 0.001, abs=2.1e-4)
    assert np.concatenate([b.voltage_v for b in blocks]) == pytest.approx(4.0 * 0.995 + 0.01, abs=5e-4)
    assert compare_with_raw(recording).first_difference is None
    assert recording.record.calibration == calibration


def test_a_calibration_is_applied_to_what_the_lvpm_firmware_sends(images: Path, tmp_path: Path) -> None:
    with lvpm(images, Load(0.25, 4.0)) as (_, meter):
        record_calibrated(meter, tmp_path / "recording", scale="stock")


def test_a_calibration_is_applied_to_what_the_hvpm_firmware_sends(images: Path, tmp_path: Path) -> None:
    with HvpmOnUsb(Hvpm(images, HVPM[32], Load(0.25, 4.0)), queued_transfers=1_000_000) as bridge:
        values = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 5.0}
        config = MeterConfig.model_validate({"kind": "monsoon-hvpm", "port": bridge.address, **values})
        with open_meter(config, any_settings=True) as meter:
            assert isinstance(meter, MonsoonHvpm)
            record_calibrated(meter, tmp_path / "recording")
