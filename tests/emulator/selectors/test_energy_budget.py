"""One energy budget: programmes against trying everything, Shapley values against all orders, the purse."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from emulator.selectors.energy_budget.programme import best_cohort
from emulator.selectors.energy_budget.selector import EnergyBudgetSelector
from emulator.selectors.energy_budget.shapley import shapley_values, worth
from tests.emulator.selectors.driver import World, build


def fleet(seed: int, n: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.01, 1.01, n), rng.lognormal(1.0, 0.7, n), rng.lognormal(0.0, 0.7, n)


@pytest.mark.parametrize("slack", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_no_cohort_within_the_budget_is_better(seed: int, slack: float) -> None:
    value, energy_j, time_s = fleet(seed)
    k = 3
    budget_j = float(np.quantile([energy_j[list(c)].sum() for c in combinations(range(9), k)], 0.3))
    affordable = [list(c) for c in combinations(range(9), k) if energy_j[list(c)].sum() <= budget_j]
    most = max(value[c].sum() for c in affordable)
    shortest = min(time_s[c].max() for c in affordable if value[c].sum() >= (1 - slack) * most - 1e-9)
    found = best_cohort(value, energy_j, time_s, k, budget_j, slack=slack)
    assert len(set(found.tolist())) == k
    assert energy_j[found].sum() <= budget_j
    assert value[found].sum() >= (1 - slack) * most - 1e-6
    assert time_s[found].max() == pytest.approx(shortest)


def test_a_budget_below_the_cheapest_cohort_buys_nobody() -> None:
    value, energy_j, time_s = fleet(0)
    cheapest_j = float(np.sort(energy_j)[:3].sum())
    assert len(best_cohort(value, energy_j, time_s, 3, cheapest_j * 0.999)) == 0
    assert len(best_cohort(value, energy_j, time_s, 3, cheapest_j * 1.001)) == 3


def test_shapley_values_of_all_orders() -> None:
    samples = np.random.default_rng(1).dirichlet(np.full(3, 0.4), 5) * 30
    gains = np.zeros(5)
    for order in permutations(range(5)):
        before = 0.0
        for place, one in enumerate(order):
            now = worth(samples[list(order[: place + 1])])
            gains[one] += now - before
            before = now
    exact = gains / 120
    found = shapley_values(samples, np.random.default_rng(0), sweeps=40)
    assert found.sum() == pytest.approx(worth(samples))  # whatever the orders, it is shared out completely
    np.testing.assert_allclose(found, exact, rtol=0.05)
    few = shapley_values(samples, np.random.default_rng(0))
    np.testing.assert_allclose(few, exact, rtol=0.15)


def test_who_holds_what_others_hold_is_worth_less() -> None:
    samples = np.array([[10.0, 0], [10, 0], [10, 0], [0, 10]])
    found = shapley_values(samples, np.random.default_rng(0))
    assert found[3] == pytest.approx(np.sqrt(10))
    assert found[:3] == pytest.approx(np.full(3, np.sqrt(30) / 3), rel=0.05)


def played(
    total_j: float, rounds: int = 20, n: int = 40, **world: float
) -> tuple[EnergyBudgetSelector, list[int], float]:
    """How many trained in each round, and what that cost in truth."""
    place = World(n, 4, rounds, failures=0.0)
    selector = build("energy_budget", total_j=total_j)
    assert isinstance(selector, EnergyBudgetSelector)
    everyone = np.ones(n, dtype=bool)
    counts, spent = [], 0.0
    for number in range(1, rounds + 1):
        decided = place.play(selector, number, everyone)
        counts.append(len(decided.chosen))
        some = np.array(decided.chosen, int)
        spent += float((place.reported["comm_j"][some] + 5 * place.reported["epoch_j"][some]).sum())
    return selector, counts, spent


def test_enough_for_everybody_is_exactly_k_each_round() -> None:
    selector, counts, spent = played(1e6)
    assert counts == [4] * 20
    assert selector.metrics()["used_j"] == pytest.approx(spent)


@pytest.mark.parametrize("total_j", [400.0, 1000.0])
def test_a_small_budget_is_kept_and_when_it_is_used_up_nobody_trains(total_j: float) -> None:
    selector, counts, spent = played(total_j)
    assert spent <= total_j * 1.05  # the noise of one cohort's costs, no more
    assert spent > 0.7 * total_j
    assert counts[0] == 4
    assert selector.metrics()["planned_j"] <= total_j


def test_nothing_left_nobody_chosen() -> None:
    selector, counts, _ = played(60.0)
    assert counts[0] > 0
    assert counts[-1] == 0
    assert selector.metrics()["used_j"] > 0


def test_the_scenario_pays_where_no_sum_is_given() -> None:
    world, selector = World(30, 4, 20), EnergyBudgetSelector()
    view = world.view(1, np.ones(30, dtype=bool), selector.needs)
    assert selector._budget_j(view) == 20 * 160.0
    assert EnergyBudgetSelector(total_j=5.0)._budget_j(view) == 5.0
    assert selector._budget_j(view.changed(energy_budget_j=np.nan)) == np.inf
