"""Frugal: forecasts that learn, probes only where they pay, coverage with diminishing returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Probe
from emulator.round.view import ServerView
from emulator.selectors.frugal.forecast import CostForecast
from emulator.selectors.frugal.selector import Frugal
from tests.emulator.selectors.driver import CLASSES, World, build
from tests.emulator.worlds import engine, play

HOUR_NS = 3600 * 10**9


def seen_at(world: World, now_ns: int) -> ServerView:
    view = world.view(1, np.ones(world.n, dtype=bool), Frugal.needs)
    return view.changed(now_ns=now_ns)


def taught(
    sd: float, *, devices: int = 300, reports: int = 30, memory_s: float = 7200.0
) -> tuple[CostForecast, World]:
    """Reports of devices that differ for good by 0.3 and from day to day by ``sd``."""
    rng = np.random.default_rng(0)
    world = World(devices, 4, 50)
    forecast = CostForecast(devices, memory_s)
    everybody = np.arange(devices)
    own = rng.normal(0.1, 0.3, devices)
    for number in range(reports):
        epoch_s = world.reported["capability_s"] * np.exp(own + rng.normal(0.0, sd, devices))
        forecast.observe(seen_at(world, number * 24 * HOUR_NS), everybody, epoch_s, 3.0 * epoch_s)
    world.epoch_s = world.reported["capability_s"] * np.exp(own)
    return forecast, world


@pytest.mark.parametrize("sd", [0.02, 0.4])
def test_what_devices_differ_by_is_learnt(sd: float) -> None:
    forecast, world = taught(sd)
    own, today = forecast.spread
    assert today == pytest.approx(sd, rel=0.15)
    assert own == pytest.approx(0.3, rel=0.35)
    mean, expected_sd = forecast.epoch(seen_at(world, 31 * 24 * HOUR_NS), np.arange(300))
    off = mean - np.log(world.epoch_s)
    assert np.abs(off).mean() < 2 * sd / np.sqrt(30) + 0.01
    assert expected_sd.mean() == pytest.approx(sd, rel=0.25)
    np.testing.assert_allclose(forecast.power_w(np.arange(300)), 3.0)


def test_how_a_device_was_an_hour_ago_counts_and_fades() -> None:
    forecast, world = taught(0.4)
    now_ns = 40 * 24 * HOUR_NS
    one = np.array([7])
    usual = forecast.epoch(seen_at(world, now_ns), one)[0]
    forecast.observe(seen_at(world, now_ns), one, np.exp(usual + 1.0), np.exp(usual))
    ahead = [
        float(forecast.epoch(seen_at(world, now_ns + h * HOUR_NS), one)[0][0] - usual[0]) for h in (0, 1, 48)
    ]
    assert ahead[0] == pytest.approx(1.0, abs=0.01)  # measurements are exact
    assert 0.4 < ahead[1] < 0.75  # exp(-1/2) of what is not for good
    assert abs(ahead[2]) < 0.15
    sds = [float(forecast.epoch(seen_at(world, now_ns + h * HOUR_NS), one)[1][0]) for h in (0, 1, 48)]
    assert sds[0] < sds[1] < sds[2]


def test_errors_that_were_met_are_expected_again() -> None:
    """Apps in use make heavy tails: one normal error in 100 would not be five standard deviations."""
    forecast, world = taught(0.1)
    view = seen_at(world, 40 * 24 * HOUR_NS)
    calm = forecast.draw(np.random.default_rng(1), np.zeros(1), np.full(1, 0.1), 5000)
    assert calm.max() < np.exp(0.5)
    mean, sd = forecast.epoch(view, np.arange(3))
    forecast.observe(view, np.arange(3), np.exp(mean + 10 * sd), np.ones(3))
    loud = forecast.draw(np.random.default_rng(1), np.zeros(1), np.full(1, 0.1), 5000)
    assert 0.005 < (loud > np.exp(0.9)).mean() < 0.02  # 3 of 256


def extra(selector: Frugal, world: World, number: int = 60) -> int:
    view = world.view(number, np.ones(world.n, dtype=bool), selector.needs).changed(
        now_ns=number * 24 * HOUR_NS, round=number, rounds=100
    )
    return len(selector.candidates(view, 3 * world.k, np.random.default_rng(number))) - world.k


def with_forecast(sd: float) -> tuple[Frugal, World]:
    selector = build("frugal", spare=1.0)
    assert isinstance(selector, Frugal)
    selector._forecast, world = taught(sd)
    world.data_size[:] = 20
    return selector, world


def test_probes_only_where_they_could_change_the_choice() -> None:
    calm, world = with_forecast(0.01)
    assert [extra(calm, world, n) for n in range(60, 65)] == [0] * 5
    wild, world = with_forecast(1.0)
    assert min(extra(wild, world, n) for n in range(60, 65)) > 0


def test_without_probes_nobody_waits_for_one() -> None:
    """The engine leaves a probe out that decides nothing; a method that always probes does not change."""

    class Idle(Frugal):
        def _worth_probing(self, *_: Any) -> int:
            return 0

    def rounds(selector: Frugal) -> list[RoundOutcome]:
        return play(engine(selector, k=3, candidates=6))

    for outcome in rounds(Idle()):
        assert outcome.cost.probe_s.sum() == outcome.cost.wait_s.sum() == 0
        assert outcome.chosen.all()
        assert np.isfinite(outcome.reports.epoch_s).all()
    always = rounds(build("frugal_probe_all"))  # type: ignore[arg-type]
    assert all(len(outcome.clients) == 6 and (outcome.cost.probe_s > 0).all() for outcome in always)
    assert Frugal.probe is Probe.EPOCH


@pytest.mark.parametrize("coverage", ["balance", "submodular"])
def test_a_class_more_is_worth_more_than_a_device_more_of_one(coverage: str) -> None:
    world = World(40, CLASSES, 50, failures=0.0)
    world.data_size[:] = 20
    one_hot = np.eye(CLASSES)[np.arange(40) % CLASSES]
    world.reported["bias_delta"][:] = one_hot - 1 / CLASSES
    world.reported["capability_s"][:] = 1.0
    selector = build("frugal_no_probe", spare=0.5, coverage=coverage)
    for seed in range(5):
        view = world.view(2, np.ones(40, dtype=bool), selector.needs)
        grown = selector.candidates(view, 12, np.random.default_rng(seed))
        counts = np.bincount(grown % CLASSES, minlength=CLASSES)
        assert len(grown) == 6
        assert sorted(counts.tolist()) == [1, 1, 2, 2]


def test_the_dearest_are_let_go() -> None:
    world = World(20, 4, 50, failures=0.0)
    world.data_size[:] = 20
    world.reported["capability_s"][:] = 1.0
    world.reported["comm_s"][:] = world.reported["comm_j"][:] = 0.1
    world.reported["capability_s"][:15] = np.linspace(2.0, 50.0, 15)
    selector = build("frugal_no_probe", spare=1.0, coverage="none", cheap_share=1.0)
    view = world.view(2, np.ones(20, dtype=bool), selector.needs)
    considered = selector.candidates(view, 12, np.random.default_rng(0))
    chosen = selector.select(view, considered, 4, np.random.default_rng(0))
    assert len(considered) == 8
    cheapest_first = sorted(considered.tolist(), key=lambda d: world.reported["capability_s"][d])
    slowest_s = world.reported["capability_s"][chosen].max()
    assert slowest_s <= world.reported["capability_s"][cheapest_first[4]]
