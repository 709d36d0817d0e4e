"""The device's own power sensors: trees of real files, read by the real sampler."""

import json
import time
from pathlib import Path

import pytest

from device_agents.payload.recording.journal import JobJournal
from device_agents.payload.recording.sysfs_power import find_sensors
from device_agents.payload.recording.sysfs_sampler import MAX_BLOCK, SensorTrack, SysfsSampler
from device_agents.session.job_record import NoPowerSource, PowerBlock, PowerRate, PowerSource
from tests.conftest import REPOSITORY
from tests.device_agents.agents import session_on, softmax
from tests.device_agents.fake_sysfs import phone, sensors, tree


def test_the_sensors_of_a_board(tmp_path: Path) -> None:
    found = {sensor.name: sensor for sensor in find_sensors(sensors(tmp_path))}
    assert list(found) == [
        "hwmon2:ina219:1",
        "hwmon3:ina3221:VDD_IN",
        "hwmon3:ina3221:VDD_CPU",
        "intel-rapl:0:package-0",
    ]
    ina219 = found["hwmon2:ina219:1"]
    assert ina219.update_interval_s == pytest.approx(0.068)
    assert ina219.columns["voltage_v"].resolution == 4e-3
    assert ina219.columns["current_a"].scale == 1e-3
    assert found["hwmon3:ina3221:VDD_IN"].update_interval_s is None
    rapl = found["intel-rapl:0:package-0"]
    assert list(rapl.columns) == ["energy_j"]
    assert rapl.wrap_j == pytest.approx(262143.32885)
    for sensor in found.values():
        PowerSource.model_validate(sensor.describe())
        sensor.close()


def recorded(root: Path, part: str) -> Path:
    """Sysfs of INA chips as a real kernel showed it (``tests/kernel``)."""
    return tree(root, json.loads((REPOSITORY / "tests/data/ina_sysfs.json").read_text())[part])


def resolutions(root: Path) -> dict[str, dict[str, float | None]]:
    found = {}
    for sensor in find_sensors(root):
        PowerSource.model_validate(sensor.describe())
        found[sensor.name] = {name: column.resolution for name, column in sensor.columns.items()}
        sensor.close()
    return found


def test_the_current_step_is_that_of_the_shunt(tmp_path: Path) -> None:
    # By hand: 10 uV over 2 mohm; 2.5 uV over 10 mohm is finer than the kernel's mA; 40 uV over 10 and 5 mohm.
    assert resolutions(recorded(tmp_path, "hwmon")) == {
        "hwmon0:ina219:1": {"current_a": pytest.approx(5e-3), "voltage_v": 4e-3},
        "hwmon1:ina226:1": {"current_a": 1e-3, "voltage_v": 1.25e-3},
        "hwmon2:ina3221:1": {"current_a": pytest.approx(4e-3), "voltage_v": 8e-3},
        "hwmon2:ina3221:2": {"current_a": pytest.approx(8e-3), "voltage_v": 8e-3},
        "hwmon2:ina3221:3": {"current_a": pytest.approx(4e-3), "voltage_v": 8e-3},
    }


def test_a_chip_on_iio_is_read_by_its_scales(tmp_path: Path) -> None:
    root = recorded(tmp_path, "iio")
    ina219, ina226 = find_sensors(root)
    assert (ina219.name, ina226.name) == ("iio:device0:ina219", "iio:device1:ina226")
    # 50 mV over 0.1 ohm and over 10 mohm, 5 V; registers count 0.1 mA, 0.25 mA, 4 mV and 1.25 mV.
    for sensor, current_a, step_a, step_v in ((ina219, 0.5, 1e-4, 4e-3), (ina226, 5.0, 2.5e-4, 1.25e-3)):
        values = [
            file.number() * column.scale
            for file, column in zip(sensor.files, sensor.columns.values(), strict=True)
        ]
        assert values == pytest.approx([current_a, 5.0])
        assert [column.resolution for column in sensor.columns.values()] == pytest.approx([step_a, step_v])
        PowerSource.model_validate(sensor.describe())
        sensor.close()
    assert ina219.update_interval_s == pytest.approx(1 / 940)
    assert ina226.update_interval_s == pytest.approx(1 / 114)


@pytest.mark.parametrize("shunt", ["", "0", "-5", "ten", "1e9", None])
def test_a_shunt_that_says_nothing_leaves_the_step_unknown(tmp_path: Path, shunt: str | None) -> None:
    chip = {"name": "ina219", "curr1_input": 640, "in1_input": 5012}
    chip |= {} if shunt is None else {"shunt_resistor": shunt}
    tree(tmp_path, {f"sys/class/hwmon/hwmon0/{name}": value for name, value in chip.items()})
    assert resolutions(tmp_path) == {"hwmon0:ina219:1": {"current_a": None, "voltage_v": 4e-3}}


def test_a_unit_is_no_resolution(tmp_path: Path) -> None:
    unknown = {"name": "ina999", "curr1_input": 640, "in1_input": 5012, "shunt_resistor": 10000}
    tree(tmp_path / "a", {f"sys/class/hwmon/hwmon0/{name}": value for name, value in unknown.items()})
    assert resolutions(tmp_path / "a") == {"hwmon0:ina999:1": {"current_a": None, "voltage_v": None}}
    assert resolutions(phone(tmp_path / "b")) == {"battery:Battery": {"current_a": None, "voltage_v": None}}
    tree(tmp_path / "c", {"sys/class/powercap/intel-rapl:0/energy_uj": 1})
    assert resolutions(tmp_path / "c") == {"intel-rapl:0:": {"energy_j": None}}


