"""Slowdown and energy against background load, as a monotone curve fitted to what was measured.

Isotonic regression (pool adjacent violators) takes out the ups and downs that noise made; between its points
`power.profile.model` interpolates without overshooting. Each point counts by the inverse square of its
interval; levels of the same load are averaged so. The point without load is 1 by definition and is not moved.
Slowdown can only grow with load; energy may go either way (a busy chip is already awake), so the direction
that fits better is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from power.profile import LoadPoint, MeasuredLoad, Quantity, interpolate

if TYPE_CHECKING:
    from numpy.typing import NDArray

PINNED = 1e9
"""Weight of the point without load, relative to the others."""


SAME_LOAD_DIGITS = 9
"""Loads are products of worker counts and shares: what differs less than this is the same load."""


def fit_curve(levels: Sequence[MeasuredLoad]) -> tuple[tuple[LoadPoint, ...], tuple[str, ...]]:
    """The curve through levels that differ in CPU load, the first of them without any; and notes on it.

    Every level tells a slowdown. Where its marginal energy is not known or not positive, the energy factor is
    that of the curve through the others. Every kind of load but that of processors is left out.
    """
    usable = sorted((level for level in levels if level.kind != "memory"), key=lambda level: level.load)
    if len(usable) < 2 or usable[0].load > 0:
        return (), ()
    times = _relative([(level.load, level.epoch.duration_s) for level in usable])
    slowdown = _increasing(times.values, times.weights)
    energy = _energy_factors(usable, times.loads)
    points = tuple(
        LoadPoint(load=load, slowdown=slow, energy_factor=joules)
        for load, slow, joules in zip(times.loads, slowdown.tolist(), energy.tolist(), strict=True)
    )
    return points, (*_notes_on_loads(usable), *_notes_on_energy(usable))


def _energy_factors(levels: Sequence[MeasuredLoad], loads: Sequence[float]) -> NDArray[np.float64]:
    if _marginal(levels[0]) is None:
        return np.ones(len(loads))
    known = [(level.load, quantity) for level in levels if (quantity := _marginal(level)) is not None]
    energies = _relative(known)
    return interpolate(energies.loads, _monotone(energies.values, energies.weights).tolist(), loads)


def _marginal(level: MeasuredLoad) -> Quantity | None:
    quantity = level.epoch.marginal_j
    return quantity if quantity is not None and quantity.mean > 0 else None


def _notes_on_loads(levels: Sequence[MeasuredLoad]) -> Iterator[str]:
    for load, same in groupby(levels, key=lambda level: round(level.load, SAME_LOAD_DIGITS)):
        names = [repr(level.name) for level in same]
        if len(names) > 1:
            which = ", ".join(names)
            yield f"backgrounds {which} ask for the same load of {load:.0%}: the curve has their mean"


def _notes_on_energy(levels: Sequence[MeasuredLoad]) -> Iterator[str]:
    if _marginal(levels[0]) is None:
        yield "without load no marginal energy is known: under load it is taken to be the same"
        return
    for level in levels:
        if _marginal(level) is None:
            quantity = level.epoch.marginal_j
            why = (
                "no marginal energy"
                if quantity is None
                else f"its marginal energy of {quantity.mean:.3g} J is not above zero"
            )
            yield f"background {level.name!r}: {why}; its energy is taken from the levels beside it"


@dataclass(frozen=True, slots=True, eq=False)
class _Relative:
    """Values relative to the first and their weights, one entry per load."""

    loads: list[float]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def _relative(measured: Sequence[tuple[float, Quantity]]) -> _Relative:
    """Quantities by increasing load, those of the same load averaged by their weights."""
    quantities = [quantity for _, quantity in measured]
    known = [q.half_width_95 / q.mean for q in quantities if q.half_width_95]
    widest = max(known, default=1.0)  # what was measured once counts like the least certain of the others
    widths = np.array([q.half_width_95 / q.mean if q.half_width_95 else widest for q in quantities])
    each = np.array([quantity.mean for quantity in quantities]) / quantities[0].mean
    rounded = np.round([load for load, _ in measured], SAME_LOAD_DIGITS)
    loads, place = np.unique(rounded, return_inverse=True)
    weights = np.asarray(np.bincount(place, widths**-2.0), np.float64)
    values = np.bincount(place, widths**-2.0 * each) / weights
    weights[0] = PINNED * weights.max()
    return _Relative(loads.tolist(), values, weights)


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
