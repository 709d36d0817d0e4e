"""Batteries at their edges: moments hit to the nanosecond, phones unlike each other, who is asked at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.fleet.batteries import Batteries, zeros
from emulator.fleet.conditions import NEVER_NS, AlwaysThere, Ids, Replayed, Times
from joulefleet.errors import NobodyLeft
from power.profile.model import Battery
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user, world
from traces.replay.devices import FleetRecipe
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet

ALL_DAY = [(0, 86_400)]
LARGE, SMALL = Battery(capacity_j=1000, charge_w=5), Battery(capacity_j=400, charge_w=2)
TWO = np.arange(2)


def flat(level: float) -> list[tuple[float, float]]:
    return [(0, level), (86_400, level)]


def cells_of(people: Sequence[Any], phone: Battery = LARGE, **options: float) -> Batteries:
    return Batteries(fleet([profile(battery=phone)], [100] * len(people)), replay(people), **options)


def owe(
    cells: Batteries, debts_j: Sequence[float], *, at_s: Sequence[int] | None = None, out: Any = ()
) -> None:
    n = len(debts_j)
    when = np.zeros(n, np.int64) if at_s is None else np.array(at_s) * SECOND_NS
    cells.set_debts(np.arange(n), np.array(debts_j), when, np.isin(np.arange(n), out))


def off(cells: Batteries, t_ns: int, n: int = 1) -> list[int]:
    return cells.switched_off(t_ns, np.ones(n, bool)).tolist()


class Counted(Replayed):
    """Notes whose level was looked up, and how often a charger was."""

    def __init__(self, of: Replayed) -> None:
        self.__dict__.update(of.__dict__)
        self.levels: list[int] = []
        self.chargers = 0

    def level(self, t_ns: Times, devices: Ids) -> Any:
        self.levels += devices.tolist()
        return super().level(t_ns, devices)

    def charging(self, t_ns: Times, devices: Ids) -> Any:
        self.chargers += len(devices)
        return super().charging(t_ns, devices)


def counted(people: Sequence[Any], **options: float) -> tuple[Batteries, Counted]:
    there = Counted(replay(people))
    cells = Batteries(fleet([profile(battery=LARGE)], [100] * len(people)), there, **options)
    there.levels.clear()
    there.chargers = 0
    return cells, there


def test_whoever_ran_out_restarts_no_lower_than_the_floor() -> None:
    """Floor 20 %, restart 10 % (which then counts as 20): at 15 % it stays off, at 21 % it is back."""
    for level, expected in ((0.15, [0]), (0.20, [0]), (0.21, [])):
        cells = cells_of([user(battery=flat(level), charging=[])], floor=0.2, restart=0.1)
        owe(cells, [0.0], out=[0])
        assert off(cells, SECOND_NS) == expected


def test_the_usual_floor_restart_and_first_level() -> None:
    for level, ran_out, expected in ((0.05, [0], [0]), (0.051, [0], []), (0.001, [], []), (0.0, [], [0])):
        cells = cells_of([user(battery=flat(level), charging=[])])
        owe(cells, [0.0], out=ran_out)
        assert off(cells, SECOND_NS) == expected
    assert cells_of([user(charging=[(1, 2)])]).level(0, TWO[:1]).tolist() == [1.0]


def test_only_who_owes_is_indebted_and_only_who_is_asked_about() -> None:
    cells = cells_of([user(n, battery=flat(0.5), charging=[]) for n in "abc"])
    owe(cells, [0.0, 0.5, 4.0])
    assert cells.indebted(np.array([True, True, False])).tolist() == [1]
    assert Batteries(fleet([profile()], [100]), AlwaysThere(1)).indebted(np.ones(1, bool)).tolist() == []


def test_half_a_joule_is_paid_back_like_any_other_debt() -> None:
    cells = cells_of([user(n, battery=flat(0.5), charging=on) for n, on in {"a": ALL_DAY, "b": []}.items()])
    owe(cells, [0.5, 0.5])
    assert cells.debts(SECOND_NS // 20, TWO) == pytest.approx([0.25, 0.5], rel=1e-9)
    assert cells.debts(SECOND_NS, TWO).tolist() == [0.0, 0.5]


def test_nobody_owes_more_than_the_battery_holds_and_a_board_owes_nothing() -> None:
    state = fleet([profile(battery=LARGE), profile(device="board")], [100, 100])
    cells = Batteries(state, replay([user(n, battery=flat(0.5), charging=ALL_DAY) for n in "ab"]))
    owe(cells, [5000.0, 5000.0])
    expected = np.where(state.profile == 0, 1000.0, 0.0)
    assert cells.debts(0, TWO).tolist() == expected.tolist()
    # 5 W for ten seconds, from what it holds and not from what the work took.
    assert cells.debts(10 * SECOND_NS, TWO).tolist() == np.where(state.profile == 0, 950.0, 0.0).tolist()


def test_a_debt_counts_from_the_end_of_the_work_of_each() -> None:
    """On a charger all day; done at 10 and at 40 s, asked at 50 s: 40 and 10 s of 5 W."""
    cells = cells_of([user(n, battery=flat(0.9), charging=ALL_DAY) for n in "ab"])
    owe(cells, [300.0, 300.0], at_s=[10, 40])
    assert cells.debts(50 * SECOND_NS, TWO) == pytest.approx([100.0, 250.0], rel=1e-12)


def test_a_spent_phone_is_off_although_nobody_said_that_it_ran_out() -> None:
    """30 % of 1000 J are 300 J. One joule less, and it stays; it is told in a stored state as well."""
    people = [user(n, battery=flat(0.3), charging=[]) for n in "ab"]
    cells, other = cells_of(people), cells_of(people)
    owe(cells, [300.0, 299.0])
    other.load_state_dict(cells.state_dict())
    assert off(cells, SECOND_NS, 2) == off(other, SECOND_NS, 2) == [0]
    assert cells.exhausted(SECOND_NS, TWO).tolist() == [True, False]


def test_the_stored_state_is_a_copy_in_both_directions() -> None:
    person = user(battery=flat(0.5), charging=[])
    cells, other = cells_of([person]), cells_of([person])
    owe(cells, [100.0], out=[0])
    state = cells.state_dict()
    owe(cells, [200.0])
    other.load_state_dict(state)
    assert other.debts(0, TWO[:1]).tolist() == [100.0]
    owe(other, [300.0])
    assert state["debt_j"].tolist() == [100.0]
    assert state["empty"].tolist() == [0]


def test_a_modelled_battery_ends_to_the_nanosecond_and_nobody_asks_before() -> None:
    """75 % of 1000 J above the floor, 150 J of them owed: 600 J at 0.1 W last for 6000 s after 100 s."""
    cells, there = counted([user(charging=[(80_000, 81_000)])], floor=0.25)
    owe(cells, [150.0], at_s=[100])
    ends_ns = 6100 * SECOND_NS
    assert off(cells, ends_ns - 1) == []
    assert there.levels == []
    assert off(cells, ends_ns) == [0]
    assert there.levels == [0]


def test_only_phones_that_may_have_nothing_left_are_asked_about() -> None:
    """The lowest levels are 40 and 10 %; 200 of 1000 J are owed; the charger pays them back in 40 s."""
    low = [(0, 0.9), (40_000, 0.1), (86_400, 0.9)]
    cells, there = counted([user("high", battery=flat(0.4)), user("low", battery=low, charging=ALL_DAY)])
    owe(cells, [200.0, 200.0])
    assert off(cells, 0, 2) == []
    assert there.levels == [1]
    there.levels.clear()
    assert cells.debts(41 * SECOND_NS, TWO).tolist() == [200.0, 0.0]
    assert off(cells, 42 * SECOND_NS, 2) == []
    assert there.levels == []  # nothing is owed any more, and 10 % were always there


def test_whoever_can_afford_a_debt_is_not_brought_up_to_date_at_every_check_in() -> None:
    """90 % are recorded and 20 % owed: what a charger has paid back since cannot matter."""
    low = [(0, 0.9), (40_000, 0.1), (86_400, 0.9)]
    cells, there = counted([user("low", battery=low, charging=ALL_DAY)])
    owe(cells, [200.0])
    assert [off(cells, second * SECOND_NS) for second in range(1, 20)] == [[]] * 19
    assert there.chargers == 0


def test_chargers_are_looked_up_for_those_who_owe_and_once() -> None:
    cells, there = counted([user(n, battery=flat(0.5), charging=ALL_DAY) for n in "ab"])
    owe(cells, [0.0, 50.0])
    cells.level(5 * SECOND_NS, TWO)
    assert there.chargers == 1
    cells.level(5 * SECOND_NS, TWO)
    assert there.chargers == 1
    assert cells.debts(20 * SECOND_NS, TWO).tolist() == [0.0, 0.0]
    cells.level(30 * SECOND_NS, TWO)
    assert there.chargers == 2


def drained(cells: Batteries, energy_j: list[float], debt_j: float = 0.0) -> tuple[int, float]:
    moments = np.arange(len(energy_j))[None, :] * 10 * SECOND_NS
    ends_ns, owed_j = cells.drain(TWO[:1], np.array([debt_j]), moments, np.array([energy_j]))
    return int(ends_ns[0]), float(owed_j[0])


def test_a_level_meets_the_floor_between_two_moments() -> None:
    """50 % of 1000 J, the floor at 20 %: 300 J: 100 in ten seconds, then 40 a second."""
    cells = cells_of([user(battery=flat(0.5), charging=[])], floor=0.2)
    ends_ns, owed_j = drained(cells, [0.0, 100.0, 500.0, 900.0])
    assert ends_ns == pytest.approx(15 * SECOND_NS, abs=2)
    assert owed_j == pytest.approx(300.0, rel=1e-9)


@pytest.mark.parametrize("debt_j", [300.0, 400.0])
def test_a_level_at_or_below_the_floor_ends_the_work_where_it_begins(debt_j: float) -> None:
    cells = cells_of([user(battery=flat(0.5), charging=[])], floor=0.2)
    assert drained(cells, [0.0, 100.0, 500.0], debt_j) == (0, debt_j)


def test_work_that_just_reaches_the_floor_at_its_end() -> None:
    cells = cells_of([user(battery=flat(0.5), charging=[])])
    ends_ns, owed_j = drained(cells, [0.0, 125.0, 500.0])
    assert ends_ns == pytest.approx(20 * SECOND_NS, abs=2)
    assert owed_j == pytest.approx(500.0, rel=1e-9)
    assert drained(cells, [0.0, 125.0, 499.0]) == (NEVER_NS, 499.0)


def test_what_idling_takes_within_gross_energy_is_not_taken_twice() -> None:
    """0.1 W of idling: 0.4 J in 10 s are less than that and add nothing, 1.5 J add 0.5 J."""
    state = fleet([profile(battery=LARGE)], [100], energy="gross")
    cells = Batteries(state, replay([user(battery=flat(0.5), charging=[])]))
    assert drained(cells, [0.0, 0.4]) == (NEVER_NS, 0.0)
    assert drained(cells, [0.0, 0.4, 1.9])[1] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("level", "debt_j", "charge_w", "charging", "seconds"),
    [
        (0.30, 300.0, 5.0, ALL_DAY, 10.0),  # 5 % of 1000 J, at 5 W
        (0.01, 10.0, 5.0, ALL_DAY, 2.0),  # only what is owed is paid back: the rest was never there
        (0.0005, 0.5, 5.0, ALL_DAY, 0.1),  # half a joule is a debt, too
        (0.30, 300.0, 5.0, [(0, 4)], 4.0),  # the charger goes
        (0.30, 300.0, 0.5, ALL_DAY, 60.0),  # 100 s; asked again after a minute
        (0.30, 300.0, 5.0, [], 3600.0),  # no charger: what is recorded may rise
        (0.30, 300.0, 5.0, [(7, 90)], 7.0),
        (0.00, 0.0, 5.0, ALL_DAY, 3600.0),  # nothing is owed, so a charger pays nothing
        (0.30, 300.0, 1e-310, ALL_DAY, 60.0),
    ],
)
def test_when_to_ask_about_an_empty_phone_again(
    level: float, debt_j: float, charge_w: float, charging: Any, seconds: float
) -> None:
    phone = Battery(capacity_j=1000, charge_w=charge_w)
    cells = cells_of([user(battery=flat(level), charging=charging)], phone)
    owe(cells, [debt_j], out=[0])
    assert off(cells, 0) == [0]
    charged = seconds in (10.0, 2.0, 0.1)  # one nanosecond more, so that it is surely there
    assert cells.recovers_at(0, TWO[:0]) == round(seconds * SECOND_NS) + charged


@pytest.mark.parametrize(("empty_j", "barred_j", "seconds"), [(300.0, 70.0, 10), (300.0, 20.0, 4)])
def test_the_first_of_several_phones_decides_when_to_ask_again(
    empty_j: float, barred_j: float, seconds: int
) -> None:
    """One is out and needs 50 J for its 5 %; the other is barred until all it owes is paid, if need be."""
    people = [
        user("out", battery=flat(0.3), charging=ALL_DAY),
        user("bar", battery=flat(0.6), charging=ALL_DAY),
    ]
    cells = cells_of(people)
    owe(cells, [empty_j, barred_j], out=[0])
    assert off(cells, 0, 2) == [0]
    assert cells.recovers_at(0, TWO[1:]) == seconds * SECOND_NS + 1
    cells.level(3 * SECOND_NS, TWO)
    assert cells.recovers_at(3 * SECOND_NS, TWO[1:]) == pytest.approx(seconds * SECOND_NS, abs=2)


def test_nobody_to_wait_for_is_never() -> None:
    assert cells_of([user(battery=flat(0.5), charging=[])]).recovers_at(0, TWO[:0]) == NEVER_NS


class Late(AlwaysThere):
    """Nobody is there before a moment."""

    def __init__(self, from_ns: int, said_ns: int | None = None) -> None:
        super().__init__(2)
        self._from_ns, self._said_ns = from_ns, from_ns if said_ns is None else said_ns

    def eligible(self, t_ns: int) -> Any:
        return np.array([t_ns >= self._from_ns, False])

    def next_arrival(self, t_ns: int) -> int:
        return self._said_ns


def test_somebody_is_waited_for_a_year_and_no_longer() -> None:
    year_ns = 366 * 24 * 3600 * SECOND_NS
    state, start_ns = fleet([profile()], [100, 100]), 5 * SECOND_NS
    when_ns, who = world(state, Late(start_ns + year_ns)).check_in(start_ns)
    assert (when_ns, who.tolist()) == (start_ns + year_ns, [True, False])
    with pytest.raises(NobodyLeft):
        world(state, Late(start_ns + year_ns + 1)).check_in(start_ns)
    with pytest.raises(RuntimeError, match="clock"):
        world(state, Late(NEVER_NS, start_ns)).check_in(start_ns)


def test_a_policy_that_does_not_ask_about_the_battery_bars_nobody_for_a_debt() -> None:
    people = [user(n, battery=flat(0.9), charging=ALL_DAY) for n in "ab"]
    state = fleet([profile(battery=LARGE)], [100, 100])
    for policy, expected in (("charging", [True, True]), ("battery >= 50 %", [True, False])):
        place = world(state, replay(people, policy))
        owe(place.batteries, [399.0, 401.0])
        assert place.check_in(0)[1].tolist() == expected


def test_a_phone_below_the_floor_is_off_from_the_first_nanosecond() -> None:
    people = [user(n, battery=flat(level), charging=[]) for n, level in {"low": 0.05, "half": 0.5}.items()]
    cells = cells_of(people, floor=0.2)
    assert off(cells, 0, n=2) == [0]


def test_only_who_could_train_otherwise_is_barred_for_its_debt() -> None:
    """Three owe the same: one may train on what is left, one is barred, one is not there at all."""
    people = [
        user("rich", battery=flat(0.99), charging=ALL_DAY),
        user("barred", battery=flat(0.9), charging=ALL_DAY),
        user("away", battery=flat(0.9), charging=[]),
    ]
    place = world(fleet([profile(battery=LARGE)], [100] * 3), replay(people, "charging and battery >= 50 %"))
    owe(place.batteries, [450.0, 450.0, 450.0])
    eligible, barred = place._eligible(0)
    assert (eligible.tolist(), barred.tolist()) == ([True, False, False], [1])


def test_a_glance_tells_how_full_the_known_batteries_are_and_changes_nothing() -> None:
    """Levels of 0.1 to 0.5 less 50 J of 1000 J each; a full one that idles at 0.1 W for 1000 s; a board."""
    people = [user(f"u{i}", battery=flat(0.1 * i), charging=[]) for i in range(1, 6)]
    people.append(user("modelled", charging=[(80_000, 81_000)]))
    cells = cells_of(people)
    owe(cells, [50.0] * 5 + [0.0])
    before = cells.state_dict(), cells._low_ns.copy()
    found = cells.glance(1000 * SECOND_NS)
    levels = [0.05, 0.15, 0.25, 0.35, 0.45, 0.9]
    assert found == pytest.approx(
        {"battery_low": (levels[0] + levels[1]) / 2, "battery_median": (levels[2] + levels[3]) / 2}
    )
    for name, values in cells.state_dict().items():
        assert values.tolist() == before[0][name].tolist()
    assert cells._low_ns.tolist() == before[1].tolist()
    state = fleet([profile(battery=LARGE), profile(device="board")], [100, 100])
    mixed = Batteries(state, replay([user(n, battery=flat(0.5), charging=[]) for n in "ab"]))
    assert mixed.glance(0) == pytest.approx({"battery_low": 0.5, "battery_median": 0.5})
    unread = cells_of([user(battery=[(40_000, 0.5), (86_400, 0.5)], charging=[])])
    for unknown in (Batteries(fleet([profile()], [100]), AlwaysThere(1)), unread):
        assert np.isnan(list(unknown.glance(0).values())).tolist() == [True, True]


def test_of_two_thousand_batteries_every_second_one_is_looked_at() -> None:
    traces = TraceFleet.from_recipe(
        flatten([user(battery=flat(0.5), charging=[])]), FleetRecipe(devices=2000)
    )
    cells = Batteries(fleet([profile(battery=LARGE)], [100] * 2000), Replayed(traces, "any"))
    for first, seen in ((0, 0.2), (1, 0.5)):
        debts_j = np.zeros(2000)
        debts_j[first::2] = 300.0
        owe(cells, debts_j.tolist())
        assert cells.glance(0) == pytest.approx({"battery_low": seen, "battery_median": seen})


def test_zeros_of_a_large_fleet_take_no_memory_until_they_are_written() -> None:
    """Of 40 MB a hundred are written, each on a page of its own; numpy's zeros come in pages of 2 MB."""

    def resident_kb() -> int:
        status = Path("/proc/self/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))

    before_kb = resident_kb()
    held = zeros(5_000_000, np.float64)
    held[::50_000] = 2.5
    assert resident_kb() - before_kb < 4_000
    assert held.sum() == 250.0
    assert held.copy()[50_000] == 2.5
