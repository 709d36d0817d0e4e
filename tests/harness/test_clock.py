"""Clock fits from exchanges and from edges on a wire, and the pattern as a template."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from device_agents.payload.sync_pattern import Pattern, pack_lateness, unpack_lateness
from device_agents.protocol import EpochMarker, Phase
from device_agents.session.agent_session import Ping
from harness.clock import BurstRun, GpioEdge, align, burst_runs, fit_pings
from harness.clock.line import fit_line
from harness.clock.offsets import fit_edges
from harness.clock.pattern import response
from harness.evidence.clock_fit import ClockFit
from joulefleet.errors import DataQualityError
from tests.harness.clock_trials import Setting, draw


def exchanges(
    offset_ns: int, seed: int, n: int = 20, *, start_ns: int = 10**12, skew: float = 0.0
) -> list[Ping]:
    """Pings over a link whose two directions take 0.2 ms plus an exponential delay each."""
    rng = np.random.default_rng(seed)
    pings = []
    for i in range(n):
        sent = start_ns + i * 10**7
        there, back = (200_000 + rng.exponential(1e6, 2)).astype(int)
        drift = round((sent - 10**12) * skew)
        pings.append(Ping(sent, int(sent + there - offset_ns - drift), int(sent + there + back)))
    return pings


@settings(max_examples=50, deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(0, 2**31))
def test_the_offset_lies_within_half_the_best_round_trip(offset_ns: int, seed: int) -> None:
    pings = exchanges(offset_ns, seed)
    fit = fit_pings(pings)
    best = min(p.round_trip_ns for p in pings)
    at_ns = pings[0].t_dev_ns
    assert abs(fit.to_host_ns(at_ns) - (at_ns + offset_ns)) <= best
    assert best * 0.99e-9 / 12**0.5 <= fit.sync_uncertainty_s <= best * 2e-9 / 12**0.5
    assert fit.method == "ping"


@pytest.mark.parametrize("skew_ppm", [-100.0, 0.0, 100.0])
def test_exchanges_before_and_after_give_the_skew(skew_ppm: float) -> None:
    """Ten minutes at 100 ppm are 60 ms: one offset for all would be wrong, and is not mistaken for a step."""
    skew = skew_ppm * 1e-6
    pings = exchanges(5, 1, skew=skew) + exchanges(5, 2, start_ns=10**12 + 600 * 10**9, skew=skew)
    fit = fit_pings(pings)
    assert fit.skew_ppm == pytest.approx(skew_ppm, abs=3)
    middle_ns = (pings[0].t_dev_ns + pings[-1].t_dev_ns) // 2
    true_ns = middle_ns + 5 + 300 * 10**9 * skew
    assert abs(fit.to_host_ns(middle_ns) - true_ns) < 3e9 * fit.sync_uncertainty_s


def test_exchanges_at_one_time_do_not_invent_a_skew() -> None:
    pings = exchanges(0, 3)
    fit = fit_pings(pings)
    assert abs(fit.skew_ppm) < 5  # 0.3 ms over 0.2 s, or 1500 ppm, weighs next to nothing beside the prior
    in_an_hour = fit_pings(pings, also_ns=[pings[0].t_dev_ns + 3600 * 10**9])
    assert in_an_hour.sync_uncertainty_s == pytest.approx(3600 * 58e-6, rel=0.1)  # uniform within 100 ppm


def test_the_residual_of_exchanges_is_how_far_they_lie_off_the_line() -> None:
    """Two short exchanges in the middle of their round trips, eight longer ones 0.1 ms beside it."""
    beside_ns = [0, 100_000, -100_000, 100_000, -100_000] * 2
    pings = []
    for i, off_ns in enumerate(beside_ns):
        sent_ns, trip_ns = 10**12 + i * 10**10, 1_000_000 if off_ns else 200_000
        pings.append(Ping(sent_ns, sent_ns + trip_ns // 2 - 7_000_000 + off_ns, sent_ns + trip_ns))
    fit = fit_pings(pings)
    assert fit.residual_s == pytest.approx(0.8 * 1e-4, rel=1e-3)
    assert fit.offset_ns == pytest.approx(7_000_000, abs=100)


def test_a_short_span_falls_back_to_what_is_known_of_quartz() -> None:
    """Two offsets 1 s apart, each known to 0.1 ms, 200 ppm: 5e7 of information beside 3e8 of the prior's."""
    at_ns, offsets_ns = [10**12, 10**12 + 10**9], [7e8, 7e8 + 200e3]
    line = fit_line(at_ns, offsets_ns, np.eye(2) * 1e-8)
    assert line.skew_ppm == pytest.approx(200 * 5e7 / 3.5e8, rel=1e-6)
    assert line.offset_at(10**12 + 5 * 10**8) == pytest.approx(7e8 + 100e3, abs=2)
    assert line.covariance == pytest.approx(np.diag([0.5e-8, 1 / 3.5e8]), rel=1e-6, abs=1e-20)
    assert line.standard_s(10**12 + 10**9) == pytest.approx(math.sqrt(0.5e-8 + 0.25 / 3.5e8), rel=1e-6)
    known = fit_line(at_ns, offsets_ns, np.eye(2) * 1e-8, skew=(40.0, 10.0))
    assert known.skew_ppm == pytest.approx((200 * 5e7 + 40 * 1e10) / (1e10 + 5e7), rel=1e-6)


