"""Variance of differences of averages of 1/f noise: what slow noise does to a mean power.

Noise with spectral density h/f has no mean to return to, but differences of its averages have a variance::

    variance = -h * sum_ij w_i w_j L_ij        for weights w that add up to zero

where ``L_ij`` is the mean of ln|s - t| over s in interval i and t in interval j. A net energy is such a
difference, between the work and idle. For a gross energy the difference is to the whole recording: the mean
of the noise over the recording is an offset, which the instrument's limits account for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

ALLAN_OF_H = 2 * math.log(2)
"""Allan variance of flicker noise over its h, the same at every averaging time."""

Interval = tuple[float, float]


def flicker_factor(intervals: Sequence[Interval], weights: Sequence[float]) -> float:
    """Variance of a weighted sum of averages, per unit of the flicker's Allan variance.

    Args:
        intervals: Start and end of each average, in any unit of time.
        weights: Weight of each; they add up to zero.
    """
    total = sum(
        wi * wj * _mean_log_distance(a, b)
        for a, wi in zip(intervals, weights, strict=True)
        for b, wj in zip(intervals, weights, strict=True)
    )
    return max(0.0, -total / ALLAN_OF_H)


def _mean_log_distance(a: Interval, b: Interval) -> float:
    area = _twice_integrated_log(b[1] - a[0]) + _twice_integrated_log(b[0] - a[1])
    area -= _twice_integrated_log(b[0] - a[0]) + _twice_integrated_log(b[1] - a[1])
    return area / ((a[1] - a[0]) * (b[1] - b[0]))


def _twice_integrated_log(x: float) -> float:
    """The second antiderivative of ln|x|."""
    return x * x / 2 * (math.log(abs(x)) - 1.5) if x else 0.0
