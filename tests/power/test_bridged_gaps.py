"""Lost samples of a load that comes in bursts: the loss part of the interval holds what they hid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from power.energy.index import integrate_recording
from power.energy.measurement import measure_windows
from power.energy.uncertainty import MeasuredRecording, gross_energy
from power.energy.windows import Window
from power.model import AVERAGES_FACT, SampleBlock
from power.recording import Recording
from tests.power.synthetic import START_NS, block, write_recording

VOLTAGE_V = 4.0


def bursts(rng: np.random.Generator, samples: int, *, share: float, length: int) -> np.ndarray:
    """A current of 0.1 A with bursts of 1 A that take this share of the time, and 2 mA of noise."""
    high, out = False, np.empty(samples)
    leave = (1 / length) * share / (1 - share)
    for i in range(samples):
        high = rng.random() >= 1 / length if high else rng.random() < leave
        out[i] = 1.0 if high else 0.1
    return out + rng.normal(0, 0.002, samples)


def with_gaps(current_a: np.ndarray, gaps: list[tuple[int, int]]) -> list[SampleBlock]:
    blocks, start, lost_before = [], 0, 0
    for at, lost in [*gaps, (len(current_a), 0)]:
        blocks.append(block(current_a[start:at], first_index=start, dropped_before=lost_before))
        start, lost_before = at + lost, lost
    return blocks


def stored(folder: Path, blocks: list[SampleBlock], *, averages: bool) -> Recording:
    facts = {AVERAGES_FACT: True} if averages else {}
    return write_recording(folder, blocks, facts=facts)


ROWS = 500
TRIALS = 300


@pytest.mark.parametrize(
    ("averages", "share", "gaps"),
    [(True, 0.06, 1), (True, 0.3, 1), (True, 0.1, 10), (False, 0.02, 1), (False, 0.03, 3)],
)
def test_the_loss_part_covers_what_was_lost(tmp_path: Path, averages: bool, share: float, gaps: int) -> None:
    """How often the energy of a window is within the loss part alone of what it is without losses.

    95 % expected; of 300 windows fewer than 273 (91 %) with a probability of 0.1 %.
    """
    rng = np.random.default_rng(round(100 * share) + gaps + 1000 * averages)
    current_a = bursts(rng, ROWS * TRIALS + 1, share=share, length=3)
    places = [
        i * ROWS + 4 * p for i in range(TRIALS) for p in np.sort(rng.permutation(ROWS // 4 - 4)[:gaps] + 2)
    ]
    lossy = stored(tmp_path / "lossy", with_gaps(current_a, [(int(p), 1) for p in places]), averages=averages)
    whole = stored(tmp_path / "whole", with_gaps(current_a, []), averages=averages)
    windows = [Window(START_NS + i * ROWS * 10**6, START_NS + (i + 1) * ROWS * 10**6) for i in range(TRIALS)]
    found = measure_windows(lossy, windows, sync_uncertainty_s=0.0)
    true = integrate_recording(whole, windows)
    error_j = np.array([f.energy.energy_j for f in found]) - np.array([t.energy_j for t in true])
    assert np.abs(error_j).max() > 0
    assert np.mean(np.abs(error_j) <= 1.96 * np.array([f.loss_j for f in found])) >= 273 / 300


def test_one_missing_row_of_averages_leaves_the_file_usable(tmp_path: Path) -> None:
    """100 rows, one of them missing: the energy is given, with the loss in its interval and a note."""
    rng = np.random.default_rng(1)
    current_a = bursts(rng, 100, share=0.3, length=3)
    recording = stored(tmp_path, with_gaps(current_a, [(69, 1)]), averages=True)
    window = Window(START_NS, START_NS + 100_000_000)
    (measured,) = measure_windows(recording, [window], sync_uncertainty_s=0.0)
    assert measured.energy.valid
    assert measured.energy.lost_fraction == pytest.approx(0.01)
    assert any("1.000% of the rows are missing" in note for note in measured.energy.notes)
    budget = gross_energy([MeasuredRecording((measured,), recording.record.info.accuracy)])
    # One row of 1 ms may have been 0.9 A x 4 V off.
    assert 0.9 * VOLTAGE_V * 1e-3 / 3 < budget.parts["loss"].half_width_j < 2 * 0.9 * VOLTAGE_V * 1e-3
    assert any("are missing" in note for note in budget.notes)


@pytest.mark.parametrize("averages", [True, False])
def test_more_than_the_limit_stays_invalid(tmp_path: Path, averages: bool) -> None:
    """3 of 100 rows; and of instants a single one of 100 is too much."""
    gaps = [(20, 1), (40, 1), (60, 1)] if averages else [(20, 1)]
    recording = stored(tmp_path, with_gaps(np.linspace(0.1, 0.2, 100), gaps), averages=averages)
    (energy,) = integrate_recording(recording, [Window(START_NS, START_NS + 99_000_000)])
    assert "were lost" in energy.problems[0]
