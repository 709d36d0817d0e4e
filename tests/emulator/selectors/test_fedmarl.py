"""FedMarl's state: what its agents see, and in which order a policy reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from emulator.selectors.fedmarl import FEATURES, FedMarl
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.policy import Policy, PolicyManifest, write_policy
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import World

EVERYONE = np.ones(40, bool)


def policy_that_likes_small(feature: str, folder: Path, features: tuple[str, ...] = FEATURES) -> str:
    """A network that ranks by one column alone, lowest first; states lie within 3."""
    first, second = np.zeros((len(features), 1), np.float32), np.array([[0.0, 1.0]], np.float32)
    first[features.index(feature), 0] = -1.0
    network = Mlp([first, second], [np.array([3.0], np.float32), np.zeros(2, np.float32)])
    path = folder / f"{feature}.safetensors"
    write_policy(path, Policy(network, PolicyManifest(kind="fedmarl", command="a test", features=features)))
    return str(path)


@pytest.mark.parametrize("feature", ["comm_s", "epoch_s", "data_size", "loss"])
def test_every_feature_stands_where_the_policy_reads_it(feature: str, tmp_path: Path) -> None:
    world = World(40, 5, 20, seed=1)
    selector = FedMarl(policy=policy_that_likes_small(feature, tmp_path))
    candidates = default_rng(0).permutation(40)[:15]
    world._probe(selector.probe, candidates, 1)
    view = world.view(1, EVERYONE, selector.needs)
    values = getattr(view, feature)[candidates]
    chosen = selector.select(view, candidates, 5, default_rng(0))
    assert max(getattr(view, feature)[chosen]) <= np.sort(values)[5]


def test_earlier_transfers_are_remembered(tmp_path: Path) -> None:
    """What was the last known transfer at one probe is the one before at the next."""
    world = World(40, 5, 20, seed=2)
    selector = FedMarl(policy=policy_that_likes_small("comm_s-1", tmp_path))
    everyone = np.arange(40)
    world._probe(selector.probe, everyone, 1)
    before = world.reported["comm_s"].copy()
    selector.select(world.view(1, EVERYONE, selector.needs), everyone, 5, default_rng(0))
    world.reported["comm_s"] = before[::-1].copy()
    chosen = selector.select(world.view(2, EVERYONE, selector.needs), everyone, 5, default_rng(0))
    assert sorted(chosen.tolist()) == sorted(np.argsort(before)[:5].tolist())


def test_a_native_cohort_of_any_size_is_judged_by_one_measure() -> None:
    """Up to K are chosen: the next round's best too, and no reward counts once per device."""
    world = World(40, 5, 4, seed=3, failures=0.0)
    selector = FedMarl(policy="", online=True, mode="native", explore_rounds=1)
    for number in range(1, 5):
        world.play(selector, number, EVERYONE)
    cache = selector.state_dict()["learner"]["cache"]
    assert [(seen["next_k"], seen["most"]) for seen in cache] == [(None, 5)] * 4


def test_a_policy_of_other_features_is_refused(tmp_path: Path) -> None:
    old = tuple(name for name in FEATURES if name != "comm_s")
    with pytest.raises(ConfigError, match="reads other features than fedmarl has now"):
        FedMarl(policy=policy_that_likes_small("loss", tmp_path, old))
