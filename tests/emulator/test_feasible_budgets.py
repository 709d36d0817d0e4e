"""Budgets of rule ``feasible``: what random rounds of the method's own protocol take, by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from emulator.fleet.world import World
from emulator.round.budgets import MOMENTS, feasible_budgets, feasible_rounds
from emulator.round.outcome import Accounting
from emulator.round.reward import BudgetRule
from emulator.round.rules import RoundRules
from emulator.runs.assembly import assemble
from emulator.scenario.model import Scenario
from emulator.selectors.fedavg import FedAvg
from emulator.selectors.fedmarl import FedMarl
from emulator.selectors.fedrank.plus import FedRankPlus
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.power_of_choice import PowerOfChoice
from joulefleet.errors import ConfigError, NobodyLeft
from power.profile.model import Battery
from tests.emulator.worlds import Prober, fleet, profile, replay, user, world

HONEST = Accounting.HONEST
EPOCHS_S = {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 4: 16.0}
"""Epochs of five phones; each epoch takes as many joules, a transfer 0.5 s and 0.25 J."""
RULES = RoundRules(rounds=5, k=2, candidates=3, local_epochs=5)


def five_phones():
    phones = [profile(epoch_s=s, epoch_j=s, device=f"d{i}") for i, s in EPOCHS_S.items()]
    place = world(fleet(phones, [100] * 5))
    assert sorted(place.fleet.epoch(np.arange(5))[0]) == sorted(EPOCHS_S.values())
    return place


def by_hand(probes: int | None) -> set[tuple[float, float]]:
    """Every round that can be drawn: R_T and R_E from the paper's sums."""
    found = set()
    everybody = list(EPOCHS_S.values())
    for asked in combinations(everybody, probes or 2):
        for chosen in combinations(asked, 2):
            probe_s, probe_j = max(asked) + 0.5, sum(asked) + 0.25 * len(asked)
            if probes is None:
                probe_s, probe_j = 0.0, 0.0
                time_s = max(1.0 + 5 * s for s in chosen)
                energy_j = sum(0.5 + 5 * s for s in chosen)
            else:
                time_s = probe_s + max(0.5 + 4 * s for s in chosen)
                energy_j = probe_j + sum(0.25 + 4 * s for s in chosen)
            found.add((round(time_s, 6), round(energy_j, 6)))
    return found


@pytest.mark.parametrize(("selector", "probes"), [(FedAvg(), None), (Prober(), 3)])
def test_every_drawn_round_is_one_that_enumeration_finds(selector, probes) -> None:
    place, possible = five_phones(), by_hand(probes)
    drawn = [
        (round(costs[HONEST].time_s, 6), round(costs[HONEST].energy_j, 6))
        for seed in range(8)
        for costs in feasible_rounds(place, RULES, selector, np.random.default_rng(seed))
    ]
    assert len(drawn) == 8 * MOMENTS
    assert set(drawn) == possible


def test_the_budget_is_the_quantile_of_the_enumerated_rounds() -> None:
    """Of all ten choices of two phones, half take 41 s or less: the slower epoch takes 8 s or less."""
    place = five_phones()
    slowest = [max(pair) for pair in combinations(EPOCHS_S.values(), 2)]
    expected_s = {
        q: 1.0 + 5 * float(np.quantile(slowest, q, method="inverted_cdf")) for q in (0.25, 0.5, 0.95)
    }
    many = [
        costs[HONEST].time_s
        for seed in range(60)
        for costs in feasible_rounds(place, RULES, FedAvg(), np.random.default_rng(seed))
    ]
    assert {q: float(np.quantile(many, q, method="inverted_cdf")) for q in expected_s} == expected_s
    one = [c[HONEST].time_s for c in feasible_rounds(place, RULES, FedAvg(), np.random.default_rng(1))]
    for q in expected_s:
        time_s, _ = feasible_budgets(place, RULES, FedAvg(), HONEST, q, np.random.default_rng(1))
        assert time_s == pytest.approx(float(np.quantile(one, q)))


