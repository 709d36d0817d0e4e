"""The embedded default: 1,797 handwritten digits (8 x 8) that ship inside scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedjoule.errors import MissingExtra

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Split:
    """Inputs in 0 to 1, one row per sample, and their classes."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digits:
    """Training data for the devices; validation for rewards; test for reporting only."""

    train: Split
    validation: Split
    test: Split


def load_digits(rng: np.random.Generator) -> Digits:
    """The digits in random order: 70 % train, 10 % validation, 20 % test."""
    try:
        from sklearn.datasets import load_digits as sklearn_digits
    except ImportError as error:
        raise MissingExtra("the digits need scikit-learn", hint="pip install 'fedjoule[train]'") from error
    x, y = sklearn_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = x[order] / 16.0, y[order].astype(np.int64)
    a, b = round(0.7 * len(y)), round(0.8 * len(y))
    return Digits(Split(x[:a], y[:a]), Split(x[a:b], y[a:b]), Split(x[b:], y[b:]))


def iid_partition(samples: int, devices: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Random shards of equal size, up to one sample."""
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), devices)]
