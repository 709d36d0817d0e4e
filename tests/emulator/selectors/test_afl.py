"""AFL: valuations, the dropped share, the law of the draw."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.selectors.afl import ActiveFederatedLearning
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import World

DATA = Path(__file__).parents[2] / "data" / "afl_tifl_decisions.json"


@cache
def recorded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(DATA.read_text())
    return data


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0, 200), min_size=1, max_size=40),
    st.floats(0, 1),
    st.integers(1, 20),
    st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_a_dropped_device_is_never_drawn_by_weight(
    values: list[float], alpha1: float, k: int, seed: int
) -> None:
    selector = ActiveFederatedLearning(alpha1=alpha1, alpha3=0.0)
    value = np.array(values)
    drawn = selector.draw_by_value(value, k, np.random.default_rng(seed))
    dropped = np.argsort(value, kind="stable")[: math.floor(alpha1 * len(values) + 1e-9)]
    assert not set(drawn.tolist()) & set(dropped.tolist())
    assert len(set(drawn.tolist())) == len(drawn) == min(k, len(values) - len(dropped))


def test_three_quarters_are_dropped_and_nine_of_ten_drawn_by_weight() -> None:
    selector, rng = ActiveFederatedLearning(), np.random.default_rng(0)
    kept = selector.without_dropped(np.arange(100.0))
    assert np.flatnonzero(kept > -np.inf).tolist() == list(range(75, 100))
    assert len(selector.draw_by_value(np.arange(100.0), 10, rng)) == 9


def test_the_share_that_is_drawn_by_weight_survives_rounding() -> None:
    value, rng = np.arange(100.0), np.random.default_rng(0)
    sizes = [
        len(ActiveFederatedLearning(alpha1=0, alpha3=a / 10).draw_by_value(value, 10, rng)) for a in range(11)
    ]
    assert sizes == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert np.isfinite(ActiveFederatedLearning(alpha1=0.29).without_dropped(value)).sum() == 71


def test_valuations_refresh_only_for_those_who_took_part() -> None:
    world, selector = World(40, 8, 20, failures=0.0), ActiveFederatedLearning()
    everyone = np.ones(40, dtype=bool)
    first = world.play(selector, 1, everyone).chosen
    value = selector.valuation(world.view(2, everyone, selector.needs))
    loss = world.reported["global_loss"]
    assert value[first] == pytest.approx(np.sqrt(world.data_size[first]) * loss[first])
    others = np.setdiff1d(np.arange(40), first)
    assert value[others] == pytest.approx(np.sqrt(world.data_size[others]) * loss[first].mean())
    second = world.play(selector, 2, everyone).chosen
    after = selector.valuation(world.view(3, everyone, selector.needs))
    unchanged = np.setdiff1d(np.arange(40), second)
    assert (after[unchanged] == value[unchanged]).all()


def test_literally_only_the_uniform_part_brings_in_new_devices() -> None:
    world, selector = World(60, 10, 20, failures=0.0), ActiveFederatedLearning(initial="minus_infinity")
    known: set[int] = set(world.play(selector, 1, np.ones(60, dtype=bool)).chosen)
    for number in range(2, 8):
        chosen = world.play(selector, number, np.ones(60, dtype=bool)).chosen
        assert len(set(chosen) - known) <= 1
        known |= set(chosen)


@pytest.mark.parametrize("call", range(10))
def test_weights_are_those_plato_computes_before_it_adds_to_them(call: int) -> None:
    # plato adds 0.01 to every exp(alpha2 v) and normalises; it drops the three quarters that we drop. What it
    # feeds in as a valuation is not the paper's, but that does not matter here.
    step = recorded()["plato_afl"]["calls"][call]
    value = np.array([-math.inf if v is None else v for v in step["valuation_after_reset"]])
    kept = ActiveFederatedLearning().without_dropped(value)
    assert (kept == value).all()
    known = np.isfinite(value)
    prob = np.array(step["prob"])
    weights = 0.01 * prob[known] / prob[~known][0] - 0.01
    assert weights == pytest.approx(np.exp(0.01 * value[known]), rel=1e-6)


def test_inclusion_frequencies_agree_with_euphoria_at_its_own_drop_share() -> None:
    # euphoria drops a quarter; apart from alpha1 its draw is the paper's.
    frozen = recorded()["euphoria_afl"]
    metric, expected, theirs = np.array(frozen["metric"]), np.array(frozen["inclusion_freq"]), frozen["draws"]
    assert frozen["dropped"] == 25
    selector, rng, ours = ActiveFederatedLearning(alpha1=0.25), np.random.default_rng(3), 6000
    world = World(100, 10, 50)
    world.data_size[:] = 1
    world.reported["global_loss"][:] = metric
    view = world.view(1, np.ones(100, dtype=bool), selector.needs)
    counts = np.zeros(100)
    for _ in range(ours):
        counts[selector.select(view, view.eligible_ids, 10, rng)] += 1
    pooled = (counts + expected * theirs) / (ours + theirs)
    error = np.sqrt(pooled * (1 - pooled) * (1 / ours + 1 / theirs))
    assert np.all(np.abs(counts / ours - expected) <= 5 * error)


@pytest.mark.parametrize("options", [{"alpha1": 1.1}, {"alpha2": -1}, {"alpha3": 2}, {"initial": "zero"}])
def test_wrong_options_are_explained(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"'afl': {next(iter(options))} is"):
        ActiveFederatedLearning(**options)
