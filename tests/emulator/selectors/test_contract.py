"""What every registered selector must do, whatever its method: the ones added later are held to it too."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.round.reports import Reported
from emulator.round.selector import Family, Selector
from emulator.round.view import PRIVILEGED_FIELDS, VIEW_FIELDS
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.selectors.registry import SELECTORS
from tests.conftest import FULL_COUNTS
from tests.emulator.selectors.driver import Decided, World, build, registered

EVERY = pytest.mark.parametrize("name", registered())
MODES = [("oort", {"mode": "official"}), ("oort", {"mode": "fedscale"}), ("fedprox", {"work": "partial"})]
MODES += [("tifl", {"policy": policy}) for policy in ("uniform", "random", "fast", "slow")]
MODES += [("afl", {"initial": "minus_infinity"}), ("eafl", {"mode": "official"})]
LEARNING = [
    ("fedmarl", {"policy": "", "online": True, "explore_rounds": 4}),
    ("fedmarl", {"policy": "", "online": True, "explore_rounds": 4, "mode": "native"}),
    ("fedrank", {"rank_target": "literal", "pairs": "all", "cache": 3}),
    ("favor", {"explore_rounds": 3, "cache": 3, "batch": 8, "sync_every": 2}),
]
examples = settings(
    max_examples=200 if FULL_COUNTS else 12, deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def availability(draw: st.DrawFn) -> tuple[int, int, int, np.ndarray]:
    """Number of devices, K, a seed, and who is there in each of a few rounds."""
    n = draw(st.integers(1, 25))
    k = draw(st.integers(1, 8))
    rows = st.lists(st.booleans(), min_size=n, max_size=n)
    kinds = st.one_of(rows, st.just([True] * n), st.just([False] * n))
    masks = draw(st.lists(kinds, min_size=1, max_size=6))
    return n, k, draw(st.integers(0, 1000)), np.array(masks, dtype=bool)


def played(selector: Selector, world: World, masks: np.ndarray) -> list[Decided]:
    world.profile(selector)
    return [world.play(selector, number, mask) for number, mask in enumerate(masks, start=1)]


def check_choices(selector: Selector, scenario: tuple[int, int, int, np.ndarray]) -> None:
    n, k, seed, masks = scenario
    for decided, mask in zip(played(selector, World(n, k, 50, seed), masks), masks, strict=True):
        chosen = decided.chosen
        assert len(set(chosen)) == len(chosen) == min(k, len(decided.candidates))
        assert set(chosen) <= set(decided.candidates) <= set(np.flatnonzero(mask))
        assert all(1 <= epochs <= 5 for epochs in decided.epochs)


@pytest.mark.campaign
@EVERY
@given(availability())
@examples
def test_k_unique_eligible_devices_or_all_there_are(
    name: str, scenario: tuple[int, int, int, np.ndarray]
) -> None:
    check_choices(build(name), scenario)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "options"), MODES)
@given(scenario=availability())
@examples
def test_k_unique_eligible_devices_in_other_modes(
    name: str, options: dict[str, Any], scenario: tuple[int, int, int, np.ndarray]
) -> None:
    check_choices(build(name, **options), scenario)


@EVERY
def test_nobody_there_nobody_chosen_and_few_there_all_chosen(name: str) -> None:
    masks = np.zeros((4, 12), dtype=bool)
    masks[1, :3] = masks[3, :] = True
    world = World(12, 5, 50, failures=0.0)
    decisions = played(build(name), world, masks)
    assert [sorted(d.chosen) for d in decisions[:3]] == [[], [0, 1, 2], []]
    assert len(decisions[3].chosen) == 5


def masks_of(rounds: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(rounds, n)) < 0.7


@EVERY
def test_the_same_seed_gives_the_same_choices(name: str) -> None:
    masks = masks_of(8, 20, 1)
    runs = [played(build(name), World(20, 4, 8, seed=3), masks) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != played(build(name), World(20, 4, 8, seed=4), masks)


@EVERY
def test_what_is_not_declared_does_not_matter(name: str) -> None:
    masks = masks_of(10, 20, 2)
    hidden = played(build(name), World(20, 4, 10, hide=True), masks)
    assert hidden == played(build(name), World(20, 4, 10, hide=False), masks)


COSTS = ("capability_s", "comm_s", "comm_j")
ODD = {
    "zero": np.zeros,
    "unknown": lambda n: np.full(n, np.nan),
    "endless": lambda n: np.full(n, np.inf),
    "some endless": lambda n: np.where(np.arange(n) % 3, 1.0, np.inf),
}


@EVERY
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_odd_costs_do_not_spoil_a_choice(name: str, odd: str) -> None:
    """Nor anything learnt from it: the numbers of a network stay numbers."""
    check_odd_costs(build(name), odd)


@pytest.mark.parametrize(("name", "options"), [*MODES, *LEARNING])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_odd_costs_do_not_spoil_a_choice_in_other_modes(name: str, options: dict[str, Any], odd: str) -> None:
    check_odd_costs(build(name, **options), odd)


def check_odd_costs(selector: Selector, odd: str) -> None:
    world = World(12, 4, 6)
    for name in COSTS:
        world.reported[name][:] = ODD[odd](12)
    if odd != "unknown":  # who took part has measured something
        world.epoch_s, world.epoch_j = ODD[odd](12), ODD[odd](12)
    for decided in played(selector, world, masks_of(6, 12, 7)):
        assert len(set(decided.chosen)) == len(decided.chosen)
        assert set(decided.chosen) <= set(decided.candidates)
        assert all(1 <= epochs <= 5 for epochs in decided.epochs)
    network = getattr(selector, "network", None)
    if network is not None:
        assert all(np.isfinite(values).all() for values in network.parameters())


@cache
def uninterrupted(name: str) -> list[Decided]:
    return played(build(name), World(20, 4, 10), masks_of(10, 20, 5))


@EVERY
@pytest.mark.parametrize("stop", [0, 1, 6])
def test_resumed_equals_uninterrupted(name: str, stop: int, tmp_path: Path) -> None:
    masks = masks_of(10, 20, 5)
    first, world = build(name), World(20, 4, 10)
    world.profile(first)
    before = [world.play(first, r, masks[r - 1]) for r in range(1, stop + 1)]
    save_checkpoint(tmp_path, first.state_dict())
    state = load_checkpoint(tmp_path)
    assert state is not None
    second = build(name)
    second.load_state_dict(state)
    after = [world.play(second, r, masks[r - 1]) for r in range(stop + 1, 11)]
    assert before + after == uninterrupted(name)


@pytest.mark.parametrize(("name", "options"), [*MODES, *LEARNING])
def test_resumed_equals_uninterrupted_in_other_modes(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    masks = masks_of(10, 20, 5)
    whole = played(build(name, **options), World(20, 4, 10), masks)
    first, world = build(name, **options), World(20, 4, 10)
    before = played(first, world, masks[:6])
    save_checkpoint(tmp_path, first.state_dict())
    second = build(name, **options)
    second.load_state_dict(load_checkpoint(tmp_path) or {})
    assert before + [world.play(second, r, masks[r - 1]) for r in range(7, 11)] == whole


@EVERY
def test_a_state_is_a_copy(name: str) -> None:
    selector, world = build(name), World(20, 4, 15)
    played(selector, world, masks_of(6, 20, 6))
    state = selector.state_dict()
    frozen = deepcopy(state)
    for r in range(7, 12):
        world.play(selector, r, np.ones(20, dtype=bool))
    np.testing.assert_equal(state, frozen)


@EVERY
def test_the_class_says_what_the_listing_shows(name: str) -> None:
    selector = SELECTORS.load(name)
    assert selector.name == name
    assert selector.family in Family
    assert selector.paper or selector.family is Family.CONTROL
    assert selector.needs <= VIEW_FIELDS
    assert selector.privileged or not selector.needs & PRIVILEGED_FIELDS
    assert selector.__doc__


@EVERY
def test_metrics_keep_their_names(name: str) -> None:
    selector, world = build(name), World(20, 4, 15)
    names = [list(selector.metrics())]
    for r in range(1, 6):
        world.play(selector, r, np.ones(20, dtype=bool))
        names.append(list(selector.metrics()))
        assert all(isinstance(value, float) for value in selector.metrics().values())
    assert names == [names[0]] * 6


NEW = ("no_probe", "fedzero", "energy_budget", "frugal", "refl", "refl_oracle")
MILLION = [(name, {}) for name in NEW]
SLOWER = pytest.param("fedzero", {"excess_w": 50.0, "alpha": 0.0}, marks=pytest.mark.campaign)


@pytest.mark.parametrize(("name", "options"), [*MILLION, SLOWER])
def test_a_million_devices(name: str, options: dict[str, Any]) -> None:
    """Two rounds, without an engine; costs and labels of a few are known by the second."""
    n, k, rng = 10**6, 100, np.random.default_rng(0)
    selector = build(name, **options)
    reported = Reported(rng.integers(1, 100, n), selector.needs, 4)
    everybody = np.arange(n)
    cost = rng.lognormal(0.0, 0.5, n)
    reported.put(everybody, dict.fromkeys(("capability_s", "comm_s", "comm_j", "leaves_s"), cost))
    for number in (1, 2):
        view = reported.view(
            np.ones(n, bool), round=number, rounds=50, now_ns=number * 10**9, k=k, local_epochs=5,
            time_budget_s=20.0, energy_budget_j=4000.0,
        ).restricted(selector.needs)  # fmt: skip
        candidates = selector.candidates(view, 3 * k, rng)
        chosen = selector.select(view, candidates, k, rng)
        assert len(set(chosen.tolist())) == k
        fresh = {"epoch_s": cost[chosen], "epoch_j": 2 * cost[chosen], "loss_rms": cost[chosen]}
        reported.put(chosen, {**fresh, "bias_delta": rng.normal(size=(k, 4))})
        reported.count(number, chosen, chosen)
