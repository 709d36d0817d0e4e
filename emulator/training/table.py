"""What every `Trainer` here has in common: a table with a row of weights and momentum per client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from device_agents.workloads import initial_state, metric_value
from emulator.training.base import LocalResults, Score, weighted_sum
from emulator.training.local import blaming
from emulator.training.pool import SharedRows, memory_bytes
from joulefleet.errors import ConfigError
from joulefleet.seeds import torch_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.training.client_data import ClientData
    from emulator.training.layout import Layout
    from emulator.training.local import Draws, LocalResult

_GLOBAL, _SCORED, _FIRST_CLIENT = 0, 1, 2  # rows
_CHUNK = 1000  # samples of a server split that are scored as one job


@dataclass(frozen=True, slots=True)
class TrainJob:
    """Further epochs of one client; ``row`` is its own, ``rows`` how many the table has."""

    client: int
    round_number: int
    epochs: range
    row: int
    rows: int
    proximal_mu: float


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """The scored weights on some samples.

    Attributes:
        part: ``training``, ``scored`` (see `ClientData`) or ``batch`` of a client, or a server's split.
        client: Whose; none if the server's.
        start: For the server: the first of its samples. For a batch: the epoch whose first one it is.
        round_number: For a batch.
    """

    part: str
    client: int = -1
    start: int = 0
    round_number: int = 0


@dataclass(frozen=True, slots=True)
class Scored:
    """What scoring found, as sums."""

    samples: int
    loss_sum: float
    metric_sums: tuple[float, ...] = ()


class TableTrainer(ABC):
    """`emulator.training.base.Trainer` but for the computing, which subclasses do.

    Args:
        task: What is trained, and how.
        layout: Of the task's model.
        clients: Everybody's data.
    """

    implementation: str
    note: str = ""
    """Why it is not the implementation that was asked for, for the run's record."""
    keeps_rows: ClassVar[bool] = True
    """Whether the clients' rows are in this process, and not somewhere else."""

    def __init__(self, task: Task, layout: Layout, clients: ClientData) -> None:
        self.task = task
        self.layout = layout
        self.clients = clients
        self._table = SharedRows(layout.size + layout.trainable)
        self._table.grow(_FIRST_CLIENT)
        self._row_of: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._round_number = 0
        self._proximal_mu = 0.0

    @abstractmethod
    def run_training(self, jobs: Sequence[TrainJob]) -> list[LocalResult]:
        """Do the jobs and put each client's weights and momentum into its row."""

    @abstractmethod
    def run_scoring(self, jobs: Sequence[ScoreJob]) -> list[Scored]:
        """Do the jobs with `scored_weights`."""

    @abstractmethod
    def close(self) -> None:
        """See `Trainer`."""

    def initial(self) -> NDArray[np.float32]:
        """See `Trainer`."""
        return self.layout.row(initial_state(self.task, torch_seed(self.clients.seed, "initial weights")))

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """See `Trainer`."""
        if not 0 <= proximal_mu < np.inf:
            raise ConfigError(f"proximal_mu must be zero or positive, got {proximal_mu}")
        self.end()
        self._round_number, self._proximal_mu = round_number, proximal_mu
        self._put(_GLOBAL, weights)

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        """See `Trainer`."""
        jobs = self._jobs([int(client) for client in clients], [int(count) for count in epochs])
        with blaming(self.task.code):
            results = self.run_training(jobs)
        self._done.update({job.client: job.epochs.stop for job in jobs})
        return LocalResults(
            loss=np.array([result.loss for result in results]),
            loss_rms=np.array([result.loss_rms for result in results]),
            last_loss=np.array([result.last_loss for result in results]),
            finite=np.array([result.finite for result in results], bool),
        )

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        """See `Trainer`."""
        order = np.argsort(clients, kind="stable")
        return weighted_sum(self.rows_of(clients[order].tolist()), shares[order], self.layout.size)

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Trainer`."""
        rows = np.empty((len(clients), self.layout.size), np.float32)
        for i, row in enumerate(self.rows_of(clients.tolist())):
            rows[i] = row
        return rows

    def end(self) -> None:
        """See `Trainer`."""
        self._row_of, self._done = {}, {}

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Trainer`."""
        return self._losses(weights, [ScoreJob("training", int(client)) for client in clients])

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Trainer`."""
        epochs = [(client, self._done.get(client, 0)) for client in map(int, clients)]
        return self._losses(
            weights, [ScoreJob("batch", client, epoch, self._round_number) for client, epoch in epochs]
        )

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Trainer`."""
        scored = self.score(weights, [ScoreJob("scored", int(client)) for client in clients])
        return np.array([metric_value(self.task, one.samples, one.metric_sums) for one in scored])

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        """See `Trainer`."""
        if split not in ("validation", "test"):
            raise ConfigError(f"split {split!r} is neither 'validation' nor 'test'")
        starts = range(0, len(getattr(self.clients.data, split)), _CHUNK)
        scored = self.score(weights, [ScoreJob(split, start=start) for start in starts])
        samples = sum(one.samples for one in scored)
        if not samples:
            return Score(np.nan, np.nan)
        sums = tuple(map(sum, zip(*(one.metric_sums for one in scored if one.samples), strict=True)))
        loss = sum(one.loss_sum for one in scored) / samples
        return Score(loss, metric_value(self.task, samples, sums))

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Trainer`."""
        return weights[..., self.layout.output_bias(self.task.classes)]

    def score(self, weights: NDArray[np.float32], jobs: Sequence[ScoreJob]) -> list[Scored]:
        """Score weights on each job's samples."""
        self._put(_SCORED, weights)
        with blaming(self.task.code):
            return self.run_scoring(jobs)

    def restart(self, clients: Sequence[int]) -> None:
        """Have clients begin this round again, at its global weights."""
        for client in clients:
            self._done.pop(client, None)

    def rows_of(self, clients: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """The clients' present weights, one after the other; to be read before the next is asked for."""
        table = self._table.rows(len(self._table))
        for client in clients:
            row = self._row_of[client] if self._done.get(client) else _GLOBAL
            yield table[row, : self.layout.size]

    def scored_weights(self) -> NDArray[np.float32]:
        """The weights that are being scored."""
        return self._table.rows(_FIRST_CLIENT)[_SCORED, : self.layout.size]

    def global_weights(self) -> NDArray[np.float32]:
        """The weights that this round began with."""
        return self._table.rows(_FIRST_CLIENT)[_GLOBAL, : self.layout.size]

    def state_of(self, job: TrainJob) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The client's weights and momentum, in place; undefined until its first epoch."""
        row = self._table.rows(job.rows)[job.row]
        return row[: self.layout.size], row[self.layout.size :]

    def order_of(self, job: TrainJob) -> Callable[[int], NDArray[np.int64]]:
        """The order of the client's samples in each epoch of this round."""
        return lambda epoch: self.clients.order(job.client, job.round_number, epoch)

    def draws_of(self, job: TrainJob) -> Callable[[int], Draws]:
        """The entropy of the random operations in each batch of each epoch of this round."""
        return lambda epoch: self.clients.draws(job.client, job.round_number, epoch)

    def scoring_draws_of(self, job: ScoreJob) -> Draws:
        """Likewise of a scoring job: the same samples meet the same draws, whatever the weights."""
        return self.clients.scoring_draws(job.part, job.client, job.start)

    def samples_of(self, job: ScoreJob) -> tuple[NDArray[Any], NDArray[Any]]:
        """What a scoring job is about."""
        if job.part == "batch":
            x, y = self.clients.training(job.client)
            first = self.clients.order(job.client, job.round_number, job.start)[: self.task.batch_size]
            return x[first], y[first]
        if job.client >= 0:
            return (self.clients.training if job.part == "training" else self.clients.scored)(job.client)
        split = getattr(self.clients.data, job.part)
        piece = slice(job.start, job.start + _CHUNK)
        return self.clients.data.inputs(split.x[piece]), split.y[piece]

    def _losses(self, weights: NDArray[np.float32], jobs: Sequence[ScoreJob]) -> NDArray[np.float64]:
        scored = self.score(weights, jobs)
        return np.array([one.loss_sum / one.samples if one.samples else np.nan for one in scored])

    def _jobs(self, clients: list[int], epochs: list[int]) -> list[TrainJob]:
        if len(set(clients)) != len(clients):
            raise ConfigError("a client can be trained only once in one call")
        for client in clients:
            if not 0 <= client < len(self.clients.partition):
                raise ConfigError(
                    f"there is no client {client}: the partition has {len(self.clients.partition)}"
                )
            self._row_of.setdefault(client, _FIRST_CLIENT + len(self._row_of))
        self._make_room(_FIRST_CLIENT + len(self._row_of))
        return [
            TrainJob(
                client=client,
                round_number=self._round_number,
                epochs=range(self._done.get(client, 0), self._done.get(client, 0) + count),
                row=self._row_of[client],
                rows=len(self._table),
                proximal_mu=self._proximal_mu,
            )
            for client, count in zip(clients, epochs, strict=True)
        ]

    def _make_room(self, rows: int) -> None:
        needed, there = rows * self._table.row_bytes, memory_bytes()
        if self.keeps_rows and needed > there:
            raise ConfigError(
                f"{rows - _FIRST_CLIENT:,} clients at once need {needed / 1e9:.1f} GB for their weights and "
                f"momentum, this machine has {there / 1e9:.1f} GB",
                hint="ask for fewer candidates; for a method that trains everybody first, a smaller fleet",
            )
        self._table.grow(rows)

    def _put(self, row: int, weights: NDArray[np.float32]) -> None:
        if weights.shape != (self.layout.size,):
            raise ConfigError(f"weights of shape {weights.shape}, the model has {self.layout.size}")
        self._table.rows(_FIRST_CLIENT)[row, : self.layout.size] = weights
