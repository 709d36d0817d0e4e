"""Debts: added by training, paid back on the charger only, modelled where nothing was recorded."""

import numpy as np
import pytest

from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import NEVER_NS
from power.profile.model import Battery
from tests.emulator.worlds import HOUR_S, SECOND_NS, fleet, profile, replay, user, world

PHONE = Battery(capacity_j=1000, charge_w=0.1)
ONE = np.arange(1)


def batteries(person, phone: Battery | None = PHONE, **options: float) -> Batteries:
    return Batteries(fleet([profile(battery=phone)], [100]), replay([person]), **options)


def level(cells: Batteries, hour: float) -> float:
    return float(cells.level(round(hour * HOUR_S * SECOND_NS), ONE)[0])


def spend(cells: Batteries, energy_j: float, *, ran_out: bool = False) -> None:
    """A round at time 0 that took no time."""
    owed_j = cells.debts(0, ONE) + energy_j
    cells.set_debts(ONE, owed_j, np.zeros(1, np.int64), np.array([ran_out]))


def off(cells: Batteries, hour: float) -> list[int]:
    return cells.switched_off(round(hour * HOUR_S * SECOND_NS), np.ones(1, bool)).tolist()


def test_the_level_is_the_recorded_one_minus_the_debt() -> None:
    readings = [(hour * HOUR_S, 0.8 - hour / 60) for hour in range(25)]
    cells = batteries(user(battery=readings, charging=[]))
    assert level(cells, 0) == pytest.approx(0.8)
    spend(cells, 100.0)
    assert level(cells, 0) == pytest.approx(0.7)
    assert level(cells, 12) == pytest.approx(0.6 - 0.1)


def test_a_debt_is_paid_back_only_on_the_charger() -> None:
    """0.1 W over half an hour are 180 J."""
    person = user(battery=[(0, 0.8), (86400, 0.8)], charging=[(7200, 9000), (36000, 72000)])
    cells = batteries(person)
    level(cells, 0)
    spend(cells, 400.0)
    assert level(cells, 2) == pytest.approx(0.4)
    assert level(cells, 2.25) == pytest.approx(0.4 + 0.09)
    assert level(cells, 5) == pytest.approx(0.4 + 0.18)
    assert level(cells, 20) == pytest.approx(0.8)


def test_looking_often_gives_the_same_as_looking_once() -> None:
    person = user(battery=[(0, 0.9), (86400, 0.5)], charging=[(h * 3600, h * 3600 + 1200) for h in range(23)])
    often, once = batteries(person), batteries(person)
    for cells in (often, once):
        level(cells, 0)
        spend(cells, 800.0)
    for hour in np.arange(0.1, 20, 0.37):
        level(often, hour)
    assert level(often, 20.5) == pytest.approx(level(once, 20.5))


def test_where_no_level_was_recorded_it_is_modelled() -> None:
    """Full at first, 0.1 W of idling off the charger."""
    cells = batteries(user(charging=[(7200, 10800)]), initial=0.9)
    assert level(cells, 0) == pytest.approx(0.9)
    assert level(cells, 1) == pytest.approx(0.9 - 0.36)
    assert level(cells, 2) == pytest.approx(0.9 - 0.72)
    assert level(cells, 3) == pytest.approx(0.9 - 0.72 + 0.36)
    assert level(cells, 9) == 0.0


def test_without_any_record_or_battery_it_never_ends() -> None:
    assert not batteries(user()).active
    assert not batteries(user(battery=[(0, 0.5)], charging=[]), None).active


def test_a_board_without_a_battery_is_not_at_the_level_of_the_phone_that_it_replays() -> None:
    """Beside a phone, so that levels count at all; the users' level was recorded, or only their charger."""
    for person in ({"battery": [(0, 0.0), (86400, 0.0)], "charging": []}, {"charging": [(1, 2)]}):
        state = fleet([profile(battery=PHONE), profile(device="board")], [100, 100])
        cells = Batteries(state, replay([user("a", **person), user("b", **person)]), initial=0.0)
        board = np.flatnonzero(state.profile == 1)
        assert cells.exhausted(0, np.arange(2)).tolist() == (state.profile == 0).tolist()
        moments = np.array([[0, 1800]]) * SECOND_NS
        ends_ns, owed_j = cells.drain(board, np.zeros(1), moments, np.array([[0.0, 1e6]]))
        assert ends_ns.tolist() == [NEVER_NS]
        cells.set_debts(board, owed_j, moments[:, -1], np.zeros(1, bool))
        assert np.isnan(cells.level(HOUR_S * SECOND_NS, board)).all()
        assert board not in cells.indebted(np.ones(2, bool))


def test_a_charger_of_next_to_nothing_takes_for_ever_and_not_less_than_no_time() -> None:
    person = user(battery=[(0, 0.5), (86400, 0.5)], charging=[(0, 86400)])
    cells = batteries(person, Battery(capacity_j=1e4, charge_w=1e-9))
    level(cells, 0)
    spend(cells, 5e3, ran_out=True)
    assert off(cells, 1 / HOUR_S) == [0]
    assert cells.recovers_at(SECOND_NS, ONE[:0]) == 61 * SECOND_NS  # not now, and asked again in a minute


