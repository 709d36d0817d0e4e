"""Noise that averages out and noise that does not, told apart by the Allan variance of consecutive means.

::

    A(tau) = white / tau + flicker        half the mean square step between neighbouring means over tau

What does not average out is flicker noise, with a spectral density h/f. It has no mean to return to, but
differences of its averages have a variance::

    variance = -h * sum_ij w_i w_j L_ij        for weights w that add up to zero

where ``L_ij`` is the mean of ln|s - t| over s in interval i and t in interval j. A net energy is such a
difference, between the work and idle. For a gross energy the difference is to the whole recording: the mean
of the noise over the recording is an offset, which the instrument's limits account for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ITERATIONS = 20


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance, W^2, and the degrees of freedom with which it is known; None: exactly."""

    w2: float
    dof: float | None = None

    def scaled(self, factor: float) -> Variance:
        """So many times the variance."""
        return Variance(self.w2 * factor, self.dof)


def total(variances: Sequence[Variance]) -> Variance:
    """The variance of a sum, with Welch and Satterthwaite's degrees of freedom."""
    w2 = sum(variance.w2 for variance in variances)
    spread = sum(variance.w2**2 / variance.dof for variance in variances if variance.dof is not None)
    return Variance(w2, w2**2 / spread if spread > 0 else None)


@dataclass(frozen=True, slots=True)
class PowerSeries:
    """Power in consecutive parts of equal length, of something that should be constant."""

    power_w: NDArray[np.float64]
    part_s: float


@dataclass(frozen=True, slots=True)
class SlowNoise:
    """What keeps a power that should be constant from being so.

    Attributes:
        white: Variance of a mean over one second; that over T seconds is a T-th of it.
        flicker: Allan variance that no averaging removes.
    """

    white: Variance
    flicker: Variance


def slow_noise(series: Sequence[PowerSeries]) -> SlowNoise:
    """Fit white and flicker noise to the Allan variances of some series of consecutive means.

    Each Allan variance is a chi-square estimate, so its weight is its count over the square of what is
    expected; the expectation comes from the fit itself, hence the iteration. Neither part is negative, so
    where there is no flicker about half of the fits find some: it cannot be ruled out.
    """
    tau_s, allan, count = np.array([row for part in series for row in _allan(part)]).T
    if not allan.max() > 0:
        return SlowNoise(Variance(0.0), Variance(0.0))
    design = np.column_stack([1 / tau_s, np.ones(len(tau_s))])
    expected = np.full(len(allan), allan.mean())
    for _ in range(_ITERATIONS):
        weight = count / (2 * expected**2)
        parts, variances = _non_negative_fit(design, allan, weight)
        expected = design @ parts
    # A chi-square of n degrees of freedom has the relative variance 2 / n.
    white, flicker = (
        Variance(float(x), max(1.0, 2 * float(x) ** 2 / float(v))) if x > 0 else Variance(0.0)
        for x, v in zip(parts, variances, strict=True)
    )
    return SlowNoise(white, flicker)


def _allan(series: PowerSeries) -> Iterator[tuple[float, float, float]]:
    """Averaging times in octaves, the overlapping Allan variance at each, and its degrees of freedom.

    The degrees of freedom are those for white noise of the power, that is for "white FM" in the language of
    clocks (NIST Technical Note 1337, table 12-4).
    """
    points = len(series.power_w) + 1
    sums = np.concatenate(([0.0], np.cumsum(series.power_w - series.power_w[0])))
    group = 1
    while 2 * group < points:
        means = (sums[group:] - sums[:-group]) / group
        steps = means[group:] - means[:-group]
        dof = (3 * (points - 1) / (2 * group) - 2 * (points - 2) / points) * 4 * group**2 / (4 * group**2 + 5)
        yield group * series.part_s, float(steps @ steps) / (2 * len(steps)), dof
        group *= 2


def _non_negative_fit(
    design: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted least squares for two coefficients and their variances; a negative one is left out."""
    columns = [0, 1]
    solution, inverse = _fit(design, y, weight)
    if (solution < 0).any():
        columns = [int(solution.argmax())]
        solution, inverse = _fit(design[:, columns], y, weight)
    parts, variances = np.zeros(2), np.zeros(2)
    parts[columns], variances[columns] = solution, np.diag(inverse)
    return parts, variances


def _fit(
    design: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and their covariance."""
    inverse: NDArray[np.float64] = np.linalg.inv(design.T @ (design * weight[:, None])).astype(np.float64)
    return inverse @ (design.T @ (weight * y)), inverse


ALLAN_OF_H = 2 * math.log(2)
"""Allan variance of flicker noise over its h, the same at every averaging time."""

TimeSpan = tuple[float, float]


def flicker_factor(intervals: Sequence[TimeSpan], weights: Sequence[float]) -> float:
    """Variance of a weighted sum of averages, per unit of the flicker's Allan variance.

    Args:
        intervals: Start and end of each average, in any unit of time.
        weights: Weight of each; they add up to zero.
    """
    summed = sum(
        wi * wj * _mean_log_distance(a, b)
        for a, wi in zip(intervals, weights, strict=True)
        for b, wj in zip(intervals, weights, strict=True)
    )
    return max(0.0, -summed / ALLAN_OF_H)


def _mean_log_distance(a: TimeSpan, b: TimeSpan) -> float:
    area = _twice_integrated_log(b[1] - a[0]) + _twice_integrated_log(b[0] - a[1])
    area -= _twice_integrated_log(b[0] - a[0]) + _twice_integrated_log(b[1] - a[1])
    return area / ((a[1] - a[0]) * (b[1] - b[0]))


def _twice_integrated_log(x: float) -> float:
    """The second antiderivative of ln|x|."""
    return x * x / 2 * (math.log(abs(x)) - 1.5) if x else 0.0
