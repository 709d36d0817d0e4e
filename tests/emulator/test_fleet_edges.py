"""Conditions, network, fleets and slowdown at their edges: exact moments, devices unlike each other."""

from typing import Any

import numpy as np
import pytest

from emulator.fleet.battery_debt import between
from emulator.fleet.conditions import NEVER_NS, AlwaysThere, Replayed
from emulator.fleet.interference import OwnCurves
from emulator.fleet.motion import Motion
from emulator.fleet.network import Network, TransferSource
from emulator.fleet.slowdown import Computation, Progress, compute, steady
from emulator.fleet.state import FleetState
from emulator.round.budgets import budgets_of
from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin, Provenance
from power.profile.model import DeviceProfile, PhaseCost, Quantity, TransferCost
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user, world
from traces.replay import NetworkRates

TWO = np.arange(2)


def ns(*seconds: float) -> np.ndarray:
    return np.array([round(s * 1e9) for s in seconds], np.int64)


def cost(kind: type[Any], seconds: float, joules: float) -> Any:
    energy = Quantity(mean=joules)
    return kind(duration_s=Quantity(mean=seconds), gross_j=energy, net_j=energy, marginal_j=energy)


# Conditions


def later(start_s: int) -> Replayed:
    """Two users, of whom one is busy; the virtual clock shows 0 where the recording shows ``start_s``."""
    people = [
        user(
            "a",
            charging=[(100, 200)],
            battery=[(0, 0.9), (100, 0.9), (200, 0.5), (86_400, 0.5)],
            rates=[(0, 8e6, 2e6), (150, 4e6, 1e6)],
            busy=[(120, 160, 0.5)],
        ),
        user("b", charging=[(300, 400)], battery=[(0, 0.3), (86_400, 0.3)], rates=[(0, 1e6, 1e6)]),
    ]
    return Replayed(replay(people).traces, "charging and battery >= 40 %", start_ns=start_s * SECOND_NS)


@pytest.mark.parametrize("start_s", [0, 90])
def test_a_recording_may_begin_anywhere_on_the_virtual_clock(start_s: int) -> None:
    """The same moments of the recording, told on either clock."""
    there = later(start_s)
    moment = [int(t) for t in ns(100, 150, 200) - start_s * SECOND_NS]
    before_ns, middle_ns, end_ns = moment[0] - 1, moment[1], moment[2]
    assert there.eligible(before_ns).tolist() == [False, False]
    assert there.eligible(moment[0]).tolist() == [True, False]
    assert there.next_arrival(before_ns) == moment[0]
    assert there.leaves_at(middle_ns, TWO[:1]).tolist() == [end_ns]
    low, high = np.array([0.39]), np.array([0.41])
    assert there.eligible_at_level(middle_ns, TWO[:1], low).tolist() == [False]
    assert there.eligible_at_level(middle_ns, TWO[:1], high).tolist() == [True]
    assert there.eligible_at_level(before_ns, TWO[:1], high).tolist() == [False]
    assert there.level(np.full(2, middle_ns), TWO) == pytest.approx([0.7, 0.3])
    rates = there.rates(np.array([middle_ns - 1, middle_ns]), np.zeros(2, np.int64))
    assert rates is not None
    assert rates.down_bps.tolist() == [8e6, 4e6]
    assert there.load(middle_ns).tolist() == [0.5, 0.0]
    assert there.load(middle_ns, TWO[1:]).tolist() == [0.0]
    plugged, change_ns = there.charging(np.array([before_ns, middle_ns]), np.zeros(2, np.int64))
    assert plugged.tolist() == [False, True]
    assert change_ns.tolist() == [moment[0], end_ns]
    found = there.segments(np.array([moment[0]]), np.array([end_ns]), TWO[:1])
    begin_ns, stop_ns = ns(120, 160) - start_s * SECOND_NS
    assert found.start_ns.tolist() == [moment[0], begin_ns, stop_ns]
    assert found.end_ns.tolist() == [begin_ns, stop_ns, end_ns]
    assert found.cpu.tolist() == [0.0, 0.5, 0.0]


def test_what_was_recorded_of_whom() -> None:
    there = replay([user("a", charging=[(1, 2)]), user("b", battery=[(0, 0.7), (9, 0.2), (50, 0.4)])])
    assert there.has_charger.tolist() == [True, False]
    assert there.has_level.tolist() == [False, True]
    assert there.lowest_level(TWO).tolist() == [np.inf, 0.2]
    assert not there.has_rates
    assert there.rates(np.zeros(1, np.int64), TWO[:1]) is None
    assert not there.asks_level
    assert replay([user(battery=[(0, 0.7)])], "battery >= 10 %").asks_level


