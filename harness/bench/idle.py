"""Leaving a device alone, and remembering when."""

from __future__ import annotations

import time

from harness.bench.ending import Ending
from harness.capture import HostWindow


def leave_alone(seconds: float, ending: Ending) -> HostWindow:
    """Do nothing for a while."""
    start_ns = time.monotonic_ns()
    ending.sleep(seconds)
    return HostWindow(start_ns=start_ns, end_ns=time.monotonic_ns())
