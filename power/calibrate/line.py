"""A straight line through points whose errors are partly their own and partly shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.errors import DataQualityError
from power.calibrate.points import K

if TYPE_CHECKING:
    from numpy.typing import NDArray

APART = 1.2
"""Largest over smallest reading that tells gain from offset. Closer points would give an offset by chance."""

UNEXPLAINED = 1e-3
"""Points that lie so far off a line with less than this probability contradict their stated uncertainties."""


LEAST_REL = 1e-6
"""No reading is known better than this, relative: a converter that shows one count for ever scatters by 0."""


@dataclass(frozen=True, slots=True)
class FittedLine:
    """A fitted line.

    Attributes:
        covariance: Of gain and offset.
        offset_derived: False if the points could not tell it.
        residuals: Reference minus line at each point.
    """

    gain: float
    offset: float
    covariance: NDArray[np.float64]
    offset_derived: bool
    residuals: tuple[float, ...]

    def stated(self, unit: str) -> dict[str, float]:
        """As `power.calibration` takes it, expanded."""
        gain_u, offset_u = np.sqrt(np.diag(self.covariance)).tolist()
        together = float(self.covariance[0, 1]) / (gain_u * offset_u)
        return {
            "gain": digits(self.gain, 7),
            "gain_uncertainty": digits(K * gain_u, 3),
            f"offset_{unit}": digits(self.offset, 5),
            f"offset_uncertainty_{unit}": digits(K * offset_u, 3),
            "gain_offset_correlation": round(min(max(together, -1.0), 1.0), 6),
        }


def fit_line(
    what: str,
    reading: NDArray[np.float64],
    reference: NDArray[np.float64],
    own_u: NDArray[np.float64],
    shared_u: Sequence[NDArray[np.float64]],
    offset_u: float,
    *,
    refuse_close: bool,
) -> FittedLine:
    """Straight line through points with errors of their own and errors that they share.

    Args:
        what: What it is a line of, for errors.
        reading: What the meter read.
        reference: What was there.
        own_u: Standard uncertainty of each point alone.
        shared_u: Errors common to several points: each as what one standard uncertainty of it does to them.
        offset_u: Standard uncertainty of the offset before anything was measured, for where points do not
            tell.
        refuse_close: Refuse several points that are too close together; else treat them like one.

    Raises:
        DataQualityError: The points are too close together, or contradict their stated uncertainties.
    """
    apart = len(reading) > 1 and reading.max() >= APART * reading.min()
    if len(reading) > 1 and not apart and refuse_close:
        raise DataQualityError(
            f"{what}: readings from {reading.min():.4g} to {reading.max():.4g} are too close together to tell"
            " gain from offset",
            hint="take loads that differ by a factor of two or more, or a single one for the gain alone",
        )
    own_u = np.maximum(own_u, LEAST_REL * np.abs(reading))
    design = np.column_stack([reading, np.ones_like(reading)])
    target, variance = reference, np.diag(own_u**2) + sum(np.outer(u, u) for u in shared_u)
    if not apart:
        design = np.vstack([design, [0.0, 1.0]])
        target = np.append(target, 0.0)
        variance = np.pad(variance, (0, 1))
        variance[-1, -1] = max(offset_u, float(own_u.min())) ** 2  # a driver may assume none at all
    weight: NDArray[np.float64] = np.linalg.inv(variance).astype(np.float64)
    covariance: NDArray[np.float64] = np.linalg.inv(design.T @ weight @ design).astype(np.float64)
    gain, offset = (covariance @ design.T @ weight @ target).tolist()
    residuals: NDArray[np.float64] = target - design @ np.array([gain, offset])
    _require_consistent(what, residuals, weight, reading)
    return FittedLine(gain, offset, covariance, apart, tuple(residuals[: len(reading)].tolist()))


def _require_consistent(
    what: str, residuals: NDArray[np.float64], weight: NDArray[np.float64], reading: NDArray[np.float64]
) -> None:
    from scipy.stats import chi2

    dof = len(residuals) - 2
    squares = float(residuals @ weight @ residuals)
    if dof > 0 and chi2.sf(squares, dof) < UNEXPLAINED:
        off = ", ".join(f"{r:+.3g} at {x:.4g}" for x, r in zip(reading, residuals, strict=False))
        raise DataQualityError(
            f"{what}: the points do not lie on a line within their stated uncertainties"
            f" (chi-square {squares:.3g} with {dof} degrees of freedom; off by {off})",
            hint="check the references' values and tolerances, the contacts, and whether the load was steady",
        )


def digits(value: float, count: int) -> float:
    """So many significant digits."""
    return float(f"{value:.{count}g}")
