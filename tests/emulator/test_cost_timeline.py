"""Stages of a round on a few devices: transfers, batteries, and how it ends for each."""

import numpy as np
import pytest

from emulator.fleet.conditions import Replayed
from emulator.fleet.network import TransferSource
from emulator.fleet.world import LONGEST_WAIT_NS
from emulator.round.outcome import Fate
from emulator.round.timeline import FORWARD_SHARE, Timeline
from power.profile.model import Battery
from tests.emulator.worlds import HOUR_S, SECOND_NS, fleet, profile, replay, user, world
from traces.replay.devices import FleetRecipe
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet

EVERYBODY = np.arange(1)


def timeline(
    person=None, *, deadline_s: float | None = None, policy: str = "recorded", **options
) -> Timeline:
    state = fleet([profile(**options.pop("phone", {}))], [100])
    place = world(state, None if person is None else replay([person], policy), **options)
    deadline = {} if deadline_s is None else {"deadline_ns": round(deadline_s * 1e9)}
    return Timeline(place, EVERYBODY.copy(), 0, **deadline)


def whole_round(line: Timeline) -> Timeline:
    line.download(EVERYBODY)
    line.first_epoch(EVERYBODY, "train")
    line.epochs(EVERYBODY, np.array([4]), "train")
    line.upload(EVERYBODY)
    return line


def test_a_round_is_the_sum_of_its_stages() -> None:
    line = whole_round(timeline())
    assert line.under_way.all()
    assert line.t_ns.tolist() == [11 * SECOND_NS]
    cost = line.cost
    assert (cost.download_s[0], cost.train_s[0], cost.upload_s[0]) == pytest.approx((0.5, 10.0, 0.5))
    assert (cost.download_j[0], cost.train_j[0], cost.upload_j[0]) == pytest.approx((0.25, 15.0, 0.25))


def test_a_device_leaves_when_its_trace_says_so() -> None:
    person = user(charging=[(0, 4.5)])
    line = whole_round(timeline(person, policy="charging"))
    assert line.fates() == (Fate.LEFT,)
    assert line.t_ns.tolist() == [round(4.5 * SECOND_NS)]
    assert line.cost.train_s[0] == pytest.approx(4.0)
    assert line.cost.train_j[0] == pytest.approx(6.0)
    assert line.cost.upload_s[0] == 0


def test_the_deadline_closes_the_round() -> None:
    line = whole_round(timeline(deadline_s=10.75))
    assert line.fates() == (Fate.DEADLINE,)
    assert line.cost.upload_s[0] == pytest.approx(0.25)
    assert line.cost.upload_j[0] == pytest.approx(0.125)


def test_the_earlier_of_two_reasons_counts() -> None:
    person = user(charging=[(0, 6)])
    assert whole_round(timeline(person, policy="charging", deadline_s=5)).fates() == (Fate.DEADLINE,)
    assert whole_round(timeline(person, policy="charging", deadline_s=7)).fates() == (Fate.LEFT,)


