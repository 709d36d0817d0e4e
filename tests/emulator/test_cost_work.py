"""Computing beside other apps, against a step-by-step integration in plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.fleet.interference import OwnCurves
from emulator.fleet.slowdown import Computation, compute
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user

CURVE = ((0.0, 1.0, 1.0), (0.5, 1.5, 1.1), (1.0, 3.0, 1.5))


def work(duration_s: float, energy_j: float, n: int = 1) -> Computation:
    return Computation(
        np.arange(n), np.zeros(n, np.int16), np.full(n, duration_s), np.full(n, energy_j), np.zeros(n)
    )  # fmt: skip


def one(users: list, duration_s: float, energy_j: float, start_s: float = 0.0, limit_s: float = 1e5):
    state = fleet([profile(curve=CURVE)], [100] * len(users))
    n = len(users)
    start = np.full(n, round(start_s * 1e9))
    limit = np.full(n, round(limit_s * 1e9))
    return compute(work(duration_s, energy_j, n), start, limit, replay(users), OwnCurves(state.costs.curves))


def test_without_load_it_takes_what_was_measured() -> None:
    progress = one([user()], 10.0, 7.0)
    assert progress.end_ns.tolist() == [10 * SECOND_NS]
    assert progress.total_j == pytest.approx([7.0])
    assert progress.completed.all()


def test_a_phone_picked_up_in_the_middle_slows_from_then_on() -> None:
    """Full load from second 4 on: 6 of 10 seconds of work are left and take three times as long."""
    progress = one([user(busy=[(4, 1000, 1.0)])], 10.0, 10.0)
    assert progress.end_ns[0] * 1e-9 == pytest.approx(4 + 6 * 3)
    assert progress.total_j == pytest.approx([4 + 6 * 1.5])


def test_and_is_fast_again_when_put_down() -> None:
    progress = one([user(busy=[(4, 7, 1.0)])], 10.0, 10.0)
    assert progress.end_ns[0] * 1e-9 == pytest.approx(4 + 3 + (10 - 4 - 1))
    assert progress.total_j == pytest.approx([4 + 1 * 1.5 + 5])


def test_work_that_is_cut_short_counts_as_far_as_it_went() -> None:
    progress = one([user(busy=[(4, 1000, 1.0)])], 10.0, 10.0, limit_s=7.0)
    assert not progress.completed[0]
    assert progress.end_ns.tolist() == [7 * SECOND_NS]
    assert progress.total_j == pytest.approx([4 + 1 * 1.5])


def test_work_of_nothing_takes_nothing() -> None:
    progress = one([user()], 0.0, 0.0, start_s=5)
    assert progress.end_ns.tolist() == [5 * SECOND_NS]
    assert progress.total_j.tolist() == [0.0]
    assert progress.completed.all()


def test_nobodys_result_depends_on_who_else_is_asked_about() -> None:
    users = [user("a"), user("b", busy=[(0.1, 0.7, 0.3), (1, 5, 0.9)]), user("c", busy=[(2, 3, 0.5)] * 1)]
    together = one(users, 8.1, 3.3)
    for i, person in enumerate(users):
        alone = one([person], 8.1, 3.3)
        assert alone.end_ns[0] == together.end_ns[i]
        assert alone.total_j[0] == together.total_j[i]


def by_hand(
    busy: list[tuple[float, float, float]], start_s: float, duration_s: float, limit_s: float
) -> tuple[float, float]:
    """Event by event: (end, energy) for one joule per second of work."""
    curve = profile(curve=CURVE)
    edges = sorted({start_s, limit_s, *(t for a, b, _ in busy for t in (a, b) if start_s < t < limit_s)})
    left, energy = duration_s, 0.0
    for begin, end in pairwise(edges):
        load = next((cpu for a, b, cpu in busy if a <= begin < b), 0.0)
        slowdown = float(curve.slowdown_at(np.float32(load)))
        factor = float(curve.energy_factor_at(np.float32(load)))
        done = (end - begin) / slowdown
        if done >= left:
            return begin + left * slowdown, energy + left * factor
        left -= done
        energy += done * factor
    return limit_s, energy


@st.composite
def loads(draw: st.DrawFn) -> list[tuple[float, float, float]]:
    edges = sorted(draw(st.lists(st.integers(1, 4000), min_size=0, max_size=14, unique=True)))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    return [(a / 10, b / 10, draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8, 1.0]))) for a, b in pairs]


@settings(max_examples=60, deadline=None)
@given(loads(), st.floats(0, 100), st.floats(0.01, 150), st.floats(1, 300))
def test_it_agrees_with_integration_by_hand(
    busy: list[tuple[float, float, float]], start_s: float, duration_s: float, after_s: float
) -> None:
    start_s = round(start_s, 3)
    limit_s = start_s + round(after_s, 3)
    progress = one([user(busy=busy)], duration_s, duration_s, start_s=start_s, limit_s=limit_s)
    end_s, energy_j = by_hand(busy, start_s, duration_s, limit_s)
    assert progress.end_ns[0] * 1e-9 == pytest.approx(end_s, abs=1e-4)
    assert progress.total_j[0] == pytest.approx(energy_j, rel=1e-5, abs=1e-6)
    assert progress.completed[0] == (end_s < limit_s) or end_s == pytest.approx(limit_s, abs=1e-4)
    assert (np.diff(progress.t_ns[0]) >= 0).all()
    assert (np.diff(progress.energy_j[0]) >= 0).all()
