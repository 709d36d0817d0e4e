"""Draws of samples by label, which several partitions have in common."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError

Shards = list["NDArray[np.int64]"]


def by_label(labels: NDArray[np.int64]) -> Shards:
    """The sample numbers of each label that occurs.

    Raises:
        ConfigError: The samples have no classes.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ConfigError(
            "task.partition goes by classes, and the samples of this data have none",
            hint='use "iid" or "quantity_skew", or "natural" where the data says whose samples are whose',
        )
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def draw_counts(
    available: NDArray[np.int64], ratios: NDArray[np.float64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many of each label: a multinomial draw, drawn again among the rest for a label that ran out."""
    counts = np.zeros_like(available)
    while (missing := size - int(counts.sum())) > 0:
        open_ratios = np.where(counts < available, ratios, 0.0)
        if open_ratios.sum() <= 0:  # the ratios of the remaining labels are all too small for a float
            open_ratios = np.where(counts < available, 1.0, 0.0)
        counts = np.minimum(available, counts + rng.multinomial(missing, open_ratios / open_ratios.sum()))
    return counts


def draw_samples(pools: Shards, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """So many samples of each label, without replacement."""
    wanted = np.flatnonzero(counts)  # to draw nothing changes nothing, but takes as long as to draw something
    return np.concatenate([rng.choice(pools[label], counts[label], replace=False) for label in wanted])


def fixed_size(samples: Any) -> int:
    """A number of samples per device, refused if it is none or no whole number."""
    if isinstance(samples, bool) or not isinstance(samples, Integral):
        raise ConfigError(f"samples_per_client is {samples!r}", hint="give a whole number, such as 40")
    if int(samples) < 1:
        raise ConfigError(f"{samples} samples per device: at least one is needed")
    return int(samples)


def positive(name: str, value: float) -> float:
    """An option that has to be positive and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise ConfigError(f"{name} must be positive and finite, got {value!r}")
    return value
