"""What a fleet allows, against every subset there is."""

from itertools import combinations

import numpy as np
import pytest

from emulator.round.budgets import LoneRounds, lone_rounds
from emulator.runs.replay.floors import Floors, floors, floors_of, ranked
from tests.emulator.worlds import engine, fleet, profile, world


@pytest.mark.parametrize(("n", "m", "k"), [(7, 5, 3), (6, 6, 2), (8, 4, 4), (5, 1, 1), (1, 1, 1)])
def test_floors_are_those_of_all_subsets(n: int, m: int, k: int) -> None:
    rng = np.random.default_rng(n * m * k)
    time_s, energy_j, comm_s, comm_j = rng.uniform(1, 9, (4, n))
    found = floors(LoneRounds(time_s, energy_j, comm_s, comm_j), k, m)
    cohorts = [list(some) for some in combinations(range(n), k)]
    pools = [list(some) for some in combinations(range(n), m)]
    random_j = np.mean([energy_j[some].sum() for some in cohorts])
    random_s = np.mean([time_s[some].max() for some in cohorts])
    assert found.random_j == pytest.approx(random_j)
    assert found.random_s == pytest.approx(random_s)
    assert found.cheapest_of_all == pytest.approx(min(energy_j[s].sum() for s in cohorts) / random_j)
    assert found.fastest_of_all == pytest.approx(min(time_s[s].max() for s in cohorts) / random_s)
    cheap = np.mean([np.sort(energy_j[pool])[:k].sum() for pool in pools])
    fast = np.mean([np.sort(time_s[pool])[k - 1] for pool in pools])
    assert found.cheapest_of_candidates == pytest.approx(cheap / random_j)
    assert found.fastest_of_candidates == pytest.approx(fast / random_s)
    assert found.comm_time == pytest.approx(comm_s.sum() / time_s.sum())


def test_a_large_fleet_is_looked_at_by_evenly_spaced_devices() -> None:
    values = np.sort(np.random.default_rng(0).lognormal(0, 0.5, 60_000))
    exact = np.mean([np.sort(np.random.default_rng(i).choice(values, 300))[:100].sum() for i in range(300)])
    assert ranked(values, 300, range(1, 101)).sum() == pytest.approx(exact, rel=5e-3)


def test_devices_without_data_do_not_count_and_free_devices_have_no_share() -> None:
    place = world(fleet([profile(2.0, 3.0)], [0, 100, 100, 300]))
    e = engine(place=place, devices=4, k=1, candidates=2, local_epochs=5)
    found = floors_of(e.world, e.rules)
    assert found.devices == 3
    assert found.random_s == pytest.approx((11 + 11 + 31) / 3)
    assert found.fastest_of_all == pytest.approx(11 / found.random_s)
    nothing = lone_rounds(world(fleet([profile(0.0, 0.0, transfer_s=0.0)], [100] * 3)), 1, 0)
    assert floors(nothing, 1, 2).cheapest_of_all is None
    assert "unknown" in floors(nothing, 1, 2).sentences()[1]
    assert Floors(**found.facts()) == found
