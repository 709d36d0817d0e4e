from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulefleet.config import parse_toml, validate
from joulefleet.errors import ConfigError
from power.calibration import MeterCalibration, load_calibration
from power.energy import Window, measure_energy
from power.energy.measurement import measure_windows
from power.energy.uncertainty import EnergyBudget, MeasuredRecording, gross_energy
from power.meter import MeterConfig, open_meter
from power.model import Accuracy, RangeAccuracy, SampleBlock
from power.recording import Recording, open_recording, record
from power.recording.csv_export import write_samples_csv
from tests.power.synthetic import BytesMeter, block, config, frames, info, write_recording

TWO_RANGES = Accuracy(
    current=(
        RangeAccuracy(name="fine", up_to_a=0.04, gain_rel=0.02, offset_a=1e-4),
        RangeAccuracy(name="coarse", gain_rel=0.02, offset_a=2e-3),
    ),
    voltage_gain_rel=0.01,
    voltage_offset_v=0.01,
    source="assumption, chosen wide",
)
DAY = date(2026, 10, 1)


def calibration(**values: Any) -> MeterCalibration:
    """One range, a correction of 2 % and 1 mA, known to 0.2 % and 0.1 mA (k = 2)."""
    current = {"gain": 1.02, "gain_uncertainty": 0.002, "offset_a": 0.001, "offset_uncertainty_a": 1e-4}
    voltage = {"gain": 0.99, "gain_uncertainty": 0.001, "offset_v": 0.02, "offset_uncertainty_v": 0.002}
    return MeterCalibration.model_validate(
        {"current": {"all": current}, "voltage": voltage, "k": 2, "date": DAY, **values}
    )


def load(folder: Path, current_a: float = 0.5, voltage_v: float = 4.0, **info_values: Any) -> Recording:
    """Ten seconds of a constant reading."""
    return write_recording(folder, [block(np.full(10_001, current_a), voltage_v)], **info_values)


# What is stated


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"current": {"all": {"gain": 0.0, "gain_uncertainty": 0.01}}}, "calibration.current.all.gain"),
    ({"current": {"all": {"gain": -1.0, "gain_uncertainty": 0.01}}}, "calibration.current.all.gain"),
    ({"current": {"all": {"gain": math.nan, "gain_uncertainty": 0.01}}}, "calibration.current.all.gain"),
    ({"current": {"all": {"gain": math.inf, "gain_uncertainty": 0.01}}}, "calibration.current.all.gain"),
    ({"current": {"all": {"gain": 1.3, "gain_uncertainty": 0.01}}}, "calibration.current.all.gain"),
    ({"current": {"all": {"gain": 1.0, "gain_uncertainty": -0.01}}}, "gain_uncertainty"),
    ({"current": {"all": {"gain": 1.0, "gain_uncertainty": 0.0}}}, "gain_uncertainty"),
    ({"current": {"all": {"gain": 1.0, "gain_uncertainty": 0.01, "offset_a": 0.1}}}, "offset_uncertainty_a"),
    (
        {"current": {"all": {"gain": 1.0, "gain_uncertainty": 0.01, "offset_uncertainty_a": 0.1}}},
        "without offset_a",
    ),
    ({"current": {}, "voltage": None}, "corrects nothing"),
    ({"k": 0}, "calibration.k"),
    ({"k": -2}, "calibration.k"),
    ({"k": None}, "either k"),
    ({"k": 2, "limits": True}, "either k"),
    ({"date": "yesterday"}, "calibration.date"),
    ({"date": date(2999, 1, 1)}, "in the future"),
    ({"valid_until": DAY - timedelta(days=1)}, "before date"),
    ({"serial": "123"}, "another unit"),
    ({"by": "Ann\n1,2,3"}, "calibration.by"),
    ({"certificate": "\x1b[2J"}, "calibration.certificate"),
    ({"gain": 1.0}, "calibration.gain: unknown key"),
]


