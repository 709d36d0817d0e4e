"""Slowdown and energy against background load, as a monotone curve fitted to what was measured.

Isotonic regression (pool adjacent violators) takes out the ups and downs that noise made; between its points
`power.load_curve` interpolates without overshooting. Each point counts by the inverse square of its
interval. The point without load is 1 by definition and is not moved. Slowdown can only grow with load; energy
may go either way (a busy chip is already awake), so the direction that fits better is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from power.load_curve import LoadPoint
from power.profile import LoadLevel, Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

PINNED = 1e9
"""Weight of the point without load, relative to the others."""


def fit_curve(levels: Sequence[LoadLevel]) -> tuple[LoadPoint, ...]:
    """The curve through levels that differ in CPU load, the first of them without any.

    A level whose marginal energy is not known or not positive is left out, and so is every kind of load but
    that of processors.
    """
    usable = sorted((level for level in levels if _marginal(level) is not None), key=lambda level: level.load)
    usable = [level for level in usable if level.kind != "memory"]
    if len(usable) < 2 or usable[0].load > 0:
        return ()
    loads = np.array([level.load for level in usable])
    durations = [level.epoch.duration_s for level in usable]
    energies = [quantity for level in usable if (quantity := _marginal(level)) is not None]
    slowdown = _increasing(*_relative(durations))
    energy = _monotone(*_relative(energies))
    points: dict[float, LoadPoint] = {}
    for load, slow, joules in zip(loads.tolist(), slowdown.tolist(), energy.tolist(), strict=True):
        points.setdefault(load, LoadPoint(load=load, slowdown=slow, energy_factor=joules))
    return tuple(points.values())


def _marginal(level: LoadLevel) -> Quantity | None:
    quantity = level.epoch.marginal_j
    return quantity if quantity is not None and quantity.mean > 0 else None


def _relative(quantities: Sequence[Quantity]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values relative to the first, and their weights."""
    means = np.array([quantity.mean for quantity in quantities])
    known = [q.half_width_95 / q.mean for q in quantities if q.half_width_95]
    widest = max(known, default=1.0)  # what was measured once counts like the least certain of the others
    widths = np.array([q.half_width_95 / q.mean if q.half_width_95 else widest for q in quantities])
    weights = widths**-2.0
    weights[0] = PINNED * weights.max()
    return means / means[0], weights


def _monotone(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increasing or decreasing, whichever is closer."""
    up = _increasing(values, weights)
    down = 1 / _increasing(1 / values, weights)
    errors = [float(np.sum(weights[1:] * (fit - values)[1:] ** 2)) for fit in (up, down)]
    return up if errors[0] <= errors[1] else down


def _increasing(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted isotonic regression; the first value is 1 afterwards."""
    from scipy.optimize import isotonic_regression

    fitted: NDArray[np.float64] = np.asarray(isotonic_regression(values, weights=weights).x)
    return np.asarray(fitted / fitted[0])
