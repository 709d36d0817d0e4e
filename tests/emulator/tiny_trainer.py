"""A trainer small enough to read: softmax regression on the embedded digits, one client after the other."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads.softmax import Softmax
from emulator.data.partition import make_partition
from emulator.data.sources import load_data_set
from emulator.training.base import LocalResults, Score
from joulefleet.seeds import generator

CLASSES = 10


class TinyTrainer:
    implementation = "tiny"

    def __init__(
        self,
        devices: int,
        seed: int,
        shards: list[NDArray[np.int64]] | None = None,
        poisoned: Collection[int] = (),
    ) -> None:
        data = load_data_set("digits", seed=seed)
        self.data = {
            name: (part.x.reshape(len(part), -1).astype(np.float64), part.y)
            for name in ("train", "validation", "test")
            for part in (getattr(data, name),)
        }
        partition = make_partition("iid", data.train, devices, seed)
        self.shards = shards or [partition.shard(client) for client in range(devices)]
        self.model = Softmax()
        self.seed = seed
        self.poisoned = poisoned
        self._state: dict[int, NDArray[np.float64]] = {}
        self._epochs: dict[int, int] = {}

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([len(shard) for shard in self.shards])

    def initial(self) -> NDArray[np.float32]:
        return self.model.initial().astype(np.float32)

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        self._round, self._weights, self._state, self._epochs = round_number, weights, {}, {}

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        loss, finite = np.full(len(clients), np.nan), np.ones(len(clients), bool)
        for i, client in enumerate(clients.tolist()):
            shard = self.shards[client]
            local = self._state.get(client, self._weights).astype(np.float64)
            for epoch in range(int(epochs[i]) if len(shard) else 0):
                done = self._epochs.get(client, 0)
                rng = generator(self.seed, "data order", client, self._round, done)
                x, y = self.data["train"]
                local, mean = self.model.epoch(local, x[shard], y[shard], rng)
                self._epochs[client] = done + 1
                loss[i] = mean if epoch == 0 else loss[i]
            if client in self.poisoned:
                local, loss[i], finite[i] = local * np.nan, np.nan, False
            self._state[client] = local
        return LocalResults(loss, loss, loss, finite)

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        total = np.zeros(len(self._weights))
        for client, share in zip(clients.tolist(), shares.tolist(), strict=True):
            total += self._state[client] * share
        return total.astype(np.float32)

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = [self._state.get(client, self._weights) for client in clients.tolist()]
        return np.stack(rows).astype(np.float32)

    def end(self) -> None:
        self._state = {}

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._loss(weights, self.shards[client]) for client in clients.tolist()])

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._loss(weights, self.shards[client][:32]) for client in clients.tolist()])

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        x, y = self.data["train"]
        shards = [self.shards[client] for client in clients.tolist()]
        return np.array([self.model.accuracy(weights, x[s], y[s]) for s in shards])

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        return Score(0.0, self.model.accuracy(weights, *self.data[split]))

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        return weights.reshape(*weights.shape[:-1], -1, CLASSES)[..., -1, :]

    def close(self) -> None:
        pass

    def _loss(self, weights: NDArray[np.float32], shard: NDArray[np.int64]) -> float:
        if not len(shard):
            return float("nan")
        table = weights.reshape(-1, CLASSES)
        x, y = self.data["train"]
        logits = x[shard] @ table[:-1] + table[-1]
        logits = logits - logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return float(-log_p[np.arange(len(shard)), y[shard]].mean())