def test_at_the_limit_only_what_takes_no_time_is_done() -> None:
    """The download ends at 0.5 s, and so does the round."""
    line = whole_round(timeline(deadline_s=0.5))
    assert line.fates() == (Fate.DEADLINE,)
    assert line.t_ns.tolist() == [SECOND_NS // 2]
    assert line.cost.train_s[0] == line.cost.train_j[0] == 0
    line = whole_round(timeline(deadline_s=10.5, phone={"upload": None}))
    assert line.under_way.all()


def test_waiting_costs_what_it_takes_beyond_idling_and_may_be_left() -> None:
    line = timeline(user(charging=[(0, 60)]), policy="charging")
    line.download(EVERYBODY)
    line.wait_until(20 * SECOND_NS, EVERYBODY)
    assert line.cost.wait_s[0] == pytest.approx(19.5)
    assert line.cost.wait_j[0] == pytest.approx(19.5 * 0.3)
    line.wait_until(100 * SECOND_NS, EVERYBODY)
    assert line.fates() == (Fate.LEFT,)
    assert line.cost.wait_s[0] == pytest.approx(59.5)


@pytest.mark.parametrize(("energy", "wait_w"), [("gross", 0.4), ("net", 0.3), ("marginal", 0.3)])
def test_waiting_and_stalling_are_charged_like_everything_else(energy: str, wait_w: float) -> None:
    state = fleet([profile()], [100], energy=energy)
    place = world(state, replay([user(rates=[(0, 0.0, 0.0)])]), link=TransferSource.TRACE)
    line = Timeline(place, EVERYBODY.copy(), 0, 30 * SECOND_NS)
    line.wait_until(10 * SECOND_NS, EVERYBODY)
    line.download(EVERYBODY)
    assert line.cost.wait_j[0] == pytest.approx(10 * wait_w)
    assert line.cost.download_j[0] == pytest.approx(20 * wait_w)


@pytest.mark.parametrize(("energy", "epoch_j"), [("gross", 10.5), ("net", 4.5), ("marginal", 4.5)])
def test_a_slowed_phone_draws_its_baseline_for_longer(energy: str, epoch_j: float) -> None:
    """2 s, 3 J and 1 W beside them; at full load three times as long, and half as much again of its own."""
    state = fleet([profile()], [100], energy=energy)
    line = Timeline(world(state, replay([user(busy=[(0, 1000, 1.0)])])), EVERYBODY.copy(), 0)
    line.first_epoch(EVERYBODY, "train")
    assert line.cost.train_s[0] == pytest.approx(6.0)
    assert line.cost.train_j[0] == pytest.approx(epoch_j)


def test_a_forward_pass_is_a_third_of_a_step() -> None:
    line = timeline()
    line.forward(EVERYBODY, "probe")
    assert line.cost.probe_s[0] == pytest.approx(2.0 / 3)
    line.forward(EVERYBODY, "probe", samples=25)
    assert line.cost.probe_s[0] == pytest.approx(2.0 / 3 * 1.25)
    assert pytest.approx(1 / 3) == FORWARD_SHARE


def test_the_battery_ends_where_the_debt_meets_the_level() -> None:
    """100 J in all, 5 % recorded, 0.5 W for 0.5 s of download, then 1.5 W of training."""
    person = user(battery=[(0, 0.05), (86400, 0.05)], charging=[])
    phone = {"battery": Battery(capacity_j=100, charge_w=5)}
    line = whole_round(timeline(person, phone=phone))
    assert line.fates() == (Fate.BATTERY,)
    assert line.t_ns[0] * 1e-9 == pytest.approx(0.5 + 4.75 / 1.5, abs=1e-6)
    assert line.cost.download_j[0] + line.cost.train_j[0] == pytest.approx(5.0, abs=1e-6)


def test_a_charger_keeps_it_going_and_pays_the_debt_back() -> None:
    person = user(battery=[(0, 0.05), (86400, 0.05)], charging=[(0, 3600)])
    phone = {"battery": Battery(capacity_j=100, charge_w=5)}
    line = whole_round(timeline(person, phone=phone))
    assert line.under_way.all()


def charged(*plugged: tuple[float, float], level: float = 0.05) -> Timeline:
    person = user(battery=[(0, level), (86400, level)], charging=plugged)
    return timeline(person, phone={"battery": Battery(capacity_j=100, charge_w=5)})


def test_a_charger_that_comes_in_the_middle_counts_from_then_on() -> None:
    """After 2 s 2.5 of 5 J are left; then 5 W come in and 1.5 W go out."""
    assert whole_round(charged((2, 3600))).under_way.all()
    assert whole_round(charged((4, 3600))).fates() == (Fate.BATTERY,)  # too late by a third of a second


def test_a_charger_that_goes_has_paid_nothing_in_advance() -> None:
    """A full minute on the charger with nothing to pay: 5 J are left when it goes, as at the begin."""
    line = charged((0, 60))
    line.wait_until(60 * SECOND_NS, EVERYBODY)
    line.epochs(EVERYBODY, np.array([4]), "train")
    assert line.fates() == (Fate.BATTERY,)
    assert line.cost.train_j[0] == pytest.approx(5.0, abs=1e-6)


def test_what_was_spent_after_the_charger_went_is_still_owed_after_the_round() -> None:
    line = charged((0, 60), level=0.9)
    line.wait_until(60 * SECOND_NS, EVERYBODY)
    line.epochs(EVERYBODY, np.array([4]), "train")
    line.settle()
    level = line._world.batteries.level(HOUR_S * SECOND_NS, EVERYBODY)
    assert level == pytest.approx([0.9 - 0.12])


@pytest.mark.parametrize("energy", ["gross", "marginal"])
def test_idling_is_taken_from_a_battery_once_however_energy_is_counted(energy: str) -> None:
    """0.4 W of waiting, of which 0.1 W are idling: in the model, or in the recorded level already."""
    phone = profile(battery=Battery(capacity_j=100, charge_w=5))
    for facts, lost_j in (({}, 40.0), ({"battery": [(0, 1.0), (86400, 1.0)]}, 30.0)):
        state = fleet([phone], [100], energy=energy)
        place = world(state, replay([user(charging=[(80_000, 81_000)], **facts)]))
        line = Timeline(place, EVERYBODY.copy(), 0)
        line.wait_until(100 * SECOND_NS, EVERYBODY)
        line.settle()
        assert place.batteries.level(100 * SECOND_NS, EVERYBODY) == pytest.approx([1 - lost_j / 100])


def test_nobodys_battery_depends_on_how_many_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level falls to 2 % for a while in the middle of the work: one of its moments, but not the last."""
    phone = profile(battery=Battery(capacity_j=1000, charge_w=5))
    dip = [(0, 0.5), (3, 0.5), (4, 0.002), (5, 0.002), (6, 0.5), (86400, 0.5)]
    busy = [(3, 4, 0.5), (4, 5, 1.0), (6, 7, 0.5)]
    users = [user(f"u{i}", busy=busy[: i % 4], battery=dip, charging=[]) for i in range(7)]
    everybody = np.arange(len(users))

    def ends() -> Timeline:
        line = Timeline(world(fleet([phone], [100] * len(users)), replay(users)), everybody, 0)
        line.epochs(everybody, np.full(len(users), 4), "train")
        line.end(line.under_way, Fate.FINISHED)
        return line

    together = ends()
    monkeypatch.setattr("emulator.round.timeline.CHUNK", 2)
    in_parts = ends()
    assert Fate.BATTERY in together.fates()
    assert in_parts.fates() == together.fates()
    assert in_parts.t_ns.tolist() == together.t_ns.tolist()
    assert in_parts.cost.train_j.tolist() == together.cost.train_j.tolist()


def test_an_empty_battery_takes_no_part() -> None:
    person = user(battery=[(0, 0.0), (86400, 0.0)], charging=[])
    line = whole_round(timeline(person, phone={"battery": Battery(capacity_j=100, charge_w=5)}))
    assert line.fates() == (Fate.BATTERY,)
    assert line.t_ns.tolist() == [0]


def test_transfers_take_the_recorded_throughput() -> None:
    """1 MB at 8 Mbit/s down and 2 Mbit/s up; the radio's power is the measured 0.5 W."""
    person = user(rates=[(0, 8e6, 2e6), (4.0, 8e6, 1e6)])
    line = timeline(person, link=TransferSource.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(1.0)
    assert line.cost.download_j[0] == pytest.approx(0.5)
    line.first_epoch(EVERYBODY, "train")
    line.upload(EVERYBODY)
    assert line.cost.upload_s[0] == pytest.approx(4.0)
    line.upload(EVERYBODY)  # by now the network is half as fast
    assert line.cost.upload_s[0] == pytest.approx(12.0)


def test_unknown_throughput_falls_back_to_what_was_measured() -> None:
    person = user(rates=[(0, float("nan"), 2e6)])
    line = timeline(person, link=TransferSource.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(0.5)


def test_each_direction_counts_for_itself() -> None:
    """A set that holds downloads only: uploads are as measured."""
    line = timeline(user(rates=[(0, 8e6, float("nan"))]), link=TransferSource.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(1.0)
    line.upload(EVERYBODY)
    assert line.cost.upload_s[0] == pytest.approx(0.5)


def test_a_stalled_transfer_is_tried_again_until_it_moves() -> None:
    """Nothing moves for 5 s: tried at 0, 1, 3 and 7 s, awake in between; then 1 s at the radio's power."""
    person = user(rates=[(0, 0.0, 2e6), (5.0, 8e6, 2e6)])
    line = timeline(person, link=TransferSource.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(8.0)
    assert line.cost.download_j[0] == pytest.approx(7 * 0.3 + 0.5)


def test_a_stall_that_is_cut_short_was_at_awake_power() -> None:
    """Stalled until 7 s, when 1 s at the radio's power would begin."""
    person = user(rates=[(0, 0.0, 2e6), (5.0, 8e6, 2e6)])
    line = whole_round(timeline(person, link=TransferSource.TRACE, model_bytes=1_000_000, deadline_s=6.5))
    assert line.fates() == (Fate.DEADLINE,)
    assert line.cost.download_j[0] == pytest.approx(6.5 * 0.3)


def test_a_transfer_that_never_moves_ends_at_the_limit() -> None:
    person = user(rates=[(0, 0.0, 2e6)])
    line = whole_round(timeline(person, link=TransferSource.TRACE, deadline_s=20))
    assert line.fates() == (Fate.DEADLINE,)
    assert line.t_ns.tolist() == [20 * SECOND_NS]
    assert line.cost.download_j[0] == pytest.approx(20 * 0.3)


@pytest.mark.parametrize("bps", [0.0, 5e-324, 1e-9])
def test_a_transfer_for_ever_ends_after_a_year_where_nothing_else_ends_it(bps: float) -> None:
    flat = flatten([user(rates=[(0, bps, bps)])])
    there = Replayed(TraceFleet.from_recipe(flat, FleetRecipe(devices=1)), "any")
    place = world(fleet([profile()], [100]), there, link=TransferSource.TRACE, model_bytes=1_000_000)
    line = whole_round(Timeline(place, EVERYBODY.copy(), 10 * SECOND_NS))
    assert line.fates() == (Fate.LEFT,)
    assert line.t_ns.tolist() == [10 * SECOND_NS + LONGEST_WAIT_NS]
    assert np.isfinite(line.cost.download_j[0])


def test_a_fork_moves_alone() -> None:
    line = timeline()
    other = line.fork()
    other.download(EVERYBODY)
    assert line.t_ns.tolist() == [0]
    assert line.cost.download_s[0] == 0
    assert other.t_ns.tolist() == [SECOND_NS // 2]
