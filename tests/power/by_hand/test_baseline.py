"""Idle power around work by hand: intervals of unequal length, work that is not in the middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import DataQualityError
from power.energy.baseline import Baseline, measure_baseline
from power.energy.noise import PowerSeries, SlowNoise, slow_noise
from power.energy.windows import GapPolicy, Window
from power.recording import Recording
from tests.power.by_hand.made import energy_of, flicker, idle_of
from tests.power.synthetic import START_NS, block, write_recording

BEFORE, AFTER = idle_of(0, 10, 2.0), idle_of(40, 60, 2.6)
WORK = [energy_of(12, 18, 30.0), energy_of(20, 36, 90.0), energy_of(38, 40, 8.0)]


def test_idle_power_moves_on_a_line_between_the_middles() -> None:
    both, alone = Baseline(BEFORE, AFTER), Baseline(BEFORE)
    assert (BEFORE.center_ns, AFTER.center_ns) == (5 * 10**9, 50 * 10**9)
    assert both.weights_at(14 * 10**9) == pytest.approx((0.8, 0.2))
    assert both.power_at(14 * 10**9) == pytest.approx(0.8 * 2.0 + 0.2 * 2.6)
    assert both.weights_at(4 * 10**9) == (1.0, 0.0)
    assert both.weights_at(51 * 10**9) == (0.0, 1.0)
    assert both.drift_w == pytest.approx(0.6)
    assert (alone.weights_at(51 * 10**9), alone.drift_w) == ((1.0,), None)
    assert alone.power_at(51 * 10**9) == pytest.approx(2.0)
    assert (both.intervals, alone.intervals) == ((BEFORE, AFTER), (BEFORE,))


def test_no_power_is_no_power() -> None:
    assert idle_of(0, 10, 0.0).power_w == 0.0


RNG = np.random.default_rng(3)
SHAKY = [
    (p + np.cumsum(RNG.normal(0, 0.04, 32)) + RNG.normal(0, 0.05, 32)).tolist() for p in (2, 2, 2.6, 2.6)
]


def shaky() -> tuple[Baseline, Baseline, SlowNoise, SlowNoise]:
    """With both intervals and with the first alone; the noise of means and of medians."""
    before = idle_of(0, 10, 2.0, means=SHAKY[0], medians=SHAKY[1])
    after = idle_of(40, 60, 2.6, means=SHAKY[2], medians=SHAKY[3])
    of = [
        slow_noise([PowerSeries(np.array(SHAKY[k]), 10 / 32), PowerSeries(np.array(SHAKY[k + 2]), 20 / 32)])
        for k in (0, 1)
    ]
    return Baseline(before, after), Baseline(before), of[0], of[1]


THIRDS = (1 / 3, 1 / 3, 1 / 3)
SPANS = ((12.0, 18.0), (20.0, 36.0), (38.0, 40.0))


def test_slow_noise_of_the_instrument_is_that_of_the_medians_against_the_whole_recording() -> None:
    both, alone, _, medians = shaky()
    assert medians.flicker.w2 > 0
    found = both.slow_noise_of(WORK)
    assert found.w2 == pytest.approx(medians.flicker.w2 * flicker([*SPANS, (0, 60)], (*THIRDS, -1)))
    assert found.dof == medians.flicker.dof
    first = slow_noise([PowerSeries(np.array(SHAKY[1]), 10 / 32)])
    expected = first.flicker.w2 * flicker([*SPANS, (0, 40)], (*THIRDS, -1))
    assert alone.slow_noise_of(WORK).w2 == pytest.approx(expected)
    later = [*WORK, energy_of(70, 80, 3.0)]
    spans = [*SPANS, (70, 80), (0, 80)]
    expected = medians.flicker.w2 * flicker(spans, (0.25, 0.25, 0.25, 0.25, -1))
    assert both.slow_noise_of(later).w2 == pytest.approx(expected)
    # A recording does not begin at 0: only differences of time count.
    moved = Baseline(idle_of(100, 110, 2.0, medians=SHAKY[1]))
    work = [energy_of(112, 118, 30.0), energy_of(120, 136, 90.0), energy_of(138, 140, 8.0)]
    assert moved.slow_noise_of(work).w2 == pytest.approx(alone.slow_noise_of(WORK).w2)


def test_idle_during_work_is_known_as_well_as_its_intervals_tell() -> None:
    both, alone, means, _ = shaky()
    # Middles of the windows: 15, 28, 39 s; of all of them 27 1/3 s, which is (27 1/3 - 5) / 45 of the way.
    late = (82 / 3 - 5) / 45
    white = means.white.w2 * ((1 - late) ** 2 / 10 + late**2 / 20)
    slow = means.flicker.w2 * flicker([*SPANS, (0, 10), (40, 60)], (*THIRDS, late - 1, -late))
    explained = means.flicker.w2 * flicker([(0, 10), (40, 60)], (1, -1)) + means.white.w2 * (1 / 10 + 1 / 20)
    assert 0 < explained < 0.6**2
    bend = (0.6**2 - explained) / 12
    found = both.idle_variance(WORK)
    assert found.w2 == pytest.approx(white + slow + bend)
    assert means.white.dof is not None
    assert means.flicker.dof is not None
    spread = white**2 / means.white.dof + slow**2 / means.flicker.dof
    assert found.dof == pytest.approx(found.w2**2 / spread)
    first = slow_noise([PowerSeries(np.array(SHAKY[0]), 10 / 32)])
    expected = first.white.w2 / 10 + first.flicker.w2 * flicker([*SPANS, (0, 10)], (*THIRDS, -1))
    assert alone.idle_variance(WORK).w2 == pytest.approx(expected)


def test_a_difference_that_noise_explains_is_no_bend() -> None:
    """The same noise, 1 mW apart."""
    before = idle_of(0, 10, 2.0, means=SHAKY[0])
    after = idle_of(40, 60, 2.001, means=SHAKY[2])
    _, _, means, _ = shaky()
    late = (82 / 3 - 5) / 45
    white = means.white.w2 * ((1 - late) ** 2 / 10 + late**2 / 20)
    slow = means.flicker.w2 * flicker([*SPANS, (0, 10), (40, 60)], (*THIRDS, late - 1, -late))
    assert Baseline(before, after).idle_variance(WORK).w2 == pytest.approx(white + slow)


def recorded(folder: Path) -> Recording:
    """0.1 A and 0.2 A in turn for two samples in three, at 4 V; 4.8 s at 1000 Hz; 40 samples lost at 3 s."""
    current = np.tile([0.1, 0.1, 0.4], 1600)
    current[2000:] += 0.05
    parts = [block(current[:3000]), block(current[3040:], first_index=3040, dropped_before=40)]
    return write_recording(folder, parts)


def span(start_s: float, end_s: float, label: str = "idle") -> Window:
    return Window(START_NS + round(start_s * 1e9), START_NS + round(end_s * 1e9), label)


def test_means_and_medians_of_thirty_two_parts(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    found = measure_baseline(recording, span(0, 0.96), span(2.1, 2.58))
    assert found.after is not None
    for one, part_s, low in ((found.before, 0.03, 0.1), (found.after, 0.015, 0.15)):
        assert len(one.means.power_w) == len(one.medians.power_w) == 32
        assert one.means.part_s == one.medians.part_s == pytest.approx(part_s)
        assert one.medians.power_w == pytest.approx(np.full(32, 4 * low), rel=1e-6)
        assert one.means.power_w == pytest.approx(np.full(32, 4 * (low + 0.1)), rel=1e-6)
        assert one.power_w == pytest.approx(4 * (low + 0.1), rel=1e-6)
    assert found.before.energy.label == "idle"
    assert measure_baseline(recording, span(0, 0.96)).after is None


def test_which_idle_intervals_are_refused(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    touching = measure_baseline(recording, span(0, 0.96), span(0.96, 1.92))
    assert touching.after is not None
    with pytest.raises(DataQualityError, match="begins before the one before it ends"):
        measure_baseline(recording, span(0, 0.96), span(0.959, 1.92))
    with pytest.raises(DataQualityError, match=r"idle interval 'late': .* were lost"):
        measure_baseline(recording, span(0, 0.96), span(2.5, 4.0, "late"))
    # Parts may lose more than the whole may, but each needs a sample.
    lenient = GapPolicy(max_lost_fraction=0.05)
    found = measure_baseline(recording, span(0, 0.96), span(2.4, 4.0), policy=lenient)
    assert found.after is not None
    assert found.after.energy.lost_fraction == pytest.approx(0.04 / 1.6, rel=0.01)
    with pytest.raises(DataQualityError, match="idle interval 'short': no sample lies inside"):
        measure_baseline(recording, span(2.9, 3.1, "short"), policy=GapPolicy(max_lost_fraction=0.5))
