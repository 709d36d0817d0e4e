"""Clock alignment: a device's times on the time of the recording of its power.

`align` takes the best of three: edges on a wire (`gpio`), bursts of load found in the power trace (`bursts`,
with `pattern`, `trace`, `correlate` and `refine`), exchanges over the link (`pings`). See docs/clock.md.
"""

from harness.clock.align import Alignment, align
from harness.clock.gpio import GpioEdge
from harness.clock.pattern import BurstRun, burst_runs
from harness.clock.pings import fit_pings

__all__ = [
    "Alignment",
    "BurstRun",
    "GpioEdge",
    "align",
    "burst_runs",
    "fit_pings",
]
