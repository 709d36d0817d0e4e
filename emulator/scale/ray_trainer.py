"""`RayTrainer`: the clients of a round spread over the actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from emulator.scale.actor import RoundStart
from emulator.scale.actor_pool import ActorCall, ActorPool, PoolAnswer
from emulator.training.choose import resolved
from emulator.training.layout import Layout
from emulator.training.table import Scored, ScoreJob, TableTrainer, TrainJob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.training.client_data import ClientData
    from emulator.training.local import LocalResult

J = TypeVar("J")

_PIECES = 8
"""Calls per actor and step, so that an early one takes over from a late one; stacks are not cut up."""

_COLLECTED_BYTES = 32 * 2**20
"""Clients' weights that are under way at once: aggregation needs no more memory than that."""


@dataclass(slots=True)
class RayUsage:
    """What training on Ray took so far.

    Attributes:
        client_epochs: Epochs asked for; those that were repeated after a loss are not counted.
        training_cpu_s: Processor time of the actors for them.
        calls: Calls of actors.
        sent_bytes: Weights put into the object store, from where each node takes them once.
        received_bytes: Clients' weights that came back.
    """

    client_epochs: int = 0
    training_cpu_s: float = 0.0
    calls: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class RayTrainer(TableTrainer):
    """See `emulator.training.base.Trainer`. Clients' states stay on the actors; the table here has no rows.

    Args:
        task: What is trained, and how.
        clients: Everybody's data.
        implementation: Of training, resolved; the bits of the result are those of this one.
        workers: Actors.
    """

    keeps_rows: ClassVar[bool] = False

    def __init__(self, task: Task, clients: ClientData, implementation: str, workers: int) -> None:
        super().__init__(task, _layout(task), clients)
        self.implementation = implementation
        self.spent = RayUsage()
        self.pool = ActorPool(workers, task, clients, implementation)
        self._pieces = 1 if implementation == "batched" else _PIECES
        self._home: dict[int, int] = {}
        self._begun = RoundStart(0, 0, 0.0)
        self._sent: tuple[NDArray[np.float32], Any] | None = None
        self._global: Any = None

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """See `Trainer`."""
        super().begin(round_number, weights, proximal_mu=proximal_mu)
        self._begun = RoundStart(self._begun.serial + 1, round_number, proximal_mu)
        self._global = self._reference(weights)

    def end(self) -> None:
        """See `Trainer`."""
        super().end()
        self._home = {}

    def run_training(self, jobs: Sequence[TrainJob]) -> list[LocalResult]:
        """See `TableTrainer`; clients that were trained in this round stay where they are."""
        length = {job.client: len(job.epochs) * self.clients.training_size(job.client) for job in jobs}
        longest_first = sorted(jobs, key=lambda job: -length[job.client])
        homes = {self._home.get(job.client) for job in jobs}
        pieces: list[tuple[int | None, list[TrainJob]]] = []
        for home in homes:
            group = [job for job in longest_first if self._home.get(job.client) == home]
            pieces += [(home, piece) for piece in _dealt(group, self._pieces * self._width(home))]
        pieces.sort(key=lambda piece: -sum(length[job.client] for job in piece[1]))
        calls = [ActorCall("train", (self._begun, self._global, piece), home) for home, piece in pieces]
        results: dict[int, LocalResult] = {}
        for (_, piece), done in zip(pieces, self._run(calls), strict=True):
            self._home.update({job.client: done.member for job in piece})
            results.update(zip((job.client for job in piece), done.answer.value, strict=True))
            self.spent.training_cpu_s += done.answer.cpu_s
        self.spent.client_epochs += sum(len(job.epochs) for job in jobs)
        return [results[job.client] for job in jobs]

    def run_scoring(self, jobs: Sequence[ScoreJob]) -> list[Scored]:
        """See `TableTrainer`."""
        reference = self._reference(self.scored_weights())
        pieces = _dealt(range(len(jobs)), _PIECES * len(self.pool))
        calls = [ActorCall("score", (reference, [jobs[i] for i in piece])) for piece in pieces]
        found: dict[int, Scored] = {}
        for piece, done in zip(pieces, self._run(calls), strict=True):
            found.update(zip(piece, done.answer.value, strict=True))
        return [found[i] for i in range(len(jobs))]

    def rows_of(self, clients: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """See `TableTrainer`; some at a time."""
        count = max(1, _COLLECTED_BYTES // (4 * self.layout.size))
        for start in range(0, len(clients), count):
            piece = clients[start : start + count]
            found = self._collected([client for client in piece if self._done.get(client)])
            for client in piece:
                yield found[client] if client in found else self.global_weights()

    def close(self) -> None:
        """See `Trainer`."""
        self.pool.close()
        self._sent = self._global = None

    def _collected(self, clients: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        groups: dict[int, dict[int, int]] = {}
        for client in clients:
            groups.setdefault(self._home[client], {})[client] = self._done[client]
        calls = [
            ActorCall("rows", (self._begun, self._global, group), home) for home, group in groups.items()
        ]
        found: dict[int, NDArray[np.float32]] = {}
        for group, done in zip(groups.values(), self._run(calls), strict=True):
            self._home.update(dict.fromkeys(group, done.member))
            found.update(zip(group, done.answer.value, strict=True))
            self.spent.received_bytes += done.answer.value.nbytes
        return found

    def _run(self, calls: Sequence[ActorCall]) -> list[PoolAnswer]:
        self.spent.calls += len(calls)
        return self.pool.run(calls)

    def _width(self, home: int | None) -> int:
        return len(self.pool) if home is None else 1

    def _reference(self, weights: NDArray[np.float32]) -> Any:
        """Weights in the object store. What was scored last is mostly what the next round begins with."""
        import ray

        if self._sent is None or not np.array_equal(self._sent[0], weights):
            self._sent = weights.copy(), ray.put(weights)
            self.spent.sent_bytes += weights.nbytes
        return self._sent[1]


def open_ray_trainer(
    task: Task, clients: ClientData, *, implementation: str = "auto", workers: int | None = None
) -> RayTrainer:
    """An `emulator.training.base.OpenTrainer` on the cluster that this process is `connected` to.

    Args:
        task: As in `emulator.training.choose.open_trainer`.
        clients: Likewise.
        implementation: Likewise; actors compute on processors.
        workers: Actors; as many as the cluster has processors by default. More than that make an autoscaler
            start nodes.
    """
    from emulator.scale.cluster import Cluster

    chosen = resolved(task, clients, implementation)
    opened = RayTrainer(task, clients, chosen.name, Cluster().cpus() if workers is None else workers)
    opened.note = chosen.note
    return opened


def _dealt(jobs: Sequence[J], hands: int) -> list[list[J]]:
    """Round the table, so that jobs that are sorted by length make hands of about the same."""
    return [list(jobs[i::hands]) for i in range(min(hands, len(jobs)))]


def _layout(task: Task) -> Layout:
    from device_agents.workloads import Generators, build

    with Generators().kept():
        return Layout.of(build(task))
