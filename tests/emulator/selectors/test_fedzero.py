"""FedZero against decisions of the published code, against trying every cohort, and by hand."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from emulator.selectors.fedzero.programme import Clients, best_of, shortest_round
from emulator.selectors.fedzero.selector import FedZero, normalised, release_probability
from tests.emulator.selectors.driver import World, build

DATA = Path(__file__).parents[2] / "data" / "fedzero_decisions.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]


def clients_of(case: dict[str, Any]) -> Clients:
    """As the published classes derive them from samples and statistical utilities."""
    statistical = np.array(case["statistical"], float)
    utility = np.ones(len(statistical)) if case["static"] else normalised(statistical)
    return Clients(
        capacity=np.array(case["capacity"]),
        batch_j=np.array(case["batch_j"]),
        epoch_batches=np.ceil(np.array(case["samples"]) / 10),
        utility=utility,
        zone=np.array(case["zone"]),
        excess_j=np.array(case["excess_j"]),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case {case['seed']}")
def test_the_published_code_decides_alike(case: dict[str, Any]) -> None:
    clients = clients_of(case)
    np.testing.assert_allclose(clients.utility, case["utility"])
    found = shortest_round(clients, case["k"], 1.0, 5.0)
    assert found is not None
    assert found.steps == case["steps"]
    assert found.value == pytest.approx(case["value"], rel=1e-4, abs=1e-5)
    assert found.chosen.tolist() == case["chosen"]


def small(seed: int, *, limited: bool = True) -> Clients:
    rng = np.random.default_rng(seed)
    n, steps = 6, 4
    return Clients(
        capacity=rng.uniform(1, 4, (n, steps)),
        batch_j=rng.uniform(1, 5, n),
        epoch_batches=rng.integers(2, 6, n).astype(float),
        utility=rng.uniform(0.1, 1, n),
        zone=rng.integers(0, 2, n),
        excess_j=rng.uniform(8, 25, (2, steps)) if limited else None,
    )


def every_cohort(clients: Clients, steps: int, k: int) -> float | None:
    """The best value by a linear programme for each of the cohorts."""
    values = []
    for cohort in combinations(range(len(clients.utility)), k):
        some = list(cohort)
        m = np.eye(k)
        totals = np.kron(m, np.ones(steps))
        bounds = [(0, c) for c in clients.capacity[some, :steps].ravel()]
        energy, limits = np.empty((0, k * steps)), np.empty(0)
        if clients.excess_j is not None:
            inside = (clients.zone[some] == np.arange(2)[:, None]) * clients.batch_j[some]
            energy, limits = np.kron(inside, np.eye(steps)), clients.excess_j[:, :steps].ravel()
        batches = clients.epoch_batches[some]
        found = linprog(
            -np.repeat(clients.utility[some], steps),
            A_ub=np.vstack([energy, -totals, totals]),
            b_ub=np.r_[limits, -batches, 2 * batches],
            bounds=bounds,
        )
        if found.success:
            values.append(-found.fun)
    return max(values, default=None)


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_no_cohort_is_better_and_no_round_shorter(seed: int, limited: bool) -> None:
    clients = small(seed, limited=limited)
    found = shortest_round(clients, 3, 1.0, 2.0)
    values = {steps: every_cohort(clients, steps, 3) for steps in range(1, 5)}
    possible = [steps for steps, value in values.items() if value is not None]
    if not possible:
        assert found is None
        return
    assert found is not None
    assert found.steps == possible[0]
    assert found.value == pytest.approx(values[found.steps], rel=1e-4)


def test_a_plan_stays_within_energy_and_work() -> None:
    clients = small(3)
    plan = best_of(clients, np.arange(6), 4, 3, 1.0, 2.0)
    assert plan is not None
    batches = clients.epoch_batches[plan.chosen]
    assert (plan.batches >= batches - 1e-6).all()
    assert (plan.batches <= 2 * batches + 1e-6).all()
    assert clients.excess_j is not None
    used = np.zeros(2)
    np.add.at(used, clients.zone[plan.chosen], clients.batch_j[plan.chosen] * plan.batches)
    assert (used <= clients.excess_j.sum(1) + 1e-6).all()


def test_who_was_useful_least_rests_until_others_have_caught_up() -> None:
    assert release_probability(1.0, np.array([-1.0, 0.0, 0.5, 2.0, 4.0])).tolist() == [1, 1, 1, 0.5, 0.25]
    world = World(12, 3, 50, failures=0.0)
    selector = build("fedzero", alpha=1e-9)
    assert isinstance(selector, FedZero)
    everyone = np.ones(12, dtype=bool)
    first = world.play(selector, 1, everyone)
    second = world.play(selector, 2, everyone)
    assert set(first.chosen).isdisjoint(second.chosen)  # all below the 100 % quantile, nobody released
    assert selector.metrics()["excluded"] == 3
    for number in (3, 4):
        world.play(selector, number, everyone)
    # Nobody is left but the excluded: they come back rather than that nobody trains.
    assert len(world.play(selector, 5, everyone).chosen) == 3


def test_alpha_0_excludes_nobody() -> None:
    world = World(12, 3, 50, failures=0.0)
    selector = build("fedzero", alpha=0.0)
    for number in range(1, 5):
        world.play(selector, number, np.ones(12, dtype=bool))
    assert selector.metrics()["excluded"] == 0


def test_at_night_nobody_has_excess_energy() -> None:
    world = World(12, 3, 50, failures=0.0)
    night = build("fedzero", excess_w=1000.0, zones=1)
    assert world.play(night, 1, np.ones(12, dtype=bool)).chosen == []  # a second after midnight
    spread = build("fedzero", excess_w=1000.0, zones=4)
    chosen = world.play(spread, 1, np.ones(12, dtype=bool)).chosen
    assert len(chosen) == 3
    assert {device % 4 for device in chosen} <= {1, 2}  # where it is morning and noon


def test_little_energy_is_for_few_epochs() -> None:
    plenty, little = (build("fedzero", excess_w=watts, zones=4, alpha=0.0) for watts in (1000.0, 1.0))
    everyone = np.ones(40, dtype=bool)
    epochs = [sum(World(40, 4, 50, failures=0.0).play(one, 1, everyone).epochs) for one in (plenty, little)]
    assert epochs[0] > epochs[1] > 0
