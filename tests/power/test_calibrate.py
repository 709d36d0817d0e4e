from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulefleet.config import validate
from joulefleet.errors import ConfigError, DataQualityError, MeterError
from power import compare_with_raw
from power.calibrate import MeasuredPoint, ReferencePoint, derive_calibration, measure_point
from power.calibrate.line import fit_line
from power.calibration import MeterCalibration, load_calibration, toml_fragment
from power.correction import Correction, calibrated_accuracy
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.energy import measure_energy
from power.meter import MeterConfig, open_meter
from power.model import Accuracy, RangeAccuracy
from power.recording import open_recording, record
from tests.power.synthetic import block, info, write_recording

ONE_RANGE = Accuracy(
    current=(RangeAccuracy(name="all", gain_rel=0.02, offset_a=2e-3),),
    voltage_gain_rel=0.01,
    voltage_offset_v=0.01,
    source="assumption, chosen wide",
)


def reading(current_a: float, voltage_v: float = 4.0, u_a: float = 1e-5, **reference: Any) -> MeasuredPoint:
    return MeasuredPoint(ReferencePoint.model_validate(reference), current_a, u_a, voltage_v, 1e-5, 5000)


def against_meter(
    gain: float, offset_a: float, true_a: Sequence[float], u_rel: float = 1e-3
) -> list[MeasuredPoint]:
    """What an instrument with these errors reads beside a reference meter."""
    return [
        reading(gain * a + offset_a, amperes=a, amperes_uncertainty=2 * u_rel * a, u_a=1e-6) for a in true_a
    ]


def corrected(calibration: MeterCalibration, current_a: float) -> float:
    return float(Correction(ONE_RANGE, calibration).apply(np.array([current_a]), np.ones(1))[0][0])


def limit_at(calibration: MeterCalibration, current_a: float) -> float:
    """95 % half width of a corrected current of one range."""
    factors = calibrated_accuracy(ONE_RANGE, calibration).scale_factors()
    return float(np.linalg.norm(np.array([current_a, 1.0]) @ factors[:2]))


# The line


def test_several_points_tell_gain_from_offset() -> None:
    derived = derive_calibration(against_meter(1.03, 0.004, [0.1, 0.3, 1.0]), info(accuracy=ONE_RANGE))
    found = derived.calibration.current["all"]
    assert found.gain == pytest.approx(1 / 1.03, rel=1e-5)
    assert found.offset_a == pytest.approx(-0.004 / 1.03, rel=1e-3)
    assert derived.calibration.reference_gain_uncertainty == pytest.approx(2e-3, rel=1e-2)
    assert derived.calibration.k == 2
    assert derived.calibration.date == datetime.now(UTC).date()
    assert derived.calibration.readings == 3
    assert -1 < found.gain_offset_correlation < 0
    assert not any("offset was not derived" in note for note in derived.notes)
    assert any("voltage" in note for note in derived.notes)


def test_the_fit_is_weighted_least_squares() -> None:
    """Against the textbook's sums (Bevington, 6.12), without shared errors."""
    rng = np.random.default_rng(3)
    ohms = np.array([5.0, 8.0, 13.0, 40.0])
    x = 4.0 / ohms * 0.98 + 1e-3 + rng.normal(0, 1e-4, 4)
    tolerance = 0.002
    points = [
        reading(float(i), ohms=float(r), tolerance=tolerance, u_a=0.0) for i, r in zip(x, ohms, strict=True)
    ]
    line = derive_calibration(points, info(accuracy=ONE_RANGE)).calibration.current["all"]
    y = 4.0 / ohms
    floor_a = 0.1 * 2e-3 / 1.959964
    weight = 1 / (floor_a**2 + (1e-5 / ohms) ** 2 + (tolerance / math.sqrt(3) * y) ** 2)
    s, sx, sy, sxx, sxy = (float(np.sum(weight * v)) for v in (np.ones(4), x, y, x * x, x * y))
    delta = s * sxx - sx**2
    assert line.gain == pytest.approx((s * sxy - sx * sy) / delta, rel=1e-6)
    assert line.offset_a == pytest.approx((sxx * sy - sx * sxy) / delta, rel=1e-4)
    assert line.gain_uncertainty == pytest.approx(2 * math.sqrt(s / delta), rel=1e-2)
    assert line.offset_uncertainty_a == pytest.approx(2 * math.sqrt(sxx / delta), rel=1e-2)
    assert line.gain_offset_correlation == pytest.approx(-sx / math.sqrt(s * sxx), abs=1e-4)