def test_accountings_have_their_own_budgets() -> None:
    place = five_phones()

    def of(accounting: Accounting) -> tuple[float, float]:
        return feasible_budgets(place, RULES, Prober(), accounting, 0.5, np.random.default_rng(0))

    assert of(Accounting.HONEST)[1] > of(Accounting.SELECTED_ONLY)[1] > of(Accounting.FREE)[1]


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        (FedRank(policy=""), 30),
        (FedRankPlus(policy=""), 15),
        (FedRankPlus(policy="", probe_factor=9.0), 30),
        (FedMarl(policy="", mode="native"), 20),
        (FedMarl(policy="", mode="topk"), 30),
        (PowerOfChoice(d=12), 12),
        (PowerOfChoice(), 30),
    ],
)
def test_probes_are_the_methods_own(selector, asked) -> None:
    assert selector.probe_count(30, 10) == asked


def test_the_world_is_afterwards_as_it_was() -> None:
    """A modelled battery whose debt grows by idling is asked about up to a week ahead."""
    battery = Battery(capacity_j=40_000.0, charge_w=5.0)
    people = [user(f"u{i}", hours=24, charging=[(0, 3600)]) for i in range(5)]
    place = world(fleet([profile(battery=battery)], [100] * 5), replay(people))
    before = place.batteries.state_dict()
    feasible_rounds(place, RULES, Prober(), np.random.default_rng(0))
    after = place.batteries.state_dict()
    for name, values in before.items():
        np.testing.assert_array_equal(values, after[name])


def test_a_part_of_a_large_fleet_stands_for_it(monkeypatch) -> None:
    """Candidates of a random part are random candidates: rounds, and their mean, are as by enumeration."""
    asked = []
    check_in = World.check_in
    monkeypatch.setattr(World, "check_in", lambda w, t: asked.append(len(w.fleet)) or check_in(w, t))
    monkeypatch.setattr("emulator.round.budgets.SAMPLE", 4)
    place = five_phones()
    drawn = [
        (round(costs[HONEST].time_s, 6), round(costs[HONEST].energy_j, 6))
        for seed in range(40)
        for costs in feasible_rounds(place, RULES, Prober(), np.random.default_rng(seed))
    ]
    assert set(asked) == {4}
    assert set(drawn) == by_hand(3)
    # All 10 triples are equally likely, and of each all 3 pairs.
    mean_j = 3 * (np.mean(list(EPOCHS_S.values())) + 0.25) + 2 * (0.25 + 4 * np.mean(list(EPOCHS_S.values())))
    assert np.mean([energy_j for _, energy_j in drawn]) == pytest.approx(mean_j, rel=0.1)


def test_a_part_with_just_as_many_as_are_asked_is_enough(monkeypatch) -> None:
    """24 moments, 7 hours apart."""
    asked = []
    check_in = World.check_in
    monkeypatch.setattr(World, "check_in", lambda w, t: asked.append((len(w.fleet), t)) or check_in(w, t))
    monkeypatch.setattr("emulator.round.budgets.SAMPLE", 3)
    feasible_rounds(five_phones(), RULES, Prober(), np.random.default_rng(0))
    assert asked == [(3, 25_200 * 10**9 * i) for i in range(24)]


def test_of_no_more_devices_than_stand_for_a_fleet_nothing_is_drawn(monkeypatch) -> None:
    """100,000 stand for one more."""
    whole = feasible_rounds(five_phones(), RULES, Prober(), np.random.default_rng(0))
    monkeypatch.setattr("emulator.round.budgets.MOMENTS", 1)
    asked = []
    check_in = World.check_in
    monkeypatch.setattr(World, "check_in", lambda w, t: asked.append(len(w.fleet)) or check_in(w, t))
    large = world(fleet([profile()], [100] * 100_001))
    feasible_rounds(large, RULES, Prober(), np.random.default_rng(0))
    assert asked == [100_000]
    monkeypatch.undo()
    monkeypatch.setattr("emulator.round.budgets.SAMPLE", 5)
    assert feasible_rounds(five_phones(), RULES, Prober(), np.random.default_rng(0)) == whole


