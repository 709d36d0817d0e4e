"""Policies: files, demonstrations, imitation, and the small end-to-end of making them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import default_rng

from device_agents.workloads import METRICS, find_task
from emulator.policies import demonstrations, train
from emulator.policies.demonstrations import demonstrating, joined
from emulator.policies.imitation import CloningOptions, boosted_trees_recall, chance, clone, recall
from emulator.policies.recipes import recipe
from emulator.policies.train import Recipe, check_experts, client_epochs, train_by_trying, train_fedrank
from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Profiling, Selector
from emulator.runs.assembly import assemble
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.selectors.favor import Favor
from emulator.selectors.fedavg import FedAvg
from emulator.selectors.fedmarl import FedMarl
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.neural import policy as policy_file
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.policy import (
    Demonstrations,
    Policy,
    PolicyManifest,
    any_policy,
    load_policy,
    write_policy,
)
from emulator.selectors.neural.vdn import advantages
from emulator.selectors.oort.selector import Oort
from emulator.selectors.parts.draws import top_k
from emulator.selectors.registry import SELECTORS
from emulator.selectors.tifl import TiFL
from joulefleet.errors import ConfigError, StorageError

SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=20),
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
    few = Demonstrations(train.states[:1, :8], np.arange(8)[None] < 2)
    assert 0 <= boosted_trees_recall(few, held_out, 0) <= 1  # too few to set some aside


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
    with pytest.raises(StorageError, match=f"{tmp_path}/absent.safetensors: no policy file") as absent:
        any_policy(str(tmp_path / "absent.safetensors"))
    assert "policy train" in absent.value.hint
    with pytest.raises(ConfigError, match="no policy called"):
        any_policy("absent")
    with (tmp_path / "large.safetensors").open("wb") as large:
        large.truncate(policy_file.MAX_FILE_BYTES + (1 << 20))
    with pytest.raises(StorageError, match=r"large.safetensors: 65 MB, a policy file has at most 64"):
        any_policy(large.name)


def test_a_policy_that_nobody_could_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_file, "MAX_FILE_BYTES", 1000)
    network = Mlp.made((6, 64, 64, 2), default_rng(0))
    manifest = PolicyManifest(kind="fedrank", command="made up", features=())
    with pytest.raises(ConfigError, match="the policy takes"):
        write_policy(tmp_path / "large.safetensors", Policy(network, manifest))
    assert not list(tmp_path.iterdir())


def test_an_expert_that_never_had_to_choose() -> None:
    with pytest.raises(ConfigError, match="never had to choose"):
        demonstrating(Oort()).demonstrations()


class WatchedOort(Oort):
    """Writes down what it is shown; a deep copy, which only tries again, has notes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Any]] = []

    def select(self, view, candidates, k, rng):
        known = {
            name: set(np.flatnonzero(~np.isnan(getattr(view, name)))) for name in ("epoch_s", "loss_rms")
        }
        self.seen.append({**known, "eligible": int(view.eligible.sum())})
        return super().select(view, candidates, k, rng)


def test_an_expert_sees_no_more_than_without_the_shadow_probes() -> None:
    """Every candidate is probed, but Oort knows only those it has chosen before."""
    expert = WatchedOort()
    shadow = demonstrating(expert)
    engine = assemble(SMALL, 0, selector=shadow).engine
    chosen: set[int] = set()
    try:
        while not engine.done:
            outcome = engine.play()
            assert len(expert.seen) == outcome.round, "one look per round, whatever its copies do"
            assert expert.seen[-1] == {"epoch_s": chosen, "loss_rms": chosen, "eligible": 9}
            chosen |= set(outcome.clients[outcome.chosen].tolist())
    finally:
        engine.trainer.close()
    demos = shadow.demonstrations()
    assert demos.states.shape == (6, 9, 6)
    assert (demos.choices.sum(axis=1) == 3).all()
    assert demos.certain is not None
    assert not (demos.certain & ~demos.choices).any()


class ProfilingExpert(FedAvg):
    """Asks everybody once, and writes down what it is told."""

    profiling: ClassVar[Profiling] = Profiling.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset({"epoch_s"})

    def __init__(self) -> None:
        self.told: list[int] = []
        self.known: list[int] = []

    def observe(self, view, outcome):
        self.told.append(len(outcome.clients))
        self.known.append(int(np.count_nonzero(~np.isnan(view.epoch_s))))


class WatchfulExpert(FedAvg):
    """Writes down who has failed it, as far as it is told."""

    needs: ClassVar[frozenset[str]] = frozenset({"failures"})

    def __init__(self) -> None:
        self.failed: set[int] = set()

    def observe(self, view, outcome):
        self.failed = set(np.flatnonzero(view.failures))


def test_who_is_late_with_a_shadow_probe_has_not_failed_the_expert() -> None:
    cost = first_round(SMALL, FedRank()).cost
    usual_s = float(np.median(cost.download_s + cost.probe_s))
    protocol = SMALL.protocol.model_copy(update={"probe_deadline_s": usual_s})
    expert = WatchfulExpert()
    outcome = first_round(SMALL.model_copy(update={"protocol": protocol}), demonstrating(expert))
    assert outcome.failed.any()
    assert not outcome.chosen[outcome.failed].any()
    assert expert.failed == set()


def first_round(scenario: Scenario, selector: Selector) -> RoundOutcome:
    engine = assemble(scenario, 0, selector=selector).engine
    try:
        return engine.play()
    finally:
        engine.trainer.close()


