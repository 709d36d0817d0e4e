"""R_T and R_E, rewards, budgets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.round.accounting import (
    PHASES,
    counted,
    honest_time_s,
    round_costs,
    shares_of_round,
    vanilla_cost,
)
from emulator.round.budgets import budgets_by_rule
from emulator.round.outcome import COSTS, Accounting, ClientCost, RoundCost
from emulator.round.reward import REWARDS, Budgets, literal, penalty, signed
from joulefleet.errors import ConfigError
from tests.emulator.worlds import fleet, profile, world

BUDGETS = Budgets(time_s=10.0, energy_j=20.0)
positive = st.floats(0.1, 1e4)


def probed_round() -> tuple[ClientCost, np.ndarray]:
    """Three candidates, the last two chosen; numbers chosen so that no two sums agree."""
    numbers = {
        "download_s": [1, 2, 3], "probe_s": [40, 5, 6], "wait_s": [0, 34, 32], "train_s": [0, 70, 80],
        "upload_s": [0, 9, 10], "download_j": [100, 200, 300], "probe_j": [1000, 2000, 3000],
        "wait_j": [7, 7, 7], "train_j": [0, 50000, 60000], "upload_j": [0, 800000, 900000],
    }  # fmt: skip
    assert set(numbers) == set(COSTS)
    cost = ClientCost(**{name: np.array(values, float) for name, values in numbers.items()})
    return cost, np.array([False, True, True])


def test_three_accountings_of_a_probed_round() -> None:
    cost, chosen = probed_round()
    costs = round_costs(cost, chosen, 131.0, probed=True)
    assert costs[Accounting.HONEST] == RoundCost(131.0, 600 + 6000 + 110000 + 1700000)
    assert costs[Accounting.SELECTED_ONLY] == RoundCost(40 + 93, 500 + 5000 + 110000 + 1700000)
    assert costs[Accounting.FREE] == RoundCost(93, 500 + 110000 + 1700000)


def test_the_time_of_a_round_follows_from_its_phases() -> None:
    """The slowest to report, then the slowest to send its update: 1 + 40 s, then 80 + 10 s."""
    cost, chosen = probed_round()
    assert honest_time_s(cost, chosen) == 131.0
    assert honest_time_s(cost, np.zeros(3, bool)) == 41.0
    assert honest_time_s(cost, chosen, probed=False) == 3 + 80 + 10


@pytest.mark.parametrize("accounting", list(Accounting))
def test_whose_phases_count_makes_the_energy(accounting: Accounting) -> None:
    cost, chosen = probed_round()
    who = counted(accounting, chosen)
    assert tuple(who) == PHASES
    by_phase = sum(getattr(cost, f"{phase}_j")[mask].sum() for phase, mask in who.items())
    assert round_costs(cost, chosen, 131.0, probed=True)[accounting].energy_j == by_phase


def test_without_early_exit_everybody_trains_before_the_chosen_upload() -> None:
    cost, chosen = probed_round()
    assert vanilla_cost(cost, chosen) == RoundCost(3 + 6 + 80 + 10, 600 + 6000 + 110000 + 1700000)


def test_without_probing_they_agree() -> None:
    values = {name: np.array([1.0, 2.0]) for name in COSTS}
    values["probe_s"] = values["probe_j"] = np.zeros(2)
    costs = round_costs(ClientCost(**values), np.ones(2, bool), 6.0, probed=False)
    assert set(costs) == set(Accounting)
    assert len({(c.time_s, c.energy_j) for c in costs.values()}) == 1
    assert costs[Accounting.HONEST].energy_j == 9.0  # waiting is not in it


def test_within_its_budgets_a_round_is_worth_its_gain() -> None:
    assert signed(2.0, RoundCost(10.0, 20.0), BUDGETS) == 2.0
    assert signed(2.0, RoundCost(20.0, 20.0), BUDGETS) == pytest.approx(0.5)
    assert signed(2.0, RoundCost(20.0, 40.0), BUDGETS) == pytest.approx(0.125)
    assert signed(-2.0, RoundCost(20.0, 20.0), BUDGETS) == pytest.approx(-8.0)
    assert literal(-2.0, RoundCost(20.0, 20.0), BUDGETS) == pytest.approx(-0.5)
    assert signed(-2.0, RoundCost(200.0, 200.0), BUDGETS) == -10.0


@given(st.floats(-100, 100), positive, positive, positive, positive)
def test_a_more_expensive_round_is_never_better(
    gain: float, time_s: float, energy_j: float, more_s: float, more_j: float
) -> None:
    base = signed(gain, RoundCost(time_s, energy_j), BUDGETS)
    assert signed(gain, RoundCost(time_s + more_s, energy_j), BUDGETS) <= base
    assert signed(gain, RoundCost(time_s, energy_j + more_j), BUDGETS) <= base
    assert 0 <= penalty(RoundCost(time_s, energy_j), BUDGETS) <= 1


def test_exponents_of_nothing_punish_nothing() -> None:
    free = Budgets(time_s=1.0, energy_j=1.0, alpha=0.0, beta=0.0)
    assert signed(3.0, RoundCost(100.0, 100.0), free) == 3.0


def test_rewards_are_found_by_name() -> None:
    assert REWARDS.load("signed") is signed
    assert REWARDS.load("literal") is literal


def test_budgets_are_those_of_a_random_round_among_the_best() -> None:
    """Ten devices with epochs of 1 to 10 s; K=2 of the best three: the expected maximum is 2 2/3 epochs."""
    phones = [profile(epoch_s=float(i), epoch_j=10.0 * i, device=f"d{i}") for i in range(1, 11)]
    place = world(fleet(phones, [100] * 10))
    time_s, energy_j = budgets_by_rule(place, 2, 5, 0, np.random.default_rng(0))
    assert time_s == pytest.approx(1.0 + 5 * (2 + 2 / 3), rel=0.03)
    assert energy_j == pytest.approx(2 * (0.5 + 5 * 20), rel=0.05)


def test_budgets_leave_out_devices_without_data() -> None:
    place = world(fleet([profile()], [0, 0, 0, 100, 100, 100]))
    time_s, _ = budgets_by_rule(place, 2, 5, 0, np.random.default_rng(0))
    assert time_s == pytest.approx(11.0)
    with pytest.raises(ConfigError, match="not a single device has any data"):
        budgets_by_rule(world(fleet([profile()], [0, 0])), 2, 5, 0, np.random.default_rng(0))


def test_budgets_of_a_fleet_smaller_than_its_share() -> None:
    place = world(fleet([profile()], [100] * 4))
    time_s, energy_j = budgets_by_rule(place, 4, 5, 0, np.random.default_rng(0))
    assert time_s == pytest.approx(11.0)
    assert energy_j == pytest.approx(4 * 15.5)


def test_a_round_is_shared_out_to_its_devices() -> None:
    """Three probed for 1 to 3 s and J, two chosen: the slower one is R_T, the mean energy R_E."""
    up = np.array([1.0, 2.0, 3.0])
    nothing = np.zeros(3)
    chosen = np.array([True, False, True])
    cost = ClientCost(
        nothing, up, nothing, 4 * up * chosen, nothing, nothing, up, nothing, 4 * up * chosen, nothing
    )
    whole = round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True)[Accounting.HONEST]
    assert (whole.time_s, whole.energy_j) == (3.0 + 12.0, 6.0 + 16.0)
    time_s, energy_j = shares_of_round(cost, chosen, whole, Accounting.HONEST)
    np.testing.assert_allclose(time_s, [3.0 + 4.0, 15.0])
    np.testing.assert_allclose(energy_j, [2.0 + 2 * 5.0, 2.0 + 2 * 15.0])
    assert energy_j.mean() == whole.energy_j