def test_one_point_gives_the_gain_and_says_so() -> None:
    derived = derive_calibration([reading(0.41, ohms=10, tolerance=1e-6, u_a=1e-6)], info(accuracy=ONE_RANGE))
    found = derived.calibration.current["all"]
    assert found.gain == pytest.approx(0.4 / 0.41, rel=1e-6)
    assert found.offset_a == 0
    assert found.offset_uncertainty_a == pytest.approx(2 * 2e-3 / 1.96, rel=1e-2)
    assert any("offset was not derived" in note for note in derived.notes)
    assert derived.calibration.own_voltage_v == 4.0
    # At the current of the point the offset's error cancels; far below it does not.
    exact_volts = derived.calibration.model_copy(update={"own_voltage_v": None})
    assert limit_at(exact_volts, 0.4) < 3e-4
    assert limit_at(exact_volts, 0.02) == pytest.approx(2e-3 * 0.95, rel=0.03)


def test_the_same_resistor_does_not_average_out() -> None:
    volts = np.linspace(2.0, 4.2, 8)
    points = [reading(float(v) / 10, float(v), ohms=10, tolerance=0.01) for v in volts]
    one = derive_calibration(points, info(accuracy=ONE_RANGE)).calibration
    assert one.reference_gain_uncertainty == pytest.approx(2 * 0.01 / math.sqrt(3), rel=1e-2)


def test_a_shared_error_moves_all_points_alike() -> None:
    """An error of 0.01 common to four points is one of the offset, whole, and none of the gain."""
    x = np.array([1.0, 2.0, 3.0, 4.0])
    own = np.full(4, 0.001)
    alone = fit_line("line", x, x, own, [], 1.0, refuse_close=True).covariance
    shared = fit_line("line", x, x, own, [np.full(4, 0.01)], 1.0, refuse_close=True).covariance
    assert alone[0, 0] == pytest.approx(0.001**2 / 5)  # sum of squares about the mean: 5
    assert shared[0, 0] == pytest.approx(alone[0, 0])
    assert shared[1, 1] == pytest.approx(alone[1, 1] + 0.01**2)


def test_reference_volts_calibrate_the_voltage() -> None:
    points = [
        reading(v / 20, v * 1.01 + 0.02, ohms=20, tolerance=1e-4, volts=v, volts_uncertainty=1e-3)
        for v in (2.5, 4.0)
    ]
    derived = derive_calibration(points, info(accuracy=ONE_RANGE))
    voltage = derived.calibration.voltage
    assert voltage is not None
    assert voltage.gain == pytest.approx(1 / 1.01, rel=1e-4)
    assert voltage.offset_v == pytest.approx(-0.02 / 1.01, rel=1e-2)
    assert derived.calibration.current["all"].gain == pytest.approx(1.0, abs=1e-3)


# Nonsense


def test_points_that_are_too_close_are_refused() -> None:
    with pytest.raises(DataQualityError, match="too close together") as error:
        derive_calibration(against_meter(1.0, 0.0, [0.40, 0.41]), info(accuracy=ONE_RANGE))
    assert "factor of two" in error.value.hint


def test_points_that_contradict_each_other_are_refused() -> None:
    points = [reading(0.1, amperes=a, amperes_uncertainty=1e-5) for a in (0.1,)]
    points += [reading(i, amperes=a, amperes_uncertainty=1e-5) for i, a in ((0.4, 0.44), (1.0, 1.0))]
    with pytest.raises(DataQualityError, match="do not lie on a line") as error:
        derive_calibration(points, info(accuracy=ONE_RANGE))
    assert "at 0.4" in error.value.message


def test_an_impossible_gain_is_refused() -> None:
    points = [reading(i * 1.5, amperes=i, amperes_uncertainty=1e-4) for i in (0.1, 1.0)]
    with pytest.raises(DataQualityError, match=r"current\.all\.gain"):
        derive_calibration(points, info(accuracy=ONE_RANGE))