def test_no_draw_of_a_short_exchange_tells_a_skew() -> None:
    """The prior alone would give 0; noise of 1 ms over 0.2 s would give thousands."""
    found = [fit_pings(exchanges(0, seed)).skew_ppm for seed in range(40)]
    assert max(map(abs, found)) < 10
    fits = [fit_pings(exchanges(5, seed, skew=80e-6)) for seed in range(10)]
    assert all(abs(fit.skew_ppm) < 10 for fit in fits)


def test_a_stepped_clock_is_noticed() -> None:
    pings = exchanges(0, 1)
    stepped = [Ping(p.sent_ns, p.t_dev_ns + 50_000_000, p.received_ns) for p in pings[10:]]
    with pytest.raises(DataQualityError, match="clock moved"):
        fit_pings(pings[:10] + stepped)


def test_no_exchange_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="no clock exchange"):
        fit_pings([])
    trial = draw(Setting(), np.random.default_rng(0), tmp_path / "recording")
    with pytest.raises(DataQualityError, match="no clock exchange"):
        align(trial.recording, [], trial.bursts)


def test_fits_of_all_methods_are_stored_and_read_back() -> None:
    for method in ("gpio", "pattern", "ping"):
        fit = ClockFit(
            offset_ns=-5,
            skew_ppm=12.5,
            reference_ns=7,
            tau_s=0.01,
            residual_s=1e-4,
            sync_uncertainty_s=2e-4,
            method=method,
        )
        assert ClockFit.model_validate_json(fit.model_dump_json()) == fit
    assert fit.to_host_ns(7 + 10**9) == 7 + 10**9 - 5 + 12_500


# The wire.


