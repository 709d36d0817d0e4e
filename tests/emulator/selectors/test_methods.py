"""The small methods, one property each that nothing but the method has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from emulator.round.selector import Probe
from emulator.selectors.autofl import AutoFl
from emulator.selectors.fed_cbs import FedCbs, FedCbsExact, qcid
from emulator.selectors.fedprox import FedProx
from emulator.selectors.harmony_like import HarmonyLike, divergence, over_budget
from emulator.selectors.oracles import ClassCoverageOracle
from emulator.selectors.power_of_choice import PowerOfChoice, RememberedPowerOfChoice
from emulator.selectors.refl import Refl
from emulator.selectors.registry import shown_name
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import CLASSES, LOCAL_EPOCHS, World, build

EVERYONE = np.ones(40, dtype=bool)


def choose(name: str, world: World, seed: int = 0, number: int = 2, **options: Any) -> list[int]:
    selector = build(name, **options)
    view = world.view(number, np.ones(world.n, dtype=bool), selector.needs)
    rng = np.random.default_rng(seed)
    return [int(i) for i in selector.select(view, view.eligible_ids, world.k, rng)]


def test_fedprox_passes_its_weight_on_and_trains_everything() -> None:
    selector = FedProx(mu=0.1)
    assert selector.proximal_mu == 0.1
    view = World(40, 5, 10).view(1, EVERYONE, selector.needs)
    assert selector.epochs(view, np.arange(5)).tolist() == [LOCAL_EPOCHS] * 5
    assert FedProx().proximal_mu == 0.01


def test_partial_work_fits_the_budget() -> None:
    world, selector = World(4, 4, 10), FedProx(work="partial")
    world.reported["comm_s"][:] = 2.0
    world.reported["epoch_s"][:] = [3.0, 6.0, 100.0, np.nan]
    world.reported["capability_s"][:] = 4.0  # of a budget of 20 s, 18 s are left
    view = world.view(1, np.ones(4, dtype=bool), selector.needs)
    assert selector.epochs(view, np.arange(4)).tolist() == [5, 3, 1, 4]


def test_partial_work_of_a_device_that_nothing_is_known_of() -> None:
    world, selector = World(2, 2, 10), FedProx(work="partial")
    world.reported["comm_s"][:] = [np.nan, np.inf]
    view = world.view(1, np.ones(2, dtype=bool), selector.needs)
    assert selector.epochs(view, np.arange(2)).tolist() == [LOCAL_EPOCHS, 1]


def test_bigger_devices_are_likelier_and_empty_ones_come_last() -> None:
    world = World(40, 4, 10)
    world.data_size[:] = np.where(np.arange(40) < 10, 90, np.where(np.arange(40) < 30, 10, 0))
    counts = Counter(d for seed in range(300) for d in choose("random_by_size", world, seed))
    assert not any(d >= 30 for d in counts)
    big, small = (np.mean([counts[d] for d in ids]) for ids in (range(10), range(10, 30)))
    assert 5 < big / small < 9.5  # 9 for the first draw, less for the later ones


def test_power_of_choice_takes_the_highest_losses_of_its_candidates() -> None:
    world, selector = World(40, 4, 10, failures=0.0), PowerOfChoice(d=9)
    decided = world.play(selector, 1, EVERYONE)
    assert len(decided.candidates) == 9
    losses = world.reported["global_loss"]
    assert min(losses[decided.chosen]) >= max(losses[list(set(decided.candidates) - set(decided.chosen))])
    assert len(world.play(PowerOfChoice(), 2, EVERYONE).candidates) == 12  # the scenario's 3 K
    assert len(world.play(PowerOfChoice(d=1), 2, EVERYONE).candidates) == 4  # never fewer than K


def test_rpow_d_asks_nobody_and_tries_everyone_first() -> None:
    world, selector = World(40, 4, 10, failures=0.0), RememberedPowerOfChoice(d=40)
    assert selector.probe is Probe.NONE
    seen = [d for number in range(1, 11) for d in world.play(selector, number, EVERYONE).chosen]
    assert sorted(seen) == list(range(40))


def test_rpow_d_tries_new_devices_in_no_order() -> None:
    world = World(40, 4, 10)
    counts = Counter(d for seed in range(100) for d in choose("rpow_d", world, seed))
    assert len(counts) == 40
    world.reported["loss"][:] = 1.0
    world.reported["loss"][[3, 9]] = [2.0, np.nan]
    assert all(choose("rpow_d", world, seed)[:2] == [9, 3] for seed in range(10))


def test_the_oracles_see_the_truth() -> None:
    world = World(40, 5, 10)
    fastest, cheapest = choose("speed_oracle", world), choose("energy_oracle", world)
    seconds = world.reported["true_comm_s"] + LOCAL_EPOCHS * world.reported["true_epoch_s"]
    joules = world.reported["true_comm_j"] + LOCAL_EPOCHS * world.reported["true_epoch_j"]
    assert fastest == np.argsort(seconds)[:5].tolist()
    assert cheapest == np.argsort(joules)[:5].tolist()


def one_class_each(n: int, k: int) -> World:
    world = World(n, k, 50)
    world.data_size[:] = 50
    world.reported["label_histogram"][:] = np.eye(CLASSES)[np.arange(n) % CLASSES]
    world.reported["bias_delta"][:] = world.reported["label_histogram"] - 1 / CLASSES
    return world


@pytest.mark.parametrize("name", ["class_coverage_oracle", "fed_cbs_exact", "fed_cbs", "harmony_like"])
def test_label_aware_methods_cover_every_class(name: str) -> None:
    world = one_class_each(40, CLASSES)
    world.reported["times_chosen"][:] = 1
    for seed in range(10):
        assert sorted(d % CLASSES for d in choose(name, world, seed)) == list(range(CLASSES))
    cohorts = {tuple(sorted(choose(name, world, seed))) for seed in range(10)}
    assert len(cohorts) > 5  # and not always with the same devices


LABEL_AWARE = ("class_coverage_oracle", "fed_cbs_exact", "fed_cbs", "harmony_like")


@pytest.mark.parametrize("name", LABEL_AWARE)
def test_devices_without_data_are_not_taken_for_balanced_ones(name: str) -> None:
    world = one_class_each(40, CLASSES)
    world.data_size[20:] = 0
    world.reported["label_histogram"][20:] = np.nan
    world.reported["bias_delta"][20:] = 0.0  # they sent the model back as it was
    for seed in range(10):
        assert max(choose(name, world, seed)) < 20
    world.data_size[3:] = 0  # too few to fill a cohort: all of them, and some others
    assert {0, 1, 2} < set(choose(name, world))
    assert len(choose(name, world)) == CLASSES


@pytest.mark.parametrize("name", ["fed_cbs_exact", "fed_cbs", "harmony_like", "rpow_d"])
def test_whoever_never_delivers_is_asked_less_and_less_but_not_never(name: str) -> None:
    world = one_class_each(40, CLASSES)
    world.reported["loss"][:] = 1.0
    for field in ("bias_delta", "loss"):
        world.reported[field][:10] = np.nan  # nothing is known of them
    asked = {}
    for failures in (0, 1, 6):
        world.reported["failures"][:10] = failures
        asked[failures] = sum(d < 10 for seed in range(100) for d in choose(name, world, seed))
    assert asked[6] < 0.15 * asked[0]
    assert asked[6] < asked[1] < asked[0]
    assert asked[6] > 0


def test_fedrank_plus_probes_less_often_whoever_fails() -> None:
    world = one_class_each(40, 4)
    world.reported["bias_delta"][:10] = np.nan
    selector = build("fedrank_plus")
    everyone = np.ones(40, dtype=bool)

    def asked() -> int:
        found = 0
        for seed in range(50):
            view = world.view(2, everyone, selector.needs)
            found += int((selector.candidates(view, 12, np.random.default_rng(seed)) < 10).sum())
        return found

    before = asked()
    world.reported["failures"][:10] = 4
    assert asked() < 0.2 * before
    view = world.view(2, np.arange(40) < 12, selector.needs)  # hardly anybody else is there
    assert len(selector.candidates(view, 12, np.random.default_rng(0))) == 6


def test_no_probe_considers_whom_fedrank_plus_would_probe_and_asks_nobody() -> None:
    world = one_class_each(40, 4)
    plus, control = build("fedrank_plus"), build("no_probe")
    assert control.probe is Probe.NONE
    everyone = np.ones(40, dtype=bool)
    for seed in range(5):
        considered = [
            one.candidates(world.view(2, everyone, one.needs), 12, np.random.default_rng(seed))
            for one in (plus, control)
        ]
        np.testing.assert_array_equal(*considered)
        view = world.view(2, everyone, control.needs)
        chosen = control.select(view, considered[1], 4, np.random.default_rng(seed))
        assert len({d % CLASSES for d in chosen}) == CLASSES  # one of each class


def test_the_coverage_oracle_goes_on_with_classes_that_somebody_still_has() -> None:
    world = one_class_each(30, 6)
    world.data_size[:] = 0
    world.data_size[0], world.data_size[1:11] = 1, 100
    world.reported["label_histogram"][1:11] = np.eye(CLASSES)[1]
    for seed in range(10):
        assert max(choose("class_coverage_oracle", world, seed)) <= 10


def test_the_coverage_oracle_prefers_no_class() -> None:
    world = one_class_each(40, 2)  # fewer devices than classes
    counts = Counter(d % CLASSES for seed in range(200) for d in choose("class_coverage_oracle", world, seed))
    assert min(counts[c] for c in range(CLASSES)) > 60  # of 100 on average


def test_the_coverage_oracle_ignores_classes_that_nobody_has() -> None:
    world = one_class_each(40, 3)
    world.reported["label_histogram"][:, 3] = 0.0
    assert {d % CLASSES for d in choose("class_coverage_oracle", world)} == {0, 1, 2}
    assert ClassCoverageOracle.privileged


def test_qcid_is_zero_for_balance() -> None:
    samples = np.array([[5.0, 5.0], [10.0, 0.0], [0.0, 0.0]])
    assert qcid(samples) == pytest.approx([0.0, 0.5, 0.5])
    assert FedCbsExact.privileged
    assert not FedCbs.privileged


def test_fed_cbs_draws_its_first_device_by_balance_and_novelty() -> None:
    world = one_class_each(40, 1)
    world.reported["label_histogram"][0] = 1 / CLASSES  # balanced on its own
    assert {choose("fed_cbs_exact", world, seed, exploration=0.0)[0] for seed in range(20)} == {0}
    world.reported["label_histogram"][0] = world.reported["label_histogram"][4]
    world.reported["times_chosen"][:] = 1e12
    world.reported["times_chosen"][7] = 0
    first = Counter(choose("fed_cbs_exact", world, s, number=50, exploration=1e9)[0] for s in range(50))
    assert first.most_common(1)[0][0] == 7


def test_harmony_like_respects_budgets() -> None:
    world = one_class_each(40, 4)
    world.reported["comm_s"][:] = 0.0
    world.reported["epoch_s"][:] = np.where(np.arange(40) < 12, 1.0, 1000.0)
    world.reported["epoch_j"][:] = np.where(np.arange(40) < 8, 1.0, 1000.0)
    assert set(choose("harmony_like", world)) <= set(range(8))
    assert set(choose("harmony_like", world, energy_weight=0.0)) <= set(range(12))
    assert "surrogate" in HarmonyLike.paper
    assert "surrogate" in HarmonyLike.deviations


def test_harmony_likes_terms() -> None:
    assert divergence(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), 2) == pytest.approx([0.0, np.log(2)])
    assert over_budget(np.array([1.0, 3.0, np.nan]), 2.0).tolist() == [0.0, 0.5, 0.0]
    assert over_budget(np.array([1.0, 3.0]), np.nan).tolist() == [0.0, 0.0]
    assert np.isfinite(1e9 * over_budget(np.array([np.inf, 1e300]), 2.0)).all()


def test_refl_takes_rare_guests_first() -> None:
    world, selector = World(40, 5, 10), Refl()
    world.reported["check_ins"][:] = np.where(np.arange(40) < 3, 0.1, 0.9)
    chosen = [choose("refl", world, seed) for seed in range(5)]
    assert all(set(c[:3]) == {0, 1, 2} for c in chosen)
    assert len({tuple(sorted(c)) for c in chosen}) > 1
    assert selector.needs == {"check_ins"}


def test_refl_oracle_takes_who_leaves_in_the_next_window() -> None:
    """The published priority: there for the whole of [t, t + W], not for the whole of [t + W, t + 2 W]."""
    world = World(40, 5, 10)
    window_s = 750.0  # 0.75 of the first 1,000 s
    world.reported["leaves_s"][:] = np.inf
    edges = [window_s - 1, window_s, 1.5 * window_s, 2 * window_s - 1, 2 * window_s]
    world.reported["leaves_s"][:5] = edges
    chosen = [choose("refl_oracle", world, seed) for seed in range(5)]
    assert all(set(c[:3]) == {1, 2, 3} for c in chosen)
    assert len({tuple(c[3:]) for c in chosen}) > 1
    world.reported["last_round"][2] = 1  # number 2 took part in the round before, and rests
    assert set(choose("refl_oracle", world)[:2]) == {1, 3}
    assert set(choose("refl_oracle", world, rest_rounds=1)[:3]) == {1, 2, 3}
    assert set(choose("refl_oracle", world, number=6)[:3]) == {1, 2, 3}


def test_refl_oracles_window_follows_the_rounds() -> None:
    world, selector = World(40, 5, 10, failures=0.0), build("refl_oracle")
    assert selector.metrics() == {"window_s": 750.0}
    chosen = world.play(selector, 1, EVERYONE).chosen
    lasted_s = float(LOCAL_EPOCHS * world.epoch_s[chosen].max())
    assert selector.metrics()["window_s"] == pytest.approx(0.75 * lasted_s + 0.25 * 750.0)


def test_autofl_learns_which_state_pays() -> None:
    world, selector = World(40, 5, 50, failures=0.0), AutoFl(epsilon=0.0, levels=2)
    for number in range(1, 6):
        world.play(selector, number, EVERYONE)
    moved = np.flatnonzero(selector.table)
    assert len(moved)
    selector.table[:] = 0.0
    view = world.view(6, EVERYONE, selector.needs)
    states = selector.states(view)
    assert states.min() >= 0
    assert states.max() < 2**4
    selector.table[states[7]] = 5.0
    chosen = selector.select(view, view.eligible_ids, 5, np.random.default_rng(0))
    same = np.flatnonzero(states == states[7])
    assert len(set(chosen.tolist()) & set(same.tolist())) == min(5, len(same))


def test_autofl_moves_an_entry_by_the_bellman_equation() -> None:
    world, selector = World(1, 1, 50, failures=0.0), AutoFl(learning_rate=0.5, discount=0.5, levels=1)
    selector.table[:] = 8.0
    everyone = np.ones(1, dtype=bool)
    world.play(selector, 1, everyone)
    outcome = world.outcome(selector, 1, np.array([0]), np.array([0]), [])
    accuracy, gain = 100 * outcome.accuracy, 100 * outcome.accuracy_gain
    reward = accuracy + gain - 2.0 if gain > 0 else accuracy - 100
    assert selector.table == pytest.approx([8.0 + 0.5 * (reward + 0.5 * 8.0 - 8.0)])


def test_autofl_tells_slow_downs_apart_beside_devices_without_data() -> None:
    world = World(40, 5, 50)
    world.reported["epoch_s"][:] = world.reported["capability_s"] * np.linspace(1, 3, 40)
    world.reported["epoch_s"][0] = world.reported["capability_s"][0] = 0.0
    selector = AutoFl(levels=2)
    slowdown = selector.states(world.view(2, EVERYONE, AutoFl.needs)) // 4 % 2
    assert slowdown.tolist() == [0] * 20 + [1] * 20


def test_autofl_is_blind_to_units() -> None:
    world = World(40, 5, 50)
    world.reported["epoch_s"][:] = world.epoch_s
    view = world.view(2, EVERYONE, AutoFl.needs)
    states = AutoFl().states(view)
    for name in ("epoch_s", "capability_s", "comm_s"):
        world.reported[name] *= 1000.0
    assert (AutoFl().states(world.view(2, EVERYONE, AutoFl.needs)) == states).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"mu": -1.0}),
        ("fedprox", {"work": "some"}),
        ("power_of_choice", {"d": -1}),
        ("power_of_choice", {"d": "many"}),
        ("fed_cbs", {"exploration": float("nan")}),
        ("harmony_like", {"time_weight": -1.0}),
        ("autofl", {"epsilon": 2.0}),
        ("fedrank", {"rank_target": "litteral"}),
        ("fedrank", {"pairs": "some"}),
        ("fedrank", {"sync_every": 0}),
        ("fedrank", {"cache": 0}),
        ("fedrank", {"explore_first": 2.0}),
        ("fedmarl", {"explore_last": -0.1}),
        ("fedmarl", {"batch": 0}),
        ("fedmarl", {"weights": (1.0, 0.2)}),
        ("favor", {"sync_every": 0}),
        ("favor", {"batch": 0}),
        ("favor", {"cache": 0}),
    ],
)
def test_wrong_options_are_explained(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"'{name}': {next(iter(options))} is"):
        build(name, **options)


def test_oracles_and_surrogates_are_shown_as_such() -> None:
    assert shown_name("speed_oracle") == "speed_oracle (oracle)"
    assert shown_name("harmony_like (labels=none)") == "harmony_like (labels=none) (surrogate)"
    assert shown_name("fedrank") == "fedrank"
    assert shown_name("somebody_elses") == "somebody_elses"
