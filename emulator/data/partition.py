"""How a training split is shared among the devices. Everything follows from (name, options, seed).

The paper's "p_k ~ Dir_N" can be read in two ways with opposite results, so both are here under their own
names (item A22 of ``docs/selectors-notes.md``): ``dir_client`` draws each device's label ratios,
``dir_class`` each label's split over the devices.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.data.label_draws import Shards, by_label, draw_counts, draw_samples, fixed_size, positive
from emulator.data.lazy_partition import LazyPartition, LazyShards
from emulator.data.model import Split
from joulefleet.errors import ConfigError
from joulefleet.registry import Registry
from joulefleet.seeds import generator

Partitioner = Callable[..., Shards | LazyShards]
"""Takes (split, clients, rng) and options by keyword; gives each client's sample numbers."""

PARTITIONS: Registry[Partitioner] = Registry(
    what="partition",
    group="joulefleet.partitions",
    builtin={
        "iid": ("emulator.data.partition:iid", "Random samples, equal sizes"),
        "dir_client": (
            "emulator.data.partition:dir_client",
            "Dirichlet label ratios per device, equal sizes",
        ),
        "dir_client_lazy": (
            "emulator.data.lazy_partition:dir_client_lazy",
            "As dir_client, each shard drawn when it is needed: for very large fleets",
        ),
        "dir_class": (
            "emulator.data.partition:dir_class",
            "Each label split over the devices by a Dirichlet",
        ),
        "quantity_skew": ("emulator.data.partition:quantity_skew", "Random samples, lognormal sizes"),
        "natural": ("emulator.data.partition:natural", "By speaker or writer, as the data has it"),
    },
)


BY_CLASS = frozenset({"dir_client", "dir_client_lazy", "dir_class"})
"""Those that go by classes, and so are not for samples that have none."""


