"""The median of very many numbers, exactly, at a fraction of a partition's cost.

A selector that normalises six features of a hundred thousand devices takes eighteen medians a round: as
partitions they cost as much as its network. A sorted sample tells between which two values the median lies;
one pass keeps what lies there, a few hundredths of all, and only that is partitioned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Fewer numbers than this are partitioned as quickly as they are looked through.
_MANY = 20_000
_SAMPLE = 2_000
# How far from the sample's middle the limits lie, in standard deviations of the median's place in it.
_DEVIATIONS = 4.0


def lower_median(x: NDArray[np.floating]) -> float:
    """The lower of the middle two for an even count; no NaN, and at least one number."""
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