@pytest.mark.parametrize(("change", "says"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_with_its_place(change: dict[str, Any], says: str) -> None:
    good = calibration().model_dump()
    meter = {"kind": "synthetic", "serial": "77", "voltage_v": 4, "voltage_max_v": 4.2, "current_limit_a": 3}
    with pytest.raises(ConfigError) as error:
        validate({**meter, "calibration": {**good, **change}}, MeterConfig, name="devices.toml")
    assert says in str(error.value)
    assert str(error.value).startswith("devices.toml: ")


def test_a_wrong_key_gets_a_suggestion() -> None:
    text = "kind='x'\nvoltage_v=4\nvoltage_max_v=4\ncurrent_limit_a=3\n[calibration]\nk=2\n"
    text += "[calibration.current.all]\ngain=1.0\ngain_uncertainty=0.01\noffset_ma=3\n"
    with pytest.raises(ConfigError, match=r"calibration\.current\.all\.offset_ma: unknown key") as error:
        parse_toml(text, MeterConfig, name="devices.toml")
    assert "offset_a" in error.value.hint


def test_a_meter_without_calibration_keeps_the_hash_of_its_records() -> None:
    assert "calibration" not in config().model_dump(mode="json")


@pytest.mark.parametrize(
    "header", ["", "calibration", "devices.phone.meter.calibration", "meters.a.calibration"]
)
def test_a_file_may_be_a_fragment_of_an_inventory(tmp_path: Path, header: str) -> None:
    path = tmp_path / "c.toml"
    dot = f"{header}." if header else ""
    path.write_text(
        (f"[{header}]\n" if header else "")
        + f"k = 2\ndate = 2026-10-01\n[{dot}current.all]\ngain = 1.01\ngain_uncertainty = 0.001\n"
    )
    found = load_calibration(path)
    assert (found.k, found.date, found.current["all"].gain) == (2, DAY, 1.01)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("k = ", "TOML"),
        ("k = 2", "corrects nothing"),
        ("date = 2999-01-01\nk=2", "corrects nothing"),
        ("x=1", "x"),
        ("[devices]\n[meters]", "an inventory"),
        pytest.param("#" * (5 << 20), "more than 4 MB", id="long"),
        pytest.param("x=" + "[" * 900 + "]" * 900, "nested", id="deep"),
        pytest.param("a." * 3000 + "b = 1", "a key of more than", id="dotted"),
    ],
)
def test_a_file_that_states_nothing_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as error:
        load_calibration(path)
    assert str(path) in str(error.value)
    with pytest.raises(ConfigError, match="No such file"):
        load_calibration(tmp_path / "missing.toml")


# Applied once


CORRECTED_A, CORRECTED_V = 1.02 * 0.5 + 0.001, 0.99 * 4.0 + 0.02


def test_energy_is_that_of_corrected_samples(tmp_path: Path) -> None:
    load(tmp_path / "r")
    before = measure_energy(open_recording(tmp_path / "r")).energy
    after = measure_energy(open_recording(tmp_path / "r", calibration=calibration()))
    assert before.energy_j == pytest.approx(0.5 * 4.0 * 10)
    assert after.energy.energy_j == pytest.approx(CORRECTED_A * CORRECTED_V * 10, rel=1e-7)
    assert after.energy.charge_c == pytest.approx(CORRECTED_A * 10, rel=1e-7)


def test_a_part_of_a_recording_and_its_samples_agree(tmp_path: Path) -> None:
    """The index, the samples inside a batch, and the CSV are corrected alike."""
    rng = np.random.default_rng(1)
    current = rng.uniform(0.01, 0.6, 40_001)
    write_recording(tmp_path / "r", [block(current)])
    recording = open_recording(tmp_path / "r", calibration=calibration())
    whole = measure_energy(recording, 3.1234, 33.4321).energy.energy_j
    corrected = (1.02 * current.astype(np.float32).astype(float) + 0.001) * CORRECTED_V
    t_s = np.arange(len(current)) / 1000
    grid = np.union1d(t_s, [3.1234, 33.4321])
    power = np.interp(grid, t_s, corrected)
    inside = (grid >= 3.1234) & (grid <= 33.4321)
    assert whole == pytest.approx(np.trapezoid(power[inside], grid[inside]), rel=1e-7)
    first = next(recording.blocks())
    assert first.power_w[:5] == pytest.approx(corrected[:5], rel=1e-6)
    span_ns = (int(first.t_ns[0]), int(first.t_ns[9]))
    write_samples_csv(recording, tmp_path / "r.csv", *span_ns)
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert any(line.startswith("# calibration of 2026-10-01") for line in lines)
    rows = [line.split(",") for line in lines if line[0] not in '#"']
    assert [float(row[3]) for row in rows] == pytest.approx(corrected[:10], rel=1e-6)