def wired(offset_ns: int, skew: float, *, period_ns: int = 200_000) -> list[GpioEdge]:
    """Edges over 100 s, each seen at the first sample after it."""
    times = [10**12 + i * 10**10 for i in range(11)]
    return [
        GpioEdge(t, -(-(t + offset_ns + round((t - 10**12) * skew)) // period_ns) * period_ns) for t in times
    ]


def test_edges_on_a_wire_are_as_good_as_a_sample() -> None:
    fit = fit_edges(wired(123_456_789, 40e-6), period_s=2e-4)
    assert fit.method == "gpio"
    assert fit.skew_ppm == pytest.approx(40, abs=2)
    assert abs(fit.to_host_ns(10**12) - (10**12 + 123_456_789)) < 2e5
    assert 2e-4 / 12**0.5 <= fit.sync_uncertainty_s < 1e-4


def test_one_edge_is_enough_but_knows_no_skew() -> None:
    fit = fit_edges(wired(5, 0.0)[:1], period_s=2e-4)
    assert fit.skew_ppm == 0.0
    assert fit.sync_uncertainty_s > 2e-4 / 12**0.5


def test_edges_that_do_not_belong_together_are_refused() -> None:
    edges = wired(0, 0.0)
    edges[4] = GpioEdge(edges[4].t_dev_ns, edges[4].t_meter_ns + 5_000_000)
    with pytest.raises(DataQualityError, match="do not belong together"):
        fit_edges(edges, period_s=2e-4)


def test_a_wire_comes_first_unless_it_contradicts_the_exchanges(tmp_path: Path) -> None:
    trial = draw(Setting(journalled=True), np.random.default_rng(2), tmp_path / "recording")
    times = [run.start_ns for run in trial.bursts]
    edges = [GpioEdge(t, trial.host_ns(t)) for t in times]
    found = align(trial.recording, trial.pings, trial.bursts, edges=edges)
    assert found.fit.method == "gpio"
    assert np.abs(trial.errors_s(found.fit.to_host_ns)).max() < 2e-4
    astray = [GpioEdge(e.t_dev_ns, e.t_meter_ns + 10**9) for e in edges]
    found = align(trial.recording, trial.pings, trial.bursts, edges=astray)
    assert found.fit.method == "pattern"
    assert [f.code for f in found.findings] == ["clock_gpio_refused"]
    crossed = [edges[0], GpioEdge(edges[1].t_dev_ns, edges[1].t_meter_ns + 10**8)]
    found = align(trial.recording, trial.pings, (), edges=crossed)
    assert found.fit.method == "ping"
    assert "do not belong together" in found.findings[0].message


# The pattern.


def marker(seq: int, edge: str, t_dev_ns: int, **extra: object) -> EpochMarker:
    return EpochMarker.model_validate(
        {"kind": Phase.SYNC, "edge": edge, "t_dev_ns": t_dev_ns, "seq": seq, "extra": extra}
    )


PARAMETERS = {"order": 3, "bit_ns": 10**7, "cores": 1}


def test_patterns_come_from_their_markers() -> None:
    late_ns = [1000 * k for k in range(4)]
    markers = [
        marker(0, "start", 100, when="before", **PARAMETERS),
        marker(1, "end", 200, when="before", **pack_lateness(late_ns)),
        EpochMarker(kind=Phase.EPOCH, edge="start", epoch=1, t_dev_ns=300, seq=2),
        EpochMarker(kind=Phase.EPOCH, edge="end", epoch=1, t_dev_ns=400, seq=3),
        marker(4, "start", 500, when="after", **PARAMETERS),
    ]
    before = BurstRun(100, Pattern(3, 10**7, 1), "before", tuple(late_ns))
    assert burst_runs(markers) == (before,)  # the last one was never played to its end
    assert burst_runs([*markers, marker(5, "end", 600)])[1].late_ns == ()


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ({}, {}, "not the parameters"),
        ({**PARAMETERS, "order": 99}, {}, "not the parameters"),
        ({**PARAMETERS, "bit_ns": None}, {}, "not the parameters"),
        (PARAMETERS, {"late_us_0": "no base64!"}, "not the parameters"),
        (PARAMETERS, pack_lateness([1, 2, 3]), "3 edges of a pattern that has 4"),
    ],
)
def test_a_marker_that_makes_no_sense_is_refused(start: dict, end: dict, message: str) -> None:
    with pytest.raises(DataQualityError, match=message):
        burst_runs([marker(0, "start", 1, **start), marker(1, "end", 2, **end)])


@pytest.mark.parametrize("n", [0, 4, 32, 512])
def test_lateness_fits_into_a_marker(n: int) -> None:
    late_ns = [(k * 7919 * 1000) % (2**24 * 1000) for k in range(n)]
    packed = pack_lateness(late_ns)
    assert unpack_lateness(marker(0, "end", 1, when="after", **packed).extra) == late_ns
    assert unpack_lateness(marker(0, "end", 1, **pack_lateness([-5, 10**12])).extra) == [
        0,
        (2**24 - 1) * 1000,
    ]


@pytest.mark.parametrize("tau_s", [0.001, 0.01, 0.05])
def test_the_template_is_the_load_behind_a_regulator(tau_s: float) -> None:
    """Against a filter in small steps."""
    run = BurstRun(0, Pattern(order=4), late_ns=tuple(range(0, 8_000_000, 1_000_000)))
    step_s = 1e-5
    t_s = np.arange(0, run.duration_s, step_s)
    edge_s, change = run.edges()
    load = np.cumsum(change)[np.searchsorted(edge_s, t_s, side="right") - 1]
    keep = np.exp(-step_s / tau_s)
    lagged = lfilter([1 - keep], [1, -keep], load)
    width = 200  # 2 ms
    middle_s = (np.arange(len(t_s) // width) + 0.5) * width * step_s
    expected = lagged[: len(middle_s) * width].reshape(-1, width).mean(axis=1)
    assert np.abs(response(run, tau_s, middle_s, width * step_s) - expected).max() < 0.011
    assert response(run, tau_s, np.array([-0.01]), 0.001)[0] == 0.0