def phones_with(capacity_j: float, *levels: float) -> World:
    people = [user(f"u{i}", battery=[(0, v), (86_400, v)], charging=[]) for i, v in enumerate(levels)]
    phone = profile(battery=Battery(capacity_j=capacity_j, charge_w=5.0))
    return world(fleet([phone], [100] * len(levels)), replay(people))


def test_fewer_than_wanted_are_left_after_the_probe() -> None:
    """With 2 J left two die of the probe; the third goes on for four epochs and an upload."""
    place = phones_with(1000.0, 0.002, 0.002, 0.9)
    found = feasible_rounds(place, RULES, Prober(), np.random.default_rng(0))
    assert len(found) == 4
    for costs in found:
        assert costs[HONEST].time_s == pytest.approx(0.5 + 2 + 4 * 2 + 0.5, rel=1e-6)
        assert costs[HONEST].energy_j == pytest.approx(2 + 2 + 0.25 + 5 * 3 + 0.25, rel=1e-6)
        assert costs[Accounting.FREE].energy_j == pytest.approx(0.25 + 4 * 3 + 0.25, rel=1e-6)


def test_nobody_is_left_after_the_probe() -> None:
    """2, 1 and 1 J: 0.25 J in 0.5 s of download, then 1.5 W until the last has died."""
    place = phones_with(4.0, 0.5, 0.25, 0.25)
    for costs in feasible_rounds(place, RULES, Prober(), np.random.default_rng(0)):
        assert costs[HONEST].time_s == pytest.approx(0.5 + 1.75 / 1.5, rel=1e-6)
        assert costs[HONEST].energy_j == pytest.approx(2 + 1 + 1, rel=1e-6)


class Measuring(FedAvg):
    """Wants to know how well the model it sent did before training."""

    needs = frozenset({"global_loss"})


class MeasuringProber(Prober):
    needs = Prober.needs | {"global_loss"}


def test_a_loss_of_the_model_as_sent_takes_a_forward_pass_where_nothing_was_probed() -> None:
    """A third of 2 s and of 3 J for each; a probe has measured it already. Who has no data does nothing."""
    rules = RoundRules(rounds=5, k=2, candidates=2, local_epochs=5)
    for selector, more in ((FedAvg(), 0), (Measuring(), 1), (Prober(), 0), (MeasuringProber(), 0)):
        place = world(fleet([profile()], [100, 100]))
        (costs, *_) = feasible_rounds(place, rules, selector, np.random.default_rng(0))
        assert costs[HONEST].time_s == pytest.approx(11 + more * 2 / 3, rel=1e-6)
        assert costs[HONEST].energy_j == pytest.approx(2 * (15.5 + more), rel=1e-6)
    idle = world(fleet([profile()], [100, 0]))
    (costs, *_) = feasible_rounds(idle, rules, FedAvg(), np.random.default_rng(0))
    assert costs[HONEST].energy_j == pytest.approx(15.5 + 0.5, rel=1e-6)


def test_where_few_may_train_the_whole_fleet_is_asked(monkeypatch) -> None:
    """Three of sixty are on a charger: a part of six has two of them once in a while."""
    monkeypatch.setattr("emulator.round.budgets.SAMPLE", 6)
    people = [user(f"u{i}", charging=[(0, 86_400)] if i < 3 else []) for i in range(60)]
    place = world(fleet([profile(epoch_j=1.0)], [100] * 60), replay(people, "charging"))
    one_j = feasible_rounds(
        world(fleet([profile(epoch_j=1.0)], [100] * 2)), RULES, FedAvg(), np.random.default_rng(0)
    )[0][HONEST].energy_j
    for seed in range(4):  # of some parts nobody ever is
        found = feasible_rounds(place, RULES, FedAvg(), np.random.default_rng(seed))
        assert {round(costs[HONEST].energy_j, 6) for costs in found} == {round(one_j, 6)}
        assert len(found) == 4