def test_what_the_instrument_said_stays(tmp_path: Path) -> None:
    with BytesMeter([frames(0, np.full(2000, 0.5))]) as meter:
        record(meter, tmp_path / "r", config=config(calibration=calibration()))
    recording = open_recording(tmp_path / "r")
    assert recording.record.calibration == calibration()
    assert recording.record.config is not None
    assert recording.record.config.calibration is None  # in one place only
    assert next(recording.as_stored().blocks()).current_a == pytest.approx(0.5)
    assert next(recording.blocks()).current_a == pytest.approx(CORRECTED_A)
    assert recording.provenance("r").calibration_sha256 == calibration().sha256()
    other = open_recording(tmp_path / "r", calibration=calibration(certificate="other"))
    assert other.provenance("r").calibration_sha256 != calibration().sha256()
    assert other.record.sha256() == recording.record.sha256()


def test_whoever_watches_sees_corrected_values(tmp_path: Path) -> None:
    seen: list[SampleBlock] = []
    with BytesMeter([frames(0, np.full(2000, 0.5))]) as meter:
        record(meter, tmp_path / "r", config=config(calibration=calibration()), on_block=seen.append)
    assert np.concatenate([b.current_a for b in seen]) == pytest.approx(CORRECTED_A)


def test_a_replay_brings_its_calibration(tmp_path: Path) -> None:
    with BytesMeter([frames(0, np.full(3000, 0.5))]) as meter:
        record(meter, tmp_path / "r", config=config(calibration=calibration()))
    first = measure_energy(open_recording(tmp_path / "r"))
    again = config(kind="replay", port=str(tmp_path / "r"), options={"speed": 0})
    with open_meter(again) as meter:
        record(meter, tmp_path / "again", config=again)
    second = measure_energy(open_recording(tmp_path / "again"))
    assert second.energy.energy_j == pytest.approx(first.energy.energy_j, rel=1e-12)
    assert first.budget is not None
    assert second.budget is not None
    assert second.budget.half_width_j == pytest.approx(first.budget.half_width_j, rel=1e-9)
    assert next(open_recording(tmp_path / "again").as_stored().blocks()).current_a == pytest.approx(0.5)


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"serial": "8"}, {"serial": "7"}, "serial '8'"),
    ({}, {"serial": "7"}, r"without a serial number(.|\n)*write into it: serial = \"7\""),
    ({"scale": "stock"}, {"facts": {"scale": "resistors"}}, "made with scale 'stock'"),
    ({}, {"facts": {"scale": "resistors"}}, r"without a scale(.|\n)*write into it: scale = \"resistors\""),
    ({"channel": "usb"}, {}, "channel 'usb'"),
    ({}, {"accuracy": TWO_RANGES}, "range 'all'"),
]


@pytest.mark.parametrize(("stated", "meter", "says"), MISFITS)
def test_a_calibration_of_something_else_is_refused_before_anything_is_written(
    tmp_path: Path, stated: dict[str, Any], meter: dict[str, Any], says: str
) -> None:
    with (
        BytesMeter([frames(0, np.full(2000, 0.5))], **meter) as opened,
        pytest.raises(ConfigError, match=says),
    ):
        record(opened, tmp_path / "r", config=config(calibration=calibration(**stated)))
    assert not (tmp_path / "r").exists()
    load(tmp_path / "stored", **meter)
    with pytest.raises(ConfigError, match=says):
        open_recording(tmp_path / "stored", calibration=calibration(**stated))
    measure_energy(open_recording(tmp_path / "stored"))  # nothing is lost


# Carried into the interval


def instrument_j(recording: Recording) -> float:
    budget = measure_energy(recording).budget
    assert budget is not None
    return budget.parts["instrument"].standard_j