def test_a_point_that_either_range_may_have_read_is_refused() -> None:
    fine, coarse = ONE_RANGE.current[0].model_copy(update={"up_to_a": 0.04}), ONE_RANGE.current[0]
    two = ONE_RANGE.model_copy(update={"current": (fine, coarse.model_copy(update={"name": "coarse"}))})
    with pytest.raises(DataQualityError, match="may have been read in range all or in the next"):
        derive_calibration([reading(0.06, amperes=0.06, amperes_uncertainty=1e-5)], info(accuracy=two))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "no reference"),
        ({"ohms": 10}, "belong together"),
        ({"ohms": 0, "tolerance": 0.01}, "greater than 0"),
        ({"ohms": 10, "tolerance": -0.01}, "greater than 0"),
        ({"ohms": 10, "tolerance": 0.01, "amperes": 1, "amperes_uncertainty": 0.1}, "not both"),
        ({"amperes": math.nan, "amperes_uncertainty": 0.1}, "finite"),
        ({"ohm": 10}, "unknown key"),
    ],
)
def test_points_that_cannot_be(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate(values, ReferencePoint, name="--point")


def test_recordings_that_say_nothing_are_refused(tmp_path: Path) -> None:
    ten_ohms = ReferencePoint(ohms=10, tolerance=0.01)
    cases = {"off": (0.0, 0.0, "output is off"), "open": (0.001, 4.0, "should flow")}
    for name, (current_a, voltage_v, says) in cases.items():
        recording = write_recording(tmp_path / name, [block(np.full(2000, current_a), voltage_v)])
        with pytest.raises(MeterError, match=says):
            measure_point(ten_ohms, recording)
    short = write_recording(tmp_path / "short", [block(np.full(20, 0.4))])
    with pytest.raises(DataQualityError, match="20 samples"):
        measure_point(ten_ohms, short)


def test_type_a_is_the_scatter_of_the_mean(tmp_path: Path) -> None:
    noisy = np.random.default_rng(2).normal(0.4, 0.01, 20_000)
    point = measure_point(
        ReferencePoint(ohms=10, tolerance=0.01), write_recording(tmp_path / "r", [block(noisy)])
    )
    assert point.current_a == pytest.approx(0.4, abs=3e-4)
    assert point.current_u_a == pytest.approx(0.01 / math.sqrt(20_000), rel=0.4)
    assert point.n_samples == 20_000


# Does what is stated hold? The generator knows nothing of the fit.


def _one_trial(rng: np.random.Generator, how: str) -> tuple[float, float]:
    """Error of a corrected current, and its stated 95 % limit."""
    gain, offset_a = rng.normal(1.0, 0.02 / 1.96), rng.normal(0.0, 2e-3 / 1.96)
    volt_gain, volt_offset_v = rng.normal(1.0, 0.01 / 1.96), rng.normal(0.0, 0.01 / 1.96)
    shared = rng.normal(1.0, 1e-3)
    points = []
    for ohms in {"one": [10.0], "resistors": [4.0, 10.0, 40.0], "meter": [4.0, 10.0, 40.0]}[how]:
        true_v = 4.0
        true_a = true_v / (ohms * (1 + rng.uniform(-0.002, 0.002)))
        read_a = gain * true_a + offset_a + rng.normal(0, 1e-4)
        read_v = volt_gain * true_v + volt_offset_v
        if how == "meter":
            stated = {"amperes": true_a * shared, "amperes_uncertainty": 2e-3 * true_a}
        else:
            stated = {"ohms": ohms, "tolerance": 0.002}
        points.append(reading(read_a, read_v, 1e-6, **stated))
    found = derive_calibration(points, info(accuracy=ONE_RANGE)).calibration
    true_a = float(rng.uniform(0.05, 1.0))
    return corrected(found, gain * true_a + offset_a) - true_a, limit_at(found, true_a)


@pytest.mark.parametrize("how", ["one", "resistors", "meter"])
def test_a_derived_calibration_covers_what_it_says(how: str) -> None:
    rng = np.random.default_rng(11)
    found, refused = [], 0
    for _ in range(600):
        try:
            found.append(_one_trial(rng, how))
        except DataQualityError:  # one in a thousand good sets of points is refused as contradictory
            refused += 1
    assert refused <= 4
    trials = np.array(found)
    covered = float(np.mean(np.abs(trials[:, 0]) <= trials[:, 1]))
    assert 0.93 <= covered <= 0.97, covered
    # Not wide for nothing: errors fill the limits.
    assert np.median(np.abs(trials[:, 0]) / trials[:, 1]) > 0.2


# As a file


def test_a_fragment_is_read_back(tmp_path: Path) -> None:
    derived = derive_calibration(
        against_meter(1.03, 0.004, [0.1, 0.3, 1.0]),
        info(accuracy=ONE_RANGE, serial='1"7'),
        by='Ann "A" O\'Hara\\',
        temperature_c=23.5,
    )
    for table in ("calibration", "devices.phone.meter.calibration"):
        path = tmp_path / f"{table}.toml"
        path.write_text(toml_fragment(derived.calibration, table))
        assert load_calibration(path) == derived.calibration


# Emulated instruments


def config(kind: str, address: str, **values: Any) -> MeterConfig:
    limits = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 3.0}
    return MeterConfig.model_validate({"kind": kind, "port": address, **limits, **values})


