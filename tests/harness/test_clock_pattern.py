"""Alignment by the pattern in the power trace, on traces whose truth is known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from device_agents.payload.sync_pattern import Pattern
from harness.clock import Alignment, align
from joulefleet.errors import DataQualityError
from tests.harness.clock_trials import Setting, Trial, draw

LIMIT_S = {5000: 0.002, 500: 0.005}


def trials(setting: Setting, count: int, folder: Path, seed: int = 5) -> list[tuple[Trial, Alignment | None]]:
    """Aligned trials; None where alignment was refused altogether."""
    found: list[tuple[Trial, Alignment | None]] = []
    for i in range(count):
        trial = draw(setting, np.random.default_rng([seed, i]), folder / "recording")
        try:
            found.append((trial, align(trial.recording, trial.pings, trial.bursts)))
        except DataQualityError:
            found.append((trial, None))
        shutil.rmtree(folder / "recording")
    return found


def one(setting: Setting, folder: Path, seed: int = 7) -> tuple[Trial, Alignment]:
    trial = draw(setting, np.random.default_rng(seed), folder / f"recording{seed}")
    return trial, align(trial.recording, trial.pings, trial.bursts)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("journalled", [True, False], ids=["edges timed", "edges not timed"])
@pytest.mark.parametrize("rate_hz", [5000, 500])
def test_the_offset_is_found_with_everything_else_unknown(
    rate_hz: int,
    journalled: bool,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """Regulator 1 to 20 ms, jitter 2 ms, background bursts, noise fast and slow, skew up to 100 ppm."""
    count = campaign_count(4, 100)
    found = trials(Setting(rate_hz=rate_hz, journalled=journalled), count, tmp_path)
    assert [a.fit.method for _, a in found if a is not None] == ["pattern"] * count
    errors_s = np.array([trial.errors_s(a.fit.to_host_ns) for trial, a in found if a is not None])
    standard_s = np.array([a.fit.sync_uncertainty_s for _, a in found if a is not None])
    covered = np.abs(errors_s) <= 1.96 * standard_s[:, None]
    record_property("trials", count)
    record_property("median_error_ms", np.median(np.abs(errors_s)) * 1e3)
    record_property("worst_error_ms", np.abs(errors_s).max() * 1e3)
    record_property("bias_ms", errors_s.mean() * 1e3)
    record_property("median_uncertainty_ms", np.median(standard_s) * 1e3)
    record_property("coverage", covered.mean())
    assert np.abs(errors_s).max() <= LIMIT_S[rate_hz]
    # In the middle only: the errors of one trial at its two ends are not independent.
    hits = int(covered[:, 1].sum())
    assert binomtest(hits, count, 0.95, alternative="less").pvalue > 1e-3


SITUATIONS = {
    "small step": Setting(step_w=0.3),
    "tiny step": Setting(step_w=0.1),
    "tiny step, nothing else": Setting(step_w=0.1, background_per_s=0.0),
    "busy device": Setting(background_per_s=4.0, background_w=(0.5, 3.0)),
    "pattern absent": Setting(plays=False),
    "pattern twice": Setting(echoes_s=(1.0,)),
    "stronger elsewhere": Setting(echoes_s=(-1.2,), echo_gain=3.0),
    "only elsewhere": Setting(plays=False, echoes_s=(0.7,)),
    "prior wrong by 0.3 s": Setting(prior_error_s=0.3),
    "prior wrong by 0.08 s": Setting(prior_error_s=-0.08),
    "gaps": Setting(gaps_s=((4.0, 4.6), (14.2, 14.4), (15.5, 16.5))),
    "slow supply": Setting(tau_s=(0.03, 0.06)),
}


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rate_hz", [5000, 500])
def test_no_wrong_lock_is_believed(
    rate_hz: int,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """Wrong: further off than five standard uncertainties say it can be, by whatever method."""
    count = campaign_count(1, 20)
    wrong = []
    for name, setting in SITUATIONS.items():
        found = trials(replace(setting, rate_hz=rate_hz, journalled=True), count, tmp_path)
        methods = [a.fit.method if a is not None else "refused" for _, a in found]
        record_property(name, {method: methods.count(method) for method in sorted(set(methods))})
        wrong += [
            (name, float(np.abs(trial.errors_s(a.fit.to_host_ns)).max()), a.fit)
            for trial, a in found
            if a is not None and np.abs(trial.errors_s(a.fit.to_host_ns)).max() > 5 * a.fit.sync_uncertainty_s
        ]
    record_property("trials", count * len(SITUATIONS))
    record_property("believed_wrong", len(wrong))
    assert wrong == []


def test_a_pattern_that_is_not_there_is_refused_and_the_pings_remain(tmp_path: Path) -> None:
    _, found = one(Setting(plays=False), tmp_path)
    assert found.fit == found.pings
    assert found.fit.method == "ping"
    assert [f.code for f in found.findings] == ["clock_pattern_refused"]
    assert found.findings[0].count == 2
    assert all("times as good" in burst.refused or "edges" in burst.refused for burst in found.bursts)


def test_a_pattern_with_too_few_edges_is_refused_for_that(tmp_path: Path) -> None:
    _, found = one(Setting(journalled=True, pattern=Pattern(order=4, bit_ns=50_000_000)), tmp_path)
    assert found.fit.method == "ping"
    assert {burst.refused for burst in found.bursts} == {
        "8 edges are too few to be told from chance (order 5 has enough)"
    }


def test_a_pattern_where_it_cannot_be_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="from where the exchanges put it") as raised:
        one(Setting(prior_error_s=0.3), tmp_path)
    assert "clock" in raised.value.hint


def test_a_small_contradiction_becomes_uncertainty(tmp_path: Path) -> None:
    trial, found = one(Setting(prior_error_s=-0.08, journalled=True), tmp_path)
    assert found.fit.method == "ping"
    assert np.abs(trial.errors_s(found.fit.to_host_ns)).max() < 1.96 * found.fit.sync_uncertainty_s


def test_one_good_pattern_is_enough(tmp_path: Path) -> None:
    """Of the first nothing was recorded; the skew then comes from the exchanges."""
    trial, found = one(Setting(journalled=True, gaps_s=((0.5, 7.0),)), tmp_path)
    assert found.fit.method == "pattern"
    assert [burst.refused for burst in found.bursts] == ["too little of it was recorded", ""]
    assert found.bursts[0].offset_ns is None
    assert [f.code for f in found.findings] == ["clock_pattern_refused"]
    assert abs(trial.errors_s(found.fit.to_host_ns)[-1]) < 0.002


@pytest.mark.parametrize("bit_ms", [50, 53, 200])
@pytest.mark.parametrize("rate_hz", [20, 100])
def test_a_slow_meter_claims_no_more_than_it_can_know(rate_hz: int, bit_ms: int, tmp_path: Path) -> None:
    """At 20 Hz and 50 ms, every sample sees its bit at the same place: nothing tells at which."""
    pattern = Pattern(bit_ns=bit_ms * 1_000_000)
    setting = Setting(
        rate_hz=rate_hz, journalled=True, pattern=pattern, tau_s=(0.005, 0.012), round_trip_s=0.3
    )
    for seed in range(2):
        trial, found = one(setting, tmp_path, seed)
        errors_s = trial.errors_s(found.fit.to_host_ns)
        assert np.abs(errors_s).max() < 3 * found.fit.sync_uncertainty_s
        assert found.fit.method == "pattern"


def test_exchanges_that_know_better_win(tmp_path: Path) -> None:
    _, found = one(Setting(rate_hz=20, journalled=True, round_trip_s=0.001), tmp_path)
    assert found.fit.method == "ping"
    assert [f.code for f in found.findings] == ["clock_pattern_coarse"]
    assert all(not burst.refused and burst.offset_ns is not None for burst in found.bursts)


def test_edges_that_were_not_timed_add_their_scatter(tmp_path: Path) -> None:
    _, timed = one(Setting(journalled=True), tmp_path, seed=1)
    _, untimed = one(Setting(), tmp_path, seed=2)
    assert timed.fit.sync_uncertainty_s < 0.001 < untimed.fit.sync_uncertainty_s < 0.003


def test_late_edges_do_not_move_the_offset(tmp_path: Path) -> None:
    """A scheduler that is 10 ms late on average: the device says so, edge by edge."""
    trial, found = one(Setting(jitter_s=0.010, journalled=True, background_per_s=0.0), tmp_path)
    assert np.abs(trial.errors_s(found.fit.to_host_ns)).max() < 0.001


def test_what_is_seen_is_reported(tmp_path: Path) -> None:
    trial, found = one(Setting(journalled=True, tau_s=(0.010, 0.010)), tmp_path)
    assert [burst.when for burst in found.bursts] == ["before", "after"]
    for burst in found.bursts:
        assert burst.offset_ns is not None
        assert burst.step_w == pytest.approx(1.0, rel=0.15)
        assert burst.peak_to_sidelobe is not None
        assert burst.peak_to_sidelobe > 1.7
        assert abs(burst.residual_s or 0.0) < 0.001
    assert found.fit.tau_s == pytest.approx(0.010, abs=0.002)
    assert found.fit.skew_ppm == pytest.approx(trial.skew * 1e6, abs=100)


def test_a_pattern_that_the_recording_cuts_off_is_still_found(tmp_path: Path) -> None:
    """Three quarters of the last one are there."""
    trial, found = one(Setting(journalled=True, gaps_s=((16.5, 20.3),)), tmp_path)
    assert [burst.refused for burst in found.bursts] == ["", ""]
    assert np.abs(trial.errors_s(found.fit.to_host_ns)).max() < 0.002


def test_a_pattern_outside_the_recording_is_refused(tmp_path: Path) -> None:
    trial = draw(Setting(), np.random.default_rng(4), tmp_path / "recording")
    later = [replace(run, start_ns=run.start_ns + 10**12) for run in trial.bursts]
    found = align(trial.recording, trial.pings, later)
    assert found.fit.method == "ping"
    assert {burst.refused for burst in found.bursts} == {"too little of it was recorded"}


def test_a_load_without_any_burst_is_no_match(tmp_path: Path) -> None:
    _, found = one(Setting(plays=False, background_per_s=0.0, noise_w=0.0, slow_w=0.0), tmp_path)
    assert found.fit.method == "ping"


def test_an_exact_trace_gives_an_honest_answer(tmp_path: Path) -> None:
    """No noise at all: the resolution of the search remains."""
    trial, found = one(
        Setting(journalled=True, background_per_s=0.0, noise_w=0.0, slow_w=0.0, jitter_s=0.0001), tmp_path
    )
    assert found.fit.method == "pattern"
    assert np.abs(trial.errors_s(found.fit.to_host_ns)).max() < 0.0005
    assert 0.0001 < found.fit.sync_uncertainty_s < 0.001