def test_uncertainties_replace_the_assumed_limits(tmp_path: Path) -> None:
    """By hand: the derivative of (g i + o)(gv v + ov) t by each, times its standard uncertainty."""
    load(tmp_path / "r")
    found = instrument_j(open_recording(tmp_path / "r", calibration=calibration()))
    by_hand = [
        0.001 * 0.5 * CORRECTED_V,
        5e-5 * CORRECTED_V,
        0.0005 * 4.0 * CORRECTED_A,
        0.001 * CORRECTED_A,
    ]
    assert found == pytest.approx(10 * math.hypot(*by_hand), rel=1e-6)
    wide = instrument_j(open_recording(tmp_path / "r"))
    assert wide == pytest.approx(10 / 1.96 * math.hypot(0.02, 0.004, 0.02, 0.005), rel=1e-4)
    assert found < wide / 5


def test_limits_are_rectangular(tmp_path: Path) -> None:
    load(tmp_path / "r")
    expanded = instrument_j(open_recording(tmp_path / "r", calibration=calibration(k=math.sqrt(3))))
    limits = instrument_j(open_recording(tmp_path / "r", calibration=calibration(k=None, limits=True)))
    assert limits == pytest.approx(expanded, rel=1e-9)


@pytest.mark.parametrize("correlation", [-1.0, -0.9, 0.0, 0.5, 1.0])
def test_gain_and_offset_of_one_fit_depend_on_each_other(tmp_path: Path, correlation: float) -> None:
    load(tmp_path / "r")
    one = calibration().current["all"].model_copy(update={"gain_offset_correlation": correlation})
    found = instrument_j(open_recording(tmp_path / "r", calibration=calibration(current={"all": one})))
    gain, offset = 0.001 * 0.5, 5e-5
    current = math.sqrt(gain**2 + offset**2 + 2 * correlation * gain * offset) * CORRECTED_V
    voltage = math.hypot(0.0005 * 4.0, 0.001) * CORRECTED_A
    assert found == pytest.approx(10 * math.hypot(current, voltage), rel=1e-6)


def test_an_offset_that_was_not_calibrated_keeps_its_limit(tmp_path: Path) -> None:
    load(tmp_path / "r")
    gain_only = {"all": {"gain": 1.02, "gain_uncertainty": 0.002}}
    recording = open_recording(tmp_path / "r", calibration=calibration(current=gain_only))
    by_hand = [
        0.001 * 0.5 * CORRECTED_V,
        0.001 / 1.96 * CORRECTED_V,
        math.hypot(0.0005 * 4.0, 0.001) * 1.02 * 0.5,
    ]
    assert instrument_j(recording) == pytest.approx(10 * math.hypot(*by_hand), rel=1e-4)
    assert "not in it: offset of range all (test)" in recording.info.accuracy.source


def test_own_volts_count_twice(tmp_path: Path) -> None:
    """A current derived from a resistor and the meter's volts has the voltmeter's error too: they add up."""
    load(tmp_path / "r", 0.5, 4.0)
    gain_only = {"all": {"gain": 1.0, "gain_uncertainty": 1e-6}}
    only = {"current": gain_only, "voltage": None}
    own = instrument_j(open_recording(tmp_path / "r", calibration=calibration(own_voltage_v=4.0, **only)))
    # 1 % of reading, and 10 mV, twice; the current's own offset limit of 1 mA.
    by_hand = [2 * 0.01 * 20, 2 * 0.01 * 5, 0.001 * 40]
    assert own == pytest.approx(math.hypot(*by_hand) / 1.96, rel=1e-4)
    apart = instrument_j(open_recording(tmp_path / "r", calibration=calibration(**only)))
    assert apart == pytest.approx(math.hypot(0.01 * 20, 0.01 * 5, 0.001 * 40) / 1.96, rel=1e-4)


