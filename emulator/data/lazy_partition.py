"""`LazyPartition`: shards that are drawn when they are needed, for fleets too large to write down.

A million devices of 600 samples are 4.8 GB of sample numbers, of which a run of 50 rounds reads a few per
cent. Here a device's shard is a pure function of (seed, device): memory does not depend on the number of
devices, and no worker or node has to be sent anything but the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.data.label_draws import Shards, by_label, draw_counts, draw_samples, fixed_size, positive
from emulator.data.model import Split
from joulefleet.errors import ConfigError
from joulefleet.seeds import generator

KEPT = 4096
"""Shards kept for the next question about the same device: a round asks for each several times."""

HASHED = 1000
"""Devices, evenly spaced, whose shards enter the hash."""


@dataclass(frozen=True, slots=True)
class LazyShards:
    """What decides every device's shard.

    Attributes:
        pools: The sample numbers of each label that occurs.
        clients: Number of devices.
        per_client: Samples of each device.
        alpha: Of the Dirichlet distribution of a device's label ratios.
        root: Seed of the devices' streams.
    """

    pools: Shards
    clients: int
    per_client: int
    alpha: float
    root: int
    _kept: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, client: int) -> NDArray[np.int64]:
        """The sample numbers of one device, ascending."""
        if client not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            counts, rng = self._counts(client)
            self._kept[client] = np.sort(draw_samples(self.pools, counts, rng))
        return self._kept[client]

    def label_counts(self, client: int) -> NDArray[np.int64]:
        """How many samples of each pool, without drawing them."""
        return self._counts(client)[0]

    def _counts(self, client: int) -> tuple[NDArray[np.int64], np.random.Generator]:
        if not 0 <= client < self.clients:
            raise IndexError(f"device {client} of {self.clients}")
        rng = generator(self.root, "shard", client)
        available = np.array([len(pool) for pool in self.pools])
        ratios = rng.dirichlet(np.full(len(self.pools), self.alpha))
        return draw_counts(available, ratios, self.per_client, rng), rng


@dataclass(frozen=True, slots=True)
class LazyPartition:
    """See `emulator.data.partition.Holdings`.

    Attributes:
        name: Registered name of the method.
        options: Its options, the defaults included.
        seed: Root seed it was drawn with.
        shards: Everybody's.
    """

    name: str
    options: Mapping[str, Any]
    seed: int
    shards: LazyShards

    def __len__(self) -> int:
        return self.shards.clients

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per device."""
        return np.full(len(self), self.shards.per_client)

    def size(self, client: int) -> int:
        """Samples of one device."""
        return self.shards.per_client

    def shard(self, client: int) -> NDArray[np.int64]:
        """The sample numbers of one device, ascending."""
        return self.shards[client]

    def label_counts(self, y: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """How many samples of each class each device has; asks every device, which takes its time."""
        labels = [int(y[pool[0]]) for pool in self.shards.pools]
        counts = np.zeros((len(self), classes), np.int64)
        for client in range(len(self)):
            counts[client, labels] = self.shards.label_counts(client)
        return counts

    def sha256(self) -> str:
        """Hash of what some of the devices have, and of how many there are."""
        digest = hashlib.sha256(repr((len(self), self.shards.per_client)).encode())
        for client in np.linspace(0, len(self) - 1, min(HASHED, len(self))).astype(int).tolist():
            digest.update(self.shard(client).astype("<i8").tobytes())
        return digest.hexdigest()

    def manifest(self) -> dict[str, Any]:
        """What repeats it, and the hash that shows that it was repeated."""
        return {
            "name": self.name,
            "options": dict(self.options),
            "seed": self.seed,
            "devices": len(self),
            "empty_devices": 0,
            "samples": len(self) * self.shards.per_client,
            "sha256": self.sha256(),
            "devices_hashed": min(HASHED, len(self)),
        }


def dir_client_lazy(
    split: Split, clients: int, rng: np.random.Generator, alpha: float = 0.01, samples_per_client: int = 20
) -> LazyShards:
    """Each device draws its label ratios from a symmetric Dirichlet, then its samples by them.

    As `emulator.data.partition.dir_client`, from a stream per device instead of one for all. Where devices
    times samples are more than the split has, the same sample is on many devices.
    """
    if fixed_size(samples_per_client) > len(split):
        raise ConfigError(f"{samples_per_client} samples per device, but there are only {len(split)}")
    root = int(rng.integers(2**63))
    return LazyShards(by_label(split.y), clients, samples_per_client, positive("alpha", alpha), root)
