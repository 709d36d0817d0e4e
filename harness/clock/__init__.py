"""Clock alignment: a device's times on the time of the recording of its power.

`align` takes the best of three: edges on a wire and exchanges over the link (`offsets`), or bursts of load in
the power trace (`bursts`, with `pattern`, `correlate` and `refine`). See docs/clock.md.
"""

from harness.clock.align import Alignment, align
from harness.clock.offsets import GpioEdge, fit_pings
from harness.clock.pattern import BurstRun, burst_runs

__all__ = [
    "Alignment",
    "BurstRun",
    "GpioEdge",
    "align",
    "burst_runs",
    "fit_pings",
]
