"""From patterns and exchanges to one clock: every step put together by hand from its parts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from device_agents.payload.sync_pattern import Pattern
from harness.clock.align import _better, _meter_delay_s, align
from harness.clock.bursts import PatternFit, _doubts, _Found, _judge, _unsure, fit_bursts
from harness.clock.correlate import Peak, Trace, find_peak, read_trace
from harness.clock.line import Line, fit_line
from harness.clock.offsets import GpioEdge, fit_edges, fit_pings, ping_line
from harness.clock.pattern import BurstRun
from harness.clock.refine import Refined, refine
from harness.evidence.clock_fit import BurstSeen, ClockFit
from joulefleet.errors import DataQualityError
from power import FindingLog
from tests.harness.clock_trials import DEVICE_START_NS, Setting, Trial, draw

QUIET = Setting(
    rate_hz=500, journalled=True, background_per_s=0.0, noise_w=0.1, slow_w=0.02, tau_s=(0.008, 0.008),
    work_s=3.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """Of 500 Hz; of 5000 Hz; with the first pattern not recorded."""
    settings = {
        "slow": QUIET,
        "fast": replace(QUIET, rate_hz=5000),
        "gap": replace(QUIET, gaps_s=((1.0, 7.0),)),
    }
    return {
        name: draw(setting, np.random.default_rng(11), tmp_path_factory.mktemp(name) / "r")
        for name, setting in settings.items()
    }


def untimed(run: BurstRun) -> BurstRun:
    return replace(run, late_ns=())


def expected_fit(
    trial: Trial, prior: Line, runs: list[BurstRun], used: list[int]
) -> tuple[ClockFit, list[BurstSeen]]:
    """By its parts, for the patterns that were found."""
    traces, lags, seen = [], [], []
    for run in runs:
        around_s = max(run.duration_s / 2, 2 * (3 * prior.standard_s(run.middle_ns) + 0.02))
        due_ns = run.start_ns + prior.offset_at(run.middle_ns)
        start_ns, end_ns = (
            due_ns - round(around_s * 1e9),
            due_ns + run.pattern.duration_ns + round(around_s * 1e9),
        )
        trace = read_trace(trial.recording, start_ns, end_ns, width_s=run.bit_s / 50)
        peak = find_peak(trace, run)
        assert peak is not None or runs.index(run) not in used
        traces.append(trace)
        lags.append(peak.lag_s if peak else 0.0)
        values = {} if peak is None else {
            "correlation": peak.correlation, "peak_to_sidelobe": peak.peak_to_sidelobe,
            "right_edges": peak.right_edges, "edges": peak.edges, "from_pings_s": peak.lag_s - around_s,
        }  # fmt: skip
        seen.append(BurstSeen(when=run.when, start_ns=run.start_ns, **values))
    chosen = [(traces[i], runs[i], lags[i]) for i in used]
    refined = refine(*(list(part) for part in zip(*chosen, strict=True)))
    offsets = [
        trace.origin_ns - run.start_ns + round(at * 1e9)
        for (trace, run, _), at in zip(chosen, refined.offset_s.tolist(), strict=True)
    ]
    skew = (prior.skew_ppm, min(100 / math.sqrt(3), math.sqrt(prior.covariance[1, 1]) * 1e6))
    line = fit_line([run.middle_ns for _, run, _ in chosen], offsets, refined.covariance_s2, skew=skew)
    residuals = []
    for k, i in enumerate(used):
        middle_ns = runs[i].middle_ns
        residuals.append((offsets[k] - line.offset_at(middle_ns)) * 1e-9)
        seen[i] = seen[i].but(
            offset_ns=offsets[k],
            standard_s=math.sqrt(refined.covariance_s2[k, k]),
            step_w=refined.step_w[k],
            from_pings_s=(offsets[k] - prior.offset_at(middle_ns)) * 1e-9,
            residual_s=residuals[-1],
        )
    late_s = 0.0 if all(run.late_ns for _, run, _ in chosen) else refined.jitter_s
    sample_s = max(0.0 if trace.averaged else trace.width_s for trace, _, _ in chosen) / math.sqrt(12)
    ends_ns = [min(run.middle_ns for run in runs), max(run.middle_ns for run in runs)]
    worst_s = max(line.standard_s(t) for t in ends_ns)
    fit = ClockFit(
        offset_ns=line.offset_ns, skew_ppm=line.skew_ppm, reference_ns=line.reference_ns, tau_s=refined.tau_s,
        residual_s=math.sqrt(sum(r * r for r in residuals) / len(residuals)),
        sync_uncertainty_s=math.sqrt(worst_s**2 + late_s**2 + sample_s**2), method="pattern",
    )  # fmt: skip
    return fit, seen


def assert_alike(found: PatternFit, fit: ClockFit, seen: list[BurstSeen]) -> None:
    assert found.fit is not None
    assert found.fit.model_dump() == pytest.approx(fit.model_dump(), rel=1e-9)
    for one, expected in zip(found.seen, seen, strict=True):
        assert one.but(refused="").model_dump() == pytest.approx(expected.model_dump(), rel=1e-9)
    assert found.contradiction_s == 0.0


@pytest.mark.parametrize("name", ["slow", "fast"])
@pytest.mark.parametrize("timed", ["both", "first"])
def test_two_patterns_make_a_line(trials: dict[str, Trial], name: str, timed: str) -> None:
    trial = trials[name]
    runs = [trial.bursts[0], trial.bursts[1] if timed == "both" else untimed(trial.bursts[1])]
    prior = ping_line(trial.pings)
    found = fit_bursts(trial.recording, prior, runs[::-1])  # in any order
    assert_alike(found, *expected_fit(trial, prior, runs, [0, 1]))
    assert [one.refused for one in found.seen] == ["", ""]


def test_a_prior_that_knows_little_looks_further(trials: dict[str, Trial]) -> None:
    trial = trials["slow"]
    prior = replace(ping_line(trial.pings), covariance=np.diag([0.3**2, (200e-6) ** 2]))
    found = fit_bursts(trial.recording, prior, trial.bursts)
    assert_alike(found, *expected_fit(trial, prior, list(trial.bursts), [0, 1]))


def test_of_one_pattern_the_span_is_still_that_of_both(trials: dict[str, Trial]) -> None:
    trial = trials["gap"]
    prior = ping_line(trial.pings)
    found = fit_bursts(trial.recording, prior, trial.bursts)
    assert [one.refused for one in found.seen] == ["too little of it was recorded", ""]
    assert_alike(found, *expected_fit(trial, prior, list(trial.bursts), [1]))


def moved(prior: Line, by_s: float, *, skew_ppm: float = 0.0) -> Line:
    """A prior that is sure of itself."""
    return Line(prior.reference_ns, prior.offset_ns - round(by_s * 1e9), skew_ppm, np.diag([1e-12, 1e-18]))


def test_a_peak_may_be_off_by_the_meters_timing_and_six_tenths_of_a_bit(trials: dict[str, Trial]) -> None:
    """0.02 s and 0.03 s; where a pattern is found, it is found to 2.5 ms."""
    trial = trials["slow"]
    true = replace(ping_line(trial.pings), skew_ppm=trial.skew * 1e6)
    true = replace(true, offset_ns=trial.host_ns(true.reference_ns) - true.reference_ns)
    at_s = [
        one.from_pings_s or 0.0 for one in fit_bursts(trial.recording, moved(true, 0.0), trial.bursts).seen
    ]
    assert at_s == pytest.approx([0.0, 0.0], abs=0.004)
    for by_s, allowed in ((0.044, True), (0.056, False)):
        found = fit_bursts(trial.recording, moved(true, by_s), trial.bursts)
        why = [one.refused for one in found.seen]
        if allowed:  # the peak is; what is fitted to it is not, which is known better
            assert all(one.offset_ns is not None for one in found.seen)
        else:
            assert [one.offset_ns for one in found.seen] == [None, None]
            assert all("from where the exchanges put it" in one for one in why)
        assert found.fit is None
        assert found.contradiction_s == pytest.approx(by_s, abs=0.006)


def test_of_two_contradictions_the_larger_one_counts(trials: dict[str, Trial]) -> None:
    trial = trials["slow"]
    first, second = (run.middle_ns for run in trial.bursts)
    for near_s, far_s in ((0.1, -0.3), (-0.1, 0.3), (0.3, 0.1)):
        # A line that is wrong by these at the two patterns.
        slope = (far_s - near_s) / (second - first)
        prior = Line(
            first, trial.host_ns(first) - first - round(near_s * 1e9), (trial.skew - slope * 1e9) * 1e6,
            np.diag([1e-12, 1e-18]),
        )  # fmt: skip
        found = fit_bursts(trial.recording, prior, trial.bursts)
        assert found.fit is None
        assert found.contradiction_s == pytest.approx(max(near_s, far_s, key=abs), abs=0.01)


def test_why_a_match_may_be_chance() -> None:
    good = Peak(0.0, 0.9, 1.7, 27, 32)
    assert _unsure(good) == ""
    assert _unsure(replace(good, peak_to_sidelobe=1.69)).startswith("its best match is only 1.69 times")
    assert _unsure(replace(good, right_edges=26)) == "only 26 of 32 edges go the right way"
    assert _unsure(replace(good, right_edges=14, edges=14)) == ""
    assert _unsure(replace(good, right_edges=13, edges=13)).startswith("13 edges are too few")


NOTHING = Trace(0, 1.0, np.empty(0), np.empty(0), 0.001, averaged=True)


def judged(off_s: float, residual_s: float, standard_s: float = 0.002) -> tuple[str, bool]:
    run = BurstRun(0, Pattern(order=5))
    seen = BurstSeen(when="", start_ns=0, from_pings_s=off_s, residual_s=residual_s, standard_s=standard_s)
    prior = Line(run.middle_ns, 0, 0.0, np.diag([0.01**2, 0.0]))
    found = _judge(_Found(run, seen, NOTHING), prior)
    return found.seen.refused, found.elsewhere


def test_a_pattern_against_the_exchanges_and_the_others() -> None:
    # Three of 10 ms, 20 ms of the meter, three of 2 ms.
    assert judged(0.0559, 0.0) == judged(-0.0559, 0.0) == judged(0.0, 0.0) == ("", False)
    assert judged(0.0561, 0.0) == ("it lies +0.0561 s from where the exchanges put it", True)
    assert judged(-0.0561, 0.0) == ("it lies -0.0561 s from where the exchanges put it", True)
    assert judged(0.0, 0.0099) == judged(0.0, -0.0099) == judged(0.0, 0.01) == ("", False)
    assert judged(0.0, 0.0101) == ("one of the patterns lies +0.0101 s off the line through all", False)
    assert judged(0.0, -0.0101)[0].startswith("one of the patterns lies -0.0101 s")
    assert judged(0.0501, 0.0, standard_s=0.0)[1]


def test_doubts_about_all() -> None:
    def doubts(skew_ppm: float, *, at_limit: bool = False) -> str:
        refined = Refined(np.zeros(1), np.zeros((1, 1)), 0.01, 0.001, (1.0,), at_limit)
        return _doubts(refined, Line(0, 0, skew_ppm, np.zeros((2, 2))))

    assert doubts(500.0) == doubts(-500.0) == doubts(0.0) == ""
    assert doubts(500.4) == "the patterns would need a skew of +500 ppm"
    assert doubts(-600.0) == "the patterns would need a skew of -600 ppm"
    assert doubts(0.0, at_limit=True).startswith("the lag of the supply is too long")


# All methods together


def fit_of(offset_ns: int, unsure_s: float, *, skew_ppm: float = 0.0, reference_ns: int = 0) -> ClockFit:
    return ClockFit(
        offset_ns=offset_ns, skew_ppm=skew_ppm, reference_ns=reference_ns, residual_s=0.0,
        sync_uncertainty_s=unsure_s, method="ping",
    )  # fmt: skip


def test_the_better_of_two_and_neither_better_than_they_agree() -> None:
    log = FindingLog()
    ping = fit_of(0, 0.004, skew_ppm=10.0)
    assert _better(None, ping, log) is ping
    # At 100 s of device time: 1 ms of skew. 3 ms and 4 ms make 5 ms.
    alike = fit_of(1_000_000 + 4_900_000, 0.003, reference_ns=100 * 10**9)
    assert _better(alike, ping, log).sync_uncertainty_s == pytest.approx(0.003)
    apart = fit_of(1_000_000 - 6_000_000, 0.003, reference_ns=100 * 10**9)
    assert _better(apart, ping, log).sync_uncertainty_s == pytest.approx(0.003 * 6 / 5)
    assert _better(apart, ping, log).offset_ns == apart.offset_ns
    same = fit_of(0, 0.004, skew_ppm=11.0)
    assert _better(same, ping, log) == same
    assert log.as_tuple() == ()
    far = fit_of(1_000_000 + 7_000_000, 0.003, reference_ns=100 * 10**9)
    assert _better(far, ping, log) is ping
    (finding,) = log.as_tuple()
    assert finding.code == "clock_pattern_coarse"
    assert "(4 ms)" in finding.message
    assert "(4.2 ms)" in finding.message


def test_a_meter_may_be_late_by_its_link_and_a_sample(trials: dict[str, Trial]) -> None:
    """0.5 ms of a link and 2 ms or 0.2 ms of a sample; 20 ms at most."""
    assert _meter_delay_s(trials["slow"].recording) == pytest.approx(0.0025 / math.sqrt(3))
    assert _meter_delay_s(trials["fast"].recording) == pytest.approx(0.0007 / math.sqrt(3))


def test_a_slow_meter_is_late_by_20_ms_at_most(tmp_path: Path) -> None:
    trial = draw(replace(QUIET, rate_hz=20), np.random.default_rng(3), tmp_path / "r")
    assert _meter_delay_s(trial.recording) == pytest.approx(0.02 / math.sqrt(3))


def test_exchanges_alone_are_told_beside_the_pattern(trials: dict[str, Trial]) -> None:
    trial = trials["slow"]
    found = align(trial.recording, trial.pings, trial.bursts)
    assert found.fit.method == "pattern"
    alone = fit_pings(trial.pings, also_ns=[run.middle_ns for run in trial.bursts])
    unsure_s = math.hypot(alone.sync_uncertainty_s, 0.0025 / math.sqrt(3))
    assert found.pings == alone.model_copy(update={"sync_uncertainty_s": pytest.approx(unsure_s)})
    few = align(trial.recording, trial.pings[:3], trial.bursts)
    alone = fit_pings(trial.pings[:3], also_ns=[run.middle_ns for run in trial.bursts])
    assert alone.sync_uncertainty_s > fit_pings(trial.pings[:3]).sync_uncertainty_s
    assert few.pings.sync_uncertainty_s == pytest.approx(
        math.hypot(alone.sync_uncertainty_s, 0.0025 / math.sqrt(3))
    )
    assert (found.findings, [one.refused for one in found.bursts]) == ((), ["", ""])


def test_a_contradiction_is_uncertainty_up_to_a_tenth_of_a_second(trials: dict[str, Trial]) -> None:
    trial = trials["slow"]
    for by_s, refused in ((0.085, False), (0.115, True)):
        pings = [
            replace(
                one, sent_ns=one.sent_ns + round(by_s * 1e9), received_ns=one.received_ns + round(by_s * 1e9)
            )
            for one in trial.pings
        ]
        if refused:
            with pytest.raises(DataQualityError, match="from where the exchanges put it"):
                align(trial.recording, pings, trial.bursts)
            wire = [GpioEdge(t, trial.host_ns(t) + round(by_s * 1e9)) for t in (trial.bursts[0].start_ns,)]
            assert align(trial.recording, pings, trial.bursts, edges=wire).fit.method == "gpio"
            continue
        found = align(trial.recording, pings, trial.bursts)
        alone = fit_pings(pings, also_ns=[run.middle_ns for run in trial.bursts])
        off_s = max((one.from_pings_s or 0.0 for one in found.bursts), key=abs)
        assert found.fit.sync_uncertainty_s == pytest.approx(
            math.hypot(alone.sync_uncertainty_s, 0.0025 / math.sqrt(3), off_s)
        )
        assert [one.code for one in found.findings] == ["clock_pattern_refused"]
        assert found.findings[0].count == 2


def test_a_wire_that_agrees_comes_first(trials: dict[str, Trial]) -> None:
    """The edges may be off by three of the prior, 20 ms and a sample of 2 ms."""
    trial = trials["slow"]
    prior = ping_line(trial.pings)
    for sign in (1, -1):
        for past_s, used in ((-0.001, True), (0.001, False)):
            t_ns = DEVICE_START_NS + 5 * 10**9
            limit_s = 3 * prior.standard_s(t_ns) + 0.02 + 0.002
            host_ns = t_ns + prior.offset_at(t_ns) + sign * round((limit_s + past_s) * 1e9)
            edges = [GpioEdge(t_ns, host_ns)]
            found = align(trial.recording, trial.pings, (), edges=edges)
            if used:
                assert found.fit == fit_edges(edges, period_s=0.002)
                assert found.findings == ()
            else:
                assert found.fit.method == "ping"
                (finding,) = found.findings
                assert finding.message == (
                    f"the edges on the wire put the clock {sign * (limit_s + past_s):+.3g} s from where "
                    "the exchanges do"
                )
