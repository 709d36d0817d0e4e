import dataclasses

import numpy as np
import pytest

from device_agents.workloads.softmax import Softmax
from emulator.data.digits import iid_partition, load_digits
from emulator.engine import Engine, Protocol
from emulator.fleet import fleet_from_profiles
from emulator.outcome import RoundOutcome
from emulator.selectors.base import SELECTORS
from emulator.selectors.fedavg import FedAvg
from emulator.view import ServerView
from fedjoule.errors import ConfigError
from fedjoule.provenance import Origin, Provenance
from fedjoule.seeds import generator
from power.profile import DeviceProfile, PhaseCost, Quantity


def profile(epoch_s: float = 2.0, epoch_j: float = 3.0, samples: int = 100) -> DeviceProfile:
    cost = PhaseCost(duration_s=Quantity(mean=epoch_s), gross_j=Quantity(mean=epoch_j))
    link = PhaseCost(duration_s=Quantity(mean=0.5), gross_j=Quantity(mean=0.25))
    return DeviceProfile(
        device="d", model="softmax", dataset="digits", backend="numpy", samples=samples, batch_size=32,
        probe=cost, epoch=cost, download=link, upload=link,
        provenance=Provenance(origin=Origin.LITERATURE, basis="test"),
    )  # fmt: skip


def engine(seed: int = 0, spread: float = 0.3, k: int = 3, rounds: int = 4) -> Engine:
    data = load_digits(generator(seed, "split"))
    shards = iid_partition(len(data.train.y), 10, generator(seed, "partition"))
    sizes = np.array([len(s) for s in shards])
    fleet = fleet_from_profiles([profile()], sizes, speed_spread=spread, rng=generator(seed, "fleet"))
    return Engine(fleet, shards, data, Softmax(), FedAvg(), Protocol(rounds, k, 5, seed))


def run(e: Engine) -> list[RoundOutcome]:
    outcomes: list[RoundOutcome] = []
    e.run(outcomes.append)
    return outcomes


def test_costs_follow_the_slowest_and_the_sum() -> None:
    e = engine()
    clock_ns = 0
    for outcome in run(e):
        ids = outcome.clients
        assert outcome.start_ns == clock_ns
        expected_s = (5 * e.fleet.epoch_s[ids] + e.fleet.comm_s[ids]).max()
        assert outcome.duration_ns == pytest.approx(expected_s * 1e9, abs=1)
        assert outcome.energy_j == pytest.approx((5 * e.fleet.epoch_j[ids] + e.fleet.comm_j[ids]).sum())
        clock_ns += outcome.duration_ns


def test_the_model_really_learns() -> None:
    e = engine(rounds=15)
    parameters = e.run(lambda _: None)
    assert e.test_accuracy(parameters) > 0.85


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    a, b, c = run(engine(1)), run(engine(1)), run(engine(2))
    assert [(o.clients.tolist(), o.accuracy, o.duration_ns) for o in a] == [
        (o.clients.tolist(), o.accuracy, o.duration_ns) for o in b
    ]
    assert [o.clients.tolist() for o in a] != [o.clients.tolist() for o in c]


def test_a_selector_sees_only_what_was_reported() -> None:
    views: list[ServerView] = []

    class Spy(FedAvg):
        def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> np.ndarray:
            views.append(view)
            return super().candidates(view, m, rng)

    e = dataclasses.replace(engine(), selector=Spy())
    outcomes = run(e)
    took_part: set[int] = set()
    for view, outcome in zip(views, outcomes, strict=True):
        known = set(np.flatnonzero(np.isfinite(view.epoch_s)).tolist())
        assert known == took_part
        took_part |= set(outcome.clients.tolist())


def test_averaging_is_weighted_by_data_size() -> None:
    e = engine(k=10, rounds=1)
    expected = np.zeros_like(e.model.initial())
    (outcome,) = run(e)
    for device in outcome.clients:
        shard = e.shards[device]
        rng = generator(0, "data order", int(device), 1)
        local = e.model.initial()
        for _ in range(5):
            local, _ = e.model.epoch(local, e.data.train.x[shard], e.data.train.y[shard], rng)
        expected += local * len(shard) / len(e.data.train.y)
    assert e.run(lambda _: None) == pytest.approx(expected, abs=1e-12)


def test_an_invented_fleet_is_at_most_scaled() -> None:
    sizes = np.full(4, 100)
    rng = np.random.default_rng(0)
    same = fleet_from_profiles([profile()], sizes, speed_spread=0.0, rng=rng)
    assert (same.epoch_s == 2.0).all()
    assert same.origin is Origin.LITERATURE
    measured = profile().model_copy(update={"provenance": Provenance(origin=Origin.IMPORTED)})
    assert fleet_from_profiles([measured], sizes, speed_spread=0.0, rng=rng).origin is Origin.IMPORTED
    assert fleet_from_profiles([measured], sizes, speed_spread=0.1, rng=rng).origin is Origin.SCALED
    assert fleet_from_profiles([measured], sizes * 2, speed_spread=0.0, rng=rng).origin is Origin.SCALED


def test_impossible_scenarios_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than the fleet"):
        engine(k=11)
    with pytest.raises(ConfigError, match="at least one device profile"):
        fleet_from_profiles([], np.ones(1, np.int64), speed_spread=0, rng=np.random.default_rng(0))
    prober = type("Prober", (FedAvg,), {"probes": True})()
    with pytest.raises(ConfigError, match="probes"):
        dataclasses.replace(engine(), selector=prober)


@pytest.mark.parametrize("eligible", [0, 1, 3, 10])
def test_fedavg_returns_unique_eligible_ids(eligible: int) -> None:
    view = ServerView.registered(np.ones(10, np.int64))
    view = dataclasses.replace(view, eligible=np.arange(10) < eligible)
    selector = SELECTORS.load("fedavg")()
    rng = np.random.default_rng(0)
    chosen = selector.select(view, selector.candidates(view, 3, rng), 3, rng)
    assert len(set(chosen.tolist())) == len(chosen) == min(3, eligible)
    assert all(view.eligible[chosen])


def test_partition_is_a_partition() -> None:
    shards = iid_partition(103, 10, np.random.default_rng(0))
    assert sorted(np.concatenate(shards).tolist()) == list(range(103))
    assert {len(s) for s in shards} == {10, 11}
