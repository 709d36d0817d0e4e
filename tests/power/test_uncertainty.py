from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student_t

from joulefleet.errors import DataQualityError
from power.energy import GapPolicy, Window
from power.energy.baseline import _seconds, measure_baseline
from power.energy.measurement import MeasuredWindow, measure_windows
from power.energy.noise import ALLAN_OF_H, PowerSeries, _allan, flicker_factor, slow_noise
from power.energy.uncertainty import (
    EnergyBudget,
    MeasuredRecording,
    UncertaintyPart,
    combined_half_width_j,
    gross_energy,
    net_energy,
)
from power.energy.windows import WindowEnergy
from power.model import Accuracy, InstrumentInfo, Loss, RangeAccuracy, SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase

RATE_HZ = 1000
PERIOD_NS = 10**9 // RATE_HZ
SUPPLY_V = 4.0
LENIENT = GapPolicy(max_lost_fraction=1.0)


def accuracy_of(
    gain: tuple[float, float] = (0.0, 0.0),
    offset_a: tuple[float, float] = (0.0, 0.0),
    voltage_gain: float = 0.0,
    voltage_offset_v: float = 0.0,
) -> Accuracy:
    return Accuracy(
        current=(
            RangeAccuracy(name="fine", up_to_a=0.3, gain_rel=gain[0], offset_a=offset_a[0]),
            RangeAccuracy(name="coarse", gain_rel=gain[1], offset_a=offset_a[1]),
        ),
        voltage_gain_rel=voltage_gain,
        voltage_offset_v=voltage_offset_v,
        source="test",
    )


EXACT = accuracy_of()


def store(
    folder: Path,
    current_a: np.ndarray,
    accuracy: Accuracy = EXACT,
    *,
    kept: np.ndarray | None = None,
    loss: Loss = Loss.COUNTED,
) -> Recording:
    folder.mkdir(parents=True, exist_ok=True)
    info = InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=RATE_HZ,
        tick_hz=RATE_HZ,
        uniform_ticks=True,
        accuracy=accuracy,
        loss=loss,
    )
    writer = RecordingWriter(folder, info, None, started_ns=0)
    kept = np.ones(len(current_a), bool) if kept is None else kept
    end = 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False]))))
    for start, stop in edges.reshape(-1, 2).tolist():
        ticks = np.arange(start, stop)
        voltage_v = np.full(stop - start, SUPPLY_V)
        block = SampleBlock(ticks * PERIOD_NS, ticks, current_a[start:stop], voltage_v, start, start - end)
        writer.append(block)
        end = stop
    n = len(current_a)
    writer.close(Timebase(ticks=(0, n), host_ns=(0, n * PERIOD_NS)), ())
    return open_recording(folder)


def test_several_ticks_to_a_sample_move_nothing(tmp_path: Path) -> None:
    """Power that rises by 4 W in a second, five ticks to each sample: the integral is 2 t squared."""
    info = InstrumentInfo(
        kind="synthetic", emulated=True, rate_hz=RATE_HZ, tick_hz=5 * RATE_HZ, uniform_ticks=True,
        accuracy=EXACT, loss=Loss.COUNTED,
    )  # fmt: skip
    n = 3 * RATE_HZ
    t_s = np.arange(n) / RATE_HZ
    (tmp_path / "r").mkdir()
    writer = RecordingWriter(tmp_path / "r", info, None, started_ns=0)
    writer.append(SampleBlock(np.arange(n) * PERIOD_NS, 5 * np.arange(n), t_s, np.full(n, SUPPLY_V), 0, 0))
    writer.close(Timebase(ticks=(0, 5 * n), host_ns=(0, n * PERIOD_NS)), ())
    spans = [(0.1, 0.2), (0.5004, 1.0), (0.25, 2.7), (1.9999, 2.0003), (0.0, 2.9)]
    found = measure_windows(
        open_recording(tmp_path / "r"), [window(*span) for span in spans], sync_uncertainty_s=0.0
    )
    for one, (start_s, end_s) in zip(found, spans, strict=True):
        assert one.energy.energy_j == pytest.approx(2 * (end_s**2 - start_s**2), rel=1e-7)
        assert one.energy.n_samples == math.ceil(end_s * RATE_HZ - 1e-6) - math.ceil(start_s * RATE_HZ - 1e-6)


