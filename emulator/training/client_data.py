"""What each client trains on, and in which order: pure functions of (data, partition, seed)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.data.model import DataSet
from emulator.data.partition import Holdings
from joulefleet.errors import ConfigError
from joulefleet.seeds import generator, stream_entropy


@dataclass(frozen=True, slots=True)
class ClientData:
    """The clients' samples.

    Attributes:
        data: All of them.
        partition: Whose they are.
        seed: Root of the data order.
        held_out: Share of each client's samples that it does not train on, for `Trainer.accuracy_of`.
    """

    data: DataSet
    partition: Holdings
    seed: int
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ConfigError(f"held_out is a share from 0 to below 1, got {self.held_out}")

    def training(self, client: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What the client trains on, as the model takes it."""
        return self._samples(self._divided(client)[0])

    def scored(self, client: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What the client's accuracy is measured on: what it holds out, or everything if that is nothing."""
        trained, held_out = self._divided(client)
        return self._samples(held_out if len(held_out) else trained)

    def training_size(self, client: int) -> int:
        """How many samples the client trains on."""
        size = self.partition.size(client)
        return size - round(self.held_out * size)

    def order(self, client: int, round_number: int, epoch: int) -> NDArray[np.int64]:
        """The order of one epoch (from 0): it does not depend on which epochs were asked for together."""
        rng = generator(self.seed, "data order", int(client), int(round_number), int(epoch))
        return rng.permutation(self.training_size(client))

    def draws(self, client: int, round_number: int, epoch: int) -> Callable[[int], int]:
        """Entropy of the random operations (dropout) in each batch of one epoch, both from 0."""
        name = ("random operations", int(client), int(round_number), int(epoch))
        return lambda batch: stream_entropy(self.seed, *name, batch)

    def scoring_draws(self, part: str, client: int, start: int) -> Callable[[int], int]:
        """Entropy of what a model draws while it is scored: the same whenever these samples are."""
        return lambda batch: stream_entropy(
            self.seed, "random operations, scored", part, client, start, batch
        )

    def _divided(self, client: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shard = self.partition.shard(client)
        count = round(self.held_out * len(shard))
        if not count:
            return shard, shard[:0]
        order = generator(self.seed, "held out", int(client)).permutation(len(shard))
        return shard[np.sort(order[count:])], shard[np.sort(order[:count])]

    def _samples(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.data.inputs(self.data.train.x[indices]), self.data.train.y[indices]