def test_devices_that_nobody_uses() -> None:
    there, now = AlwaysThere(3), np.zeros(2, np.int64)
    assert there.eligible(0).tolist() == [True] * 3
    assert there.eligible_at_level(0, TWO, np.zeros(2)).tolist() == [True, True]
    assert not there.asks_level
    assert not there.has_rates
    assert there.rates(now, TWO) is None
    assert there.leaves_at(0, TWO).tolist() == [NEVER_NS] * 2
    assert there.next_arrival(0) == NEVER_NS
    assert there.load(0).tolist() == [0.0] * 3
    assert there.load(0, TWO).tolist() == [0.0] * 2
    assert np.isnan(there.level(now, TWO)).tolist() == [True, True]
    plugged, change_ns = there.charging(now, TWO)
    assert (plugged.tolist(), change_ns.tolist()) == ([False] * 2, [NEVER_NS] * 2)
    assert there.has_charger.tolist() == there.has_level.tolist() == [False] * 3
    assert there.lowest_level(np.arange(3)).tolist() == [np.inf] * 3
    found = there.segments(now, now + 5, TWO)
    assert (found.offset.tolist(), found.start_ns.tolist()) == ([0, 1, 2], [0, 0])
    assert (found.end_ns.tolist(), found.cpu.tolist(), found.memory.tolist()) == ([5, 5], [0, 0], [0, 0])


# Network


class Rates(AlwaysThere):
    """Device 0 as told, device 1 at 2 and 1 Mbit/s; from a moment on device 0 has 8 and 4 Mbit/s."""

    has_rates = True

    def __init__(self, first_bps: float, until_s: float = 1e30) -> None:
        super().__init__(2)
        self._first_bps, self._until_ns = first_bps, until_s * 1e9

    def rates(self, t_ns: Any, devices: Any) -> NetworkRates:
        moves = np.asarray(t_ns) >= self._until_ns
        down = np.where(devices == 1, 2e6, np.where(moves, 8e6, self._first_bps))
        up = np.where(devices == 1, 1e6, np.where(moves, 4e6, self._first_bps))
        return NetworkRates(down, up)


def network(there: Any, link: TransferSource = TransferSource.TRACE, **changes: Any) -> Network:
    """3 MB; 0.8 s and 2 J down, 0.4 s and 3 J up; 0.3 W awake beyond idling."""
    costs = {"download": cost(TransferCost, 0.8, 2.0), "upload": cost(TransferCost, 0.4, 3.0)}
    return Network(fleet([profile(**{**costs, **changes})], [100] * 2), there, link, 3_000_000)


def test_transfers_at_a_rate_take_the_power_that_was_measured() -> None:
    """24 Mbit: 3 s and 6 s at 8 and 4 Mbit/s, 12 and 24 s at 2 and 1; the radio has 2.5 and 7.5 W."""
    net, now = network(Rates(8e6, 0)), np.zeros(2, np.int64)
    down, up = net.download(now, TWO), net.upload(now, TWO)
    assert down.moving_s.tolist() == [3.0, 12.0]
    assert down.moving_j == pytest.approx([7.5, 30.0], rel=1e-12)
    assert up.moving_s.tolist() == [6.0, 24.0]
    assert up.moving_j == pytest.approx([45.0, 180.0], rel=1e-12)
    assert down.stalled_s.tolist() == down.stalled_j.tolist() == [0.0, 0.0]
    asked_down, asked_up = net.speed_test(now, TWO)
    assert asked_down.duration_s.tolist() == [3.0, 12.0]
    assert asked_up.energy_j == pytest.approx([45.0, 180.0], rel=1e-12)


def test_a_stall_delays_and_is_charged_awake() -> None:
    """Nothing for 5 s: tried after 1, 3 and 7 s. The other is not touched."""
    down = network(Rates(0.0, 5)).download(np.zeros(2, np.int64), TWO)
    assert down.stalled_s.tolist() == [7.0, 0.0]
    assert down.stalled_j == pytest.approx([2.1, 0.0], rel=1e-9)
    assert down.moving_s.tolist() == [3.0, 12.0]
    assert down.duration_s.tolist() == [10.0, 12.0]
    assert down.energy_j == pytest.approx([9.6, 30.0], rel=1e-9)


