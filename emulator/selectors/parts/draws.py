"""Random draws without replacement: uniform, and in proportion to weights of any range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.selectors.top_k import top_k

if TYPE_CHECKING:
    from numpy.typing import NDArray


def draw_uniform(rng: np.random.Generator, ids: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """``k`` of the ids, each subset equally likely; all of them if there are fewer."""
    return rng.choice(ids, min(k, len(ids)), replace=False)


def draw_weighted(rng: np.random.Generator, log_weights: NDArray[np.float64], k: int) -> NDArray[np.int64]:
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
