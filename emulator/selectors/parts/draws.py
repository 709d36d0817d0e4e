"""Choosing some of many: the K best, exactly, and random draws without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids


def top_k(values: NDArray[np.floating], k: int) -> Ids:
    """Positions of the ``k`` largest values, best first; of equal ones the lower position first.

    Linear time, and always the same answer, so that a decision can be replayed.

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


def draw_uniform(rng: np.random.Generator, ids: Ids, k: int) -> Ids:
    """``k`` of the ids, each subset equally likely; all of them if there are fewer."""
    return rng.choice(ids, min(k, len(ids)), replace=False)


def draw_weighted(rng: np.random.Generator, log_weights: NDArray[np.float64], k: int) -> Ids:
    """Positions of ``k`` entries drawn one after another in proportion to ``exp(log_weights)``.

    An exponential race (Gumbel's trick): the first ``k`` arrivals of independent exponential clocks with
    these rates have exactly the law of successive draws without replacement. It works on logarithms, so no
    weight is lost to underflow. Entries of weight 0 (minus infinity or NaN) come last, uniformly.
    """
    k = min(k, len(log_weights))
    with np.errstate(divide="ignore"):  # an arrival time of exactly 0 simply wins
        arrivals = np.log(rng.standard_exponential(len(log_weights)))
    keys = log_weights - arrivals
    possible = keys > -np.inf
    found = top_k(keys, min(k, int(np.count_nonzero(possible))))
    if len(found) == k:
        return found
    return np.concatenate([found, draw_uniform(rng, np.flatnonzero(~possible), k - len(found))])


def log_of(weights: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
    """Logarithms of weights; minus infinity for 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(weights, dtype=np.float64))