def test_a_stall_is_tried_for_two_years_and_then_for_ever() -> None:
    """Pauses of 1, 2, 4 ... 2^25 s: the last try is after 2^26 - 1 s, which are 776.7 days."""
    day_s, never_s = 86_400, 1e9
    for until_days, stalled_s in ((700, 2.0**26 - 1), (776, 2.0**26 - 1), (777, never_s), (1000, never_s)):
        up = network(Rates(0.0, until_days * day_s)).upload(np.zeros(2, np.int64), TWO)
        assert up.stalled_s.tolist() == [stalled_s, 0.0]


def test_where_nothing_moves_or_is_known_a_speed_test_is_as_measured() -> None:
    for bps in (0.0, float("nan")):
        down, up = network(Rates(bps)).speed_test(np.zeros(2, np.int64), TWO)
        assert (down.moving_s.tolist(), down.moving_j.tolist()[0]) == ([0.8, 12.0], 2.0)
        assert (up.moving_s.tolist(), up.moving_j.tolist()[0]) == ([0.4, 24.0], 3.0)
        assert down.stalled_s.tolist() == up.stalled_j.tolist() == [0.0, 0.0]


def test_as_measured_without_a_record_or_if_the_profile_counts() -> None:
    for net in (network(AlwaysThere(2)), network(Rates(8e6, 0), TransferSource.PROFILE)):
        now = np.zeros(2, np.int64)
        for down in (net.download(now, TWO), net.speed_test(now, TWO)[0]):
            assert (down.duration_s.tolist(), down.energy_j.tolist()) == ([0.8] * 2, [2.0] * 2)
        assert net.upload(now, TWO).energy_j.tolist() == [3.0] * 2


def test_a_transfer_that_was_not_measured_takes_its_time_and_no_known_energy() -> None:
    net = network(Rates(8e6, 0), upload=None)
    up = net.upload(np.zeros(2, np.int64), TWO)
    assert (up.moving_s.tolist(), up.moving_j.tolist()) == ([6.0, 24.0], [0.0, 0.0])


def test_a_transfer_that_hardly_moves_takes_a_thousand_million_seconds() -> None:
    down = network(Rates(1e-9)).download(np.zeros(2, np.int64), TWO)
    assert down.moving_s.tolist() == [1e9, 12.0]


# Fleets


def named(device: str, origin: Origin = Origin.IMPORTED, samples: int = 100) -> DeviceProfile:
    return profile(device=device, samples=samples, provenance=Provenance(origin=origin, basis="test"))


def counts(state: FleetState, n: int) -> list[int]:
    return np.bincount(state.profile, minlength=n).tolist()


def test_profiles_are_spread_by_the_largest_remainder() -> None:
    profiles = [named("a"), named("b"), named("c")]
    mix = {"a": 0.5, "b": 0.3, "c": 0.2}
    # 3.5, 2.1 and 1.4 of seven; 5.5, 3.3 and 2.2 of eleven; 1, 0.6 and 0.4 of two.
    assert counts(fleet(profiles, [100] * 7, mix=mix), 3) == [4, 2, 1]
    assert counts(fleet(profiles, [100] * 11, mix=mix), 3) == [6, 3, 2]
    assert counts(fleet(profiles, [100] * 2, mix=mix), 3) == [1, 1, 0]
    assert counts(fleet(profiles, [100] * 10, mix={"a": 3, "c": 1}), 3) == [8, 0, 2]
    assert counts(fleet(profiles, [100] * 8), 3) == [3, 3, 2]


@pytest.mark.parametrize("n", [5, 10, 12, 20, 33])
def test_a_small_fleet_is_no_end_of_a_list_in_order_of_speed(n: int) -> None:
    phones = [profile(device=f"d{i}", epoch_s=1.0 / (1 + i)) for i in range(34)]
    state = fleet(phones, [100] * n)
    assert max(counts(state, 34)) == 1
    half = np.median(state.profile)
    assert abs(half - 16.5) <= 1.0
    assert counts(fleet(phones[:8], [100] * 4), 8) == [0, 1] * 4


def test_equal_remainders_go_to_the_first() -> None:
    many = [named(f"d{i:02}") for i in range(40)]
    assert counts(fleet(many, [100] * 60), 40) == [2] * 20 + [1] * 20


