"""Who goes first on a machine that has other work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def in_real_time(priority: int = 2) -> Iterator[None]:
    """Give this thread, and what it starts, precedence over everything else on the machine.

    On a real bench the instruments have no processor in common with the devices, nor with other people's
    tests; here an HVPM, which keeps 3 ms of samples back, would lose some.
    """
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:  # needs root
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


def ahead_of_others(pid: int) -> None:
    """Let a process, and what it starts, go before everything but what is `in_real_time`.

    A nice value would not do: it counts among the processes of one session only.
    """
    with contextlib.suppress(PermissionError):  # needs root
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def in_shared_time(pid: int) -> None:
    """Undo `in_real_time` for a process that was started under it."""
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
