"""The oracle of the training tests: one client after the other, a torch loop as a textbook has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from device_agents.workloads.models import build
from device_agents.workloads.random_operations import Generators
from device_agents.workloads.tasks import Task, synthetic_shard
from emulator.data.model import DataSet, Split
from emulator.data.partition import Partition
from emulator.training.base import Trainer
from emulator.training.layout import Layout


@dataclass
class Outcome:
    weights: np.ndarray
    losses: list[np.ndarray]  # of the samples, one array per epoch


def train(
    task: Task,
    weights: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    orders: list[np.ndarray],
    proximal_mu: float = 0.0,
    draws: Sequence[Callable[[int], int]] = (),
) -> Outcome:
    """All epochs of one client from given weights; FedProx as its objective is written down."""
    model = build(task)
    put(model, weights)
    anchor = [parameter.detach().clone() for parameter in model.parameters()]
    optimiser = torch.optim.SGD(model.parameters(), lr=task.learning_rate, momentum=task.momentum)
    losses = []
    for epoch, order in enumerate(orders):
        seen = []
        for number, start in enumerate(range(0, len(order), task.batch_size)):
            batch = torch.from_numpy(order[start : start + task.batch_size])
            if len(batch) < task.smallest_batch:
                continue
            optimiser.zero_grad()
            if draws:
                Generators(model).seed(draws[epoch](number))
            found = nn.functional.cross_entropy(
                model(torch.from_numpy(x)[batch]), torch.from_numpy(y)[batch], reduction="none"
            )
            objective = found.mean()
            if proximal_mu:
                distances = [((w - a) ** 2).sum() for w, a in zip(model.parameters(), anchor, strict=True)]
                objective = objective + proximal_mu / 2 * torch.stack(distances).sum()
            objective.backward()
            optimiser.step()
            seen.append(found.detach().numpy())
        losses.append(np.concatenate(seen))
    return Outcome(row(model), losses)


def score(task: Task, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Mean loss and accuracy."""
    model = build(task).eval()
    put(model, weights)
    with torch.no_grad():
        logits = model(torch.from_numpy(x))
        right = (logits.argmax(1).numpy() == y).mean()
        return float(nn.functional.cross_entropy(logits, torch.from_numpy(y))), float(right)


def row(model: nn.Module, dtype: Any = np.float32) -> np.ndarray:
    values = [*model.parameters(), *model.buffers()]
    return np.concatenate([value.detach().numpy().ravel() for value in values]).astype(dtype)


def put(model: nn.Module, weights: np.ndarray) -> None:
    layout = Layout.of(model)
    values = dict([*model.named_parameters(), *model.named_buffers()])
    with torch.no_grad():
        for place in (*layout.parameters, *layout.buffers):
            values[place.name].copy_(torch.from_numpy(weights[place.span].copy()).view(place.shape))


def data_for(task: Task, samples: int, seed: int = 0) -> DataSet:
    """Random data that fits a task."""
    rng = np.random.default_rng(seed)
    train_split, held_out = (Split(*synthetic_shard(task, count, rng)) for count in (samples, 30))
    return DataSet(task.name, task.classes, train_split, held_out, held_out, note="random")


def shards_of(*sizes: int) -> Partition:
    """Clients of exactly these sizes, one after the other."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Partition("by hand", {}, 0, np.arange(offsets[-1]), offsets)


def expected(trainer: Any, client: int, epochs: int, weights: np.ndarray, mu: float = 0.0) -> Outcome:
    """What a client's epochs in round 1 should give."""
    x, y = trainer.clients.training(client)
    orders = [trainer.clients.order(client, 1, epoch) for epoch in range(epochs)]
    draws = [trainer.clients.draws(client, 1, epoch) for epoch in range(epochs)]
    return train(trainer.task, weights, x, y, orders, mu, draws)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def run(trainer: Trainer, clients: tuple[int, ...], epochs: int) -> np.ndarray:
    """Round 1 from the initial weights: the clients' weights after so many epochs."""
    trainer.begin(1, trainer.initial())
    trainer.train(ids(*clients), np.full(len(clients), epochs))
    return trainer.weights(ids(*clients))