def test_profiles_of_one_device_share_its_part() -> None:
    profiles = [named("phone"), named("board"), named("phone")]
    assert counts(fleet(profiles, [100] * 8, mix={"phone": 0.5, "board": 0.5}), 3) == [2, 4, 2]


@pytest.mark.parametrize(
    ("mix", "said"), [({"other": 1.0, "a": 1.0}, "names other,"), ({"a": 0.0}, "gives no device any share")]
)
def test_a_mix_of_nothing_or_of_unknown_devices_is_refused(mix: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fleet([named("a"), named("b")], [100] * 3, mix=mix)


def test_work_is_samples_and_slowness_against_the_profile() -> None:
    """150 of 100 samples at 2 s and 3 J (the first 5 s and 7 J); 50 of 200 at 6 s and 11 J, half as fast."""
    changes = {"probe": cost(PhaseCost, 5.0, 7.0), "epoch": cost(PhaseCost, 2.0, 3.0)}
    fast = profile(device="fast", **changes)
    slow = profile(device="slow", samples=200, epoch_s=6.0, epoch_j=11.0)
    drawn = fleet([fast, slow], [150, 50])
    state = FleetState(
        drawn.costs, np.array([0, 1], np.int16), np.array([1.0, 2.0]), drawn.data_size, drawn.origin
    )
    assert state.work(TWO).tolist() == [1.5, 0.5]
    assert [part.tolist() for part in state.first_epoch(TWO)] == [[7.5, 3.0], [10.5, 5.5]]
    assert [part.tolist() for part in state.epoch(TWO)] == [[3.0, 3.0], [4.5, 5.5]]
    assert len(state) == 2


def test_speeds_are_spread_around_what_was_measured() -> None:
    assert fleet([named("a")], [100] * 5).slowness.tolist() == [1.0] * 5
    logs = np.log(fleet([named("a")], [100] * 20_000, speed_spread=0.3).slowness)
    assert logs.mean() == pytest.approx(0.0, abs=0.01)
    assert logs.std() == pytest.approx(0.3, rel=0.02)


def test_a_fleet_is_as_good_as_the_weakest_number_in_use() -> None:
    imported, guessed = named("a"), named("b", Origin.LITERATURE)
    assert fleet([imported], [100, 100]).origin is Origin.IMPORTED
    assert fleet([imported, guessed], [100, 100]).origin is Origin.LITERATURE
    assert fleet([guessed, imported], [100, 100]).origin is Origin.LITERATURE
    assert fleet([imported, guessed], [100, 100], mix={"a": 1}).origin is Origin.IMPORTED
    assert fleet([imported], [100, 101]).origin is Origin.SCALED
    assert fleet([imported], [100, 100], speed_spread=0.1).origin is Origin.SCALED


# Work


CURVE = ((0.0, 1.0, 1.0), (1.0, 3.0, 1.5))


def worked(
    duration_s: list[float],
    *,
    limit_s: float = 1e5,
    busy: Any = (),
    base_w: float = 0.0,
    energy_j: float = 10.0,
) -> Progress:
    n = len(duration_s)
    state = fleet([profile(curve=CURVE)], [100] * n)
    work = Computation(
        np.arange(n), np.zeros(n, np.int16), np.array(duration_s), np.full(n, energy_j), np.full(n, base_w)
    )
    people = [user(f"u{i}", busy=busy) for i in range(n)]
    start_ns, limit_ns = np.full(n, 10 * SECOND_NS), np.full(n, round(limit_s * 1e9))
    return compute(work, start_ns, limit_ns, replay(people), OwnCurves(state.costs.curves))


def test_work_that_ends_at_its_limit_is_done_and_a_nanosecond_earlier_it_is_not() -> None:
    """From 10 s on, 4 s alone and 3 s of work in 9 s beside full load: until 23 s."""
    busy = [(14, 1000, 1.0)]
    done = worked([7.0], limit_s=23.0, busy=busy)
    assert (done.completed.tolist(), done.end_ns.tolist()) == ([True], [23 * SECOND_NS])
    assert done.total_j.tolist() == pytest.approx([10 / 7 * (4 + 3 * 1.5)], rel=1e-12)
    cut = worked([7.0], limit_s=23.0 - 1e-9, busy=busy)
    assert (cut.completed.tolist(), cut.end_ns.tolist()) == ([False], [23 * SECOND_NS - 1])


def test_whoever_is_cut_short_stops_at_its_limit_and_not_a_nanosecond_later() -> None:
    """Whatever the rounding: a thousand limits, at every one of them three times as slow."""
    n = 1000
    state = fleet([profile(curve=CURVE)], [100] * n)
    limit_ns = 10 * SECOND_NS + np.arange(1, n + 1) * 1_234_567
    work = Computation(np.arange(n), np.zeros(n, np.int16), np.full(n, 7.0), np.full(n, 1.0), np.zeros(n))
    people = [user(f"u{i}", busy=[(5, 1000, 1.0)]) for i in range(n)]
    found = compute(work, np.full(n, 10 * SECOND_NS), limit_ns, replay(people), OwnCurves(state.costs.curves))
    assert not found.completed.any()
    assert found.end_ns.tolist() == limit_ns.tolist()


def test_base_power_is_drawn_for_as_long_as_it_takes() -> None:
    """10 J in 5 s, 0.5 W of them base: 1.5 W of own. 2 s alone, then 3 s of work in 9 s at 1.5 times."""
    found = worked([5.0], busy=[(12, 1000, 1.0)], base_w=0.5)
    assert found.total_j.tolist() == pytest.approx([1.5 * (2 + 3 * 1.5) + 0.5 * (2 + 9)], rel=1e-12)
    assert found.energy_j[0].tolist() == pytest.approx([4.0, 4.0 + 1.5 * 4.5 + 4.5], rel=1e-12)


def test_work_of_no_length_or_from_the_limit_on_costs_nothing() -> None:
    found = worked([0.0, 2.0], limit_s=10.0, base_w=0.5)
    assert found.completed.tolist() == [True, False]
    assert found.end_ns.tolist() == [10 * SECOND_NS] * 2
    assert found.total_j.tolist() == [0.0, 0.0]
    assert worked([0.0, 2.0], energy_j=3.0).total_j.tolist() == [0.0, 3.0]


def test_rows_of_different_length() -> None:
    """Without load one segment, with it three; the shorter row ends where it ends."""
    state = fleet([profile(curve=CURVE)], [100] * 2)
    work = Computation(TWO, np.zeros(2, np.int16), np.array([5.0, 2.0]), np.array([5.0, 8.0]), np.zeros(2))
    people = [user("a", busy=[(11, 14, 1.0), (15, 1000, 0.5)]), user("b")]
    limit_ns = np.full(2, 10**14)
    found = compute(work, np.full(2, 10 * SECOND_NS), limit_ns, replay(people), OwnCurves(state.costs.curves))
    # 1 s alone, 3 s for 1 s of work, 1 s alone, then 2 s of work at half load: twice as long, 1.25 times.
    assert found.end_ns.tolist() == [19 * SECOND_NS, 12 * SECOND_NS]
    assert found.total_j.tolist() == pytest.approx([1 + 1.5 + 1 + 2 * 1.25, 8.0], rel=1e-9)
    assert found.t_ns[0].tolist() == [int(t) for t in ns(11, 14, 15, 19)]
    assert found.t_ns[1].tolist() == [12 * SECOND_NS] * 4
    at = found.energy_at(ns(12.5, 11), np.full(2, 10 * SECOND_NS))
    assert at.tolist() == pytest.approx([1.75, 4.0], rel=1e-9)


def test_a_steady_stage_is_cut_in_proportion() -> None:
    found = steady(
        ns(1, 1, 1, 1), np.array([4.0, 4.0, 4.0, 0.0]), np.array([8.0, 8.0, 8.0, 3.0]), ns(9, 5, 2, 1)
    )
    assert found.end_ns.tolist() == [int(t) for t in ns(5, 5, 2, 1)]
    assert found.total_j.tolist() == [8.0, 8.0, 2.0, 3.0]
    assert found.completed.tolist() == [True, True, False, True]


def test_between_moments_a_quantity_is_linear_and_constant_in_no_time() -> None:
    moments = np.array([[0, 10, 10, 20], [0, 1, 2, 3]])
    values = np.array([[0.0, 5.0, 7.0, 9.0], [1.0, 3.0, 5.0, 7.0]])
    at = np.array([[0, 4, 10, 15, 20], [0, 1, 2, 3, 3]])
    assert between(moments, values, at).tolist() == [[0.0, 2.0, 5.0, 8.0, 9.0], [1.0, 3.0, 5.0, 7.0, 7.0]]
    # Of two values for the first moment, the one before it counts at that moment.
    assert between(np.array([[5, 5, 9]]), np.array([[1.0, 3.0, 7.0]]), np.array([[5, 7]])).tolist() == [
        [1, 5]
    ]


# Budgets


def test_budgets_are_means_over_draws_of_the_best_thirty_per_cent() -> None:
    """Of ten devices the best three, all of them drawn: the slowest of them, and what they take together."""
    duration_s, energy_j = np.arange(10.0, 0.0, -1.0), np.arange(1.0, 11.0) ** 2
    assert budgets_of(duration_s, energy_j, 3, np.random.default_rng(0)) == (3.0, 1.0 + 4.0 + 9.0)
    assert budgets_of(duration_s, energy_j, 5, np.random.default_rng(0)) == (5.0, 55.0)
    assert budgets_of(duration_s[:2], energy_j[:2], 5, np.random.default_rng(0)) == (10.0, 5.0)


def test_budgets_of_fewer_than_the_pool_vary_from_draw_to_draw() -> None:
    """One of three (of eleven: four): every draw is one of them; the means are within their errors."""
    values = np.arange(1.0, 12.0)
    time_s, energy_j = budgets_of(values, 10 * values, 1, np.random.default_rng(0))
    drawn = np.random.default_rng(0)
    picks = [[1.0 + drawn.choice(4, 1, replace=False)[0] for _ in range(200)] for _ in range(2)]
    assert time_s == pytest.approx(np.mean(picks[0]), rel=1e-12)
    assert energy_j == pytest.approx(10 * np.mean(picks[1]), rel=1e-12)


def test_a_budget_holds_every_stage_of_devices_with_data() -> None:
    """First epoch 5 s, three more of 2 s, and the transfers; who has no data does not count."""
    from emulator.round.budgets import budgets_by_rule

    changes = {"probe": cost(PhaseCost, 5.0, 7.0), "epoch": cost(PhaseCost, 2.0, 3.0)}
    costs = {"download": cost(TransferCost, 0.25, 2.0), "upload": cost(TransferCost, 0.5, 4.0)}
    place = world(fleet([profile(**changes, **costs)], [0, 100]))
    found = budgets_by_rule(place, 1, 4, 0, np.random.default_rng(0))
    assert found == pytest.approx((0.25 + 5 + 3 * 2 + 0.5, 2 + 7 + 3 * 3 + 4), rel=1e-12)
    # A single sample is data: a hundredth of every epoch.
    found = budgets_by_rule(
        world(fleet([profile(**changes, **costs)], [1])), 1, 4, 0, np.random.default_rng(0)
    )
    assert found == pytest.approx((0.75 + 0.11, 6 + 0.16), rel=1e-12)
    with pytest.raises(ConfigError, match="data"):
        budgets_by_rule(world(fleet([profile()], [0, 0])), 1, 4, 0, np.random.default_rng(0))


def test_work_ends_at_the_first_nanosecond_by_which_it_is_done() -> None:
    """A third of a second and two sevenths, alone and three times as slow: always rounded up."""
    alone = worked([1 / 3, 2 / 7])
    assert (alone.end_ns - 10 * SECOND_NS).tolist() == [333_333_334, 285_714_286]
    beside = worked([1 / 3, 2 / 7], busy=[(5, 1000, 1.0)])
    assert (beside.end_ns - 10 * SECOND_NS).tolist() == [1_000_000_000, 857_142_858]
    assert beside.loaded_s is not None
    assert beside.loaded_s == pytest.approx([1.0, 6 / 7], rel=1e-8)


def test_who_came_and_went_is_still_known_after_a_stop() -> None:
    """The second goes and the third comes; the second left its work; batteries of the last and the first."""
    seen = Motion(5)
    seen.check_in(np.array([True, True, False, False, True]), np.array([4]))
    seen.ended(np.array([1]), np.array([0]))
    seen.check_in(np.array([True, False, True, False, True]), np.array([], np.int64))
    counts = {"devices_changed": 2, "devices_left": 1, "devices_low": 2}
    assert seen.counts() == counts
    state, other = seen.state_dict(), Motion(5)
    other.load_state_dict(state)
    seen.check_in(np.zeros(5, bool), np.arange(5))
    assert seen.counts() == {"devices_changed": 4, "devices_left": 1, "devices_low": 5}
    assert other.counts() == counts
    other.ended(np.array([3, 4]), np.array([4]))
    assert other.counts() == counts | {"devices_left": 3}
    third = Motion(5)
    third.load_state_dict(state)
    assert third.counts() == counts
