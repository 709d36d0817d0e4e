"""The K best of N, exactly: linear time, ties by lower position, so that a decision can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def top_k(values: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Positions of the ``k`` largest values, best first; of equal ones the lower position first.

    NaN is worth less than any number. With fewer than ``k`` values, all of them.
    """
    k = min(k, len(values))
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    # Ascending order of the negated values puts NaN last, and a stable sort keeps equal ones by position.
    negated = -np.asarray(values)
    if k == len(values):
        return np.argsort(negated, kind="stable")
    # argpartition alone would keep an arbitrary few of the values that tie at the border.
    border = np.partition(negated, k - 1)[k - 1]
    if np.isnan(border):
        return np.argsort(negated, kind="stable")[:k]
    inside = np.flatnonzero(negated < border)
    tied = np.flatnonzero(negated == border)[: k - len(inside)]
    found = np.concatenate([inside, tied])
    return found[np.lexsort((found, negated[found]))]
