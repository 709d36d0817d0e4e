"""Does the 95 % interval of a calibrated energy hold the truth 95 % of the time, and of an uncalibrated one?

The generator draws an instrument, a laboratory that gets its gain and offset a little wrong, and a load. It
shares no code with the estimator: readings are made from the truth, backwards.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from power.calibration import MeterCalibration
from power.energy import Window, measure_energy
from power.energy.measurement import measure_windows
from power.energy.uncertainty import MeasuredRecording, gross_energy
from power.model import Accuracy, RangeAccuracy
from power.recording import open_recording
from tests.power.synthetic import block, write_recording

GAIN_LIMIT, OFFSET_LIMIT_A, VOLT_LIMIT, VOLT_OFFSET_LIMIT_V = 0.02, 2e-3, 0.01, 0.01
ASSUMED = Accuracy(
    current=(RangeAccuracy(name="all", gain_rel=GAIN_LIMIT, offset_a=OFFSET_LIMIT_A),),
    voltage_gain_rel=VOLT_LIMIT,
    voltage_offset_v=VOLT_OFFSET_LIMIT_V,
    source="assumption, chosen wide",
)
SESSIONS = 4
SAMPLES = 301


class Bench:
    """One instrument, and what a laboratory says about it."""

    def __init__(self, rng: np.random.Generator) -> None:
        # The truth: true = gain x reading + offset.
        self.gain = rng.normal(1, GAIN_LIMIT / 1.96)
        self.offset_a = rng.normal(0, OFFSET_LIMIT_A / 1.96)
        self.volt_gain = rng.normal(1, VOLT_LIMIT / 1.96)
        self.volt_offset_v = rng.normal(0, VOLT_OFFSET_LIMIT_V / 1.96)
        self.load_a, self.supply_v = rng.uniform(0.05, 1.0), rng.uniform(3.5, 5.0)
        self._rng = rng
        self.calibration = self._calibrate(correlation=rng.uniform(-0.95, 0.5))

    def _calibrate(self, correlation: float) -> MeterCalibration:
        gain_u, offset_u_a = 10 ** self._rng.uniform(-3.3, -2.3), 10 ** self._rng.uniform(-4.5, -3.3)
        volt_u, volt_offset_u_v = 10 ** self._rng.uniform(-3.3, -2.5), 10 ** self._rng.uniform(-3.5, -2.5)
        one, other = self._rng.normal(size=2)
        gain_error = gain_u * one
        offset_error_a = offset_u_a * (correlation * one + np.sqrt(1 - correlation**2) * other)
        return MeterCalibration.model_validate(
            {
                "k": 2,
                "current": {
                    "all": {
                        "gain": self.gain + gain_error,
                        "gain_uncertainty": 2 * gain_u,
                        "offset_a": self.offset_a + offset_error_a,
                        "offset_uncertainty_a": 2 * offset_u_a,
                        "gain_offset_correlation": correlation,
                    }
                },
                "voltage": {
                    "gain": self.volt_gain + self._rng.normal(0, volt_u),
                    "gain_uncertainty": 2 * volt_u,
                    "offset_v": self.volt_offset_v + self._rng.normal(0, volt_offset_u_v),
                    "offset_uncertainty_v": 2 * volt_offset_u_v,
                },
            }
        )

    def record(self, folder: Path) -> float:
        """One session; the true energy."""
        true_a = np.full(SAMPLES, self.load_a)
        read_a = (true_a - self.offset_a) / self.gain
        write_recording(
            folder, [block(read_a, (self.supply_v - self.volt_offset_v) / self.volt_gain)], accuracy=ASSUMED
        )
        return float(self.load_a * self.supply_v * (SAMPLES - 1) / 1000)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_intervals_cover_with_and_without_calibration(
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    count = campaign_count(30, 4000)
    covered: defaultdict[str, list[bool]] = defaultdict(list)
    widths: defaultdict[str, list[float]] = defaultdict(list)
    for i in range(count):
        bench = Bench(np.random.default_rng([33, i]))
        true_j = bench.record(tmp_path / "r")
        recording = open_recording(tmp_path / "r", calibration=bench.calibration)
        first_ns = int(recording.block(0).t_ns[0])
        window = Window(first_ns, first_ns + (SAMPLES - 1) * 10**6)
        found = measure_windows(recording, [window], sync_uncertainty_s=0.0)
        # The load is the same every time, and so is the error of the calibration.
        sessions = [MeasuredRecording(found, recording.info.accuracy)] * SESSIONS
        for name, budget in {
            "calibrated, one window": gross_energy(sessions[:1]),
            "calibrated, four sessions": gross_energy(sessions),
            "not calibrated": measure_energy(recording.as_stored()).budget,
        }.items():
            assert budget is not None
            covered[name].append(abs(budget.value_j - true_j) <= budget.half_width_j)
            widths[name].append(budget.half_width_j / true_j)
        shutil.rmtree(tmp_path / "r")
    record_property("draws", count)
    for name, hits in covered.items():
        record_property(f"covered: {name}", round(float(np.mean(hits)), 4))
        record_property(f"median relative half width: {name}", round(float(np.median(widths[name])), 5))
        if count >= 1000:
            assert 0.93 <= np.mean(hits) <= 0.97, name
        else:
            assert binomtest(sum(hits), len(hits), 0.95).pvalue > 0.001, name
    # A calibration is worth something, and repeating the measurement adds nothing to it.
    assert np.median(widths["calibrated, one window"]) < 0.3 * np.median(widths["not calibrated"])
    assert widths["calibrated, four sessions"] == pytest.approx(widths["calibrated, one window"], rel=0.02)
