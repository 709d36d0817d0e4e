"""Robust per-round normalisation, which lets a policy learnt on one task act on another.

Per feature over the devices at hand: z = (log(x) - median) / (1.4826 MAD + 1e-6), clipped to 3; a constant
column is 0. Seconds or hours, ten devices or a million: the ranking is the same. Where more than half of the
devices are exactly alike the MAD is 0 and says nothing; the root mean square takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIP = 3.0
# Scale of the median absolute deviation that makes it the standard deviation of a normal distribution.
MAD_TO_SD = 1.4826
# Keeps the logarithm finite at 0. Added to values relative to the median, so that units do not matter.
SHIFT = np.float32(1e-6)
# Stands for infinity, which has no deviation from anything.
LARGEST = float(np.finfo(np.float32).max)
# Fewer numbers than this are partitioned as quickly as they are looked through.
_MANY = 20_000
_SAMPLE = 2_000
# How far from the sample's middle the limits lie, in standard deviations of the median's place in it.
_DEVIATIONS = 4.0


def lower_median(x: NDArray[np.floating]) -> float:
    """The lower of the middle two for an even count; no NaN, and at least one number.

    Exact, at a fraction of a partition's cost. A selector that normalises six features of a hundred thousand
    devices takes eighteen medians a round: as partitions they cost as much as its network. A sorted sample
    tells between which two values the median lies; one pass keeps what lies there, a few hundredths of all,
    and only that is partitioned.
    """
    middle = (len(x) - 1) // 2
    if len(x) >= _MANY:
        low, high = _limits(x)
        inside = x[(x >= low) & (x <= high)]
        place = middle - int(np.count_nonzero(x < low))
        # A sample that misleads, of numbers that repeat in its own stride, costs time and nothing else.
        if 0 <= place < len(inside):
            return float(np.partition(inside, place)[place])
    return float(np.partition(x, middle)[middle])


def _limits(x: NDArray[np.floating]) -> tuple[np.floating, np.floating]:
    """Two values that enclose the median, as far as one number in so many can tell."""
    sample = np.sort(x[:: len(x) // _SAMPLE])
    margin = round(_DEVIATIONS * np.sqrt(len(sample)) / 2)
    centre = len(sample) // 2
    return sample[centre - margin], sample[centre + margin]


def robust_log_z(columns: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """One row per device, one column per feature; what is negative counts as 0.

    NaN counts as the median, infinity as larger than any number; a column of nothing else is 0.
    """
    out = np.zeros((len(columns[0]), len(columns)), np.float32)
    for index, column in enumerate(columns):
        values = _relative(np.asarray(column, np.float64))
        if values is not None:
            out[:, index] = _standardised(values)
    return out


def _relative(x: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Values over their median, or over the largest if the median is 0; None if nothing is known."""
    finite = np.isfinite(x)
    known = x if finite.all() else x[finite]
    if len(known) == 0:
        return None
    if known.min() < 0:  # a small energy that was measured, less idling, can come out below zero
        return _relative(np.maximum(x, 0.0))
    unit = lower_median(known) or known.max()
    if unit == 0:
        return None
    relative = x / unit
    if known is not x:
        relative = np.where(np.isnan(x), lower_median(known) / unit, np.minimum(relative, LARGEST))
    return relative.astype(np.float32)


def _standardised(relative: NDArray[np.float32]) -> NDArray[np.float32]:
    relative += SHIFT
    z = np.log(relative, out=relative)
    z -= lower_median(z)
    spread = MAD_TO_SD * lower_median(np.abs(z)) or float(np.sqrt(np.mean(np.square(z))))
    z /= np.float32(spread + 1e-6)
    return np.clip(z, -CLIP, CLIP, out=z)