@pytest.mark.parametrize("scale", ["", "0", "-1", "nan", "inf", "much"])
def test_an_iio_chip_without_a_usable_scale_is_left_out(tmp_path: Path, scale: str) -> None:
    root = recorded(tmp_path, "iio")
    (root / "sys/bus/iio/devices/iio:device0/in_current3_scale").write_text(scale)
    assert list(resolutions(root)) == ["iio:device1:ina226"]


def test_a_phone_has_its_fuel_gauge(tmp_path: Path) -> None:
    (gauge,) = find_sensors(phone(tmp_path))
    assert gauge.name == "battery:Battery"
    assert [file.number() for file in gauge.files] == [-412000, 4123000]
    assert {name: column.scale for name, column in gauge.columns.items()} == {
        "current_a": 1e-6,
        "voltage_v": 1e-6,
    }
    gauge.close()


def test_a_job_journals_blocks_on_the_device_clock(tmp_path: Path) -> None:
    root = sensors(tmp_path / "root")
    with session_on(tmp_path / "state", "--root", str(root)) as session:
        result = session.run_round(softmax(samples=50_000, power_hz=100, telemetry_hz=0))
        record = session.collect(result.job_id)
    sources = record.telemetry_of(PowerSource)
    assert len(sources) == 4
    for source in sources:
        blocks = [b for b in record.telemetry_of(PowerBlock) if b.source == source.name]
        (rate,) = [r for r in record.telemetry_of(PowerRate) if r.source == source.name]
        index = 0
        stamps: list[int] = []
        for block in blocks:
            assert block.first_index == index
            assert set(block.raw) == set(source.columns)
            index += len(block.t_dev_ns)
            stamps += block.t_dev_ns
        assert stamps == sorted(stamps)
        assert result.markers[0].t_dev_ns <= stamps[-1] <= result.done.t_dev_ns
        assert rate.readings == index > 1
        assert rate.updates == 1  # these files never change: whatever the polling rate, nothing was updated
        assert rate.reading_hz is not None
        assert rate.reading_hz < 110
    first = next(b for b in record.telemetry_of(PowerBlock) if b.source == "hwmon2:ina219:1")
    assert set(first.raw["voltage_v"]) == {5012}
    assert set(first.raw["current_a"]) == {640}


def test_a_device_without_sensors_says_so(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with session_on(tmp_path / "state", "--root", str(tmp_path / "root")) as session:
        result = session.run_round(softmax(power_hz=50, telemetry_hz=0))
        record = session.collect(result.job_id)
    assert len(record.telemetry_of(NoPowerSource)) == 1
    assert record.telemetry_of(PowerBlock) == ()


def test_what_changes_is_counted_as_an_update(tmp_path: Path) -> None:
    root = tree(tmp_path, {"sys/class/powercap/x:0/energy_uj": 100})
    (sensor,) = find_sensors(root)
    track = SensorTrack(sensor)
    for value in (100, 100, 250, 250, 250, 400):
        (root / "sys/class/powercap/x:0/energy_uj").write_text(str(value))
        track.read()
        time.sleep(0.001)
    block = PowerBlock.model_validate(track.block())
    assert block.raw["energy_j"] == (100, 100, 250, 250, 250, 400)
    rate = PowerRate.model_validate(track.rate())
    assert (rate.readings, rate.updates) == (6, 3)
    assert rate.reading_hz is not None
    assert rate.update_hz == pytest.approx(rate.reading_hz * 2 / 5)
    sensor.close()


def test_readings_that_fail_are_dropped_and_counted(tmp_path: Path) -> None:
    root = tree(tmp_path, {"sys/class/powercap/x:0/energy_uj": 100})
    path = root / "sys/class/powercap/x:0/energy_uj"
    (sensor,) = find_sensors(root)
    track = SensorTrack(sensor)
    for content in ("100", "", "garbage", "130"):
        path.write_text(content)
        track.read()
    block = PowerBlock.model_validate(track.block())
    assert (block.raw["energy_j"], block.dropped) == ((100, 130), 2)
    track.dropped += 5
    path.write_text("140")
    track.read()
    block = PowerBlock.model_validate(track.block())
    assert (block.first_index, block.dropped, block.raw["energy_j"]) == (2, 5, (140,))
    assert PowerBlock.model_validate(track.block()).t_dev_ns == ()
    sensor.close()


def test_a_long_block_is_cut_before_its_line_is_too_long(tmp_path: Path) -> None:
    root = sensors(tmp_path / "root")
    journal = JobJournal(tmp_path / "telemetry.jsonl")
    sampler = SysfsSampler(root, 1000.0, journal)
    for _ in range(MAX_BLOCK + 10):
        sampler.turn()
    lines = (tmp_path / "telemetry.jsonl").read_bytes().splitlines()
    assert len(lines) == 4
    assert max(len(line) for line in lines) < 65_536 / 2
    assert {len(PowerBlock.model_validate_json(line).t_dev_ns) for line in lines} <= {
        MAX_BLOCK,
        *range(1, MAX_BLOCK),
    }
    for track in sampler._tracks:
        track.sensor.close()
    journal.close()
