"""`TrainingActor`: what a Ray actor is: data and model stay, clients' states stay until the round ends."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from emulator.training.choose import open_trainer
from emulator.training.local import LocalResult
from emulator.training.table import Scored, ScoreJob, TableTrainer, TrainJob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.training.client_data import ClientData

T = TypeVar("T")


class NotJoined(Exception):
    """A call reached an actor that was started anew since the last one; the pool hands it to another."""


@dataclass(frozen=True, slots=True)
class RoundStart:
    """A round as the server began it; ``serial`` tells it from an earlier one of the same number."""

    serial: int
    round_number: int
    proximal_mu: float


@dataclass(frozen=True, slots=True)
class ActorAnswer(Generic[T]):
    """What a call found, and the processor time that it took."""

    value: T
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ActorLocation:
    """Where an actor runs."""

    node_id: str
    process: int


class TrainingActor:
    """One thread of training.

    Every call says how far its clients are in the round. A client that is not there (this process is a new
    one, or another one did the work before) is trained again from the round's global weights: the same
    epochs in the same order of data, so the same bits.

    A new one knows nothing until `join`, also when Ray has started it in the place of one that died.
    """

    def __init__(self) -> None:
        self._joined: TableTrainer | None = None
        self._begun: RoundStart | None = None
        self._epochs: dict[int, int] = {}

    def join(self, task: Task, clients: ClientData, implementation: str) -> ActorLocation:
        """Get ready to work.

        Args:
            task: What is trained, and how.
            clients: Everybody's data; Ray shares it, read-only, among the actors of a node.
            implementation: Of training, resolved.
        """
        import ray
        import torch

        torch.set_num_threads(1)
        # Samples in Ray's shared memory are read-only, and nothing here writes to samples.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        self._joined = open_trainer(task, clients, implementation=implementation, workers=1)
        self._begun = None
        return ActorLocation(ray.get_runtime_context().get_node_id(), os.getpid())

    def train(
        self, begun: RoundStart, weights: NDArray[np.float32], jobs: Sequence[TrainJob]
    ) -> ActorAnswer[list[LocalResult]]:
        """Do the jobs; ``weights`` are those that the round began with."""
        started_s = time.process_time()
        self._catch_up(begun, weights, {job.client: job.epochs.start for job in jobs})
        found = self._train({job.client: len(job.epochs) for job in jobs})
        return ActorAnswer(found, time.process_time() - started_s)

    def rows(
        self, begun: RoundStart, weights: NDArray[np.float32], epochs: Mapping[int, int]
    ) -> ActorAnswer[NDArray[np.float32]]:
        """The weights of clients after so many epochs, one row each."""
        started_s = time.process_time()
        self._catch_up(begun, weights, epochs)
        rows = self._trainer.weights(np.array(list(epochs), np.int64))
        return ActorAnswer(rows, time.process_time() - started_s)

    def score(self, weights: NDArray[np.float32], jobs: Sequence[ScoreJob]) -> ActorAnswer[list[Scored]]:
        """Score weights."""
        started_s = time.process_time()
        return ActorAnswer(self._trainer.score(weights, jobs), time.process_time() - started_s)

    @property
    def _trainer(self) -> TableTrainer:
        if self._joined is None:
            raise NotJoined("this actor is a new one")
        return self._joined

    def _catch_up(self, begun: RoundStart, weights: NDArray[np.float32], epochs: Mapping[int, int]) -> None:
        """Have these clients exactly so far in this round."""
        if begun != self._begun:
            self._trainer.begin(begun.round_number, weights, proximal_mu=begun.proximal_mu)
            self._begun, self._epochs = begun, {}
        elsewhere = {
            client: count for client, count in epochs.items() if self._epochs.get(client, 0) != count
        }
        self._trainer.restart(list(elsewhere))
        self._epochs.update(dict.fromkeys(elsewhere, 0))
        self._train({client: count for client, count in elsewhere.items() if count})

    def _train(self, epochs: Mapping[int, int]) -> list[LocalResult]:
        clients = np.array(list(epochs), np.int64)
        found = self._trainer.train(clients, np.array(list(epochs.values()), np.int64))
        for client, count in epochs.items():
            self._epochs[client] = self._epochs.get(client, 0) + count
        columns = (found.loss, found.loss_rms, found.last_loss, found.finite)
        return [LocalResult(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]
