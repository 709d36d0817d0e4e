"""Offsets that both sides saw: exchanges over the link, always there, and edges on a wire to the meter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from device_agents import Ping
from harness.clock.line import MAX_SKEW_PPM, Line, fit_line
from harness.evidence.clock_fit import ClockFit
from joulefleet.errors import DataQualityError

_CLOCK_READING_S = 1e-6  # the clocks themselves are read at some instant within a microsecond


def fit_pings(pings: Sequence[Ping], *, also_ns: Sequence[int] = ()) -> ClockFit:
    """Offset and skew from the exchanges with the shortest round trips, early and late.

    Args:
        pings: Some before the work and some after it, best; any number at any time will do.
        also_ns: Device times, beyond those of the exchanges, for which the uncertainty is to hold.

    Raises:
        DataQualityError: No exchange, or the exchanges contradict each other.
    """
    line = ping_line(pings)
    seen_ns = [_middle_ns(ping) - line.offset_at(ping.t_dev_ns) for ping in pings]
    residual_s = sum(abs(x) for x in seen_ns) / len(seen_ns) * 1e-9
    return line.fit("ping", [*(ping.t_dev_ns for ping in pings), *also_ns], residual_s=residual_s)


def ping_line(pings: Sequence[Ping]) -> Line:
    """The line behind `fit_pings`.

    The device read its clock somewhere between sending and receiving, so an offset is the middle, give or
    take half the round trip; as a uniform distribution that is a standard uncertainty of
    ``round trip / sqrt(12)``. The shortest exchange has the tightest bound (RFC 5905, clock filter); one
    is taken from each half of the time they span, which gives the skew.
    """
    if not pings:
        raise DataQualityError("no clock exchange with the device", hint="ping it before and after the work")
    _check_bounds(pings)
    middle_ns = (min(p.sent_ns for p in pings) + max(p.received_ns for p in pings)) // 2
    halves = ([p for p in pings if p.sent_ns < middle_ns], [p for p in pings if p.sent_ns >= middle_ns])
    best = [min(half, key=lambda ping: ping.round_trip_ns) for half in halves if half]
    variances = [max(ping.round_trip_ns * 1e-9, _CLOCK_READING_S) ** 2 / 12 for ping in best]
    line = fit_line([p.t_dev_ns for p in best], [_middle_ns(p) for p in best], np.diag(variances))
    # Two ways that differ by the same every time make the same error every time: no average helps.
    line.covariance[0, 0] = max(line.covariance[0, 0], min(variances))
    return line


def _middle_ns(ping: Ping) -> float:
    return (ping.sent_ns + ping.received_ns) / 2 - ping.t_dev_ns


def _check_bounds(pings: Sequence[Ping]) -> None:
    """Every exchange bounds the offset from both sides; some line must pass between all the bounds."""
    base = pings[0]
    x_s = np.array([(p.t_dev_ns - base.t_dev_ns) * 1e-9 for p in pings])
    low_s = np.array([(p.sent_ns - p.t_dev_ns - base.sent_ns + base.t_dev_ns) * 1e-9 for p in pings])
    high_s = np.array([(p.received_ns - p.t_dev_ns - base.sent_ns + base.t_dev_ns) * 1e-9 for p in pings])

    def violation_s(skew_ppm: float) -> float:
        drift_s = x_s * (skew_ppm * 1e-6)
        return float(np.max(low_s - drift_s) - np.min(high_s - drift_s))

    # Convex in the skew: a maximum of lines minus a minimum of lines.
    best = minimize_scalar(violation_s, bounds=(-MAX_SKEW_PPM, MAX_SKEW_PPM), method="bounded")
    worst_s = float(best.fun)
    if worst_s > _CLOCK_READING_S:
        raise DataQualityError(
            f"the device's clock moved by at least {worst_s:.3g} s between exchanges",
            hint="use the device's monotonic clock, and check that it is not being stepped",
        )


MAX_RESIDUAL_PERIODS = 2.0
"""An edge lies within a sample, and so does the device's reading of its clock; more is another edge."""


@dataclass(frozen=True, slots=True)
class GpioEdge:
    """One edge that both sides saw.

    Only the INA219 sketch records a digital input (`power.meters.ina219.Ina219.sync_edges`), and the bench
    does not use it: no device switches a pin. Code that does can turn the edges into these.

    Attributes:
        t_dev_ns: When the device switched its pin, on its own clock.
        t_meter_ns: The same edge in the recording, on the recording's time (host-monotonic).
    """

    t_dev_ns: int
    t_meter_ns: int


def fit_edges(edges: Sequence[GpioEdge], *, period_s: float) -> ClockFit:
    """A fit through edges seen in a recording with this sample period.

    Raises:
        DataQualityError: The edges do not lie on a line.
    """
    times_ns = [edge.t_dev_ns for edge in edges]
    offsets_ns = [float(edge.t_meter_ns - edge.t_dev_ns) for edge in edges]
    line = fit_line(times_ns, offsets_ns, np.eye(len(edges)) * (period_s**2 / 12))
    off_s = [(o - line.offset_at(t)) * 1e-9 for t, o in zip(times_ns, offsets_ns, strict=True)]
    worst_s = max(abs(x) for x in off_s)
    if worst_s > MAX_RESIDUAL_PERIODS * period_s or abs(line.skew_ppm) > MAX_SKEW_PPM:
        raise DataQualityError(
            f"the edges on the wire do not belong together: one is {worst_s:.3g} s off, at a skew of "
            f"{line.skew_ppm:+.0f} ppm",
            hint="check the wiring and that both sides list the same edges",
        )
    # One sample for the place of an edge, whatever their number: the meter may be late by a constant.
    residual_s = math.sqrt(sum(x * x for x in off_s) / len(off_s))
    return line.fit("gpio", times_ns, residual_s=residual_s, further_s=period_s / math.sqrt(12))
