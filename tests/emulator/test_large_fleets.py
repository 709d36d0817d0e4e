"""Fleets too large to write down: shards drawn on demand, and what is refused before it fills the memory."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.selector_decisions import fleet
from device_agents.workloads.tasks import TASKS
from emulator.data import lazy_partition
from emulator.data.partition import Partition, make_partition
from emulator.round.view import ServerView
from emulator.runs.assembly import assemble
from emulator.runs.batch import run
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection, Scenario
from emulator.selectors.fed_cbs import PERFECT, FedCbs, qcid
from emulator.selectors.harmony_like import HarmonyLike, divergence
from emulator.selectors.parts.draws import draw_weighted
from emulator.selectors.parts.estimates import label_shares
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from joulefleet.errors import ConfigError
from tests.emulator.plain_training import data_for, ids
from tests.emulator.ray_here import prepare
from tests.emulator.test_partition import labelled

LAZY = "dir_client_lazy"
MLP = TASKS["digits-mlp"]


def smaller(name: str, devices: int, **protocol: Any) -> Scenario:
    scenario = load_scenario(name)
    return scenario.model_copy(
        update={
            "fleet": scenario.fleet.model_copy(update={"devices": devices}),
            "protocol": scenario.protocol.model_copy(update=protocol),
        }
    )


@given(
    samples=st.integers(20, 300),
    alpha=st.sampled_from([0.001, 0.1, 10.0]),
    seed=st.integers(0, 5),
    data=st.data(),
)
@settings(deadline=None, max_examples=40)
def test_a_shard_depends_on_seed_and_device_alone(
    samples: int, alpha: float, seed: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, samples))
    split = labelled(samples)
    options = {"alpha": alpha, "samples_per_client": size}
    small, large = (make_partition(LAZY, split, devices, seed, **options) for devices in (5, 10**6))
    for device in data.draw(st.permutations(range(5))):
        shard = large.shard(device)
        assert np.array_equal(shard, small.shard(device))
        assert np.array_equal(shard, np.unique(shard))
        assert len(shard) == size == large.size(device)
        assert shard[0] >= 0
        assert shard[-1] < samples
    counts = small.label_counts(split.y, 10)
    assert counts.tolist() == [np.bincount(split.y[small.shard(i)], minlength=10).tolist() for i in range(5)]


def test_label_ratios_follow_alpha() -> None:
    split = labelled(60_000)
    peaked, even = (
        make_partition(LAZY, split, 200, 0, alpha=alpha, samples_per_client=100).label_counts(split.y, 10)
        for alpha in (0.01, 100.0)
    )
    assert peaked.max(1).mean() > 90
    assert even.max(1).mean() < 25
    assert len(np.unique(peaked.argmax(1))) == 10


def test_forgotten_shards_come_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_partition, "KEPT", 3)
    partition = make_partition(LAZY, labelled(100), 10, 0, samples_per_client=7)
    first = [partition.shard(device).copy() for device in range(10)]
    assert all(np.array_equal(partition.shard(device), first[device]) for device in range(10))
    assert len({shard.tobytes() for shard in first}) > 5


def test_memory_does_not_depend_on_the_fleet() -> None:
    split = labelled(60_000)
    tracemalloc.start()
    partition = make_partition(LAZY, split, 10**8, 0, samples_per_client=600)
    for device in range(0, 10**8, 10**7):
        partition.shard(device)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(partition) == 10**8
    assert peak < 10e6  # written down they would be 480 GB


def test_the_manifest_repeats_it_and_the_hash_tells_others_apart() -> None:
    split = labelled(500)
    manifest = make_partition(LAZY, split, 4000, 3).manifest()
    assert manifest["options"] == {"alpha": 0.01, "samples_per_client": 20}
    assert (manifest["devices"], manifest["samples"], manifest["devices_hashed"]) == (4000, 80_000, 1000)
    again = make_partition(LAZY, split, 4000, 3, **manifest["options"])
    assert again.manifest() == manifest
    others = [(split, 4001, 3), (split, 4000, 4), (labelled(500, seed=1), 4000, 3)]
    assert all(make_partition(LAZY, *other).sha256() != manifest["sha256"] for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples_per_client": 0}, "0 samples per device: at least one is needed"),
        ({"samples_per_client": 101}, "101 samples per device, but there are only 100"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"beta": 1.0}, "has no option 'beta'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_partition(LAZY, labelled(100), 4, 0, **options)


@pytest.mark.parametrize("device", [-1, 4])
def test_there_is_no_such_device(device: int) -> None:
    with pytest.raises(IndexError, match=f"device {device} of 4"):
        make_partition(LAZY, labelled(100), 4, 0).shard(device)


@pytest.mark.xdist_group("ray")
def test_training_is_that_of_the_same_shards_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(monkeypatch)  # whoever imports Ray first in a process decides what it finds there
    from ray import cloudpickle

    data = data_for(MLP, 200)
    lazy = make_partition(LAZY, data.train, 6, 0, alpha=1.0, samples_per_client=17)
    shards = [lazy.shard(device) for device in range(6)]
    offsets = np.concatenate([[0], np.cumsum([len(shard) for shard in shards])])
    written = Partition("written down", {}, 0, np.concatenate(shards), offsets)
    sent = cloudpickle.loads(cloudpickle.dumps(lazy))  # as Ray sends it to an actor
    found = []
    for partition in (lazy, written, sent):
        trainer = open_trainer(MLP, ClientData(data, partition, 1, 0.2), implementation="cpu", workers=1)
        trainer.begin(1, trainer.initial())
        trainer.train(ids(0, 3, 5), ids(2, 1, 2))
        found.append(trainer.weights(ids(0, 3, 5)))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_the_preset_really_trains(tmp_path: Path) -> None:
    scenario = smaller("digits-1m", 2000, k=5, candidates=20, rounds=2)
    result = run(scenario, out=tmp_path)
    assert result.record.facts["partition"]["name"] == LAZY
    assert set(result.rounds["training"]) == {"batched"}
    assert len(result.clients) == 10  # random choice probes nobody
    oracle = assemble(scenario.model_copy(
        update={"selector": scenario.selector.model_copy(update={"name": "class_coverage_oracle"})}
    ), 0)  # fmt: skip
    shares = oracle.engine.reported.fields["label_histogram"]
    assert shares.sum(1) == pytest.approx(np.ones(2000))


def test_a_method_that_keeps_something_of_everybody_refuses_a_large_fleet() -> None:
    scenario = smaller("surrogate-100k", 1001, k=5, candidates=20)
    scenario = scenario.model_copy(
        update={"selector": scenario.selector.model_copy(update={"name": "favor"})}
    )
    with pytest.raises(ConfigError, match=r"'favor' serves at most 1,000 devices, not 1,001") as error:
        assemble(scenario, 0)
    assert "smaller fleet" in error.value.hint


def test_more_clients_at_once_than_fit_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_for(MLP, 40)
    partition = make_partition(LAZY, data.train, 10**6, 0)
    trainer = open_trainer(MLP, ClientData(data, partition, 1), implementation="cpu", workers=1)
    row_bytes = 4 * (trainer.layout.size + trainer.layout.trainable)
    monkeypatch.setattr("emulator.training.table.memory_bytes", lambda: 7 * row_bytes)
    trainer.begin(1, trainer.initial())
    trainer.train(ids(*range(5)), ids(*[1] * 5))  # two rows are the server's
    with pytest.raises(ConfigError, match=r"6 clients at once need 0\.0 GB for") as error:
        trainer.train(ids(5), ids(1))
    assert "fewer candidates" in error.value.hint


def half_known(devices: int) -> ServerView:
    rng = np.random.default_rng(devices)
    view = fleet(devices)
    bias_delta = np.where(rng.random((devices, 1)) < 0.5, rng.normal(size=(devices, 10)), np.nan)
    return view.changed(
        bias_delta=bias_delta,
        times_chosen=rng.integers(0, 3, devices).astype(float),
        data_size=rng.choice([40, 50], devices),
        epoch_j=view.epoch_s,
        comm_j=view.comm_s,
    )


def test_cohorts_grown_from_distinct_devices_are_those_grown_from_all() -> None:
    view = half_known(300)
    ids = view.eligible_ids
    rng = np.random.default_rng(1)
    samples = label_shares(view.bias_delta)[ids] * view.data_size[ids, np.newaxis]
    bonus = np.sqrt(3 * np.log(view.round) / (2 * np.maximum(view.times_chosen[ids], 1)))
    left, cohort, expected = list(range(len(ids))), np.zeros(10), []
    for m in range(1, 21):
        log_weights = -m * np.log(qcid(cohort + samples[left]) + PERFECT)
        if m == 1:
            log_weights = np.log(np.exp(log_weights) + 10.0 * bonus[left])
        expected.append(left.pop(int(draw_weighted(rng, log_weights, 1)[0])))
        cohort += samples[expected[-1]]
    assert FedCbs().select(view, ids, 20, np.random.default_rng(1)).tolist() == ids[expected].tolist()

    order = np.random.default_rng(1).permutation(ids)
    shares = label_shares(view.bias_delta)[order]
    selector = HarmonyLike()
    penalty = selector._penalty(view)[order]
    total, expected = np.zeros(10), []
    for i in range(20):
        score = divergence((total + shares) / (i + 1), 10) + penalty
        score[expected] = np.inf
        expected.append(int(np.argmin(score)))
        total += shares[expected[-1]]
    assert selector.select(view, ids, 20, np.random.default_rng(1)).tolist() == order[expected].tolist()


def test_sizes_that_are_all_alike_take_no_memory_and_are_shown() -> None:
    made = load_scenario("surrogate-100k")
    engine = assemble(made.model_copy(update={"fleet": FleetSection(devices=500)}), 0).engine
    sizes = engine.open_round().view.data_size  # a field that is hidden warns, which is an error here
    assert sizes.strides == (0,)
    assert set(sizes.tolist()) == {made.task.samples_per_device}