def test_a_pause_without_a_loss_is_no_gap_and_a_single_lost_sample_in_one_is(tmp_path: Path) -> None:
    """Half a second without samples: nothing was lost there (a calibration, say), or one or two were."""
    for lost, valid in ((0, True), (1, False), (2, False)):
        info = InstrumentInfo(
            kind="synthetic", emulated=True, rate_hz=RATE_HZ, tick_hz=RATE_HZ, uniform_ticks=True,
            accuracy=EXACT, loss=Loss.COUNTED,
        )  # fmt: skip
        folder = tmp_path / str(lost)
        folder.mkdir()
        writer = RecordingWriter(folder, info, None, started_ns=0)
        for first, before in ((0, 0), (1500, lost)):
            ticks = np.arange(first, first + 1000)
            block = SampleBlock(
                ticks * PERIOD_NS, ticks, np.ones(1000), np.full(1000, SUPPLY_V), first, before
            )
            writer.append(block)
        writer.close(Timebase(ticks=(0, 2500), host_ns=(0, 2500 * PERIOD_NS)), ())
        whole, _ = measure_windows(
            open_recording(folder),
            [window(0.5, 2.0), window(0.1, 0.2)],
            sync_uncertainty_s=0.0,
            policy=LENIENT,
        )
        assert whole.energy.valid is valid


def window(start_s: float, end_s: float, label: str = "") -> Window:
    return Window(round(start_s * 1e9), round(end_s * 1e9), label)


def one_window(
    folder: Path, current_a: np.ndarray, span: tuple[float, float], accuracy: Accuracy, sync_s: float = 0.0
) -> EnergyBudget:
    recording = store(folder, current_a, accuracy)
    return gross_energy(
        [
            MeasuredRecording(
                measure_windows(recording, [window(*span)], sync_uncertainty_s=sync_s),
                recording.record.info.accuracy,
            )
        ]
    )


# Instrument


def test_a_gain_limit_is_the_half_width(tmp_path: Path) -> None:
    interval = one_window(tmp_path, np.full(12_000, 0.1), (1, 11), accuracy_of(gain=(0.02, 0.5)))
    assert interval.value_j == pytest.approx(4.0)
    assert interval.half_width_j == pytest.approx(0.02 * 4.0)
    assert interval.parts["instrument"].standard_j == pytest.approx(0.02 * 4.0 / 1.96, rel=1e-4)


def test_an_offset_limit_multiplies_volts_and_time(tmp_path: Path) -> None:
    interval = one_window(tmp_path, np.full(12_000, 0.1), (1, 11), accuracy_of(offset_a=(0.002, 0.5)))
    assert interval.half_width_j == pytest.approx(0.002 * 4.0 * 10)


def test_voltage_errors_count_on_all_ranges(tmp_path: Path) -> None:
    accuracy = accuracy_of(voltage_gain=0.003, voltage_offset_v=0.04)
    interval = one_window(tmp_path, np.full(12_000, 0.1), (1, 11), accuracy)
    assert interval.half_width_j == pytest.approx(math.hypot(0.003 * 4.0, 0.04 * 1.0))


def test_each_range_brings_its_own_error(tmp_path: Path) -> None:
    current = np.where(np.arange(12_000) < 6000, 0.1, 0.5)  # five seconds in each range
    accuracy = accuracy_of(gain=(0.02, 0.01), offset_a=(0.001, 0.003))
    interval = one_window(tmp_path, current, (1, 11), accuracy)
    expected = np.linalg.norm([0.02 * 2.0, 0.01 * 10.0, 0.001 * 20.0, 0.003 * 20.0])
    assert interval.parts["instrument"].standard_j * 1.96 == pytest.approx(expected, rel=1e-3)


def idle_work_idle(work_a: float = 0.2, idle_a: float = 0.1) -> np.ndarray:
    """Ten seconds idle, ten of work, ten idle."""
    return np.repeat([idle_a, work_a, idle_a], 10_000)


def session_of(
    recording: Recording, spans: list[tuple[float, float]], sync_s: float = 0.0, *, after: bool = True
) -> MeasuredRecording:
    windows = [window(*span, f"work {i}") for i, span in enumerate(spans)]
    baseline = measure_baseline(
        recording, window(0.5, 9.5), window(20.5, 29.5) if after else None, policy=LENIENT
    )
    evidence = measure_windows(recording, windows, sync_uncertainty_s=sync_s, policy=LENIENT)
    return MeasuredRecording(evidence, recording.record.info.accuracy, baseline)


