"""Favor: its components, its reward and its double Q-learning, against slow definitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from emulator.selectors.favor import Favor
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.policy import Policy, PolicyManifest, write_policy
from tests.emulator.selectors.driver import World
from tests.emulator.selectors.test_neural import torch_gradients, torch_twin

EVERYONE = np.ones(20, bool)


def after(rounds: int, **options: Any) -> tuple[Favor, World]:
    world, selector = World(20, 4, 30, failures=0.0), Favor(**options)
    world.profile(selector)
    for number in range(1, rounds + 1):
        world.play(selector, number, EVERYONE)
    return selector, world


def test_components_are_those_of_the_first_local_weights() -> None:
    selector, world = after(0)
    weights = world._weights(0, np.arange(20)).astype(np.float64)
    basis, center = selector.projection or (np.empty(0), np.empty(0))
    np.testing.assert_allclose(center, weights.mean(axis=0), atol=1e-6)
    _, _, axes = np.linalg.svd(weights - weights.mean(axis=0), full_matrices=False)
    assert basis.shape == (12, 12)
    np.testing.assert_allclose(np.abs(axes @ basis), np.eye(12), atol=1e-4)
    state = selector.state_dict()["state"]
    np.testing.assert_allclose(state[1:], (weights - weights.mean(axis=0)) @ basis, atol=1e-4)


def test_only_those_who_uploaded_are_refreshed() -> None:
    selector, world = after(1)
    before = selector.state_dict()["state"]
    chosen = world.play(selector, 2, EVERYONE).chosen
    moved = np.flatnonzero((selector.state_dict()["state"] != before).any(axis=1))
    assert moved.tolist() == [0, *(1 + np.sort(chosen)).tolist()]


def test_the_reward_is_the_papers() -> None:
    selector, world = after(1, target_accuracy=0.5)
    accuracy = world.outcome(selector, 1, np.arange(4), np.arange(4), []).accuracy
    assert selector.state_dict()["cache"][0]["reward"] == pytest.approx(64 ** (accuracy - 0.5) - 1)


def test_an_accuracy_that_nobody_measured_teaches_nothing() -> None:
    selector, world = after(1)
    view = world.view(2, EVERYONE, selector.needs)
    selector.select(view, np.arange(20), 4, default_rng(0))
    unknown = replace(world.outcome(selector, 2, np.arange(4), np.arange(4), []), accuracy=float("nan"))
    selector.observe(view, unknown)
    assert len(selector.state_dict()["cache"]) == 1


def test_the_best_values_are_chosen_of_who_is_there() -> None:
    selector, world = after(3, explore_rounds=0)
    selector._given, selector._online = selector.network, False  # no exploration, no learning
    view = world.view(4, EVERYONE, selector.needs)
    there = np.array([1, 2, 5, 8, 13, 17])
    state = selector.state_dict()["state"].reshape(1, -1)
    q = (selector.network or Mlp([], []))(state)[0]
    found = selector.select(view, there, 3, default_rng(0))
    assert found.tolist() == there[np.argsort(-q[there])[:3]].tolist()


def test_an_update_is_one_of_double_q_learning() -> None:
    """The online network names the next action, the target network says what it is worth."""
    selector, _ = after(6, sync_every=1000, batch=16, rate=0.01, discount=0.7)
    state = selector.state_dict()
    assert any((state["network"][name] != state["target"][name]).any() for name in state["network"])
    network = selector.network
    assert network is not None
    twin, target = torch_twin(network.copy()), torch_twin(selector._target or network)
    rng = default_rng(9)
    picks = [state["cache"][i] for i in rng.integers(len(state["cache"]), size=16)]
    actions = [int(rng.choice(p["actions"])) for p in picks]
    errors = []
    for seen, action in zip(picks, actions, strict=True):
        with torch.no_grad():
            following = torch.from_numpy(seen["next"].ravel())
            goal = seen["reward"] + 0.7 * target(following)[twin(following).argmax()]
        errors.append((twin(torch.from_numpy(seen["state"].ravel()))[action] - goal) ** 2)
    loss = torch.stack(errors).mean()
    loss.backward()
    given: list[list[np.ndarray]] = []
    selector._adam.step = lambda _, gradients: given.append(gradients)
    selector._learn(default_rng(9))
    assert selector.metrics()["td_loss"] == pytest.approx(loss.item(), rel=1e-4)
    for own, theirs in zip(given[0], torch_gradients(twin), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("options", "learns"), [({}, False), ({"online": True}, True)])
def test_a_given_policy_acts_as_it_is_unless_told_to_learn(
    tmp_path: Path, options: dict[str, Any], learns: bool
) -> None:
    trained, _ = after(3)
    assert trained.network is not None
    manifest = PolicyManifest(kind="favor", command="made here", features=())
    write_policy(
        tmp_path / "own.safetensors", Policy(trained.network, manifest, projection=trained.projection)
    )
    selector, _ = after(5, policy=str(tmp_path / "own.safetensors"), **options)
    assert selector.network is not None
    given, now = trained.network.state_dict(), selector.network.state_dict()
    changed = any((given[name] != now[name]).any() for name in given)
    assert changed is learns


def test_half_of_a_run_is_not_explored() -> None:
    """0.9 at first, 0.05 from the middle on: about a quarter of 50 rounds; over 200 rounds 80 %."""

    class Planned:
        rounds = 50

    def mean_share(selector: Favor) -> float:
        shares = []
        for selector._seen in range(50):
            shares.append(selector._random_share(Planned()))
        assert (shares[0], shares[-1] == 0.05) == (0.9, selector._explore_rounds is None)
        return float(np.mean(shares))

    assert mean_share(Favor()) == pytest.approx(0.271, abs=0.005)
    assert mean_share(Favor(explore_rounds=200)) == pytest.approx(0.796, abs=0.005)
