"""Policies: files, demonstrations, imitation, and the small end-to-end of making them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from emulator.assembly.assemble import assemble
from emulator.policies import store
from emulator.policies.demonstrations import demonstrating, joined
from emulator.policies.imitation import CloningOptions, boosted_trees_recall, chance, clone, recall
from emulator.policies.recipes import recipe
from emulator.policies.store import (
    Demonstrations,
    Policy,
    PolicyManifest,
    any_policy,
    load_policy,
    write_policy,
)
from emulator.policies.train import Recipe, client_epochs, train_by_trying, train_fedrank
from emulator.scenario.model import Fleet, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.selectors.favor import Favor
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.vdn import advantages
from emulator.selectors.oort.selector import Oort
from emulator.selectors.top_k import top_k
from fedjoule.errors import ConfigError, StorageError

SMALL = Scenario(
    name="small",
    fleet=Fleet(devices=20),
    task=TaskSection(name="digits-softmax", partition="dir_client", options={"alpha": 0.1}),
    protocol=ProtocolSection(rounds=6, k=3, candidates=9, local_epochs=2, test_every=0),
    trainer=TrainerSection(workers=1),
)


def expert_rounds(rounds: int, seed: int) -> Demonstrations:
    """An expert that takes the devices with the largest sum of the first two features."""
    states = default_rng(seed).normal(size=(rounds, 30, 6)).astype(np.float32)
    choices = np.zeros((rounds, 30), bool)
    for state, choice in zip(states, choices, strict=True):
        choice[top_k(state[:, 0] + state[:, 1], 10)] = True
    return Demonstrations(states, choices)


@pytest.mark.parametrize("loss", ["bce", "ranknet"])
def test_a_simple_expert_is_imitated(loss: str) -> None:
    train, held_out = expert_rounds(200, 0), expert_rounds(40, 1)
    network = clone(train, held_out, CloningOptions(loss=loss, epochs=40), default_rng(0))  # type: ignore[arg-type]
    assert recall(lambda state: advantages(network(state)), held_out) > 0.9
    assert chance(held_out) == pytest.approx(1 / 3)
    assert boosted_trees_recall(train, held_out, 0) > 0.7


def test_recall_counts_certain_choices_only() -> None:
    states = np.zeros((1, 4, 6), np.float32)
    states[0, :, 0] = [4, 3, 2, 1]
    choices, certain = np.array([[True, False, False, True]]), np.array([[True, False, False, False]])
    assert recall(lambda s: s[:, 0], Demonstrations(states, choices)) == 0.5
    assert recall(lambda s: s[:, 0], Demonstrations(states, choices, certain)) == 1.0


def test_a_policy_file_comes_back_as_it_was(tmp_path: Path) -> None:
    network = Mlp.made((6, 64, 64, 2), default_rng(0))
    manifest = PolicyManifest(kind="fedrank", command="x", features=("a",), results={"recall": 0.5})
    demos = expert_rounds(3, 0)
    write_policy(tmp_path / "p.safetensors", Policy(network, manifest, demos))
    found = load_policy(str(tmp_path / "p.safetensors"), "fedrank")
    x = default_rng(1).normal(size=(5, 6)).astype(np.float32)
    np.testing.assert_array_equal(found.network(x), network(x))
    assert found.manifest == manifest
    assert found.demonstrations is not None
    np.testing.assert_array_equal(found.demonstrations.choices, demos.choices)


def test_files_that_are_no_policies(tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x80\x04not a policy")
    with pytest.raises(StorageError, match="not a policy file"):
        any_policy(str(broken))
    with pytest.raises(StorageError, match="no policy file"):
        any_policy(str(tmp_path / "absent.safetensors"))
    with pytest.raises(ConfigError, match="no policy called"):
        any_policy("absent")


def test_a_policy_that_nobody_could_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 1000)
    network = Mlp.made((6, 64, 64, 2), default_rng(0))
    manifest = PolicyManifest(kind="fedrank", command="made up", features=())
    with pytest.raises(ConfigError, match="the policy takes"):
        write_policy(tmp_path / "large.safetensors", Policy(network, manifest))
    assert not list(tmp_path.iterdir())


def test_an_expert_that_never_had_to_choose() -> None:
    with pytest.raises(ConfigError, match="never had to choose"):
        demonstrating(Oort()).demonstrations()


def test_an_expert_sees_no_more_than_without_the_shadow_probes() -> None:
    """Whatever the shadow probes of devices it never chose report, Oort decides the same."""
    shadow = demonstrating(Oort())
    seen = []
    ask = shadow._expert.select

    def spy(view, candidates, k, rng):
        seen.append((view.epoch_s.copy(), view.loss_rms.copy(), view.eligible.sum()))
        return ask(view, candidates, k, rng)

    shadow._expert.select = spy  # type: ignore[method-assign]
    engine = assemble(SMALL, 0, selector=shadow).engine
    chosen: set[int] = set()
    try:
        while not engine.done:
            outcome = engine.play()
            epoch_s, loss_rms, eligible = seen[len(seen) - 1 - 4] if False else seen[(outcome.round - 1) * 5]
            known = set(np.flatnonzero(~np.isnan(epoch_s)).tolist())
            assert known <= chosen
            assert set(np.flatnonzero(~np.isnan(loss_rms)).tolist()) <= chosen
            assert eligible == 9
            chosen |= set(outcome.clients[outcome.chosen].tolist())
    finally:
        engine.trainer.close()
    demos = shadow.demonstrations()
    assert demos.states.shape == (6, 9, 6)
    assert (demos.choices.sum(axis=1) == 3).all()
    assert demos.certain is not None
    assert not (demos.certain & ~demos.choices).any()


def test_policies_from_scratch(tmp_path: Path) -> None:
    made = Recipe((SMALL,), seeds=(0, 1), stop=(5, 6), judge=(7,), command="test")
    assert client_epochs(made, "fedmarl") == 2 * 6 * (9 + 3)
    marl = train_by_trying("fedmarl", made)
    assert marl.manifest.client_epochs == 2 * 6 * (9 + 3)
    write_policy(tmp_path / "fedmarl.safetensors", marl)
    made = replace(made, experts_policy=str(tmp_path / "fedmarl.safetensors"))
    assert client_epochs(made, "fedrank") == 3 * 5 * 6 * (9 + 3)
    policies = train_fedrank(made, CloningOptions(epochs=5))
    assert set(policies) == {"", "harmony_like", "oort", "fedmarl"}
    assert policies[""].manifest.experts == ("harmony_like", "oort", "fedmarl")
    assert policies[""].manifest.client_epochs == client_epochs(made, "fedrank")
    for name in ("harmony_like", "oort", "fedmarl"):
        assert 0 <= policies[""].manifest.results[f"recall_{name}"] <= 1
    repeated = train_fedrank(made, CloningOptions(epochs=5))
    np.testing.assert_array_equal(policies[""].network.weights[0], repeated[""].network.weights[0])


def test_favor_learns_by_trying() -> None:
    policy = train_by_trying("favor", Recipe((SMALL,), seeds=(0,), command="test"))
    assert policy.network.weights[-1].shape[1] == 20
    assert policy.manifest.client_epochs == 20 + 6 * 3 * 2


def test_a_favor_policy_brings_the_components_that_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "favor.safetensors"
    made = train_by_trying("favor", Recipe((SMALL,), seeds=(0,), command="test"))
    write_policy(path, made)
    selector = Favor(policy=str(path), online=False)
    engine = assemble(SMALL, 1, selector=selector).engine
    try:
        engine.play()  # the profiling, whose own components would be others
        engine.play()
    finally:
        engine.trainer.close()
    assert made.projection is not None
    np.testing.assert_array_equal(selector.state_dict()["basis"], made.projection[0])
    np.testing.assert_array_equal(selector.state_dict()["center"], made.projection[1])
    write_policy(tmp_path / "bare.safetensors", replace(made, projection=None))
    with pytest.raises(ConfigError, match="which components"):
        Favor(policy=str(tmp_path / "bare.safetensors"))


def test_the_usual_recipe_is_within_its_budget() -> None:
    assert client_epochs(recipe("fedrank", data="mnist", task="mnist-lenet5"), "fedrank") <= 200_000
    assert client_epochs(recipe("fedmarl", data="mnist", task="mnist-lenet5"), "fedmarl") <= 150_000


def test_learning_stopping_and_judging_have_seeds_of_their_own() -> None:
    made = recipe("fedrank", data="mnist", task="mnist-lenet5")
    groups = (made.seeds, made.stop, made.judge)
    assert len({seed for group in groups for seed in group}) == sum(map(len, groups))
    for group in groups:
        splits = [made.scenario(index).task.partition for index in range(len(group))]
        assert {name: splits.count(name) for name in splits} == {"iid": 2, "dir_client": 2, "dir_class": 2}
    assert {scenario.task.train_samples for scenario in made.scenarios} == {5000}


def test_joined_keeps_what_is_certain() -> None:
    both = joined([expert_rounds(2, 0), replace(expert_rounds(1, 1), certain=np.zeros((1, 30), bool))])
    assert both.certain is not None
    assert both.certain.sum() == 20