def record_load(
    kind: str, folder: Path, current_a: float, calibration: MeterCalibration | None = None
) -> None:
    options = EmulatorOptions(
        signal=f"constant:current={current_a},voltage=4.0",
        gain=1.04,
        offset_a=0.003,
        voltage_gain=0.99,
        noise_a=0.0005,
        rate_hz=500.0 if kind == "ina219" else 0.0,
    )
    with EmulatorProcess(kind, options) as instrument:
        meter_config = config(kind, instrument.address, calibration=calibration)
        with open_meter(meter_config) as meter:
            record(meter, folder, config=meter_config, seconds=0.4)


def test_an_emulated_hvpm_reads_wrong_too(tmp_path: Path) -> None:
    """Samples that a busy machine loses do not matter for a mean."""
    record_load("monsoon-hvpm", tmp_path / "r", 0.5)
    blocks = list(open_recording(tmp_path / "r").blocks())
    assert np.concatenate([b.current_a for b in blocks]).mean() == pytest.approx(0.5 * 1.04 + 0.003, rel=1e-3)
    assert np.concatenate([b.voltage_v for b in blocks]).mean() == pytest.approx(4.0 * 0.99, rel=1e-3)


@pytest.mark.parametrize("kind", ["monsoon-lvpm", "ina219"])
def test_a_wrong_gain_is_found_and_corrected(kind: str, tmp_path: Path) -> None:
    """4 % and 3 mA too much, 1 % of volts too little."""
    loads_a = (0.2, 0.8) if kind == "monsoon-lvpm" else (0.5,)
    points = []
    for i, load_a in enumerate(loads_a):
        record_load(kind, tmp_path / str(i), load_a)
        reference = ReferencePoint(
            amperes=load_a, amperes_uncertainty=2e-4, volts=4.0, volts_uncertainty=5e-4
        )
        points.append(measure_point(reference, open_recording(tmp_path / str(i))))
    derived = derive_calibration(points, open_recording(tmp_path / "0").record.info)
    record_load(kind, tmp_path / "job", 0.5, derived.calibration)
    again = compare_with_raw(open_recording(tmp_path / "job"))
    assert again.first_difference is None, "what is stored is what the instrument said"
    corrected_energy = measure_energy(open_recording(tmp_path / "job"))
    as_read = measure_energy(open_recording(tmp_path / "job").as_stored())
    assert corrected_energy.budget is not None
    assert as_read.budget is not None
    true_j = 0.5 * 4.0 * corrected_energy.energy.duration_s
    assert abs(corrected_energy.budget.value_j - true_j) <= corrected_energy.budget.half_width_j
    assert corrected_energy.budget.half_width_j < 0.012 * true_j
    assert as_read.budget.value_j == pytest.approx(true_j * 0.99 * (1.04 + 0.003 / 0.5), rel=3e-3)
    assert abs(as_read.budget.value_j - true_j) > 2 * corrected_energy.budget.half_width_j
    assert as_read.budget.half_width_j > 1.5 * corrected_energy.budget.half_width_j
