"""Leaving a device alone, for how long, and remembering when."""

from __future__ import annotations

import time

from harness.bench.job.ending import Ending
from harness.bench.plan import Timing
from harness.evidence.capture import HostWindow
from joulefleet.errors import ConfigError
from power.energy.baseline import IDLE_PARTS


def leave_alone(seconds: float, ending: Ending) -> HostWindow:
    """Do nothing for a while."""
    start_ns = time.monotonic_ns()
    ending.sleep(seconds)
    return HostWindow(start_ns=start_ns, end_ns=time.monotonic_ns())


def require_enough_samples(timing: Timing, rate_hz: float, *, loaded: bool) -> None:
    """Whether a meter is fast enough for what becomes a baseline: two samples in each of its parts.

    Args:
        timing: Of the plan.
        rate_hz: Samples per second.
        loaded: Whether a background load runs beside the training, and alone before it.

    Raises:
        ConfigError: A window is too short, so that no attempt could ever succeed.
    """
    shortest_s = 2 * IDLE_PARTS / rate_hz
    windows_s = {"idle_s": timing.idle_s, "load_only_s": timing.load_only_s if loaded else 0.0}
    for name, seconds in windows_s.items():
        if 0 < seconds < shortest_s:
            raise ConfigError(
                f"timing.{name}: {seconds:g} s is too short for a baseline: "
                f"at {rate_hz:.3g} samples per second it takes at least {shortest_s:.3g} s",
                hint="make it longer, or have the meter average less",
            )
