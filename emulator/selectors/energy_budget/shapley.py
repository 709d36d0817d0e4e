"""Approximate Shapley values of a round's participants in a game that the server can play by itself.

The worth of a coalition S is U(S) = sum over classes c of sqrt(sum over i in S of n_i r_i q_ic): samples
times the root mean square of their losses (Oort's statistical utility), divided among classes by the
estimated label shares. More of a class is worth less and less, so who holds what others hold is worth less
beside them.

The Shapley value is the mean gain over orders of arrival. `shapley_values` averages over sampled orders, each
with its reverse (antithetic), in which every participant comes first equally often, as in GTG-Shapley.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def worth(samples: Array) -> float:
    """U of a coalition, a row of useful samples by class for each member."""
    return float(np.sqrt(samples.sum(0)).sum())


def shapley_values(samples: Array, rng: np.random.Generator, *, sweeps: int = 8) -> Array:
    """Of each row.

    Args:
        samples: n_i r_i q_ic, one row per participant.
        rng: Draws the orders.
        sweeps: How often everybody comes first.
    """
    n = len(samples)
    total = np.zeros(n)
    for _ in range(sweeps):
        for first in range(n):
            rest = rng.permutation(np.delete(np.arange(n), first))
            order = np.concatenate([[first], rest])
            for one in (order, order[::-1]):
                reached = np.sqrt(np.cumsum(samples[one], axis=0)).sum(1)
                total[one] += np.diff(reached, prepend=0.0)
    return total / max(1, 2 * n * sweeps)
