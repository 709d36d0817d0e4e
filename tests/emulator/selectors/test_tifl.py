"""TiFL: tiers, credits, probabilities, and how small tiers are filled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.selectors.tifl import TiFL, adaptive_probabilities, tiers_by_latency
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import LOCAL_EPOCHS, World
from tests.emulator.selectors.test_afl import recorded


def test_tiers_are_those_of_fltk() -> None:
    reference = recorded()["fltk_tifl"]
    tier_of = tiers_by_latency(np.array(reference["latency"]), 5)
    for tier, members in enumerate(reference["tiers"]):
        assert np.flatnonzero(tier_of == tier).tolist() == sorted(members)


def test_credits_and_probabilities_are_those_of_fltk() -> None:
    # fltk changes probabilities at every interval, without the paper's condition. Each step starts from what
    # was recorded before it, since fltk's draws cannot be repeated.
    reference = recorded()["fltk_tifl"]
    world = World(100, 10, 50)
    world.reported["epoch_s"][:] = np.array(reference["latency"]) / LOCAL_EPOCHS
    world.reported["comm_s"][:] = 0.0
    selector = TiFL(interval=reference["interval"], only_when_stalled=False, retier_every=0)
    everyone = np.ones(100, dtype=bool)
    before = np.array(reference["credits0"], dtype=np.int64)
    tier_of = tiers_by_latency(np.array(reference["latency"]), 5)
    for step, accuracy in zip(reference["steps"], reference["accuracy_after_round"], strict=False):
        number = step["round"]
        if number > 1:  # recorded after the round before
            world.reported["local_accuracy"][:] = np.array(accuracy)[tier_of]
            view = world.view(number, everyone, selector.needs)
            selector.observe(view, world.outcome(selector, number - 1, *[np.arange(100)] * 2, []))
            selector.credits = before.copy()
        view = world.view(number, everyone, selector.needs)
        chosen = selector.select(view, view.eligible_ids, 10, np.random.default_rng(number))
        assert selector.probabilities == pytest.approx(step["prob"], abs=1e-5)
        assert (before - selector.credits).tolist() == np.eye(5, dtype=int)[selector.current].tolist()
        assert set(tier_of[chosen].tolist()) == {selector.current}
        before = np.array(step["credits"], dtype=np.int64)


@given(st.integers(5, 40), st.integers(1, 7), st.integers(1, 30), st.integers(0, 999), st.floats(0.2, 1.0))
@settings(max_examples=40, deadline=None)
def test_no_tier_is_drawn_more_often_than_it_has_credits(
    n: int, tiers: int, rounds: int, seed: int, share: float
) -> None:
    world, selector = World(n, 3, rounds, seed), TiFL(tiers=tiers, interval=3)
    world.profile(selector)
    allowed = math.ceil(rounds / tiers)
    there = np.random.default_rng(seed).uniform(size=(rounds, n)) < share
    drawn = np.zeros(tiers, dtype=int)
    for number in range(1, rounds + 1):
        left = selector.credits.copy()
        world.play(selector, number, there[number - 1])
        tier_of = selector.tier_of
        assert tier_of is not None
        here = np.unique(tier_of[there[number - 1]])
        here = here[here >= 0]
        if number == 1:
            left[:] = allowed
        if left[here].any():  # one without credits only where nobody else is there
            assert left[selector.current] > 0
            assert selector.credits[selector.current] == left[selector.current] - 1
        if (
            selector.current >= 0
            and there[number - 1].any()
            and (number == 1 or left.sum() > selector.credits.sum())
        ):
            drawn[selector.current] += 1
        assert (selector.credits >= 0).all()
    assert (drawn <= allowed).all()
    assert (drawn + selector.credits == allowed).all()


def test_with_all_present_every_tier_gets_its_turn_equally_often() -> None:
    world, selector = World(50, 4, 50), TiFL()
    world.profile(selector)
    tiers = []
    for number in range(1, 51):
        world.play(selector, number, np.ones(50, dtype=bool))
        tiers.append(selector.metrics()["tier"])
    assert np.bincount(np.array(tiers, dtype=int)).tolist() == [10] * 5
    assert selector.metrics()["credits_left"] == 0


def test_devices_of_a_round_come_from_one_tier() -> None:
    world, selector = World(50, 4, 50), TiFL(policy="fast")
    world.profile(selector)
    latency_s = world.comm_s + LOCAL_EPOCHS * world.reported["epoch_s"]
    chosen = world.play(selector, 1, np.ones(50, dtype=bool)).chosen
    assert set(chosen) <= set(np.argsort(latency_s)[:10].tolist())


def test_a_small_tier_is_filled_from_its_neighbours_and_the_unprofiled_come_last() -> None:
    world, selector = World(20, 6, 50), TiFL(policy="slow", retier_every=0)
    world.reported["epoch_s"][:] = np.arange(20.0)
    world.reported["epoch_s"][:5] = np.nan
    world.reported["comm_s"][:] = 0.0
    there = np.zeros(20, dtype=bool)
    there[[0, 6, 12, 15, 16, 17, 18]] = True  # tiers of three: 17 is in the slowest, 18 and 19 too
    view = world.view(1, there, selector.needs)
    assert selector._tiers(view)[[0, 5, 16, 17, 19]].tolist() == [-1, 0, 3, 4, 4]
    chosen = selector.select(view, view.eligible_ids, 6, np.random.default_rng(0))
    assert sorted(chosen.tolist()) == [6, 12, 15, 16, 17, 18]


def test_probabilities_follow_need() -> None:
    probabilities = adaptive_probabilities([0.9, 0.2, math.nan, 0.5], np.array([1, 1, 1, 0]))
    assert probabilities == pytest.approx([1 / 6, 2 / 6, 3 / 6, 0.0])


@pytest.mark.parametrize(("rise", "changes"), [(0.1, False), (0.0, True), (-0.1, True)])
def test_probabilities_change_only_when_the_last_tier_stalls(rise: float, changes: bool) -> None:
    world, selector = World(50, 4, 50), TiFL(interval=5)
    world.profile(selector)
    view = world.view(5, np.ones(50, dtype=bool), selector.needs)
    selector.select(
        world.view(1, view.eligible, selector.needs), view.eligible_ids, 4, np.random.default_rng(0)
    )
    selector.accuracies = [[0.5 + i * rise / 5] * 5 for i in range(6)]
    selector.select(view, view.eligible_ids, 4, np.random.default_rng(0))
    assert (selector.probabilities.tolist() != [0.2] * 5) == changes


@pytest.mark.parametrize(
    "options", [{"policy": "lazy"}, {"tiers": 0}, {"policy": "random", "tiers": 3}, {"interval": 0}]
)
def test_wrong_options_are_explained(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        TiFL(**options)
    assert caught.value.hint
