"""The power of a pattern behind a regulator, the slow way: every edge by itself."""

from __future__ import annotations

import numpy as np

from harness.clock.pattern import BurstRun


def added_edges(run: BurstRun, tau_s: float, t_s: np.ndarray, width_s: float) -> np.ndarray:
    """Sum of 1 - exp(-x / tau) after each edge, averaged over a width around each time."""
    edge_s, change = run.edges()

    def area(x_s: np.ndarray) -> np.ndarray:
        x_s = np.maximum(x_s, 0.0)
        return x_s - tau_s * (1 - np.exp(-x_s / tau_s))

    total = np.zeros(len(t_s))
    for at_s, step in zip(edge_s.tolist(), change.tolist(), strict=True):
        total += step * (area(t_s + width_s / 2 - at_s) - area(t_s - width_s / 2 - at_s))
    return total / width_s
