"""Decimation for pages and exports: the lowest and highest value of every stretch, so that peaks survive.

`decimate` takes a recording of any length, `min_max_indices` arrays that are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from power.energy import EnergyIndex
from power.recording import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Samples = tuple[NDArray[np.int64], NDArray[np.floating[Any]], NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class Decimated:
    """Samples that stand for all of a recording, in the order of time.

    Attributes:
        t_ns: Host-monotonic time of each.
        current_a: Current.
        voltage_v: Voltage.
        n_samples: How many the recording has.
    """

    t_ns: NDArray[np.int64]
    current_a: NDArray[np.floating[Any]]
    voltage_v: NDArray[np.floating[Any]]
    n_samples: int

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def power_w(self) -> NDArray[np.float64]:
        """Volts times amperes of each sample."""
        return self.current_a.astype(np.float64) * self.voltage_v

    @property
    def is_complete(self) -> bool:
        """Whether no sample was left out."""
        return len(self) == self.n_samples


def decimate(recording: Recording, max_samples: int) -> Decimated:
    """At most ``max_samples`` samples: those of lowest and highest power in stretches of equal length.

    Reads the recording batch by batch. The index holds sums and no extremes, so every sample is looked at,
    but only one batch and one stretch of them are in memory.

    Args:
        recording: Any recording, however long.
        max_samples: Four or more.
    """
    n = recording.record.n_samples
    width = 1 if n <= max_samples else math.ceil(2 * n / (max_samples - 2))
    kept = [_extremes(samples, width) for samples in _whole_stretches(recording, width)]
    if not kept:
        return Decimated(np.empty(0, np.int64), np.empty(0), np.empty(0), n)
    t_ns, current_a, voltage_v = (np.concatenate(column) for column in zip(*kept, strict=True))
    return Decimated(t_ns, current_a, voltage_v, n)


def gaps_ns(recording: Recording, at_most: int) -> list[tuple[int, int]]:
    """Where samples are missing for too long to be bridged: the longest ones, in the order of time."""
    index = EnergyIndex(recording)
    found = np.flatnonzero(index.broken)
    longest = found[np.argsort(-index.between_ns[found], kind="stable")[:at_most]]
    return [(int(index.last_ns[i]), int(index.first_ns[i + 1])) for i in np.sort(longest)]


def _whole_stretches(recording: Recording, width: int) -> Iterator[Samples]:
    """The samples in pieces whose length is a multiple of ``width``, the last one excepted."""
    held: list[Samples] = []
    count = 0
    for block in recording.blocks():
        held.append((block.t_ns, block.current_a, block.voltage_v))
        count += len(block)
        if count >= width:
            joined = _join(held)
            whole = count - count % width
            yield _cut(joined, slice(0, whole))
            held, count = [_cut(joined, slice(whole, None))], count - whole
    if count:
        yield _join(held)


def _join(pieces: list[Samples]) -> Samples:
    t_ns, current_a, voltage_v = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return t_ns, current_a, voltage_v


def _cut(samples: Samples, part: slice | NDArray[np.int64]) -> Samples:
    t_ns, current_a, voltage_v = samples
    return t_ns[part], current_a[part], voltage_v[part]


def _extremes(samples: Samples, width: int) -> Samples:
    """The lowest and highest power of every ``width`` samples, and of what is left at the end."""
    return (
        samples if width == 1 else _cut(samples, np.unique(_extreme_indices(samples[1] * samples[2], width)))
    )


def min_max_indices(columns: Sequence[NDArray[np.float64]], max_points: int) -> NDArray[np.int64]:
    """Which points of several lines to keep: the extremes of each by stretches, the first and the last."""
    n = len(columns[0])
    if n <= max_points:
        return np.arange(n)
    width = -(-n // max(1, (max_points - 2) // (2 * len(columns))))
    return np.unique(np.concatenate([[0, n - 1], *(_extreme_indices(values, width) for values in columns)]))


def _extreme_indices(values: NDArray[np.floating[Any]], width: int) -> NDArray[np.int64]:
    """Where the lowest and highest of every ``width`` values are; the last stretch may be shorter."""
    n = len(values) // width
    stretches = values[: n * width].reshape(n, width)
    base = np.arange(n) * width
    found = [base + stretches.argmin(axis=1), base + stretches.argmax(axis=1)]
    rest = values[n * width :]
    if len(rest):
        found.append(n * width + np.array([rest.argmin(), rest.argmax()]))
    return np.concatenate(found)
