"""Readings come in steps: a constant load is read wrong by the same part of a step in every sample."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from power.emulated import EmulatorOptions, in_thread
from power.energy import Window
from power.energy.baseline import measure_baseline
from power.energy.measurement import measure_windows
from power.energy.uncertainty import EnergyBudget, MeasuredRecording, gross_energy, net_energy
from power.meter import MeterConfig, open_meter
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, SampleBlock
from power.recording import RecordingWriter, open_recording
from power.timebase import Timebase

RATE_HZ = 500
IDLE_S, WORK_S = 4, 6


@dataclass(frozen=True)
class Steps:
    """An INA219 with 0.1 ohm, and what its data sheet allows at most."""

    step_a: float = 1e-4
    step_v: float = 4e-3
    gain_rel: float = 0.0
    offset_a: float = 0.0
    voltage_gain_rel: float = 0.0

    def accuracy(self, *, stated: bool = True) -> Accuracy:
        steps = (self.step_a, self.step_v) if stated else (None, None)
        return Accuracy(
            current=(
                RangeAccuracy(name="all", gain_rel=self.gain_rel, offset_a=self.offset_a, step_a=steps[0]),
            ),
            voltage_gain_rel=self.voltage_gain_rel,
            voltage_offset_v=0.0,
            voltage_step_v=steps[1],
            source="test",
        )


def budgets(
    folder: Path, current_a: np.ndarray, voltage_v: np.ndarray, accuracy: Accuracy
) -> tuple[EnergyBudget, EnergyBudget]:
    """Gross and net energy of the work between two idle intervals."""
    folder.mkdir(parents=True, exist_ok=True)
    info = InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=RATE_HZ,
        tick_hz=RATE_HZ,
        uniform_ticks=True,
        accuracy=accuracy,
    )
    n, period_ns = len(current_a), 10**9 // RATE_HZ
    ticks = np.arange(n)
    writer = RecordingWriter(folder, info, None, started_ns=0)
    writer.append(SampleBlock(ticks * period_ns, ticks, current_a, voltage_v, 0, 0))
    writer.close(Timebase(ticks=(0, n), host_ns=(0, n * period_ns)), ())
    recording = open_recording(folder)
    edges_s = (0.1, IDLE_S - 0.1, IDLE_S + 0.1, IDLE_S + WORK_S - 0.1, IDLE_S + WORK_S + 0.1)
    at = [round(t * 1e9) for t in (*edges_s, 2 * IDLE_S + WORK_S - 0.1)]
    windows = measure_windows(recording, [Window(at[2], at[3])], sync_uncertainty_s=0.0)
    baseline = measure_baseline(recording, Window(at[0], at[1]), Window(at[4], at[5]))
    session = MeasuredRecording(windows, accuracy, baseline)
    return gross_energy([session]), net_energy([session])


def levels(idle: float, work: float) -> np.ndarray:
    return np.repeat([idle, work, idle], [IDLE_S * RATE_HZ, WORK_S * RATE_HZ, IDLE_S * RATE_HZ])


DURATION_S = WORK_S - 0.2


def test_a_constant_load_is_not_known_better_than_its_step(tmp_path: Path) -> None:
    """Hand arithmetic: a uniform error of one step has the standard deviation step / sqrt(12)."""
    instrument = Steps()
    gross, net = budgets(tmp_path / "r", levels(0.1, 0.3), levels(5.0, 5.0), instrument.accuracy())
    current_j, voltage_j = 1e-4 * 5.0 * DURATION_S, 4e-3 * 0.3 * DURATION_S
    standard_j = math.hypot(current_j, voltage_j) / math.sqrt(12)
    assert gross.parts["instrument"].standard_j == pytest.approx(standard_j, rel=1e-6)
    assert gross.half_width_j == pytest.approx(1.96 * standard_j, rel=1e-3)
    idle_j = math.hypot(current_j, 4e-3 * 0.1 * DURATION_S) / math.sqrt(12)
    assert net.parts["instrument"].standard_j == pytest.approx(math.hypot(standard_j, idle_j), rel=1e-6)
    assert net.half_width_j > 1.9 * net.parts["instrument"].standard_j  # it was 1.6e-14 J


def test_an_unknown_step_is_said_and_not_taken_for_zero(tmp_path: Path) -> None:
    accuracy = Steps().accuracy(stated=False)
    gross, _ = budgets(tmp_path / "r", levels(0.1, 0.3), levels(5.0, 5.0), accuracy)
    assert any("step of its readings is not on record" in note for note in gross.notes)
    known, _ = budgets(tmp_path / "s", levels(0.1, 0.3), levels(5.0, 5.0), Steps().accuracy())
    assert not any("step" in note for note in known.notes)


def test_records_without_steps_keep_their_form() -> None:
    dumped = Steps().accuracy(stated=False).model_dump()
    assert set(dumped) == {"current", "voltage_gain_rel", "voltage_offset_v", "source"}
    assert set(dumped["current"][0]) == {"name", "up_to_a", "gain_rel", "offset_a"}
    stated = Steps().accuracy()
    assert Accuracy.model_validate(stated.model_dump()) == stated


@dataclass(frozen=True)
class Trial:
    """Readings of a constant load by an instrument with errors, and the truth."""

    current_a: np.ndarray
    voltage_v: np.ndarray
    gross_j: float
    net_j: float


def trial(rng: np.random.Generator, instrument: Steps, noise_steps: float) -> Trial:
    """Levels, gain and offset at random; noise before the converter, which then rounds."""
    idle_a, work_a = rng.uniform(0.01, 0.2), rng.uniform(0.2, 1.0)
    volts = rng.uniform(4.5, 5.5)
    sag_v = rng.uniform(0.0, 0.05)
    gain, offset_a, voltage_gain = rng.normal(size=3) / 1.96
    gain, offset_a, voltage_gain = (
        1 + gain * instrument.gain_rel,
        offset_a * instrument.offset_a,
        1 + voltage_gain * instrument.voltage_gain_rel,
    )
    current_a = levels(idle_a, work_a) * gain + offset_a
    voltage_v = levels(volts, volts - sag_v) * voltage_gain
    current_a = current_a + rng.normal(size=len(current_a)) * noise_steps * instrument.step_a
    voltage_v = voltage_v + rng.normal(size=len(voltage_v)) * noise_steps * instrument.step_v
    return Trial(
        np.floor(current_a / instrument.step_a + 0.5) * instrument.step_a,
        np.floor(voltage_v / instrument.step_v + 0.5) * instrument.step_v,
        gross_j=work_a * (volts - sag_v) * DURATION_S,
        net_j=(work_a * (volts - sag_v) - idle_a * volts) * DURATION_S,
    )


INSTRUMENTS = {
    "steps alone": Steps(),
    "an INA219A": Steps(gain_rel=0.0141, offset_a=2e-3, voltage_gain_rel=0.01),
    "an INA219B, well known": Steps(gain_rel=2e-4, offset_a=1e-5, voltage_gain_rel=2e-4),
    "a CSV with one decimal of mA": Steps(step_a=2e-4, step_v=14e-3, gain_rel=1e-4),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", INSTRUMENTS)
@pytest.mark.parametrize("noise_steps", [0.0, 0.3, 2.0])
def test_the_interval_covers_what_rounding_hides(
    name: str,
    noise_steps: float,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    instrument = INSTRUMENTS[name]
    count = campaign_count(10, 250)
    hits: dict[str, list[bool]] = {"gross": [], "net": []}
    widths: dict[str, list[float]] = {"gross": [], "net": []}
    for i in range(count):
        drawn = trial(np.random.default_rng([32, i]), instrument, noise_steps)
        found = budgets(tmp_path / "r", drawn.current_a, drawn.voltage_v, instrument.accuracy())
        for kind, budget, truth_j in zip(hits, found, (drawn.gross_j, drawn.net_j), strict=True):
            hits[kind].append(abs(budget.value_j - truth_j) <= budget.half_width_j)
            widths[kind].append(budget.half_width_j / truth_j)
        shutil.rmtree(tmp_path / "r")
    record_property("trials", count)
    for kind, covered in hits.items():
        record_property(f"covered: {kind}", round(float(np.mean(covered)), 4))
        record_property(f"median half width: {kind}", round(float(np.median(widths[kind])), 6))
        assert binomtest(sum(covered), count, 0.95, alternative="less").pvalue > 0.001, kind


@pytest.mark.parametrize(
    ("kind", "fine_a", "coarse_a", "volts"),
    [
        # LVPM: bit 0 of a current and the lowest two of a voltage are no part of it; 125 uV a count.
        ("monsoon-lvpm", 2 * 0.0332 / 8191.75, 2 * 2.88 / 8191.75, 4 * 125e-6),
        ("monsoon-hvpm", 36.5e-3 / 16383.75, 6.4 / 16383.75, 4 * 62.5e-6),
    ],
)
def test_a_monsoon_states_its_steps(kind: str, fine_a: float, coarse_a: float, volts: float) -> None:
    """At least a quarter of a range's counts for its reference current."""
    limits = {"voltage_v": 4.0, "voltage_max_v": 4.2, "current_limit_a": 3.0}
    with (
        in_thread(kind, EmulatorOptions()) as unit,
        open_meter(MeterConfig(kind=kind, port=unit.address, **limits)) as meter,
    ):
        accuracy = meter.info.accuracy
    fine, coarse = accuracy.current
    assert fine.step_a == pytest.approx(fine_a, rel=0.05)
    assert coarse.step_a == pytest.approx(coarse_a, rel=0.05)
    assert accuracy.voltage_step_v == pytest.approx(volts)
