"""`BatchedTrainer`: several clients as one model with an extra axis. For GPUs, and for very small models.

Each step is `torch.func.vmap` of the gradient over stacked weights: convolutions become grouped ones, matrix
products batched ones, and batch normalisation keeps each client's statistics apart. A stack always has the
same height, filled up with repetitions, so that a client's result does not depend on who else is in the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: TID253 - imported when a trainer is opened, never before
from torch.func import functional_call, grad, vmap  # noqa: TID253

from device_agents.workloads import Generators, batch_sizes, build, loss_of, metric_sums
from emulator.training.layout import Layout, Place
from emulator.training.local import LocalResult
from emulator.training.pool import one_thread
from emulator.training.table import Scored, ScoreJob, TableTrainer, TrainJob
from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from device_agents.workloads import Task
    from emulator.training.client_data import ClientData

HEIGHT = 16
"""Clients in a stack."""


class BatchedTrainer(TableTrainer):
    """See `emulator.training.base.Trainer`.

    Args:
        task: What is trained, and how.
        clients: Everybody's data.
        device: Where torch computes.
    """

    implementation = "batched"

    def __init__(self, task: Task, clients: ClientData, device: str = "cpu") -> None:
        with Generators().kept():
            self._model = build(task).to(device)
        super().__init__(task, Layout.of(self._model), clients)
        self._device = torch.device(device)
        self._loss = loss_of(task)
        self._gradients = vmap(grad(self._mean_loss, has_aux=True))

    def run_training(self, jobs: Sequence[TrainJob]) -> list[LocalResult]:
        """See `TableTrainer`; clients of one size share a stack where possible."""
        self._model.train()
        sizes = {job.client: self.clients.training_size(job.client) for job in jobs}
        trainable = [job for job in jobs if job.epochs and batch_sizes(self.task, sizes[job.client])]
        ordered = sorted(trainable, key=lambda job: (len(job.epochs), sizes[job.client], job.client))
        self._start(jobs)
        results = {job.client: LocalResult() for job in jobs}
        with one_thread():
            for start in range(0, len(ordered), HEIGHT):
                results.update(self._train_stack(ordered[start : start + HEIGHT]))
        return [results[job.client] for job in jobs]

    def run_scoring(self, jobs: Sequence[ScoreJob]) -> list[Scored]:
        """See `TableTrainer`."""
        self._model.eval()
        state = _pieces(self._tensor(self.scored_weights()), (*self.layout.parameters, *self.layout.buffers))
        with one_thread(), torch.inference_mode():
            return [self._score(state, *self.samples_of(job)) for job in jobs]

    def why_not(self, x: NDArray[Any], y: NDArray[np.int64]) -> str:
        """Why a step of two clients on these samples cannot be one; empty if it can."""
        weights = torch.stack([self._tensor(self.initial())] * 2)
        batch = (torch.stack([self._tensor(part)] * 2) for part in (x, y))
        generators = Generators(self._model)
        try:
            with generators.kept():
                drawn = generators.drawn_by(lambda: self._gradients_of(weights, *batch))
        except Exception as error:  # whatever a model of somebody's own raises there
            if "randomness" not in str(error):
                return f"its model has no batched form ({_first_line(error)})"
            drawn = ("torch",)
        return f"its model draws random numbers ({', '.join(drawn)}), each client its own" if drawn else ""

    def close(self) -> None:
        """See `Trainer`; there are no workers."""

    def _start(self, jobs: Sequence[TrainJob]) -> None:
        """Clients that did nothing in this round yet are at the global weights."""
        for job in jobs:
            if not job.epochs.start:
                weights, velocity = self.state_of(job)
                weights[:], velocity[:] = self.global_weights(), 0

    def _train_stack(self, jobs: Sequence[TrainJob]) -> dict[int, LocalResult]:
        states = [self.state_of(job) for job in jobs]
        stack = _Stack(
            self._tensor(np.stack([weights for weights, _ in states])),
            self._tensor(np.stack([velocity for _, velocity in states])),
            [self._shard(job) for job in jobs],
            [batch_sizes(self.task, self.clients.training_size(job.client)) for job in jobs],
        )
        first: dict[int, NDArray[np.float32]] = {}
        last: dict[int, NDArray[np.float32]] = {}
        for count in range(max(len(job.epochs) for job in jobs)):
            members = [i for i, job in enumerate(jobs) if count < len(job.epochs)]
            orders = {i: self.order_of(jobs[i])(jobs[i].epochs[count]) for i in members}
            last.update(self._epoch(stack, orders, jobs[0].proximal_mu))
            first = first or dict(last)  # everybody takes part in the first one
        results = {}
        for i, job in enumerate(jobs):
            weights, velocity = states[i]
            weights[:], velocity[:] = stack.weights[i].numpy(force=True), stack.velocity[i].numpy(force=True)
            results[job.client] = LocalResult.of(first[i], last[i]).checked(weights)
        return results

    def _epoch(
        self, stack: _Stack, orders: dict[int, NDArray[np.int64]], proximal_mu: float
    ) -> dict[int, NDArray[np.float32]]:
        """One pass of each member over its data; the samples' losses."""
        data = {
            i: tuple(part[torch.from_numpy(order).to(self._device)] for part in stack.shards[i])
            for i, order in orders.items()
        }
        losses: dict[int, list[Tensor]] = {i: [] for i in orders}
        for step in range(max(len(stack.sizes[i]) for i in orders)):
            taking_part = [i for i in orders if step < len(stack.sizes[i])]
            for size in sorted({stack.sizes[i][step] for i in taking_part}):
                members = [i for i in taking_part if stack.sizes[i][step] == size]
                piece = slice(step * self.task.batch_size, step * self.task.batch_size + size)
                x, y = (torch.stack([data[i][part][piece] for i in _filled(members)]) for part in (0, 1))
                found = self._step(stack, members, x, y, proximal_mu)
                for i, one in zip(members, found, strict=False):
                    losses[i].append(one)
        return {i: torch.cat(found).numpy(force=True) for i, found in losses.items()}

    def _step(self, stack: _Stack, members: list[int], x: Tensor, y: Tensor, proximal_mu: float) -> Tensor:
        """One SGD step of each member at once."""
        rows = torch.tensor(_filled(members), device=self._device)
        weights, velocity = stack.weights[rows], stack.velocity[rows]
        try:
            gradients, losses, buffers = self._gradients_of(weights, x, y)
        except RuntimeError as error:
            raise JoulefleetError(
                f"task {self.task.name!r}: no batched form of this step ({_first_line(error)})",
                hint='train one client at a time: trainer.kind = "cpu"',
            ) from error
        gradient = torch.cat([piece.flatten(1) for piece in gradients.values()], 1)
        trained = weights[:, : self.layout.trainable]
        if proximal_mu:
            anchor = self._tensor(self.global_weights()[: self.layout.trainable])
            gradient.add_(trained, alpha=proximal_mu).sub_(anchor, alpha=proximal_mu)
        for name, piece in _pieces(weights, self.layout.buffers).items():
            piece.copy_(buffers[name])
        velocity.mul_(self.task.momentum).add_(gradient)
        trained.add_(velocity, alpha=-self.task.learning_rate)
        count = len(members)
        stack.weights[rows[:count]], stack.velocity[rows[:count]] = weights[:count], velocity[:count]
        found: Tensor = losses[:count]
        return found

    def _gradients_of(
        self, weights: Tensor, x: Tensor, y: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        """The gradients of stacked rows by name, the samples' losses, the buffers afterwards."""
        # Batch normalisation updates its statistics in place, and through vmap only in dense memory.
        buffers = {
            name: piece.clone(memory_format=torch.contiguous_format)
            for name, piece in _pieces(weights, self.layout.buffers).items()
        }
        with _fused_lstm(allowed=not self.task.vocabulary):
            gradients, losses = self._gradients(_pieces(weights, self.layout.parameters), buffers, x, y)
        return gradients, losses, buffers

    def _mean_loss(
        self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        losses = self._loss(functional_call(self._model, (parameters, buffers), (x,)), y)
        return losses.mean(), losses

    def _score(self, state: dict[str, Tensor], x: NDArray[Any], y: NDArray[Any]) -> Scored:
        if not len(y):
            return Scored(0, 0.0)
        labels = torch.from_numpy(y).to(self._device)
        output = functional_call(self._model, state, (self._tensor(x),))
        losses = self._loss(output, labels)
        sums = metric_sums(self.task, output, labels, losses)
        return Scored(len(y), float(losses.double().sum()), tuple(sums.tolist()))

    def _shard(self, job: TrainJob) -> tuple[Tensor, Tensor]:
        x, y = self.clients.training(job.client)
        return self._tensor(x), torch.from_numpy(y).to(self._device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


@dataclass(frozen=True, slots=True)
class _Stack:
    """Clients that train together: a row of weights and of momentum each, their shards, their batches."""

    weights: Tensor
    velocity: Tensor
    shards: list[tuple[Tensor, Tensor]]
    sizes: list[list[int]]


@contextmanager
def _fused_lstm(*, allowed: bool) -> Iterator[None]:
    """The LSTM layer of oneDNN has no batched form; without oneDNN torch composes one that has."""
    mkldnn: Any = torch.backends.mkldnn
    enabled = mkldnn.enabled
    mkldnn.enabled = enabled and allowed
    try:
        yield
    finally:
        mkldnn.enabled = enabled


def _first_line(error: Exception) -> str:
    """What went wrong, without torch's advice on it."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"


def _filled(members: list[int]) -> list[int]:
    """Up to the height of a stack."""
    return members + members[:1] * (HEIGHT - len(members))


def _pieces(rows: Tensor, places: Sequence[Place]) -> dict[str, Tensor]:
    """Views of rows (or of one row) by name."""
    return {place.name: rows[..., place.span].view((*rows.shape[:-1], *place.shape)) for place in places}
