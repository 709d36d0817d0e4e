from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import DataQualityError, MeterError
from joulefleet.records import read_record
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.recording import Recording, open_recording
from power.selftest import SELFTEST_FILE, SelftestRecord, measure_load, measure_step, run_selftest
from power.timebase import QUARTZ_TOLERANCE_PPM, TOLERANCE_FACT
from tests.power.synthetic import block, config, timebase, write_recording

RNG = np.random.default_rng(6)


def load_recording(folder: Path, current_a: float, voltage_v: float = 4.0, **info) -> Recording:
    current = RNG.normal(current_a, 0.001, 10_000)
    return write_recording(folder, [block(current, voltage_v)], **info)


def test_a_good_meter_passes(tmp_path: Path) -> None:
    result = measure_load(load_recording(tmp_path, 0.404), load_ohms=10.0, tolerance_rel=0.015)
    assert result.error_rel == pytest.approx(0.01, abs=1e-4)
    assert result.expected_current_a == pytest.approx(0.4)
    assert result.current_sd_a == pytest.approx(0.001, rel=0.05)
    assert result.reference_limit_rel == pytest.approx(0.01 + 0.01 / 4)
    assert result.range_name == "all"
    assert result.loss_fraction == 0
    assert result.problems == ()


def test_a_current_that_is_off_fails(tmp_path: Path) -> None:
    result = measure_load(load_recording(tmp_path, 0.41), load_ohms=10.0, tolerance_rel=0.02)
    assert result.problems == ("the current is +2.50% off, more than the 2.00% allowed",)


def test_lost_samples_fail(tmp_path: Path) -> None:
    parts = [
        block(RNG.normal(0.4, 0.001, 5000)),
        block(RNG.normal(0.4, 0.001, 5000), first_index=5020, dropped_before=20),
    ]
    result = measure_load(write_recording(tmp_path, parts), load_ohms=10.0, tolerance_rel=0.02)
    assert result.loss_fraction == pytest.approx(20 / 10_020)
    assert result.problems == ("0.20% of the samples were lost, more than 0.1%",)


def test_a_wrong_rate_fails(tmp_path: Path) -> None:
    recording = load_recording(tmp_path, 0.4, facts={TOLERANCE_FACT: QUARTZ_TOLERANCE_PPM})
    slow = recording.record.model_copy(update={"timebase": timebase(10_000, tick_hz=999.8)})
    result = measure_load(Recording(tmp_path, slow), load_ohms=10.0, tolerance_rel=0.02)
    assert result.problems == ("the sample rate is -200 ppm off",)


def test_a_resonator_may_be_off_by_more_than_quartz(tmp_path: Path) -> None:
    recording = load_recording(tmp_path, 0.4)
    slow = recording.record.model_copy(update={"timebase": timebase(10_000, tick_hz=998.0)})
    assert measure_load(Recording(tmp_path, slow), load_ohms=10.0, tolerance_rel=0.02).problems == ()


@pytest.mark.parametrize(
    ("current_a", "voltage_v", "message"), [(0.0, 0.01, "output is off"), (0.01, 4.0, "no load of 10 ohms")]
)
def test_without_a_load_it_says_what_to_do(
    tmp_path: Path, current_a: float, voltage_v: float, message: str
) -> None:
    recording = load_recording(tmp_path, current_a, voltage_v)
    with pytest.raises(MeterError, match=message) as caught:
        measure_load(recording, load_ohms=10.0, tolerance_rel=0.02)
    assert caught.value.hint


@pytest.mark.parametrize("tau_s", [0.02, 0.1])
def test_step_response_of_a_first_order_load(tmp_path: Path, tau_s: float) -> None:
    t_s = np.arange(5000) * 1e-3
    current = 0.4 * (1 - np.exp(-np.maximum(t_s - 1.0, 0) / tau_s)) + RNG.normal(0, 2e-4, len(t_s))
    step = measure_step(write_recording(tmp_path, [block(current)]))
    assert step.high_a == pytest.approx(0.4, rel=0.01)
    assert step.low_a == pytest.approx(0.0, abs=1e-3)
    assert step.rise_s == pytest.approx(np.log(9) * tau_s, rel=0.06)  # from 10 % to 90 %
    # From 10 % to within 2 %: tau (ln 50 - ln(1 / 0.9)).
    assert step.settle_s == pytest.approx((np.log(50) + np.log(0.9)) * tau_s, rel=0.2)


def test_a_step_between_two_samples(tmp_path: Path) -> None:
    current = np.where(np.arange(4000) < 1234, 0.0, 0.4) + RNG.normal(0, 1e-4, 4000)
    step = measure_step(write_recording(tmp_path, [block(current)]))
    assert step.rise_s <= 0.001
    assert step.settle_s <= 0.002


def levels(*currents_a: float, samples: int = 1000) -> np.ndarray:
    return np.repeat(currents_a, samples) + RNG.normal(0, 1e-4, samples * len(currents_a))


NO_STEPS = {
    "flat": np.full(3000, 0.4),
    "noise": RNG.normal(0.4, 0.01, 3000),
    "falling": 0.4 - 1e-4 * np.arange(3000),
    "on, then off": levels(0.4, 0.4, 0.0),
    "on, off, on": levels(0.4, 0.0, 0.4, 0.4),
    "a negative spike before the step": np.concatenate([levels(0.0), [-1.0], levels(0.0, 0.4, 0.4, 0.4)]),
    "a spike after the step": np.concatenate([levels(0.0), np.full(9, 0.4), [2.0], levels(0.4)]),
}


@pytest.mark.parametrize("current", NO_STEPS.values(), ids=NO_STEPS)
def test_no_step(tmp_path: Path, current: np.ndarray) -> None:
    with pytest.raises(DataQualityError, match="no step"):
        measure_step(write_recording(tmp_path, [block(current)]))


def test_the_whole_test_on_emulated_meters(tmp_path: Path) -> None:
    """First the load is there; for the step, another instrument's is connected after a second."""
    port = tmp_path / "port"
    steady = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", noise_a=1e-3)
    step = EmulatorOptions(signal="step:before=0.0,after=0.4,at=1,voltage=4.0", noise_a=1e-3, tau_s=0.01)
    with EmulatorProcess("monsoon-lvpm", steady) as first, EmulatorProcess("monsoon-lvpm", step) as second:
        port.symlink_to(first.address)

        def swap() -> None:
            port.unlink()
            port.symlink_to(second.address)

        done = run_selftest(
            config(kind="monsoon-lvpm", port=str(port)),
            tmp_path / "r",
            load_ohms=10.0,
            tolerance_rel=0.01,
            seconds=1.0,
            step_seconds=2.5,
            before_step=swap,
        )
    assert done.passed
    assert abs(done.load.error_rel) < 0.002
    assert done.load.range_name == "coarse"
    assert done.step is not None
    assert done.step.rise_s == pytest.approx(np.log(9) * 0.01, rel=0.1)
    assert done.info.emulated
    stored = read_record(tmp_path / "r" / SELFTEST_FILE, SelftestRecord)
    assert stored == done
    assert stored.sha256() == done.sha256()
    assert done.recording_sha256 == {
        name: open_recording(tmp_path / "r" / name).record.sha256() for name in ("load", "step")
    }
