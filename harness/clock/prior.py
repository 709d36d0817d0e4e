"""What the exchanges allow: the test that every other method has to pass."""

from __future__ import annotations

from harness.clock.fit import Line

METER_TIMING_S = 0.02
"""How far a meter may be off with the times of its samples: they are late by the least delay of its link (a
USB serial converter may hold bytes back for 16 ms), and by half of what it averages over, or early by it."""

PRIOR_SD = 3.0
"""Standard uncertainties by which a pattern may be off the prior: 1.7 are half of a round trip, its bound."""


def allowed(off_s: float, prior: Line, t_dev_ns: int, unsure_s: float) -> bool:
    """Whether an offset that much above that of the exchanges can be true."""
    return abs(off_s) <= PRIOR_SD * prior.standard_s(t_dev_ns) + METER_TIMING_S + unsure_s
