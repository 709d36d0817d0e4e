"""Stages of a round on a few devices: transfers, batteries, and how it ends for each."""

import numpy as np
import pytest

from emulator.cost.network import Link
from emulator.cost.timeline import FORWARD_SHARE, Timeline
from emulator.fleet.conditions import Replayed
from emulator.outcome import Fate
from emulator.world import LONGEST_WAIT_NS
from power.profile import Battery
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user, world
from traces.devices import FleetRecipe
from traces.flat import flatten
from traces.fleet import TraceFleet

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


def test_waiting_costs_awake_power_and_may_be_left() -> None:
    line = timeline(user(charging=[(0, 60)]), policy="charging")
    line.download(EVERYBODY)
    line.wait_until(20 * SECOND_NS, EVERYBODY)
    assert line.cost.wait_s[0] == pytest.approx(19.5)
    assert line.cost.wait_j[0] == pytest.approx(19.5 * 0.4)
    line.wait_until(100 * SECOND_NS, EVERYBODY)
    assert line.fates() == (Fate.LEFT,)
    assert line.cost.wait_s[0] == pytest.approx(59.5)


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


def test_an_empty_battery_takes_no_part() -> None:
    person = user(battery=[(0, 0.0), (86400, 0.0)], charging=[])
    line = whole_round(timeline(person, phone={"battery": Battery(capacity_j=100, charge_w=5)}))
    assert line.fates() == (Fate.BATTERY,)
    assert line.t_ns.tolist() == [0]


def test_transfers_take_the_recorded_throughput() -> None:
    """1 MB at 8 Mbit/s down and 2 Mbit/s up; the radio's power is the measured 0.5 W."""
    person = user(rates=[(0, 8e6, 2e6), (4.0, 8e6, 1e6)])
    line = timeline(person, link=Link.TRACE, model_bytes=1_000_000)
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
    line = timeline(person, link=Link.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(0.5)


def test_each_direction_counts_for_itself() -> None:
    """A set that holds downloads only: uploads are as measured."""
    line = timeline(user(rates=[(0, 8e6, float("nan"))]), link=Link.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(1.0)
    line.upload(EVERYBODY)
    assert line.cost.upload_s[0] == pytest.approx(0.5)


def test_a_stalled_transfer_is_tried_again_until_it_moves() -> None:
    """Nothing moves for 5 s: tried at 0, 1, 3 and 7 s, awake in between; then 1 s at the radio's power."""
    person = user(rates=[(0, 0.0, 2e6), (5.0, 8e6, 2e6)])
    line = timeline(person, link=Link.TRACE, model_bytes=1_000_000)
    line.download(EVERYBODY)
    assert line.cost.download_s[0] == pytest.approx(8.0)
    assert line.cost.download_j[0] == pytest.approx(7 * 0.4 + 0.5)


def test_a_transfer_that_never_moves_ends_at_the_limit() -> None:
    person = user(rates=[(0, 0.0, 2e6)])
    line = whole_round(timeline(person, link=Link.TRACE, deadline_s=20))
    assert line.fates() == (Fate.DEADLINE,)
    assert line.t_ns.tolist() == [20 * SECOND_NS]
    assert line.cost.download_j[0] == pytest.approx(20 * 0.4)


@pytest.mark.parametrize("bps", [0.0, 5e-324, 1e-9])
def test_a_transfer_for_ever_ends_after_a_year_where_nothing_else_ends_it(bps: float) -> None:
    flat = flatten([user(rates=[(0, bps, bps)])])
    there = Replayed(TraceFleet.made(flat, FleetRecipe(devices=1)), "any")
    place = world(fleet([profile()], [100]), there, link=Link.TRACE, model_bytes=1_000_000)
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