class Holdings(Protocol):
    """Who has which training samples. A device may have none; two may have the same one."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per device."""

    def __len__(self) -> int: ...

    def size(self, client: int) -> int:
        """Samples of one device."""

    def shard(self, client: int) -> NDArray[np.int64]:
        """The sample numbers of one device, ascending."""

    def label_counts(self, y: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """How many samples of each class each device has: (devices, classes)."""

    def sha256(self) -> str:
        """Hash of who has what."""

    def manifest(self) -> dict[str, Any]:
        """What repeats it, and the hash that shows that it was repeated."""


@dataclass(frozen=True, slots=True)
class Partition:
    """`Holdings`, written down.

    Attributes:
        name: Registered name of the method.
        options: Its options, the defaults included.
        seed: Root seed it was drawn with.
        indices: Every device's sample numbers, one device after the other, each sorted.
        offsets: Where each device's begin, and the end: one more than there are devices.
    """

    name: str
    options: Mapping[str, Any]
    seed: int
    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per device."""
        return np.diff(self.offsets)

    def size(self, client: int) -> int:
        """Samples of one device."""
        return int(self.offsets[client + 1] - self.offsets[client])

    def shard(self, client: int) -> NDArray[np.int64]:
        """The sample numbers of one device."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def label_counts(self, y: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """How many samples of each class each device has: (devices, classes)."""
        owner = np.repeat(np.arange(len(self)), self.sizes)
        flat = np.bincount(owner * classes + y[self.indices], minlength=len(self) * classes)
        return flat.reshape(len(self), classes)

    def sha256(self) -> str:
        """Hash of who has what."""
        digest = hashlib.sha256(self.offsets.astype("<i8").tobytes())
        digest.update(self.indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def manifest(self) -> dict[str, Any]:
        """What repeats it, and the hash that shows that it was repeated."""
        return {
            "name": self.name,
            "options": dict(self.options),
            "seed": self.seed,
            "devices": len(self),
            "empty_devices": int(np.count_nonzero(self.sizes == 0)),
            "samples": int(self.offsets[-1]),
            "sha256": self.sha256(),
        }


def partition_options(name: str) -> dict[str, Any]:
    """What a scenario may give to a partition, and what it is otherwise."""
    parameters = list(inspect.signature(PARTITIONS.load(name)).parameters.values())
    return {option.name: option.default for option in parameters[len(("split", "clients", "rng")) :]}


def make_partition(name: str, split: Split, clients: int, seed: int, **options: Any) -> Holdings:
    """Share ``split`` among ``clients`` devices.

    Raises:
        ConfigError: The name or an option is unknown, or a value is out of range.
    """
    if clients < 1:
        raise ConfigError(f"a partition over {clients} devices: at least one is needed")
    method, known = PARTITIONS.load(name), partition_options(name)
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(
            f"partition {name!r} has no option {unknown[0]!r}", hint=f"known: {', '.join(known) or 'none'}"
        )
    options = {**known, **options}
    shards = method(split, clients, generator(seed, "partition", name), **options)
    if isinstance(shards, LazyShards):
        return LazyPartition(name, options, seed, shards)
    offsets = np.concatenate([[0], np.cumsum([len(shard) for shard in shards])]).astype(np.int64)
    indices = np.concatenate([np.sort(shard) for shard in shards]).astype(np.int64)
    return Partition(name, options, seed, indices, offsets)


def iid(
    split: Split, clients: int, rng: np.random.Generator, samples_per_client: int | None = None
) -> Shards:
    """Random shards of equal size, up to one sample, that do not overlap."""
    order = rng.permutation(len(split))
    if samples_per_client is not None:
        order = order[: fixed_size(samples_per_client) * clients]
        if len(order) < samples_per_client * clients:
            raise ConfigError(
                f"{len(split)} samples are too few for {clients} devices of {samples_per_client}",
                hint="lower samples_per_client or the number of devices",
            )
    return np.array_split(order, clients)


def dir_client(
    split: Split,
    clients: int,
    rng: np.random.Generator,
    alpha: float = 0.01,
    samples_per_client: int | None = None,
) -> Shards:
    """Each device draws its own label ratios from a symmetric Dirichlet, then its samples by them.

    Every device has the same size (by default the split divided by the number of devices). It draws without
    replacement, but independently of the others, so that two devices may hold the same sample.
    """
    if samples_per_client is None and len(split) < clients:
        raise ConfigError(
            f"{len(split)} samples for {clients} devices: not one for each",
            hint="say how many each draws with samples_per_client, or ask for fewer devices",
        )
    size = fixed_size(len(split) // clients if samples_per_client is None else samples_per_client)
    if size > len(split):
        raise ConfigError(f"{size} samples per device, but there are only {len(split)}")
    pools = by_label(split.y)
    available = np.array([len(pool) for pool in pools])
    ratios = rng.dirichlet(np.full(len(pools), positive("alpha", alpha)), clients)
    return [draw_samples(pools, draw_counts(available, row, size, rng), rng) for row in ratios]


def dir_class(split: Split, clients: int, rng: np.random.Generator, alpha: float = 0.01) -> Shards:
    """Each label is split over all devices by one draw from a symmetric Dirichlet, to the letter.

    With a small ``alpha`` most devices get nothing; they stay registered.
    """
    parts: list[Shards] = [[] for _ in range(clients)]
    for pool in by_label(split.y):
        share = rng.dirichlet(np.full(clients, positive("alpha", alpha)))
        cuts = np.round(np.cumsum(share)[:-1] * len(pool)).astype(np.int64)
        for part, piece in zip(parts, np.split(rng.permutation(pool), cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def quantity_skew(split: Split, clients: int, rng: np.random.Generator, sigma: float = 1.0) -> Shards:
    """Random samples, no overlap, sizes in proportion to lognormal draws with this ``sigma``."""
    weight = np.exp(positive("sigma", sigma) * rng.standard_normal(clients))
    cuts = np.round(np.cumsum(weight)[:-1] / weight.sum() * len(split)).astype(np.int64)
    return np.split(rng.permutation(len(split)), cuts)


def natural(split: Split, clients: int, rng: np.random.Generator) -> Shards:
    """One device per group of the data; random groups if there are more of them than devices."""
    if split.groups is None:
        raise ConfigError("the data does not say whose samples are whose", hint="use another partition")
    groups = by_label(split.groups)
    if clients > len(groups):
        raise ConfigError(
            f"{clients} devices, but the data has only {len(groups)} groups", hint="ask for fewer devices"
        )
    return [groups[number] for number in np.sort(rng.choice(len(groups), clients, replace=False))]