def test_a_shared_reference_is_one_error_of_both_ranges(tmp_path: Path) -> None:
    current = np.repeat([0.01, 0.5], [5000, 5001])
    write_recording(tmp_path / "r", [block(current)], accuracy=TWO_RANGES)
    ranges = {name: {"gain": 1.0, "gain_uncertainty": 1e-9} for name in ("fine", "coarse")}
    exact = {"gain": 1.0, "gain_uncertainty": 1e-9, "offset_v": 0.0, "offset_uncertainty_v": 1e-9}
    stated = calibration(current=ranges, voltage=exact, reference_gain_uncertainty=0.004)
    recording = open_recording(tmp_path / "r", calibration=stated)
    fine_j, coarse_j = 0.01 * 4 * 5, 0.5 * 4 * 5
    offsets = math.hypot(1e-4 * 4 * 5, 2e-3 * 4 * 5) / 1.96
    assert instrument_j(recording) == pytest.approx(
        math.hypot(0.002 * (fine_j + coarse_j), offsets), rel=1e-3
    )


def two_ranges(**values: Any) -> MeterCalibration:
    ranges = {
        "fine": {"gain": 1.03, "gain_uncertainty": 1e-4, "offset_a": 1e-5, "offset_uncertainty_a": 1e-7},
        "coarse": {"gain": 0.98, "gain_uncertainty": 1e-4, "offset_a": 1e-3, "offset_uncertainty_a": 1e-5},
    }
    return calibration(current=ranges, voltage=None, **values)


@pytest.mark.parametrize(
    ("reading_a", "corrected_a"), [(0.01, 0.0103 + 1e-5), (-0.01, -0.0103 + 1e-5), (0.5, 0.49 + 1e-3)]
)
def test_each_range_has_its_correction(tmp_path: Path, reading_a: float, corrected_a: float) -> None:
    load(tmp_path / "r", reading_a, accuracy=TWO_RANGES)
    recording = open_recording(tmp_path / "r", calibration=two_ranges())
    assert measure_energy(recording).energy.charge_c == pytest.approx(10 * corrected_a, rel=1e-6)


def test_where_either_range_may_have_read_the_interval_holds_both(tmp_path: Path) -> None:
    """A Monsoon's fine range goes on above its reference current, up to a count that no recording keeps."""
    load(tmp_path / "r", 0.06, accuracy=TWO_RANGES)
    budget = measure_energy(open_recording(tmp_path / "r", calibration=two_ranges())).budget
    assert budget is not None
    for gain, offset_a in ((1.03, 1e-5), (0.98, 1e-3)):
        energy_j = (gain * 0.06 + offset_a) * 4.0 * 10
        assert abs(budget.value_j - energy_j) < budget.half_width_j
    assert budget.half_width_j / budget.value_j < 0.06


# Said


def test_it_is_said_which_calibration_and_when_it_is_stale(tmp_path: Path) -> None:
    load(tmp_path / "r")
    today = datetime.now(UTC).date()
    notes = {}
    for name, dates in {
        "good": {"date": today, "valid_until": today + timedelta(days=2)},
        "undated": {"date": None},
        "expired": {"date": DAY - timedelta(days=900), "valid_until": today - timedelta(days=2)},
    }.items():
        stated = calibration(by="Lab", certificate="C-17", **dates)
        budget = measure_energy(open_recording(tmp_path / "r", calibration=stated)).budget
        assert budget is not None
        notes[name] = " | ".join(budget.notes)
        assert "by Lab, certificate C-17" in notes[name]
        assert stated.sha256()[:12] in notes[name]
    assert "no date" in notes["undated"]
    assert "expired" in notes["expired"]
    assert "no date" not in notes["good"]
    assert "expired" not in notes["good"]


# It does not average out


def test_repetitions_share_the_error(tmp_path: Path) -> None:
    load(tmp_path / "r")
    recording = open_recording(tmp_path / "r", calibration=calibration())
    first_ns = int(recording.block(0).t_ns[0])
    windows = [Window(first_ns + i * 10**9, first_ns + (i + 1) * 10**9) for i in range(9)]

    def energy(count: int) -> EnergyBudget:
        found = measure_windows(recording, windows[:count], sync_uncertainty_s=0.0)
        return gross_energy([MeasuredRecording(found, recording.info.accuracy)] * 4)

    assert energy(9).parts["instrument"].standard_j == pytest.approx(
        energy(1).parts["instrument"].standard_j, rel=1e-6
    )


def test_info_of_an_uncalibrated_recording_is_as_recorded(tmp_path: Path) -> None:
    recording = load(tmp_path / "r")
    assert recording.info == info()
    assert recording.calibration is None
