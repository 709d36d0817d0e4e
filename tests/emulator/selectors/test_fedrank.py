"""FedRank and FedMarl: what they do beyond the contract of every selector."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from emulator.round.selector import Probe
from emulator.selectors.fedmarl import FedMarl
from emulator.selectors.fedrank.plus import FedRankPlus
from emulator.selectors.fedrank.selector import FEATURES, FedRank, device_states
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.policy import Demonstrations, Policy, PolicyManifest, write_policy
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import World

EVERYONE = np.ones(40, bool)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    network = Mlp.made((6, 64, 64, 2), default_rng(3))
    states = default_rng(0).normal(size=(8, 30, 6)).astype(np.float32)
    demos = Demonstrations(states, np.tile(np.arange(30) < 10, (8, 1)))
    path = tmp_path / "policy.safetensors"
    write_policy(
        path, Policy(network, PolicyManifest(kind="fedrank", command="a test", features=FEATURES), demos)
    )
    return str(path)


def chosen(selector: FedRank | FedMarl, world: World, rounds: int = 6) -> list[list[int]]:
    return [world.play(selector, number, EVERYONE).chosen for number in range(1, rounds + 1)]


@pytest.mark.parametrize("online", [False, True])
def test_units_do_not_change_a_choice(policy: str, online: bool) -> None:
    plain, scaled = World(40, 5, 20, seed=1), World(40, 5, 20, seed=1)
    for name in ("epoch_s", "comm_s", "epoch_j", "comm_j"):
        setattr(scaled, name, getattr(scaled, name) * 1000)
    for name in ("comm_s", "comm_j"):
        scaled.reported[name] *= 1000
    ours, theirs = (chosen(FedRank(policy=policy, online=online), world, 8) for world in (plain, scaled))
    assert ours[0] == theirs[0]
    if not online:
        assert ours == theirs


def test_the_order_of_devices_does_not_change_a_choice(policy: str) -> None:
    world = World(40, 5, 20, seed=2)
    world._probe("epoch", np.arange(40), 1)
    view = world.view(1, EVERYONE, FedRank.needs)
    selector = FedRank(policy=policy, online=False)
    ids = np.arange(40)
    first = selector.select(view, ids, 5, default_rng(0))
    second = selector.select(view, ids[::-1].copy(), 5, default_rng(0))
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(("count", "k"), [(1, 1), (7, 3), (10, 4)])
def test_the_choice_has_the_largest_joint_value_of_all(policy: str, count: int, k: int) -> None:
    world = World(40, 5, 20, seed=6)
    candidates = default_rng(count).permutation(40)[:count]
    world._probe(Probe.EPOCH, candidates, 1)
    view = world.view(1, EVERYONE, FedRank.needs)
    selector = FedRank(policy=policy, online=False)
    q = selector.network(device_states(view, candidates))
    best = max(
        combinations(range(count), k),
        key=lambda picks: sum(q[i, int(i in picks)] for i in range(count)),
    )
    found = selector.select(view, candidates, k, default_rng(0))
    assert set(found.tolist()) == set(candidates[list(best)].tolist())


def test_the_literal_ranking_is_by_the_value_of_being_chosen(policy: str) -> None:
    world = World(40, 5, 20, seed=6)
    everyone = np.arange(40)
    world._probe(Probe.EPOCH, everyone, 1)
    view = world.view(1, EVERYONE, FedRank.needs)
    literal = FedRank(policy=policy, online=False, rank_by="q1")
    q = literal.network(device_states(view, everyone))
    found = set(literal.select(view, everyone, 5, default_rng(0)).tolist())
    assert found == set(np.argsort(-q[:, 1])[:5].tolist())
    assert found != set(np.argsort(q[:, 0] - q[:, 1])[:5].tolist())


def test_frozen_never_learns_and_online_does(policy: str) -> None:
    frozen, online = FedRank(policy=policy, online=False), FedRank(policy=policy)
    start = Mlp.made((6, 64, 64, 2), default_rng(3)).weights[0]
    for selector in (frozen, online):
        chosen(selector, World(40, 5, 20, seed=4), 8)
    np.testing.assert_array_equal(frozen.state_dict()["learner"]["network"]["weight0"], start)
    assert not np.array_equal(online.state_dict()["learner"]["network"]["weight0"], start)
    assert np.isfinite(online.metrics()["td_loss"])
    assert np.isnan(frozen.metrics()["td_loss"])


def test_without_the_rank_loss_only_td_is_learnt(policy: str) -> None:
    both, td = FedRank(policy=policy), FedRank(policy=policy, rank_weight=0.0)
    for selector in (both, td):
        chosen(selector, World(40, 5, 20, seed=4), 8)
    assert td.metrics()["rank_loss"] == 0.0
    assert both.metrics()["rank_loss"] > 0.0


def test_the_last_round_completes_its_transition(policy: str) -> None:
    selector = FedRank(policy=policy)
    world = World(40, 5, 3, seed=4)
    chosen(selector, world, 3)
    cache = selector.state_dict()["learner"]["cache"]
    assert [seen["next_state"] is None for seen in cache] == [False, False, True]


def test_exploration_swaps_one_pick_at_most(policy: str) -> None:
    still = FedRank(policy=policy, explore_first=0.0, explore_last=0.0, updates=0, rate=0.0)
    restless = FedRank(policy=policy, explore_first=1.0, explore_last=1.0, updates=0, rate=0.0)
    a, b = (chosen(s, World(40, 5, 20, seed=5), 1)[0] for s in (still, restless))
    assert len(set(a) & set(b)) == 4


def test_options_that_do_not_exist_are_refused(policy: str) -> None:
    with pytest.raises(ConfigError, match="no option 'gama'"):
        FedRank(policy=policy, gama=0.5)
    with pytest.raises(ConfigError, match="rank_by"):
        FedRank(policy=policy, rank_by="q2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no policy called 'nope'"):
        FedRank(policy="nope")
    with pytest.raises(ConfigError, match="is for fedrank, not for fedmarl"):
        FedMarl(policy=policy)


def test_a_policy_of_other_features_is_refused(tmp_path: Path) -> None:
    """Seven numbers would not fit the network, and six in another order would be misread."""
    path = tmp_path / "other.safetensors"
    manifest = PolicyManifest(kind="fedrank", command="a test", features=FEATURES[::-1])
    write_policy(path, Policy(Mlp.made((6, 64, 64, 2), default_rng(3)), manifest))
    with pytest.raises(ConfigError, match="reads other features than fedrank has now"):
        FedRank(policy=str(path))


def test_fedmarl_native_chooses_its_own_number() -> None:
    worlds = [World(40, 5, 20, seed=seed, failures=0.0) for seed in range(8)]
    sizes = {len(c) for world in worlds for c in chosen(FedMarl(policy="", mode="native"), world, 6)}
    assert min(sizes) >= 1
    assert max(sizes) == 5  # more are willing, but the engine refuses more than it asked for
    assert len(sizes) > 2


@pytest.mark.parametrize("kind", [FedRank, FedMarl])
def test_a_round_without_a_choice_leaves_the_reward_of_the_one_before(kind: type, policy: str) -> None:
    """Every candidate left during its probe: nobody is asked for a choice, but the outcome is told."""
    selector = FedRank(policy=policy) if kind is FedRank else FedMarl(policy="", online=True)
    world = World(40, 5, 20, seed=4)
    chosen(selector, world, 1)
    reward = selector.state_dict()["pending"]["reward"]
    nobody = np.zeros(0, np.int64)
    empty = world.outcome(selector, 2, np.arange(3), nobody, [])
    selector.observe(world.view(2, EVERYONE, selector.needs), empty)
    assert selector.state_dict()["pending"]["reward"] == reward
    world.play(selector, 3, EVERYONE)
    assert [seen["reward"] for seen in selector.state_dict()["learner"]["cache"]] == [reward]


def test_fedmarl_learns_to_leave_slow_devices_out() -> None:
    """With a reward that is latency alone, what it has learnt is faster than what it began with."""
    agent = FedMarl(policy="", online=True, weights=(0.0, 1.0, 0.0), explore_rounds=60, discount=0.0)
    world = World(40, 5, 200, seed=7, failures=0.0)
    rounds = [world.play(agent, number, EVERYONE).chosen for number in range(1, 160)]
    speed = [float(world.epoch_s[c].max()) for c in rounds]
    assert np.mean(speed[-40:]) < 0.9 * np.mean(speed[:40])


def test_plus_probes_no_empty_device_while_others_are_there(policy: str) -> None:
    world = World(40, 5, 20, seed=8)
    world.data_size = np.where(np.arange(40) < 20, 0, 50)
    selector = FedRankPlus(policy=policy)
    for number in range(1, 6):
        candidates = world.play(selector, number, EVERYONE).candidates
        assert len(candidates) <= 8
        assert min(candidates) >= 20
    few = np.zeros(40, bool)
    few[[0, 1, 2, 3, 4, 5, 30, 31]] = True
    found = selector.candidates(world.view(6, few, selector.needs), 15, default_rng(0))
    assert {30, 31} <= set(found.tolist()) <= set(np.flatnonzero(few).tolist())


def test_plus_covers_classes_that_rank_alone_misses(policy: str) -> None:
    """One class ranks best: FedRank takes nothing else, and balance outweighs rank for most of the cohort."""
    world = World(40, 4, 20, seed=9)
    labels = np.arange(40) % 4
    world.reported["bias_delta"][:] = np.eye(4)[labels] - 0.25
    view = world.view(1, EVERYONE, FedRankPlus.needs)
    selector = FedRankPlus(policy=policy, online=False)
    rank = np.where(labels == 0, 1.0, 0.0).astype(np.float32)
    covered = labels[selector._picks(view, np.arange(40), rank, 4)]
    alone = labels[FedRank(policy=policy)._picks(view, np.arange(40), rank, 4)]
    assert len(set(covered.tolist())) >= 3
    assert set(alone) == {0}
