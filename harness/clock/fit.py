"""`ClockFit`, and the straight line behind every method: offset and skew from offsets seen at some times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from joulefleet.config import ClosedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Method = Literal["gpio", "pattern", "ping"]

MAX_SKEW_PPM = 500.0
"""No working quartz is further off than this, host and device together (see `power.timebase`)."""

SKEW_SD_PPM = 100.0 / math.sqrt(3.0)
"""What is known of a skew before anything is seen: quartz is within 100 ppm over temperature and age."""


UNSEEN_LAG_S = 0.01
"""How late the power of work may reach the meter where no pattern showed it: regulators lag by 8 to 10 ms."""


class ClockFit(ClosedModel):
    """Host time = device time + ``offset_ns`` + ``skew_ppm`` * (device time - ``reference_ns``).

    Attributes:
        offset_ns: Host minus device clock at the reference.
        skew_ppm: How much slower than the host's the device's clock runs.
        reference_ns: Device time at which the offset holds.
        tau_s: Time constant of the supply's regulator, where a pattern in the power trace showed it: the
            power of what happens at a time appears that much later.
        residual_s: Spread of the observations around the fit.
        sync_uncertainty_s: Standard uncertainty of a converted time between the observations; of the clocks
            alone, see `window_uncertainty_s`.
        method: What the fit is based on.
    """

    offset_ns: int
    skew_ppm: float = 0.0
    reference_ns: int
    tau_s: float | None = Field(default=None, ge=0)
    residual_s: float = Field(ge=0)
    sync_uncertainty_s: float = Field(ge=0)
    method: Method

    @property
    def window_uncertainty_s(self) -> float:
        """Standard uncertainty of a window's place in the power trace: the clock's, and the regulator's lag.

        Behind a lag of tau, work that draws D more than what is around it misses D tau of its energy. No
        shift brings it back: the lag smears both edges. Moving a window by tau in such a trace changes its
        energy by 0.73 D tau (root mean square of both ways), so as a standard uncertainty tau covers it.
        """
        return math.hypot(self.sync_uncertainty_s, UNSEEN_LAG_S if self.tau_s is None else self.tau_s)

    def to_host_ns(self, t_dev_ns: int) -> int:
        """Host-monotonic time of a device time."""
        drift = round((t_dev_ns - self.reference_ns) * self.skew_ppm * 1e-6)
        return t_dev_ns + self.offset_ns + drift


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
