"""paramiko's timeouts on a clock that nobody sets.

paramiko (5.0 too) counts every timeout and its keepalive on ``time.time()``. If the host's clock is put
forward, a read of 30 s is over at once ("the agent was silent"); if it is put back by an hour, the read waits
an hour longer, whatever its deadline (decision 0041).
"""

from __future__ import annotations

import importlib
import time
from types import SimpleNamespace

_COUNT_TIME = ("auth_handler", "buffered_pipe", "channel", "packet", "transport")
"""Modules of paramiko that ask for the time only to know how long something took."""

_STEADY = SimpleNamespace(time=time.monotonic, sleep=time.sleep)


def steady_timeouts() -> None:
    """Let paramiko count on the monotonic clock; call it before a connection is made."""
    for name in _COUNT_TIME:
        module = importlib.import_module(f"paramiko.{name}")
        if getattr(module, "time", None) is time:
            module.time = _STEADY  # type: ignore[attr-defined]