def test_an_offset_cancels_in_the_net_energy_and_a_gain_does_not(tmp_path: Path) -> None:
    recording = store(tmp_path, idle_work_idle(), accuracy_of((0.01, 0.0), (0.005, 0.0)))
    session = session_of(recording, [(12, 18)])
    net = net_energy([session])
    assert net.value_j == pytest.approx(6 * 0.1 * SUPPLY_V)
    assert net.parts["instrument"].standard_j * 1.96 == pytest.approx(0.01 * net.value_j, rel=1e-4)
    gross = gross_energy([session])
    assert gross.parts["instrument"].standard_j * 1.96 == pytest.approx(
        math.hypot(0.01 * gross.value_j, 0.005 * SUPPLY_V * 6), rel=1e-4
    )


# Clock


def test_a_window_around_work_depends_on_the_clock(tmp_path: Path) -> None:
    recording = store(tmp_path, idle_work_idle(0.9, 0.1))
    evidence = measure_windows(recording, [window(10, 20), window(12, 18)], sync_uncertainty_s=0.05)
    interval = gross_energy([MeasuredRecording(evidence[:1], EXACT)])
    assert interval.parts["clock"].standard_j == pytest.approx(0.8 * SUPPLY_V * 0.05, rel=0.03)
    assert gross_energy([MeasuredRecording(evidence[1:], EXACT)]).parts["clock"].standard_j == pytest.approx(
        0.0
    )


def test_a_move_out_of_the_recording_counts_the_whole_power(tmp_path: Path) -> None:
    recording = store(tmp_path, np.full(10_001, 0.5))
    (evidence,) = measure_windows(recording, [window(0, 10)], sync_uncertainty_s=0.1)
    assert evidence.earlier_j == evidence.later_j == pytest.approx(0.1 * 0.5 * SUPPLY_V)


# Noise


def test_white_noise_is_seen_for_what_it_is(tmp_path: Path) -> None:
    current = np.random.default_rng(1).normal(0.5, 0.02, 22_000)
    recording = store(tmp_path, current)
    (evidence,) = measure_windows(recording, [window(1, 21)], sync_uncertainty_s=0.0)
    assert evidence.noise_j == pytest.approx(0.02 * SUPPLY_V * math.sqrt(20_000) / RATE_HZ, rel=0.05)


def test_jumps_between_samples_cost_what_their_phase_makes_of_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    errors, claimed = [], []
    for i in range(30):
        edges = np.sort(rng.uniform(0.5, 10.5, 400))  # on, off, on, ...
        on_s = np.clip(edges[1::2], 1, 10) - np.clip(edges[::2], 1, 10)
        current = np.searchsorted(edges, np.arange(11_000) / RATE_HZ) % 2 * 1.0
        recording = store(tmp_path / str(i), current)
        (evidence,) = measure_windows(recording, [window(1, 10)], sync_uncertainty_s=0.0)
        errors.append((evidence.energy.energy_j or 0.0) - float(on_s.sum()) * SUPPLY_V)
        claimed.append(evidence.noise_j)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.mean(claimed), rel=0.35)


def flicker(rng: np.random.Generator, n: int, allan: float) -> np.ndarray:
    """1/f noise of this Allan variance, cut from a stretch ten times as long."""
    frequency = np.fft.rfftfreq(10 * n)
    density = np.concatenate(([0.0], 1 / frequency[1:])) * allan / ALLAN_OF_H
    real, imaginary = rng.normal(0, 1, (2, len(frequency)))
    spectrum = (real + 1j * imaginary) * np.sqrt(density * frequency[1]) * 10 * n / 2
    return np.fft.irfft(spectrum, 10 * n)[:n]


def test_white_and_flicker_noise_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        slow = flicker(rng, 32 * 16, 0.5).reshape(32, 16).mean(axis=1)
        found.append(slow_noise([PowerSeries(rng.normal(0, 1, 32) + slow, 2.0)]))
    assert np.mean([noise.white.w2 for noise in found]) == pytest.approx(2.0, rel=0.15)
    assert np.mean([noise.flicker.w2 for noise in found]) == pytest.approx(0.5, rel=0.25)
    white = [slow_noise([PowerSeries(rng.normal(0, 1, 32), 2.0)]) for _ in range(300)]
    assert np.median([noise.flicker.w2 for noise in white]) < 0.05
    assert slow_noise([PowerSeries(np.full(32, 0.7), 1.0)]).white.w2 == 0.0


