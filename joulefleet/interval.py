"""`Interval`: a value with its 95 % interval, the one type for it in memory, and how it is printed.

Records on disk keep their own fields (`power.profile.Quantity`, an energy's uncertainty budget) and give an
`Interval` when asked. No interval reaches beyond what can be true: it is made on the `Scale` of its quantity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from joulefleet.rounding import rounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NORMAL_95 = 1.959963984540054
"""Half of a 95 % interval in standard deviations, where these are known exactly."""
FEWEST_VALUES = 3
"""Fewer show no spread worth an interval: Student's factor for two is 12.7. They are shown themselves."""
ALIKE = 0.2
"""Ends count as equally far from the mean if they differ by less than this share of the half width."""


class Scale(Enum):
    """On which scale an interval is symmetric, so that both of its ends can be true.

    Half widths h of the mean m are carried over by the scale's slope at the mean (delta method): the mean
    stays the mean, narrow intervals stay what they are, and no end leaves the scale's range.
    """

    LINEAR = "linear"
    """m ± h: differences, net energies, whatever may be negative."""
    LOG = "log"
    """m exp(± h / m): times, energies, powers, counts, ratios, which are positive."""
    LOGIT = "logit"
    """logit m ± h / (m (1 - m)): accuracies and other shares, from 0 to 1."""
    SAVED = "saved"
    """1 - (1 - m) exp(± h / (1 - m)): saved shares. What is left is a positive ratio; more may be spent."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or best estimate, with its 95 % interval. An end that is not known is NaN.

    Examples:
        >>> Interval(2.0, 1.8, 2.3).known

    Attributes:
        mean: Or best estimate.
        low: Lower end.
        high: Upper end.
        values: What the mean is of, where that is too little for an interval.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan
    values: tuple[float, ...] = ()

    @classmethod
    def around(cls, mean: float, half_width: float | None, scale: Scale = Scale.LINEAR) -> Interval:
        """The same distance to both sides on a scale; no interval for None."""
        return cls(mean) if half_width is None else cls(mean, *_ends(mean, half_width, scale))

    @classmethod
    def measured(cls, mean: float, half_width: float | None, scale: Scale) -> Interval:
        """The same, of errors that add, as those of instruments; see `uneven`."""
        return cls(mean) if half_width is None else cls.uneven(mean, half_width, half_width, scale)

    @classmethod
    def uneven(cls, mean: float, below: float, above: float, scale: Scale) -> Interval:
        """Another distance to each side; beyond the mean itself, what is possible of ± is left.

        There the slope at the mean says nothing any more: exp(50) for 0.01 J ± 0.5 J.
        """
        if scale is Scale.SAVED:
            left = cls.uneven(1 - mean, above, below, Scale.LOG)
            return cls(mean, 1 - left.high, 1 - left.low)
        low = 0.0 if scale is Scale.LOG and 0 < mean < below else _ends(mean, below, scale)[0]
        far = scale is Scale.LOG and 0 < mean < above
        return cls(mean, low, mean + above if far else _ends(mean, above, scale)[1])

    @property
    def known(self) -> bool:
        """Whether both ends are."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def times(self, factor: float) -> Interval:
        """In another unit; the factor is positive."""
        values = tuple(factor * value for value in self.values)
        return Interval(factor * self.mean, factor * self.low, factor * self.high, values)

    def within(self, least: float, most: float) -> Interval:
        """The part of it that can be true, which covers as much."""
        if not self.known:
            return self
        return Interval(self.mean, max(self.low, least), min(self.high, most))

    def text(self, factor: float = 1.0) -> str:
        """``12.3 [11.9, 12.8]``, ``12.3 (11.9 and 12.7)`` of two values, ``-`` for what is not known."""
        if math.isnan(self.mean):
            return "-"
        mean = rounded(self.mean * factor)
        if self.known:
            return f"{mean} [{rounded(self.low * factor)}, {rounded(self.high * factor)}]"
        several = " and ".join(rounded(value * factor) for value in self.values)
        return f"{mean} ({several})" if len(self.values) > 1 else mean

    def plus_minus(self, sign: str = " ± ") -> str:
        """``1.234 ± 0.012``, to two digits of the half width; both ends where they are not alike."""
        if not self.known:
            return rounded(self.mean, 3)
        below, above = self.mean - self.low, self.high - self.mean
        half_width = (below + above) / 2
        if half_width <= 0:
            return f"{self.mean:.6g}{sign}0"
        if abs(above - below) <= ALIKE * half_width:
            digits = max(0, 1 - math.floor(math.log10(half_width)))
            return f"{self.mean:.{digits}f}{sign}{half_width:.{digits}f}"
        return f"{rounded(self.mean, 3)} [{rounded(self.low, 2)}, {rounded(self.high, 2)}]"


def _ends(mean: float, half_width: float, scale: Scale) -> tuple[float, float]:
    """Where the half width of a mean ends on a scale; NaN where that is nowhere."""
    if half_width == 0:
        return mean, mean
    try:
        if scale is Scale.LOG and mean > 0:
            factor = math.exp(half_width / mean)
            return mean / factor, mean * factor
        if scale is Scale.SAVED:
            most, least = _ends(1 - mean, half_width, Scale.LOG)
            return 1 - least, 1 - most
        if scale is Scale.LOGIT:
            odds, factor = mean / (1 - mean), math.exp(half_width / (mean * (1 - mean)))
            return 1 / (1 + factor / odds), 1 / (1 + 1 / (factor * odds))
    except (OverflowError, ZeroDivisionError):
        return math.nan, math.nan
    # A net energy is a difference from idle: where it is negative, so may its interval be.
    return mean - half_width, mean + half_width


def student_factor(dof: float | None) -> float:
    """Half of a 95 % interval in standard uncertainties; ``dof`` None: they are known exactly."""
    from scipy.special import stdtrit  # not at the top: reading a stored interval needs no scipy

    return NORMAL_95 if dof is None else float(stdtrit(dof, 0.975))


def student_half_width(values: NDArray[np.float64]) -> float:
    """Half of Student's 95 % interval of the mean; NaN for fewer than two values.

    Resampled means never leave the range of the values. So a bootstrap interval of three values covers 72 %,
    and at most 75 % however its levels are widened; of five 85 %. Student's covers what it says, or little
    less.
    """
    n = len(values)
    if n < 2:
        return math.nan
    return student_factor(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)


def student_interval(values: NDArray[np.float64], scale: Scale = Scale.LINEAR) -> Interval:
    """Mean of the values with Student's interval on a scale; fewer than three values stand for themselves.

    On the logarithmic scale a value below 0 shows that the quantity is a net energy: then it is linear.
    """
    if not len(values):
        return Interval(math.nan)
    mean = float(values.mean())
    if len(values) < FEWEST_VALUES:
        return Interval(mean, values=tuple(values.tolist()))
    if scale is Scale.LOG and values.min() < 0:
        scale = Scale.LINEAR
    return Interval.around(mean, student_half_width(values), scale)
