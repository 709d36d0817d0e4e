"""`ClockFit` and what it was made of, as a capture stores them. `harness.clock` does the fitting.

They are apart from it because reading a stored capture needs no scipy.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field

from joulefleet.config import ClosedModel

Method = Literal["gpio", "pattern", "ping"]

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


class PingObservation(ClosedModel):
    """One clock exchange: host clock when it left, device clock, host clock when the answer was here."""

    sent_ns: int
    t_dev_ns: int
    received_ns: int


class BurstSeen(ClosedModel):
    """What became of one pattern; a capture stores it.

    Attributes:
        when: ``before`` or ``after`` the work.
        start_ns: Device time of its start.
        correlation: With the power trace, at most 1; None if it was not recorded.
        peak_to_sidelobe: Of the correlation.
        right_edges: How many of the pattern's edges go the right way there.
        edges: How many were recorded.
        offset_ns: Host minus device clock in its middle; None if it was not found.
        standard_s: Standard uncertainty of that.
        step_w: Extra power of a burst.
        from_pings_s: Its offset minus that of the exchanges.
        residual_s: Its offset minus that of the fit.
        refused: Why it was not used; empty if it was.
    """

    when: str
    start_ns: int
    correlation: float | None = None
    peak_to_sidelobe: float | None = None
    right_edges: int | None = None
    edges: int | None = None
    offset_ns: int | None = None
    standard_s: float | None = None
    step_w: float | None = None
    from_pings_s: float | None = None
    residual_s: float | None = None
    refused: str = ""

    def but(self, **changes: object) -> Self:
        """The same with some of it changed."""
        return self.model_copy(update=changes)