def test_allan_variances_of_a_short_series_by_hand() -> None:
    """Of 1, 2, 4, 3, 5 W, 2 s each: steps of 1, 2, -1, 2 W; of means over two, 2 and 1 W.

    The degrees of freedom are those of NIST Technical Note 1337, table 12-4, white FM, for six points.
    """
    first, second = _allan(PowerSeries(np.array([1.0, 2.0, 4.0, 3.0, 5.0]), 2.0))
    assert first == pytest.approx((2.0, 10 / 8, (15 / 2 - 8 / 6) * 4 / 9))
    assert second == pytest.approx((4.0, 5 / 4, (15 / 4 - 8 / 6) * 16 / 21))


def test_flicker_moves_averages_as_the_formula_says() -> None:
    rng = np.random.default_rng(4)
    spans = [(0, 100), (120, 160), (200, 300)]
    weights = (-0.5, 1.0, -0.5)
    sums = []
    for _ in range(2000):
        noise = flicker(rng, 300, 1.0)
        sums.append(sum(w * noise[a:b].mean() for w, (a, b) in zip(weights, spans, strict=True)))
    # Four standard errors of a variance from 2,000 values are 4 * sqrt(2 / 2000) = 13 %.
    assert np.var(sums) == pytest.approx(flicker_factor(spans, weights), rel=0.13)


def test_slow_noise_of_idle_enters_the_noise_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    current = idle_work_idle() + flicker(rng, 30_000, 1e-6)
    session = session_of(store(tmp_path, current), [(12, 18)])
    with_idle = gross_energy([session])
    without = gross_energy([MeasuredRecording(session.windows, EXACT)])
    assert with_idle.parts["noise"].standard_j > 5 * without.parts["noise"].standard_j
    assert with_idle.parts["noise"].dof is not None
    assert any("slow noise" in note for note in without.notes)


# Loss


def test_bridging_is_as_uncertain_as_it_is_wrong(tmp_path: Path) -> None:
    """Bursts, and gaps of 2 to 30 samples: what is claimed against what happened."""
    rng = np.random.default_rng(6)
    errors, claimed = [], []
    for i in range(30):
        edges = np.sort(rng.uniform(0, 12, 600))
        current = 0.2 + np.searchsorted(edges, np.arange(12_000) / RATE_HZ) % 2 * rng.exponential(0.5)
        kept = np.ones(12_000, bool)
        for start in rng.integers(1200, 10_800, 15):
            kept[start : start + rng.integers(2, 30)] = False
        lossy = store(tmp_path / f"{i}", current, kept=kept)
        whole = store(tmp_path / f"{i}w", current)
        (with_gaps,) = measure_windows(lossy, [window(1, 11)], sync_uncertainty_s=0.0, policy=LENIENT)
        (without,) = measure_windows(whole, [window(1, 11)], sync_uncertainty_s=0.0)
        errors.append((with_gaps.energy.energy_j or 0) - (without.energy.energy_j or 0))
        claimed.append(with_gaps.loss_j)
        assert without.loss_j == 0.0
    covered = np.mean(np.abs(errors) <= 1.96 * np.array(claimed))
    assert covered >= 0.8  # 95 % expected; below this with a probability of 0.1 %
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.sqrt(np.mean(np.square(claimed))), rel=0.4)


def test_a_gap_longer_than_any_stretch_may_hide_anything_seen(tmp_path: Path) -> None:
    current = np.tile([0.0, 1.0], 100)
    kept = np.tile(np.repeat([True, False], [10, 30]), 5)  # gaps of 31 ms from 9 ms and from 49 ms on
    recording = store(tmp_path, current, kept=kept)
    (evidence,) = measure_windows(recording, [window(0.005, 0.045)], sync_uncertainty_s=0.0, policy=LENIENT)
    assert evidence.loss_j == pytest.approx(0.031 * SUPPLY_V / math.sqrt(12), rel=1e-6)


# Baseline


def test_intervals_are_compared_in_seconds() -> None:
    energy = WindowEnergy("", 1_500_000_000, 4_000_000_000, 1.0, 1.0, 1, 0.0, loss_known=True, bridged_s=0.0)
    assert _seconds(energy) == pytest.approx((1.5, 4.0))


