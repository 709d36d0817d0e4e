"""Accounting, rewards, outcomes and the timeline at their edges; participants unlike each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emulator.fleet.conditions import Ids
from emulator.fleet.network import TransferSource
from emulator.round.accounting import honest_time_s, round_costs, vanilla_cost
from emulator.round.outcome import COSTS, Accounting, ClientCost, Fate, Reports, RoundCost, RoundOutcome
from emulator.round.reward import Budgets, literal, penalty, signed
from emulator.round.timeline import Timeline
from power.profile.model import Battery
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user, world

TWO = np.arange(2)


def costs(n: int, value: float) -> ClientCost:
    return ClientCost(**{name: np.full(n, value) for name in COSTS})


# Accounting and rewards


def test_rounds_that_take_less_than_a_second_or_that_nobody_took_part_in() -> None:
    """A quarter of a second, or of a joule, for everything: no smallest time hides in a maximum."""
    cost, both = costs(2, 0.25), np.ones(2, bool)
    assert round_costs(cost, both, 1.0, probed=True) == {
        Accounting.HONEST: RoundCost(1.0, 2.0),
        Accounting.SELECTED_ONLY: RoundCost(1.0, 2.0),
        Accounting.FREE: RoundCost(0.75, 1.5),
    }
    assert honest_time_s(cost, both) == 1.0
    assert honest_time_s(cost, ~both) == 0.5
    assert honest_time_s(cost, both, probed=False) == 0.75
    assert vanilla_cost(cost, both) == RoundCost(1.0, 2.0)
    assert vanilla_cost(cost, ~both) == RoundCost(0.75, 1.5)
    nobody, none = costs(0, 0.0), np.ones(0, bool)
    assert set(round_costs(nobody, none, 0.0, probed=True).values()) == {RoundCost(0.0, 0.0)}
    assert honest_time_s(nobody, none) == honest_time_s(nobody, none, probed=False) == 0.0
    assert vanilla_cost(nobody, none) == RoundCost(0.0, 0.0)


def test_what_was_spent_by_who_was_not_chosen_counts_without_a_probe() -> None:
    cost = costs(2, 1.0)
    found = round_costs(cost, np.array([True, False]), 3.0, probed=False)
    assert found[Accounting.HONEST] == RoundCost(3.0, 8.0)


def test_rewards_by_hand() -> None:
    """Twice the time to the power of 3, four times the energy to the power of 0.5: 1/8 of 1/2."""
    budgets = Budgets(time_s=10.0, energy_j=20.0, alpha=3.0, beta=0.5)
    cost = RoundCost(20.0, 80.0)
    assert penalty(cost, budgets) == pytest.approx(1 / 16, rel=1e-12)
    assert signed(8.0, cost, budgets) == pytest.approx(0.5, rel=1e-12)
    assert signed(-0.5, cost, budgets) == pytest.approx(-8.0, rel=1e-12)
    assert literal(-0.5, cost, budgets) == pytest.approx(-1 / 32, rel=1e-12)
    usual = Budgets(time_s=10.0, energy_j=20.0)
    assert penalty(cost, usual) == pytest.approx(1 / 4 * 1 / 16, rel=1e-12)


def test_rewards_are_kept_within_ten_points() -> None:
    budgets, cheap = Budgets(time_s=10.0, energy_j=20.0), RoundCost(1.0, 1.0)
    assert [signed(gain, cheap, budgets) for gain in (-50.0, -9.5, 0.0, 9.5, 50.0)] == [-10, -9.5, 0, 9.5, 10]
    assert literal(50.0, cheap, budgets) == 50.0
    # However small the factor, a loss is divided by no less than 1e-12.
    assert signed(-2e-12, RoundCost(1e9, 1e9), budgets) == pytest.approx(-2.0, rel=1e-9)


def test_budgets_of_nothing_that_are_kept_punish_nothing() -> None:
    assert penalty(RoundCost(0.0, 0.0), Budgets(time_s=0.0, energy_j=0.0)) == 1.0


# Outcomes


def test_of_whom_not_everything_is_known() -> None:
    cost = costs(3, 1.0)
    cost.train_j[1] = cost.upload_s[1] = cost.download_s[2] = np.nan
    assert cost.unknown.tolist() == [False, True, True]
    known = cost.known()
    assert (known.train_j.tolist(), known.download_s.tolist()) == ([1, 0, 1], [1, 1, 0])
    assert not known.unknown.any()


def outcome() -> RoundOutcome:
    numbers = {name: np.array([1.0, 2.0]) * 10**i for i, name in enumerate(COSTS)}
    parts = {name: np.array([1.0, 2.0]) for name in Reports.__dataclass_fields__}
    reports = replace(Reports(**parts), global_loss=None, weights=np.ones((2, 3), np.float32))
    every = dict.fromkeys(Accounting, RoundCost(1.0, 2.0))
    fates = (Fate.FINISHED, Fate.DEADLINE)
    cost = ClientCost(**numbers)
    return RoundOutcome(1, 0, 5, TWO, np.ones(2, bool), fates, cost, reports, every, 0.5, 0.1, 1.0)


def test_the_energy_of_a_round_is_everybodys_and_of_every_stage() -> None:
    """3 times 10^5 to 10^9 of download, probe, wait, train and upload."""
    assert outcome().energy_j == 3 * 11_111e5
    unknown = outcome()
    unknown.cost.wait_j[0] = np.nan
    assert np.isnan(unknown.energy_j)


def test_a_selector_sees_what_it_asked_for() -> None:
    seen = outcome().restricted({"loss", "epoch_s"})
    assert seen.reports.loss.tolist() == seen.reports.epoch_s.tolist() == [1.0, 2.0]
    hidden = ("epoch_j", "comm_s", "comm_j", "upload_j", "loss_rms", "local_accuracy", "bias_delta")
    assert all(np.isnan(getattr(seen.reports, name)).all() for name in hidden)
    assert seen.reports.global_loss is None
    assert seen.reports.weights is not None
    assert seen.reports.weights.tolist() == [[1.0] * 3] * 2
    assert all(np.isnan(getattr(seen.cost, name)).tolist() == [True, True] for name in COSTS)


def test_who_failed() -> None:
    each = tuple(Fate)
    found = replace(outcome(), fates=each).failed
    failures = [fate for fate, failed in zip(each, found, strict=True) if failed]
    assert failures == [Fate.LEFT, Fate.DEADLINE, Fate.DIVERGED]


# The timeline: a transfer takes 0.5 s and 0.25 J, an epoch 2 s and 3 J


def line_of(people: Any = None, *, n: int = 2, policy: str = "recorded", **options: Any) -> Timeline:
    phone = profile(**options.pop("phone", {}))
    held, deadline_s = options.pop("held", False), options.pop("deadline_s", None)
    sizes = options.pop("sizes", [100] * (n if people is None else len(people)))
    place = world(fleet([phone], sizes), None if people is None else replay(people, policy), **options)
    deadline = {} if deadline_s is None else {"deadline_ns": round(deadline_s * 1e9)}
    return Timeline(place, np.arange(len(sizes)), 0, held=held, **deadline)


def charging(*until_s: float) -> list[Any]:
    return [user(f"u{i}", charging=[(0, t)]) for i, t in enumerate(until_s)]


def test_each_leaves_at_its_own_time_unless_held() -> None:
    for held, fates in ((False, (Fate.LEFT, Fate.FINISHED)), (True, (Fate.FINISHED, Fate.FINISHED))):
        line = line_of(charging(1.5, 9), policy="charging", held=held)
        line.first_epoch(TWO, "train")
        line.end(np.ones(2, bool), Fate.FINISHED)
        assert line.fates() == fates
        assert line.cost.train_s.tolist() == pytest.approx([2.0 if held else 1.5, 2.0])


def test_of_two_reasons_at_the_same_moment_the_first_counts() -> None:
    line = line_of(charging(1.0, 9), policy="charging", deadline_s=1.0)
    line.first_epoch(TWO, "train")
    assert line.fates() == (Fate.LEFT, Fate.DEADLINE)
    line.close_at(0, Fate.SURPLUS)
    assert line.fates() == (Fate.LEFT, Fate.DEADLINE)


def test_what_was_closed_can_be_reopened_and_then_the_trace_limits_again() -> None:
    line = line_of(charging(1.0, 3.0), policy="charging")
    line.close_at(round(0.75e9), Fate.SURPLUS)
    other = line.fork()
    other.first_epoch(TWO, "train")
    assert other.fates() == (Fate.SURPLUS, Fate.SURPLUS)
    assert other.t_ns.tolist() == [round(0.75e9)] * 2
    line.reopen(Fate.DEADLINE)
    line.fork().first_epoch(TWO, "train")
    line.reopen(Fate.SURPLUS)
    line.first_epoch(TWO, "train")
    line.epochs(TWO, np.array([1, 1]), "train")
    assert line.fates() == (Fate.LEFT, Fate.LEFT)
    assert line.t_ns.tolist() == [SECOND_NS, 3 * SECOND_NS]


def test_a_fork_shares_nothing_that_moves() -> None:
    phone = {"battery": Battery(capacity_j=100, charge_w=5)}
    people = [user(n, battery=[(0, 0.5), (86_400, 0.5)], charging=[]) for n in "ab"]
    line = line_of(people, phone=phone)
    other = line.fork()
    other.close_at(SECOND_NS, Fate.SURPLUS)
    other.first_epoch(TWO[:1], "train")
    other.end(TWO[1:], Fate.REJECTED)
    other.settle()
    assert other.fates() == (Fate.SURPLUS, Fate.REJECTED)
    assert line._world.batteries.debts(0, TWO).tolist() == pytest.approx([1.5, 0.0])
    line.first_epoch(TWO[:1], "train")
    line.end(TWO, Fate.FINISHED)
    assert line.fates() == (Fate.FINISHED, Fate.FINISHED)
    assert line.cost.train_s.tolist() == [2.0, 0.0]
    line.settle()
    assert line._world.batteries.debts(0, TWO).tolist() == pytest.approx([3.0, 0.0])


def test_a_fate_is_for_good() -> None:
    line = line_of(n=3)
    line.end(np.array([1]), Fate.REJECTED)
    line.end(np.array([True, True, False]), Fate.FINISHED)
    assert line.under_way.tolist() == [False, False, True]
    with pytest.raises(IndexError):  # nobody may be told a fate that it does not have
        line.fates()
    line.end(np.arange(3), Fate.DEADLINE)
    assert line.fates() == (Fate.FINISHED, Fate.REJECTED, Fate.DEADLINE)


def test_forward_passes_over_some_samples() -> None:
    """A third of an epoch; 2 s for 100 samples: of 50, 100 and 1 samples, at most 50."""
    line = line_of(sizes=[50, 100, 1])
    line.forward(np.arange(3), "probe", samples=50)
    assert line.cost.probe_s == pytest.approx([1 / 3, 1 / 3, 0.02 / 3], rel=1e-6)
    assert line.cost.probe_j == pytest.approx([0.5, 0.5, 0.01], rel=1e-6)
    line.forward(np.arange(3), "train")
    assert line.cost.train_s == pytest.approx([1 / 3, 2 / 3, 0.02 / 3], rel=1e-6)
    line.forward(np.arange(3), "wait", samples=1)
    assert line.cost.wait_s == pytest.approx([0.02 / 3] * 3, rel=1e-6)


def test_who_is_late_when_the_round_closes_does_nothing_more() -> None:
    """An epoch of 1 and one of 2 s; closed at 1 s, when an update that costs nothing could still be sent."""
    line = line_of(sizes=[50, 100])
    line.first_epoch(TWO, "train")
    line.close_at(SECOND_NS, Fate.SURPLUS)
    line.upload(TWO[1:])
    assert line.under_way.tolist() == [True, False]
    line.epochs(TWO, np.array([0, 0]), "train")
    line.end(TWO, Fate.FINISHED)
    assert line.fates() == (Fate.FINISHED, Fate.SURPLUS)
    assert line.t_ns.tolist() == [SECOND_NS, 2 * SECOND_NS]
    assert line.cost.upload_s.tolist() == line.cost.upload_j.tolist() == [0.0, 0.0]


class Factors:
    """On time and on power, one of each per device; those of a round are as at its beginning."""

    def factors(self, t_ns: int, devices: Ids) -> tuple[Any, Any]:
        hours = 1 + t_ns / 3600e9
        return np.array([2.0, 0.5, 3.0])[devices] * hours, np.array([1.5, 4.0, 1.0])[devices]


def test_factors_are_on_the_time_and_on_what_training_itself_draws() -> None:
    """2 s and 3 J for 100 samples, and 1 W beside them for as long as it takes.

    Twice as long at 1.5 times the power: 4 s, 9 J and 4 J. Half as long at four times: 1 s, 6 J and 1 J.
    """
    place = world(fleet([profile()], [100, 100, 50], energy="gross"))
    place = replace(place, variation=Factors())
    line = Timeline(place, np.arange(3), 0)
    line.first_epoch(np.array([0, 1]), "probe")
    assert line.cost.probe_s.tolist() == pytest.approx([4.0, 1.0, 0.0], rel=1e-6)
    assert line.cost.probe_j.tolist() == pytest.approx([9 + 4, 6 + 1, 0.0], rel=1e-6)
    line.epochs(np.array([1, 2]), np.array([9, 3, 2]), "train")
    assert line.cost.train_s.tolist() == pytest.approx([0.0, 3.0, 6.0], rel=1e-6)
    assert line.cost.train_j.tolist() == pytest.approx([0.0, 18 + 3, 9 + 6], rel=1e-6)
    later = Timeline(place, np.array([0, 2]), 3600 * SECOND_NS)
    later.first_epoch(TWO, "train")
    assert later.cost.train_s.tolist() == pytest.approx([8.0, 6.0], rel=1e-6)
    assert later.cost.train_j.tolist() == pytest.approx([18 + 8, 9 + 6], rel=1e-6)


def test_epochs_are_each_ones_own() -> None:
    line = line_of(n=3)
    line.epochs(np.array([0, 2]), np.array([1, 7, 3]), "train")
    assert line.cost.train_s.tolist() == [2.0, 0.0, 6.0]
    assert line.cost.train_j.tolist() == pytest.approx([3.0, 0.0, 9.0])


def test_one_of_two_stalls() -> None:
    """Nothing for 2 s: tried after 1 and 3 s, then 1 s. 8 Mbit; 0.5 W, 0.3 W awake."""
    people = [user("a", rates=[(0, 0.0, 8e6), (2, 8e6, 8e6)]), user("b", rates=[(0, 4e6, 8e6)])]
    line = line_of(people, link=TransferSource.TRACE, model_bytes=1_000_000)
    line.download(TWO)
    assert line.cost.download_s.tolist() == pytest.approx([4.0, 2.0])
    assert line.cost.download_j.tolist() == pytest.approx([3 * 0.3 + 0.5, 1.0])
    line = line_of(people, link=TransferSource.TRACE, model_bytes=1_000_000, deadline_s=1.5)
    line.download(TWO)
    assert line.fates() == (Fate.DEADLINE, Fate.DEADLINE)
    assert line.cost.download_j.tolist() == pytest.approx([1.5 * 0.3, 0.75])


def test_one_of_three_batteries_ends_in_the_stage_and_one_at_its_end() -> None:
    """6 J when full: 25 % are 1.5 J, half of the epoch; 50 % are the epoch, which it just finishes."""
    levels = {"dies": 0.25, "just": 0.5, "lasts": 0.9}
    people = [user(n, battery=[(0, v), (86_400, v)], charging=[]) for n, v in levels.items()]
    line = line_of(people, phone={"battery": Battery(capacity_j=6, charge_w=5)})
    line.first_epoch(np.arange(3), "train")
    assert line.under_way.tolist() == [False, True, True]
    assert line.t_ns.tolist() == [SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS]
    assert line.cost.train_s.tolist() == [1.0, 2.0, 2.0]
    assert line.cost.train_j.tolist() == pytest.approx([1.5, 3.0, 3.0], rel=1e-9)
    line.upload(np.arange(3))
    line.end(np.arange(3), Fate.FINISHED)
    assert line.fates() == (Fate.BATTERY, Fate.BATTERY, Fate.FINISHED)
    assert line.cost.upload_j.tolist() == pytest.approx([0.0, 0.0, 0.25], rel=1e-9)
    line.settle()
    cells = line._world.batteries
    assert cells.switched_off(2 * SECOND_NS, np.ones(3, bool)).tolist() == [0, 1]
    assert cells.debts(3 * SECOND_NS, np.arange(3)).tolist() == pytest.approx([1.5, 3.0, 3.25], rel=1e-9)


def test_only_who_ran_out_has_to_be_charged_before_it_is_back() -> None:
    """3 J of 100: one had 2 % and is out, the other has 3 % left, less than a restart asks for, and stays."""
    people = [user(n, battery=[(0, v), (86_400, v)], charging=[]) for n, v in {"a": 0.02, "b": 0.06}.items()]
    line = line_of(people, phone={"battery": Battery(capacity_j=100, charge_w=5)})
    line.first_epoch(TWO, "train")
    line.end(TWO, Fate.FINISHED)
    assert line.fates() == (Fate.BATTERY, Fate.FINISHED)
    line.settle()
    assert line._world.batteries.switched_off(2 * SECOND_NS, np.ones(2, bool)).tolist() == [0]


def test_an_empty_battery_is_no_participant_from_the_beginning() -> None:
    people = [user(n, battery=[(0, v), (86_400, v)], charging=[]) for n, v in {"a": 0.0, "b": 0.5}.items()]
    line = line_of(people, phone={"battery": Battery(capacity_j=6, charge_w=5)})
    assert line.under_way.tolist() == [False, True]


def test_a_year_is_the_longest_stay() -> None:
    line = line_of(n=1)
    line.wait_until(400 * 86_400 * SECOND_NS, TWO[:1])
    assert line.fates() == (Fate.LEFT,)
    assert line.t_ns.tolist() == [366 * 86_400 * SECOND_NS]


def test_seconds_under_load_are_those_of_the_work_that_was_done() -> None:
    """At half load everything takes twice as long: an epoch 4 s and 3.75 J.

    One is loaded for the first second, one all the time, and one until its battery ends: of 5.25 J it has
    1.5 J left for a second epoch, 1.6 s of it.
    """
    levels = {"once": 0.99, "always": 0.99, "dies": 0.7}
    busy = {"once": [(0, 1, 0.5)], "always": [(0, 100, 0.5)], "dies": [(0, 100, 0.5)]}
    people = [user(n, battery=[(0, v), (86_400, v)], charging=[], busy=busy[n]) for n, v in levels.items()]
    line = line_of(people, phone={"battery": Battery(capacity_j=7.5, charge_w=5)})
    every = np.arange(3)
    line.first_epoch(every, "train")
    assert line.loaded_s.tolist() == pytest.approx([1.0, 4.0, 4.0], rel=1e-6)
    assert line.cost.train_s.tolist() == pytest.approx([2.5, 4.0, 4.0], rel=1e-6)
    line.epochs(every[[0, 2]], np.array([1, 1, 1]), "train")
    assert line.loaded_s.tolist() == pytest.approx([1.0, 4.0, 5.6], rel=1e-6)
    assert line.cost.train_s.tolist() == pytest.approx([4.5, 4.0, 5.6], rel=1e-6)
    assert line.cost.train_j.tolist() == pytest.approx([3 + 0.5 * 1.5 * 0.25 + 3, 3.75, 5.25], rel=1e-6)
    line.end(every, Fate.FINISHED)
    assert line.fates() == (Fate.FINISHED, Fate.FINISHED, Fate.BATTERY)
