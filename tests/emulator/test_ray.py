"""Training on a real Ray of two nodes: the same bits as here, whoever is lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from emulator.scale.cluster import Cluster, connected
from emulator.scale.ray_trainer import RayTrainer
from tests.emulator.plain_training import ids
from tests.emulator.ray_here import (
    LENET,
    TwoNodes,
    assert_same,
    everybody,
    here,
    on_ray,
    prepare,
    stop_and_lose,
    two_rounds,
)

# One Ray for all of them, and never beside the other module's.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch)
        two = TwoNodes()
        yield two
        two.close()


@pytest.fixture(scope="module")
def cluster(nodes: TwoNodes) -> Iterator[Cluster]:
    with connected(nodes.address) as found:
        yield found


@pytest.fixture(scope="module")
def trainer(cluster: Cluster) -> Iterator[RayTrainer]:
    """An actor on each node."""
    opened = on_ray(LENET, implementation="cpu", held_out=0.2)
    everybody(opened)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    return here(LENET, implementation="cpu", held_out=0.2)


def test_the_bits_are_those_of_training_here(
    cluster: Cluster, trainer: RayTrainer, expected: list[np.ndarray]
) -> None:
    before = replace(trainer.spent)
    assert_same(two_rounds(trainer), expected)
    assert trainer.implementation == "cpu"
    assert len({where.node_id for where in trainer.pool.present.values()}) == 2
    # The initial weights were sent before; then each round's once, though used for five things.
    assert trainer.spent.sent_bytes - before.sent_bytes == 2 * trainer.initial().nbytes
    assert trainer.spent.client_epochs - before.client_epochs == 2 * (6 + 5)
    assert cluster.use()["nodes"] == 2


def test_nothing_is_left_in_the_object_store(cluster: Cluster, trainer: RayTrainer) -> None:
    weights, used = trainer.initial(), {}
    for number in range(1, 7):
        trainer.begin(number, weights)
        trainer.train(ids(0, 1, 2), ids(1, 1, 1))
        weights = trainer.aggregate(ids(0, 1, 2), np.full(3, 1 / 3))
        trainer.end()
        if number in (2, 6):
            used[number] = settled(lambda: cluster.use()["object_store_bytes_taken"])
    # Each of the four rounds between sent one set of weights and received three.
    assert used[6] - used[2] < weights.nbytes, used
    assert used[2] > 0


def test_an_actor_killed_in_the_middle_of_a_round_changes_nothing(
    trainer: RayTrainer, expected: list[np.ndarray]
) -> None:
    lost, threads = trainer.pool.lost, []

    def before(step: str) -> None:
        if step == "train 1":  # it has probed clients, and now gets the rest of their epochs
            process = trainer.pool.present[trainer._home[4]].process
            threads.append(stop_and_lose(process, lambda: os.kill(process, signal.SIGKILL)))

    assert_same(two_rounds(trainer, before), expected)
    threads[0].join()
    assert trainer.pool.lost == lost + 1
    everybody(trainer)  # Ray has started it again


def test_a_lost_node_changes_nothing_though_nobody_has_room_for_its_actor(
    nodes: TwoNodes, trainer: RayTrainer, expected: list[np.ndarray]
) -> None:
    lost, threads = trainer.pool.lost, []

    def before(step: str) -> None:
        if step == "probe 2":
            processes = {where.node_id: where.process for where in trainer.pool.present.values()}
            threads.append(stop_and_lose(processes[nodes.other_id], nodes.lose_the_other))

    assert_same(two_rounds(trainer, before), expected)
    threads[0].join()
    assert trainer.pool.lost == lost + 1
    assert len(trainer.pool.present) == 1
    nodes.complete()
    everybody(trainer)  # on the new node, as after an autoscaler's work


def settled(read: Callable[[], int]) -> int:
    """A number that Ray's nodes report now and then, when it has not changed for a second."""
    value, since_s = read(), time.monotonic()
    while time.monotonic() - since_s < 1:
        time.sleep(0.1)
        if (now := read()) != value:
            value, since_s = now, time.monotonic()
    return value