def test_net_energy_follows_a_drifting_idle_power(tmp_path: Path) -> None:
    drift = np.linspace(0, 0.03, 30_000)
    recording = store(tmp_path, idle_work_idle() + drift)
    net = net_energy([session_of(recording, [(12, 18)])])
    assert net.value_j == pytest.approx(6 * 0.1 * SUPPLY_V, rel=1e-3)
    # It might not have been linear: uniform between the two idle powers, 20 s apart.
    assert net.parts["baseline"].standard_j == pytest.approx(6 * SUPPLY_V * 0.02 / math.sqrt(12), rel=0.02)


def test_idle_noise_makes_the_net_energy_uncertain(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    values, claimed = [], []
    for i in range(30):
        current = idle_work_idle()
        current[:10_000] += rng.normal(0, 0.05, 10_000)
        current[20_000:] += rng.normal(0, 0.05, 10_000)
        net = net_energy([session_of(store(tmp_path / str(i), current), [(12, 18)])])
        values.append(net.value_j)
        claimed.append(net.parts["baseline"].standard_j)
    expected = 6 * SUPPLY_V * 0.05 / math.sqrt(18_000)
    assert np.std(values) == pytest.approx(expected, rel=0.4)  # three standard errors of 30 values
    # Flicker cannot be ruled out by eighteen seconds of idle, so some claims are too wide, few too narrow.
    assert 0.85 * expected < np.median(claimed) < 1.6 * expected
    assert np.quantile(claimed, 0.1) > 0.6 * expected


def test_without_idle_afterwards_drift_is_said_to_be_unseen(tmp_path: Path) -> None:
    session = session_of(store(tmp_path, idle_work_idle()), [(12, 18)], after=False)
    assert session.baseline is not None
    assert session.baseline.drift_w is None
    net = net_energy([session])
    assert net.value_j == pytest.approx(6 * 0.1 * SUPPLY_V)
    assert any("drift" in note for note in net.notes)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ((-1.0, 5.0), "before the first sample"),
        ((5.0, 5.02), "no sample lies inside"),
        ((1.0, 12.0), "begins before"),
    ],
)
def test_a_bad_idle_interval_is_refused(tmp_path: Path, before: tuple[float, float], message: str) -> None:
    recording = store(tmp_path, idle_work_idle())
    with pytest.raises(DataQualityError, match=message):
        measure_baseline(recording, window(*before, "idle"), window(11, 12))


# Repeats


def repeated(tmp_path: Path, levels_a: list[float], accuracy: Accuracy = EXACT) -> tuple[MeasuredWindow, ...]:
    """One-second windows at these currents."""
    current = np.repeat(levels_a, RATE_HZ)
    recording = store(tmp_path, np.concatenate((current, current[-1:])), accuracy)
    windows = [window(i + 0.1, i + 0.9, f"work {i}") for i in range(len(levels_a))]
    return measure_windows(recording, windows, sync_uncertainty_s=0.0)


def test_repeats_follow_student(tmp_path: Path) -> None:
    levels = [0.50, 0.52, 0.47, 0.51, 0.49]
    interval = gross_energy([MeasuredRecording(repeated(tmp_path, levels), EXACT)])
    joules = np.array(levels) * SUPPLY_V * 0.8
    assert interval.value_j == pytest.approx(joules.mean())
    assert interval.sd_j == pytest.approx(joules.std(ddof=1), rel=1e-5)
    expected = student_t.ppf(0.975, 4) * joules.std(ddof=1) / math.sqrt(5)
    assert interval.half_width_j == pytest.approx(expected, rel=1e-5)
    assert (interval.n, interval.recordings, interval.covers) == (5, 1, "the mean of repeated windows")


def test_systematic_parts_do_not_average_out(tmp_path: Path) -> None:
    accuracy = accuracy_of(gain=(0.0, 0.02))
    for n in (2, 50):
        evidence = repeated(tmp_path / str(n), [0.5] * n, accuracy)
        interval = gross_energy([MeasuredRecording(evidence, accuracy)])
        assert interval.half_width_j == pytest.approx(0.02 * 0.5 * SUPPLY_V * 0.8, rel=1e-4)


def test_one_window_says_that_it_is_one(tmp_path: Path) -> None:
    interval = gross_energy([MeasuredRecording(repeated(tmp_path, [0.5]), EXACT)])
    assert (interval.n, interval.sd_j, interval.covers) == (1, None, "this window")
    assert "repeats" not in interval.parts
    assert any("another run" in note for note in interval.notes)


