"""`Interval`: a value with its 95 % interval, the one type for it in memory.

Records on disk keep their own fields (`power.profile.Quantity`, an energy's uncertainty budget) and give an
`Interval` when asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NORMAL_95 = 1.959963984540054
"""Half of a 95 % interval in standard deviations, where these are known exactly."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or best estimate, with its 95 % interval. An end that is not known is NaN.

    Example:
        >>> Interval(2.0, 1.8, 2.3).known
    """

    mean: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def around(cls, mean: float, half_width: float | None) -> Interval:
        """The same distance to both sides; no interval for None."""
        return cls(mean) if half_width is None else cls(mean, mean - half_width, mean + half_width)

    @property
    def known(self) -> bool:
        """Whether both ends are."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def times(self, factor: float) -> Interval:
        """In another unit; the factor is positive."""
        return Interval(factor * self.mean, factor * self.low, factor * self.high)


def student_factor(dof: float | None) -> float:
    """Half of a 95 % interval in standard uncertainties; ``dof`` None: they are known exactly."""
    from scipy.special import stdtrit  # not at the top: reading a stored interval needs no scipy

    return NORMAL_95 if dof is None else float(stdtrit(dof, 0.975))


def student_half_width(values: NDArray[np.float64]) -> float:
    """Half of Student's 95 % interval of the mean; NaN for fewer than two values.

    Resampled means never leave the range of the values. So a bootstrap interval of three values covers 72 %,
    and at most 75 % however its levels are widened; of five 85 %. Student's covers what it says, or little
    less. It may reach beyond what is possible (an accuracy over 1) where there are too few values to tell.
    """
    n = len(values)
    if n < 2:
        return math.nan
    return student_factor(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)


def student_interval(values: NDArray[np.float64]) -> Interval:
    """Mean of the values with Student's interval; NaN for what they cannot tell."""
    mean = float(values.mean()) if len(values) else math.nan
    half_width = student_half_width(values)
    return Interval(mean, mean - half_width, mean + half_width)
