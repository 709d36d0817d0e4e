"""`ClockFit`: the device's clock against the host's, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from device_agents.session import Ping
from fedjoule.config import ClosedModel
from fedjoule.errors import DataQualityError


class ClockFit(ClosedModel):
    """Host time = device time + ``offset_ns`` + ``skew_ppm`` * (device time - ``reference_ns``).

    Attributes:
        offset_ns: Host minus device clock at the reference.
        skew_ppm: How much slower than the host's the device's clock runs.
        reference_ns: Device time at which the offset holds.
        tau_s: Time constant of the supply's regulator, where a pattern in the power trace showed it.
        residual_s: Spread of the observations around the fit.
        sync_uncertainty_s: Standard uncertainty of a converted time.
        method: What the fit is based on.
    """

    offset_ns: int
    skew_ppm: float = 0.0
    reference_ns: int
    tau_s: float | None = Field(default=None, ge=0)
    residual_s: float = Field(ge=0)
    sync_uncertainty_s: float = Field(ge=0)
    method: Literal["ping"]

    def to_host_ns(self, t_dev_ns: int) -> int:
        """Host-monotonic time of a device time."""
        drift = round((t_dev_ns - self.reference_ns) * self.skew_ppm * 1e-6)
        return t_dev_ns + self.offset_ns + drift


def fit_pings(pings: Sequence[Ping]) -> ClockFit:
    """Offset from the exchange with the shortest round trip.

    The device read its clock somewhere between sending and receiving, so the offset is the middle, give
    or take half the round trip; as a uniform distribution that is a standard uncertainty of
    ``round trip / sqrt(12)``. The shortest exchange has the tightest bound (RFC 5905, clock filter).

    Raises:
        DataQualityError: No exchange, or the exchanges contradict each other.
    """
    if not pings:
        raise DataQualityError("no clock exchange with the device")
    best = min(pings, key=lambda ping: ping.round_trip_ns)
    offset_ns = (best.sent_ns + best.received_ns) // 2 - best.t_dev_ns
    half_s = best.round_trip_ns * 0.5e-9
    offsets = [(p.sent_ns + p.received_ns) / 2 - p.t_dev_ns for p in pings]
    worst_s = max(
        abs(o - offset_ns) * 1e-9 - (p.round_trip_ns * 0.5e-9 + half_s)
        for o, p in zip(offsets, pings, strict=True)
    )
    if worst_s > 1e-6:
        raise DataQualityError(
            f"the device's clock moved by at least {worst_s:.3g} s between exchanges",
            hint="use the device's monotonic clock, and check that it is not being stepped",
        )
    residual_s = sum(abs(o - offset_ns) for o in offsets) / len(offsets) * 1e-9
    return ClockFit(
        offset_ns=offset_ns,
        reference_ns=best.t_dev_ns,
        residual_s=residual_s,
        sync_uncertainty_s=best.round_trip_ns * 1e-9 / 12**0.5,
        method="ping",
    )
