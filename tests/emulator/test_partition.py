"""How data is shared among devices."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.data.model import Split
from emulator.data.partition import PARTITIONS, Partition, make_partition
from joulefleet.errors import ConfigError

METHODS = ("iid", "dir_client", "dir_class", "quantity_skew")


def labelled(samples: int, classes: int = 10, seed: int = 0) -> Split:
    y = np.random.default_rng(seed).integers(0, classes, samples)
    return Split(np.zeros((samples, 1), np.float32), y, y % 3)


def test_the_methods_have_the_names_that_scenarios_use() -> None:
    assert set(PARTITIONS.entries()) >= {*METHODS, "natural"}


@given(
    name=st.sampled_from(METHODS),
    samples=st.integers(20, 300),
    clients=st.integers(1, 20),
    seed=st.integers(0, 10),
)
@settings(deadline=None, max_examples=60)
def test_every_partition_is_valid_and_repeatable(name: str, samples: int, clients: int, seed: int) -> None:
    split = labelled(samples)
    found, again = (make_partition(name, split, clients, seed) for _ in range(2))
    assert len(found) == clients
    assert found.sizes.sum() == len(found.indices)
    assert found.sha256() == again.sha256()
    for client in range(clients):
        shard = found.shard(client)
        assert len(np.unique(shard)) == len(shard)
        assert np.array_equal(shard, np.sort(shard))
        assert len(shard) == 0 or (shard[0] >= 0 and shard[-1] < samples)
    if name != "dir_client":
        assert np.array_equal(np.sort(found.indices), np.arange(samples))  # each sample with one device
    else:
        assert set(found.sizes.tolist()) == {samples // clients}
    counts = found.label_counts(split.y, 10)
    assert np.array_equal(counts.sum(1), found.sizes)
    assert counts[0].tolist() == np.bincount(split.y[found.shard(0)], minlength=10).tolist()


def test_seeds_and_methods_give_different_partitions() -> None:
    split = labelled(600)
    hashes = {make_partition(name, split, 10, seed).sha256() for name in METHODS for seed in (0, 1)}
    assert len(hashes) == 8


def test_per_client_ratios_follow_alpha() -> None:
    split = labelled(60_000)
    peaked, even = (
        make_partition("dir_client", split, 100, 0, alpha=alpha, samples_per_client=600)
        for alpha in (0.01, 100.0)
    )
    largest = [p.label_counts(split.y, 10).max(1).mean() / 600 for p in (peaked, even)]
    assert largest[0] > 0.9
    assert largest[1] < 0.2
    assert set(peaked.sizes.tolist()) == {600}


def test_per_class_split_is_literal_and_leaves_devices_empty() -> None:
    """Dir_100(0.01) over ten classes: about 40 of 100 devices get nothing (39 in one published run)."""
    split = labelled(60_000)
    empty = [make_partition("dir_class", split, 100, seed).manifest()["empty_devices"] for seed in range(10)]
    assert 30 < np.mean(empty) < 50
    assert make_partition("dir_class", split, 100, 0, alpha=100.0).sizes.min() > 400


def test_quantity_skew_is_lognormal() -> None:
    sizes = make_partition("quantity_skew", labelled(600_000), 1000, 0, sigma=0.5).sizes
    logs = np.log(sizes)
    assert np.std(logs) == pytest.approx(0.5, rel=0.1)
    assert abs(np.mean(logs) - np.median(logs)) < 0.05


def test_a_class_that_runs_out_is_made_up_for_by_others() -> None:
    split = Split(np.zeros((30, 1), np.float32), np.repeat(np.arange(3), 10))
    found = make_partition("dir_client", split, 5, 0, alpha=0.001, samples_per_client=25)
    assert set(found.sizes.tolist()) == {25}


def test_natural_keeps_groups_whole() -> None:
    split = labelled(100)
    assert split.groups is not None
    found = make_partition("natural", split, 2, 0)
    for client in range(2):
        owners = np.unique(split.groups[found.shard(client)])
        assert len(owners) == 1
        assert len(found.shard(client)) == np.count_nonzero(split.groups == owners[0])


def test_the_manifest_repeats_the_partition() -> None:
    split = labelled(500)
    found = make_partition("dir_client", split, 7, 3, alpha=0.5)
    manifest = found.manifest()
    assert manifest["options"] == {"alpha": 0.5, "samples_per_client": None}
    again = make_partition(
        manifest["name"], split, manifest["devices"], manifest["seed"], **manifest["options"]
    )
    assert again.sha256() == manifest["sha256"]
    moved = Partition("x", {}, 0, found.indices, found.offsets + np.eye(1, 8, 3, dtype=np.int64)[0])
    assert moved.sha256() != manifest["sha256"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dirichlet", {}, "no partition called 'dirichlet'"),
        ("iid", {"alpha": 1.0}, "partition 'iid' has no option 'alpha'"),
        ("iid", {"samples_per_client": 60}, "100 samples are too few for 4 devices of 60"),
        ("dir_client", {"alpha": 0.0}, "alpha must be positive"),
        ("iid", {"samples_per_client": 40.0}, "samples_per_client is 40.0"),
        ("dir_client", {"samples_per_client": "many"}, "samples_per_client is 'many'"),
        ("dir_client_lazy", {"samples_per_client": 2.5}, "samples_per_client is 2.5"),
        ("dir_class", {"alpha": "small"}, "alpha must be positive and finite, got 'small'"),
        ("dir_client", {"samples_per_client": 101}, "101 samples per device, but there are only 100"),
        ("dir_client", {"samples_per_client": 0}, "at least one is needed"),
        ("dir_class", {"alpha": float("nan")}, "alpha must be positive"),
        ("quantity_skew", {"sigma": -1.0}, "sigma must be positive"),
        ("natural", {}, "4 devices, but the data has only 3 groups"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_partition(name, labelled(100), 4, 0, **options)


def test_data_without_groups_has_no_natural_partition() -> None:
    split = Split(np.zeros((4, 1), np.float32), np.zeros(4, np.int64))
    with pytest.raises(ConfigError, match="does not say whose"):
        make_partition("natural", split, 1, 0)
    with pytest.raises(ConfigError, match="at least one is needed"):
        make_partition("iid", split, 0, 0)


def test_more_devices_than_samples_says_how_many_there_are() -> None:
    with pytest.raises(ConfigError, match="100 samples for 200 devices") as caught:
        make_partition("dir_client", labelled(100), 200, 0)
    assert "samples_per_client" in caught.value.hint
    assert len(make_partition("dir_client", labelled(100), 200, 0, samples_per_client=3)) == 200
