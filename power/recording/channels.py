"""What samples contribute to an integral: power, current, and the share of each measuring range.

Errors of an instrument differ between its ranges (a Monsoon's fine and coarse shunt), so an uncertainty
needs to know how much of an energy was read in which. A sample belongs to the range that its current
falls into. Each channel is a value per sample; all of them are integrated in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power.model import Accuracy

POWER, CURRENT, VOLTAGE = 0, 1, 2
_ROUNDED_NS = 1.5  # three roundings: of the sample's time, and of the two that the line goes through
_MAD_TO_SD = 0.6745  # the median of |x| of a standard normal distribution
_SECOND_DIFFERENCE_GAIN = 6.0  # the variance of x[i+1] - 2 x[i] + x[i-1] is 6 times that of white x


@dataclass(frozen=True, slots=True)
class RangeChannels:
    """The channels of an instrument.

    Attributes:
        bounds_a: Upper current of every range but the last, increasing.
    """

    bounds_a: tuple[float, ...]

    @classmethod
    def of(cls, accuracy: Accuracy) -> Self:
        """The channels for the ranges that an accuracy statement names."""
        bounds = tuple(part.up_to_a for part in accuracy.current[:-1])
        known = tuple(bound for bound in bounds if bound is not None)
        if len(known) != len(bounds) or list(known) != sorted(set(known)):
            raise ValueError(f"ranges of {accuracy.source}: up_to_a must increase, only the last may lack it")
        return cls(known)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each channel: the totals, then what was read above the upper bound of each range."""
        above = (f"{name}_above{r}" for r in range(len(self.bounds_a)) for name in ("power", "voltage"))
        return ("power", "charge", "voltage", *above)

    def values(
        self, current_a: NDArray[np.floating[Any]], voltage_v: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """One row per channel, one column per sample."""
        rows = np.empty((3 + 2 * len(self.bounds_a), len(current_a)))
        rows[CURRENT] = current_a
        rows[VOLTAGE] = voltage_v
        np.multiply(rows[CURRENT], rows[VOLTAGE], out=rows[POWER])
        for r, bound_a in enumerate(self.bounds_a):
            above = np.abs(rows[CURRENT]) > bound_a
            np.multiply(rows[POWER], above, out=rows[3 + 2 * r])
            np.multiply(rows[VOLTAGE], above, out=rows[4 + 2 * r])
        return rows

    def by_range(
        self, integrals: NDArray[np.float64]
    ) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        """Energy and volt-seconds of each range, per window, from the integrals of all channels."""
        found = []
        for total, first_above in ((POWER, 3), (VOLTAGE, 4)):
            above = np.vstack([integrals[total], integrals[first_above::2], np.zeros(integrals.shape[1])])
            found.append([tuple(row) for row in (above[:-1] - above[1:]).T.tolist()])
        return found[0], found[1]


def exact_ns(t_ns: NDArray[np.int64], ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Time of each sample after the first without the rounding of ``t_ns`` to whole nanoseconds.

    A timebase is straight between its knots, so the ticks tell where the samples lie on the line from the
    first to the last. Times that do not lie on it, because a knot bends it, are taken as they are.
    """
    since: NDArray[np.float64] = (t_ns - t_ns[0]).astype(np.float64)
    if len(ticks) < 3 or ticks[-1] == ticks[0]:
        return since
    straight: NDArray[np.float64] = (ticks - ticks[0]) * (since[-1] / float(ticks[-1] - ticks[0]))
    return straight if float(np.abs(straight - since).max()) <= _ROUNDED_NS else since


def antiderivative(
    x_ns: NDArray[np.float64], values: NDArray[np.float64], at_ns: NDArray[Any]
) -> NDArray[np.float64]:
    """Integral from the first sample up to each time inside them, per channel, unit times seconds."""
    width = np.diff(x_ns)
    whole = np.zeros(values.shape)
    np.cumsum((values[:, :-1] + values[:, 1:]) * (width / 2), axis=1, out=whole[:, 1:])
    j = np.clip(np.searchsorted(x_ns, at_ns, side="right") - 1, 0, len(x_ns) - 2)
    return (whole[:, j] + piece(values[:, j], values[:, j + 1], at_ns - x_ns[j], width[j])) * 1e-9


def piece(
    left: NDArray[np.float64], right: NDArray[np.float64], part: NDArray[Any], width: NDArray[Any]
) -> NDArray[np.float64]:
    """Integral over the first ``part`` of a straight line of this width; nothing where it has no width."""
    share = part / np.where(width > 0, width, 1)
    area: NDArray[np.float64] = part * (left + (right - left) * (share / 2))
    return area


def fast_noise(power_w: NDArray[np.float64]) -> tuple[float, float]:
    """Sum of squared steps from sample to sample, and the variance of white noise among them.

    The noise is estimated from the median second difference, which neither slow changes of a load nor
    its rare jumps move.
    """
    steps = np.diff(power_w)
    if len(steps) < 2:
        return float(steps @ steps), 0.0
    sd = float(np.median(np.abs(np.diff(steps)))) / _MAD_TO_SD
    return float(steps @ steps), sd * sd / _SECOND_DIFFERENCE_GAIN
