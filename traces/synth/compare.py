"""How far two groups of people are apart: Kolmogorov-Smirnov distances of what they do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.synth.fit.periods import Periods, cut_at_hours
from traces.synth.model import HOURS

Array = NDArray[np.float64]
LEAST_WATCHED_H = 1.0
"""A person's share at an hour of the day counts where that hour was watched at least this long."""


def ks_distance(a: Array, b: Array) -> float:
    """Largest difference of the two empirical distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    at_a = np.searchsorted(np.sort(a), both, side="right") / len(a)
    at_b = np.searchsorted(np.sort(b), both, side="right") / len(b)
    return float(np.max(np.abs(at_a - at_b)))


def hourly_share(spells: Periods, on: NDArray[np.bool_], least_h: float = LEAST_WATCHED_H) -> Array:
    """Share of the watched time that is on: unit x hour of the day, NaN where little was watched."""
    spell, hour, spent = cut_at_hours(spells)
    place = spells.unit[spell] * HOURS + hour % HOURS
    watched = np.bincount(place, weights=spent, minlength=spells.units * HOURS)
    yes = np.bincount(place, weights=spent * on[spell], minlength=spells.units * HOURS)
    share = np.where(watched >= least_h, yes / np.maximum(watched, 1e-9), np.nan)
    return np.asarray(share.reshape(spells.units, HOURS))


def hourly_distance(a: Array, b: Array) -> float:
    """Distance between the people's shares at one hour of the day, averaged over the hours."""
    distances = []
    for at_hour in zip(a.T, b.T, strict=True):
        x, y = (share[~np.isnan(share)] for share in at_hour)
        if len(x) and len(y):
            distances.append(ks_distance(x, y))
    return float(np.mean(distances))


def whole_lengths(spells: Periods, on: NDArray[np.bool_]) -> Array:
    """Length (h) of the spells of some kind whose begin and end were seen."""
    return np.asarray(spells.length_h[on & spells.whole])
