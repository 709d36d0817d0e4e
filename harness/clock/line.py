"""The straight line behind every method: offset and skew from offsets seen at some times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.evidence.clock_fit import ClockFit, Method

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SKEW_PPM = 500.0
"""No working quartz is further off than this, host and device together (see `power.timebase`)."""

SKEW_SD_PPM = 100.0 / math.sqrt(3.0)
"""What is known of a skew before anything is seen: quartz is within 100 ppm over temperature and age."""

METER_TIMING_S = 0.02
"""How far a meter may be off with the times of its samples: they are late by the least delay of its link (a
USB serial converter may hold bytes back for 16 ms), and by half of what it averages over, or early by it."""

PRIOR_SD = 3.0
"""Standard uncertainties by which a pattern may be off the prior: 1.7 are half of a round trip, its bound."""


@dataclass(frozen=True, slots=True)
class Line:
    """An offset that changes evenly with device time.

    Attributes:
        reference_ns: Device time at which ``offset_ns`` holds.
        offset_ns: Host minus device clock.
        skew_ppm: Change of the offset over time.
        covariance: Of offset (s) and skew (s/s).
    """

    reference_ns: int
    offset_ns: int
    skew_ppm: float
    covariance: NDArray[np.float64]

    def offset_at(self, t_dev_ns: int) -> int:
        """Host minus device clock at a device time, nanoseconds."""
        return self.offset_ns + round((t_dev_ns - self.reference_ns) * self.skew_ppm * 1e-6)

    def standard_s(self, t_dev_ns: int) -> float:
        """Standard uncertainty of the offset at a device time."""
        at = np.array([1.0, (t_dev_ns - self.reference_ns) * 1e-9])
        return math.sqrt(float(at @ self.covariance @ at))

    def fit(
        self,
        method: Method,
        t_dev_ns: Sequence[int],
        *,
        residual_s: float,
        further_s: float = 0.0,
        tau_s: float | None = None,
    ) -> ClockFit:
        """As what a capture stores, with the largest uncertainty over the observed times.

        Args:
            method: What it is based on.
            t_dev_ns: Device times between which it will be used.
            residual_s: Spread of the observations.
            further_s: Standard uncertainty from elsewhere.
            tau_s: Of the regulator.
        """
        worst_s = max(self.standard_s(t) for t in (min(t_dev_ns), max(t_dev_ns)))
        return ClockFit(
            offset_ns=self.offset_ns,
            skew_ppm=self.skew_ppm,
            reference_ns=self.reference_ns,
            tau_s=tau_s,
            residual_s=residual_s,
            sync_uncertainty_s=math.hypot(worst_s, further_s),
            method=method,
        )


def fit_line(
    t_dev_ns: Sequence[int],
    offset_ns: Sequence[float],
    covariance_s2: NDArray[np.float64],
    *,
    skew: tuple[float, float] = (0.0, SKEW_SD_PPM),
) -> Line:
    """The most likely offset and skew, given offsets seen at some times and what is known of the skew.

    Generalised least squares with the prior skew as one more observation: a short span, which cannot tell
    the skew, falls back to the prior and keeps its uncertainty.

    Args:
        t_dev_ns: Device time of each observation.
        offset_ns: Host minus device clock there.
        covariance_s2: Of the observations, s².
        skew: Prior mean and standard deviation, ppm.
    """
    reference_ns = sum(t_dev_ns) // len(t_dev_ns)
    base_ns = round(offset_ns[0])
    y_s = np.array([(o - base_ns) * 1e-9 for o in offset_ns])
    design = np.array([[1.0, (t - reference_ns) * 1e-9] for t in t_dev_ns])
    information = design.T @ np.linalg.solve(covariance_s2, design)
    score = design.T @ np.linalg.solve(covariance_s2, y_s)
    mean, sd = skew[0] * 1e-6, skew[1] * 1e-6
    information[1, 1] += sd**-2
    score[1] += mean * sd**-2
    covariance = np.linalg.inv(information)
    offset_s, slope = covariance @ score
    return Line(reference_ns, base_ns + round(offset_s * 1e9), float(slope * 1e6), covariance)


def allowed(off_s: float, prior: Line, t_dev_ns: int, unsure_s: float) -> bool:
    """Whether an offset that much above that of the exchanges can be true: the test of every other method."""
    return abs(off_s) <= PRIOR_SD * prior.standard_s(t_dev_ns) + METER_TIMING_S + unsure_s