def test_recordings_that_end_give_the_moments_that_they_have() -> None:
    """A day of recordings, which are not begun anew: moments at 0, 7, 14 and 21 hours."""
    place = world(fleet([profile()], [100] * 5), replay([user(f"u{i}", hours=24) for i in range(5)]))
    assert len(feasible_rounds(place, RULES, FedAvg(), np.random.default_rng(0))) == 4


def test_nobody_and_nothing_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="not a single device has any data"):
        feasible_rounds(world(fleet([profile()], [0, 0])), RULES, FedAvg(), rng)
    away = world(fleet([profile()], [100]), replay([user(charging=[])], "charging"))
    with pytest.raises(NobodyLeft):
        feasible_rounds(away, RULES, FedAvg(), rng)


def scenario(**reward: object) -> Scenario:
    return Scenario(
        name="small",
        fleet={"devices": 12},
        task={"name": "digits-mlp", "partition": "iid"},
        protocol={"rounds": 2, "k": 2, "candidates": 6},
        selector={"name": "fedrank", "options": {"policy": ""}},
        reward=reward,
    )


def test_a_scenario_has_feasible_budgets_unless_it_says_otherwise() -> None:
    """The old rule asks for rounds without probes among the best: no round that probes six could keep it."""
    feasible, before = assemble(scenario(), 0), assemble(scenario(budgets="best_30"), 0)
    new, old = feasible.facts["budgets"], before.facts["budgets"]
    assert new["energy_j"] > old["energy_j"]
    assert new["time_s"] > old["time_s"]
    assert "50%" in feasible.facts["budget_rule"]
    assert "charged to nobody" in feasible.facts["budget_rule"]
    assert "best 30 %" in before.facts["budget_rule"]
    given = assemble(scenario(time_budget_s=7.0, energy_budget_j=9.0), 0)
    assert given.facts["budgets"] == {"time_s": 7.0, "energy_j": 9.0}
    assert given.facts["budget_rule"] == "given"
    wide = assemble(scenario(budget_quantile=1.0), 0).facts["budgets"]
    assert wide["energy_j"] > new["energy_j"]
    assert assemble(scenario(), 0).facts["budgets"] == new
    assert assemble(scenario(), 1).facts["budgets"] != new


def test_a_record_of_before_keeps_its_rule() -> None:
    stored = scenario().model_dump(mode="json")
    del stored["reward"]["budgets"], stored["reward"]["budget_quantile"]
    assert Scenario.model_validate(stored).reward.budgets is BudgetRule.BEST_30
    assert scenario().reward.budgets is BudgetRule.FEASIBLE


def test_penalties_are_counted_round_by_round() -> None:
    """T = 10 s, E = 20 J; five rounds: one within both, two over T, two over E, of which one in each."""
    import pandas as pd

    from emulator.runs.replay.penalties import Penalties, penalties_of

    table = pd.DataFrame(
        {
            "round": [0, 1, 2, 3, 4, 5],
            "chosen": [9, 2, 2, 2, 2, 0],
            "time_s_honest": [99.0, 10.0, 11.0, 12.0, 9.0, 99.0],
            "energy_j_honest": [99.0, 20.0, 20.0, 21.0, 30.0, 99.0],
            "reward": [0.0, 10.0, -10.0, 3.0, 9.99, 10.0],
        }
    )

    class Stored:
        def __init__(self, function: str) -> None:
            own = scenario(function=function)
            facts = {"budgets": {"time_s": 10.0, "energy_j": 20.0}}
            self.record = type("Record", (), {"scenario": own, "facts": facts})()
            self.rounds = table

    found = penalties_of([Stored("signed")])
    assert found == Penalties(rounds=4, over_time=2, over_energy=2, at_clip=2)
    assert found.text() == "R_T over T in 50 % of 4 rounds, R_E over E in 50 %, reward at its limit in 50 %"
    assert penalties_of([Stored("literal")]).at_clip is None
    assert penalties_of([Stored("signed"), Stored("signed")]) == Penalties(8, 4, 4, 4)