def play_rounds(selector: Selector, rounds: int) -> None:
    engine = assemble(SMALL, 0, selector=selector).engine
    try:
        for _ in range(rounds):
            engine.play()
    finally:
        engine.trainer.close()


def test_an_expert_keeps_what_its_profiling_told() -> None:
    """Nobody is chosen in it, and yet all of it is the expert's own."""
    expert = ProfilingExpert()
    play_rounds(demonstrating(expert), 3)
    assert expert.told == [20, 3, 3]
    assert expert.known == [20, 20, 20]


def test_tifl_has_tiers_and_favor_a_state_when_they_demonstrate() -> None:
    tifl, favor = TiFL(), Favor()
    for expert in (tifl, favor):
        play_rounds(demonstrating(expert), 2)
    assert tifl.tier_of is not None
    assert set(tifl.tier_of) == {0, 1, 2, 3, 4}
    components = favor.state_dict()["state"]
    assert np.any(components[1:] != 0, axis=1).all(), "of every device"


@pytest.mark.parametrize("name", ["afl", "power_of_choice", "cpow_d"])
def test_experts_whose_loss_no_shadow_probe_measures_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"'{name}' cannot be imitated: .*loss of the received model"
    ) as raised:
        demonstrating(SELECTORS.load(name)())
    assert "rpow_d" in raised.value.hint


def test_what_cannot_be_imitated_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "assemble", lambda *_, **__: pytest.fail("it has begun"))
    made = Recipe((SMALL,), seeds=(0,), stop=(1,), judge=(2,), experts=("oort", "ort"))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "no selector called 'ort'"),
        ({"experts": ("oort", "afl")}, "'afl' cannot be imitated"),
        ({"experts": ("oort", "oort")}, "'oort' is named twice"),
        ({"experts": ("oort", "fedmarl"), "experts_policy": "fedmral"}, "no policy called 'fedmral'"),
        ({"experts": ("oort", "fedmarl"), "experts_policy": "fedrank"}, "is for fedrank, not for fedmarl"),
        ({"experts": ("oort", "fedmarl"), "experts_policy": ""}, "needs a policy"),
    ]
    for changes, message in wrong:
        with pytest.raises(ConfigError, match=message):
            train_fedrank(replace(made, **changes), CloningOptions())
    numbers = replace(find_task("digits-mlp"), classes=0, metric=METRICS["mae"])
    monkeypatch.setattr(train, "task_of", lambda _: numbers)
    for expert, lacks in (("harmony_like", "classes"), ("fedmarl", "an accuracy")):
        with pytest.raises(ConfigError, match=f"selector '{expert}' goes by {lacks}") as caught:
            check_experts(replace(made, experts=("oort", expert)))
        assert caught.value.hint == f"leave it out of `--experts oort,{expert}`"
    absent = replace(made, experts=("oort", "fedmarl"), experts_policy=str(tmp_path / "absent.safetensors"))
    with pytest.raises(StorageError, match="no policy file"):
        check_experts(absent)


def test_what_is_never_certain_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random choices cannot be found again: their recall is no number, and all else is still written."""
    never = replace(expert_rounds(2, 0), certain=np.zeros((2, 30), bool))
    assert np.isnan(recall(lambda state: state[:, 0], never))
    assert np.isnan(chance(never))
    monkeypatch.setattr(demonstrations, "REPEATS", 40)  # none is made so often again by chance
    made = Recipe((SMALL,), seeds=(0,), stop=(1,), judge=(2,), experts=("fedavg",), command="test")
    policy = train_fedrank(made, CloningOptions(epochs=2))[""]
    write_policy(tmp_path / "p.safetensors", policy)
    manifest = any_policy(str(tmp_path / "p.safetensors")).manifest
    assert manifest.experts == ("fedavg",)
    assert manifest.results == {}


def test_the_budget_counts_what_experts_profile() -> None:
    made = Recipe((SMALL,), seeds=(0, 1), stop=(2,), judge=(3,), experts=("oort", "tifl"))
    assert client_epochs(made, "fedrank") == 2 * 4 * 6 * (9 + 3) + 4 * 20


def test_a_run_says_which_policy_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "fedmarl.safetensors"
    write_policy(path, any_policy("fedmarl"))
    given = FedMarl(policy=str(path))
    assert given.policy_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert given.policy_sha256 == FedMarl().policy_sha256, "of the package: the same policy, the same bytes"
    assert assemble(SMALL, 0, selector=given).facts["policy_sha256"] == given.policy_sha256
    assert FedRank().policy_sha256 not in (None, FedMarl().policy_sha256)
    assert FedRank(policy="").policy_sha256 is None
    assert assemble(SMALL, 0, selector=FedRank(policy="")).facts["policy_sha256"] is None


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
        assert policies[name].manifest.client_epochs == 5 * 6 * (9 + 3), "its own alone"
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


def test_what_the_usual_recipe_takes() -> None:
    """Of each round the first epoch of 30 candidates and four more of 10 chosen, or of 13 in the week, whose
    over-commitment is counted as if all of them trained to the end.
    """
    for world, trained in (("still", 30 + 4 * 10), ("week", 30 + 4 * 13)):
        for kind, rounds in (("fedrank", 6 * 9 * 50), ("fedmarl", 100 * 20)):
            usual = recipe(kind, data="mnist", task="mnist-lenet5", world=world)
            assert client_epochs(usual, kind) == rounds * trained


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
