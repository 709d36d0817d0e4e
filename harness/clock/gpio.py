"""Offset and skew from edges on a wire between the device and the meter's digital input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.clock.fit import MAX_SKEW_PPM, fit_line
from harness.evidence.clock_fit import ClockFit
from joulefleet.errors import DataQualityError

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