def test_two_windows_are_hardly_enough(tmp_path: Path) -> None:
    interval = gross_energy([MeasuredRecording(repeated(tmp_path, [0.50, 0.52]), EXACT)])
    assert interval.parts["repeats"].dof == 1
    assert interval.half_width_j == pytest.approx(12.706 * 0.01 * SUPPLY_V * 0.8, rel=1e-3)


def test_recordings_are_the_repetitions_if_there_are_several(tmp_path: Path) -> None:
    means = [0.45, 0.50, 0.52, 0.49]
    sessions = [
        MeasuredRecording(repeated(tmp_path / str(m), [m - 0.001, m, m + 0.001] * 4), EXACT) for m in means
    ]
    interval = gross_energy(sessions)
    joules = np.array(means) * SUPPLY_V * 0.8
    expected = student_t.ppf(0.975, 3) * joules.std(ddof=1) / 2
    assert (interval.n, interval.recordings) == (48, 4)
    assert interval.value_j == pytest.approx(joules.mean())
    assert interval.half_width_j == pytest.approx(expected, rel=1e-4)
    pooled = MeasuredRecording(tuple(e for s in sessions for e in s.windows), EXACT)
    assert gross_energy([pooled]).half_width_j < expected / 3  # what counting windows would claim


def test_drifting_repeats_are_noted(tmp_path: Path) -> None:
    levels = [0.5 + 0.001 * i for i in range(20)]
    drifting = gross_energy([MeasuredRecording(repeated(tmp_path / "a", levels), EXACT)])
    assert any("separate recordings" in note for note in drifting.notes)
    shuffled = [0.5, 0.51, 0.495, 0.505, 0.49, 0.508, 0.497, 0.503, 0.492, 0.507]
    steady = gross_energy([MeasuredRecording(repeated(tmp_path / "b", shuffled), EXACT)])
    assert not any("separate recordings" in note for note in steady.notes)


# Combining


def test_half_widths_are_added_in_squares() -> None:
    known, guessed = UncertaintyPart(standard_j=3.0), UncertaintyPart(standard_j=4.0, dof=4.0)
    assert known.half_width_j == pytest.approx(3 * 1.959964)
    assert guessed.half_width_j == pytest.approx(4 * student_t.ppf(0.975, 4))
    assert combined_half_width_j({"a": known, "b": guessed}) == pytest.approx(
        math.hypot(3 * 1.959964, 4 * 2.776445)
    )
    assert combined_half_width_j({}) == 0.0


def test_leaving_a_part_out_narrows_the_interval(tmp_path: Path) -> None:
    accuracy = accuracy_of(gain=(0.0, 0.02))
    evidence = repeated(tmp_path, [0.50, 0.52, 0.47], accuracy)
    interval = gross_energy([MeasuredRecording(evidence, accuracy)])
    assert set(interval.parts) == {"instrument", "clock", "noise", "repeats"}
    alone = interval.without("repeats")
    assert alone.half_width_j == pytest.approx(0.02 * interval.value_j, rel=1e-3)
    assert interval.without("instrument").half_width_j < interval.half_width_j
    assert EnergyBudget.model_validate_json(interval.model_dump_json()) == interval
    width_j = interval.interval.high - interval.interval.low
    assert (interval.interval.mean, width_j) == (interval.value_j, pytest.approx(2 * interval.half_width_j))


def test_what_must_not_become_a_number_is_refused(tmp_path: Path) -> None:
    kept = np.ones(2000, bool)
    kept[500:540] = False
    recording = store(tmp_path, np.full(2000, 0.5), kept=kept)
    evidence = measure_windows(recording, [window(0.1, 1.9, "epoch 1")], sync_uncertainty_s=0.0)
    with pytest.raises(DataQualityError, match=r"'epoch 1': 2\.222% of the samples were lost"):
        gross_energy([MeasuredRecording(evidence, EXACT)])
    with pytest.raises(DataQualityError, match="no window"):
        gross_energy([MeasuredRecording((), EXACT)])
    with pytest.raises(DataQualityError, match="needs idle power"):
        net_energy([MeasuredRecording(evidence, EXACT)])


def test_unknown_loss_travels_with_the_interval(tmp_path: Path) -> None:
    recording = store(tmp_path, np.full(2000, 0.5), loss=Loss.UNKNOWN)
    evidence = measure_windows(recording, [window(0.1, 1.9)], sync_uncertainty_s=0.0)
    assert any("cannot tell" in note for note in gross_energy([MeasuredRecording(evidence, EXACT)]).notes)