def test_a_phone_that_the_policy_bars_is_back_as_soon_as_its_level_will_do() -> None:
    """60 % recorded, 13.89 % spent, 0.1 W: 50 % are there after 389 s, all of it after 1389 s."""
    person = user(battery=[(0, 0.6), (86400, 0.6)], charging=[(0, 86400)])
    state = fleet([profile(battery=PHONE)], [100])
    place = world(state, replay([person], "charging and battery >= 50 %"))
    place.batteries.level(0, ONE)
    spend(place.batteries, 138.9)
    assert 389 * SECOND_NS <= place.check_in(0)[0] <= (389 + 60) * SECOND_NS


def test_a_barred_phone_is_back_when_its_recorded_level_has_risen() -> None:
    """No charger was recorded, so nothing is paid back: 55 % at first, 10 % of it owed; 95 % at noon."""
    person = user(battery=[(0, 0.55), (43200, 0.95), (86400, 0.95)])
    place = world(fleet([profile(battery=PHONE)], [100]), replay([person], "battery >= 50 %"))
    place.batteries.level(0, ONE)
    spend(place.batteries, 100.0)
    assert place.check_in(0)[0] == 2 * HOUR_S * SECOND_NS


def test_the_clock_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    place = world(fleet([profile(battery=PHONE)], [100]), replay([user(charging=[])], "charging"))
    monkeypatch.setattr(Batteries, "recovers_at", lambda *_: -1)
    with pytest.raises(RuntimeError, match="clock"):
        place.check_in(0)


def test_an_empty_phone_comes_back_when_it_is_charged() -> None:
    person = user(battery=[(0, 0.3), (86400, 0.3)], charging=[(3600, 10800)])
    cells = batteries(person)
    level(cells, 0)
    spend(cells, 300.0, ran_out=True)
    assert off(cells, 0.5) == [0]
    assert cells.recovers_at(round(0.5 * HOUR_S * SECOND_NS), ONE[:0]) == HOUR_S * SECOND_NS
    assert off(cells, 1.5) == []


def test_an_empty_phone_comes_back_when_its_recorded_level_has_risen() -> None:
    """No charger was recorded. Nothing of the 5 % is left at first; 95 % are there at noon."""
    person = user(battery=[(0, 0.05), (43200, 0.95), (86400, 0.95)])
    place = world(fleet([profile(battery=PHONE)], [100]), replay([person]))
    spend(place.batteries, 50.0, ran_out=True)
    assert 0 < place.check_in(0)[0] <= HOUR_S * SECOND_NS


@pytest.mark.parametrize(
    ("facts", "settings"),
    [
        ({"battery": [(0, 0.0), (43200, 0.9)], "charging": []}, {}),
        ({"battery": [(0, 0.2), (43200, 0.9)], "charging": []}, {"floor": 0.2, "restart": 0.25}),
        ({"charging": [(7200, 86400)]}, {"initial": 0.0}),
    ],
)
def test_a_phone_with_nothing_left_does_not_check_in(facts: dict, settings: dict) -> None:
    state = fleet([profile(battery=PHONE)], [100] * 2)
    full = user("full", battery=[(0, 0.9), (86400, 0.9)], charging=[])
    place = world(state, replay([user("flat", **facts), full]), **settings)
    assert place.check_in(0)[1].tolist() == [False, True]
    assert place.check_in(10 * HOUR_S * SECOND_NS)[1].tolist() == [True, True]


def test_idling_drains_a_modelled_battery_to_its_floor_between_rounds() -> None:
    """1000 J at 0.1 W last for 10,000 s, whether anybody looked before or not; training shortens that."""
    state = fleet([profile(battery=PHONE)], [100] * 2)
    for looks in ((), (5000,)):
        place = world(state, replay([user("a", charging=[(80_000, 81_000)]), user("b")]))
        for t_s in looks:
            assert place.check_in(t_s * SECOND_NS)[1].tolist() == [True, True]
        assert place.check_in(9_999 * SECOND_NS)[1].tolist() == [True, True]
        assert place.check_in(10_001 * SECOND_NS)[1].tolist() == [False, True]
    place = world(state, replay([user("a", charging=[(80_000, 81_000)]), user("b")]))
    spend(place.batteries, 500.0)
    assert place.check_in(5_001 * SECOND_NS)[1].tolist() == [False, True]


def test_a_level_that_becomes_known_as_empty_ends_the_work_then() -> None:
    cells = batteries(user(battery=[(3600, 0.0), (7200, 0.0)], charging=[]))
    moments = np.array([[0, 1800, 5400]]) * SECOND_NS
    ends_ns, _ = cells.drain(ONE, np.zeros(1), moments, np.array([[0.0, 1.0, 2.0]]))
    assert ends_ns.tolist() == [5400 * SECOND_NS]


def test_state_is_stored_and_restored() -> None:
    person = user(battery=[(0, 0.8), (86400, 0.8)], charging=[(3600, 5400)])
    cells, other = batteries(person), batteries(person)
    level(cells, 0)
    spend(cells, 500.0)
    other.load_state_dict(cells.state_dict())
    assert level(other, 10) == level(cells, 10) == pytest.approx(0.3 + 0.18)
