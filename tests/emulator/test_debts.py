"""Debts during work, against a step-by-step integration in plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import NEVER_NS
from power.profile.model import Battery
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user

CHARGE_W, IDLE_W = 0.5, 0.1
PHONE = profile(battery=Battery(capacity_j=1e6, charge_w=CHARGE_W))
SPAN_S = 200


@st.composite
def work(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Moments in seconds, and the energy up to each."""
    inner = draw(st.lists(st.integers(1, SPAN_S - 1), max_size=6, unique=True))
    moments = [0, *sorted(inner), SPAN_S]
    steps = draw(st.lists(st.floats(0, 60), min_size=len(moments) - 1, max_size=len(moments) - 1))
    return moments, [0.0, *np.cumsum(steps).tolist()]


@st.composite
def plugged(draw: st.DrawFn) -> list[tuple[float, float]]:
    edges = sorted(draw(st.lists(st.integers(0, SPAN_S), max_size=8, unique=True)))
    return list(zip(edges[::2], edges[1::2], strict=False))


def by_hand(
    debt_j: float,
    moments: list[int],
    energy_j: list[float],
    charging: list[tuple[float, float]],
    idle_w: float,
) -> float:
    """Second by second; all changes are at whole seconds."""
    for second in range(SPAN_S):
        place = max(i for i, t in enumerate(moments[:-1]) if t <= second)
        (t0, t1), (j0, j1) = list(pairwise(moments))[place], list(pairwise(energy_j))[place]
        on = any(a <= second < b for a, b in charging)
        debt_j = max(0.0, debt_j + (j1 - j0) / (t1 - t0) + (-CHARGE_W if on else idle_w))
    return debt_j


@settings(max_examples=60, deadline=None)
@given(work(), plugged(), st.floats(0, 40), st.booleans())
def test_a_debt_agrees_with_integration_by_hand(
    done: tuple[list[int], list[float]], charging: list[tuple[float, float]], debt_j: float, recorded: bool
) -> None:
    """Beside somebody whose charger changes often: rows do not depend on each other."""
    moments, energy_j = done
    level = {"battery": [(0, 0.9), (86400, 0.9)]} if recorded else {}
    seen = [*charging, (80_000, 81_000)]  # or there would be no charger to model a level from
    other = user("other", charging=[(t, t + 3) for t in range(0, SPAN_S, 10)], **level)
    cells = Batteries(fleet([PHONE], [100, 100]), replay([user("one", charging=seen, **level), other]))
    ids = np.arange(2)
    ends_ns, owed_j = cells.drain(
        ids, np.full(2, debt_j), np.array([moments] * 2) * SECOND_NS, np.array([energy_j] * 2)
    )
    assert ends_ns.tolist() == [NEVER_NS] * 2
    expected_j = by_hand(debt_j, moments, energy_j, charging, 0.0 if recorded else IDLE_W)
    assert owed_j[0] == pytest.approx(expected_j, abs=1e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_when_one_battery_ends_the_others_owe_what_they_spent(turned: bool) -> None:
    """2000 J each in 100 s. One has 500 J left, which last for 25 s; another charges from 40 s on."""
    people = [
        user("ends", battery=[(0, 0.0005), (86400, 0.0005)], charging=[]),
        user("lasts", battery=[(0, 0.9), (86400, 0.9)], charging=[]),
        user("charges", battery=[(0, 0.9), (86400, 0.9)], charging=[(40, 100)]),
    ]
    expected = [(25 * SECOND_NS, 500.0), (NEVER_NS, 2000.0 + 7.0), (NEVER_NS, 2000.0 + 11.0 - 60 * CHARGE_W)]
    debts_j = np.array([0.0, 7.0, 11.0])
    if turned:
        people, expected, debts_j = people[::-1], expected[::-1], debts_j[::-1]
    cells = Batteries(fleet([PHONE], [100] * 3), replay(people))
    moments_ns = np.array([[0, 50, 100]] * 3) * SECOND_NS
    ids = np.arange(3)
    ends_ns, owed_j = cells.drain(ids, debts_j, moments_ns, np.array([[0.0, 1000.0, 2000.0]] * 3))
    assert owed_j == pytest.approx([owed for _, owed in expected], rel=1e-6)
    assert ends_ns == pytest.approx([ends for ends, _ in expected], rel=1e-6)
    cells.set_debts(ids, owed_j, moments_ns[:, -1], ends_ns < NEVER_NS)
    now_ns = 100 * SECOND_NS
    assert cells.debts(now_ns, ids) == pytest.approx([owed for _, owed in expected], rel=1e-6)
    dead = 2 if turned else 0
    assert cells.switched_off(now_ns, np.ones(3, bool)).tolist() == [dead]
    assert cells.exhausted(now_ns, ids).tolist() == [i == dead for i in range(3)]
