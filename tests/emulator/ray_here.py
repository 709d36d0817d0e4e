"""A Ray of two nodes on this machine, and rounds to run on it."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from device_agents.workloads.tasks import TASKS, Task
from emulator.scale.ray_trainer import RayTrainer, open_ray_trainer
from emulator.training.base import LocalResults, Trainer
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from emulator.training.table import ScoreJob
from tests.emulator.plain_training import data_for, shards_of

LENET = TASKS["mnist-lenet5"]
SIZES = (40, 20, 10, 33, 0, 25)

_TOKEN = secrets.token_hex(32)  # one for all modules: Ray reads it once in the life of a process

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


class TwoNodes:
    """A head and one more, of one processor each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args=NODE)
        self._other: Any = None
        self.complete()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def other_id(self) -> str:
        return str(self._other.node_id)

    def complete(self) -> None:
        if self._other is None:
            self._other = self._cluster.add_node(**NODE)

    def lose_the_other(self) -> None:
        node, self._other = self._other, None
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


def prepare(patch: pytest.MonkeyPatch) -> None:
    """What Ray's processes find in their environment."""
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray asks for a token, and would put one into the home of whoever runs the tests.
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", _TOKEN)


def clients_of(task: Task, held_out: float) -> ClientData:
    return ClientData(data_for(task, sum(SIZES)), shards_of(*SIZES), 1, held_out)


def on_ray(task: Task, held_out: float = 0.0, **options: Any) -> RayTrainer:
    return open_ray_trainer(task, clients_of(task, held_out), **options)


def here(task: Task, held_out: float = 0.0, **options: Any) -> list[np.ndarray]:
    return two_rounds(open_trainer(task, clients_of(task, held_out), workers=1, **options))


def everybody(trainer: RayTrainer) -> None:
    """Wait until all actors are there, so that the test decides who is lost."""
    deadline_s = time.monotonic() + 180
    while len(trainer.pool.present) < len(trainer.pool):
        assert time.monotonic() < deadline_s, "not all actors started"
        trainer.score(trainer.initial(), [ScoreJob("training", 0)])
        time.sleep(0.1)  # leaves them a processor to start on


def stop_and_lose(process: int, lose: Callable[[], None]) -> threading.Thread:
    """Halt an actor, so that its next call is surely under way when it is lost half a second later."""
    os.kill(process, signal.SIGSTOP)

    def later() -> None:
        time.sleep(0.5)
        lose()

    thread = threading.Thread(target=later)
    thread.start()
    return thread


def two_rounds(trainer: Trainer, before: Callable[[str], None] = lambda _: None) -> list[np.ndarray]:
    """Probe six, go on with three of them, aggregate, evaluate: everything that a round asks for."""
    weights = trainer.initial()
    probed, chosen = np.array([5, 0, 3, 1, 4, 2]), np.array([4, 1, 3])
    found = [trainer.loss_of(weights, probed)]
    for round_number in (1, 2):
        trainer.begin(round_number, weights, proximal_mu=0.01 * round_number)
        before(f"probe {round_number}")
        found += _columns(trainer.train(probed, np.ones(6, np.int64)))
        found.append(trainer.batch_loss_of(weights, chosen))
        before(f"train {round_number}")
        found += _columns(trainer.train(chosen, np.array([2, 1, 2])))
        found.append(trainer.weights(probed))
        weights = trainer.aggregate(chosen, np.array([0.5, 0.2, 0.3]))
        trainer.end()
        score = trainer.evaluate(weights, "validation")
        found += [weights, np.array([score.loss, score.accuracy]), trainer.accuracy_of(weights, probed)]
    return found


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def _columns(results: LocalResults) -> list[np.ndarray]:
    return [results.loss, results.loss_rms, results.last_loss, results.finite]
