"""Shorter turns for threads while an instrument with a small buffer is being read."""

from __future__ import annotations

import sys
import threading

_lock = threading.Lock()
_readers = 0
_usual_s = sys.getswitchinterval()


def shorten_turns(interval_s: float) -> None:
    """Lower the interpreter's switch interval; `restore_turns` once for each call brings it back."""
    global _readers, _usual_s  # noqa: PLW0603 - the interval belongs to the process, not to a meter
    with _lock:
        if _readers == 0:
            _usual_s = sys.getswitchinterval()
        _readers += 1
        sys.setswitchinterval(min(sys.getswitchinterval(), interval_s))


def restore_turns() -> None:
    """The interval as it was, once the last reader is done."""
    global _readers  # noqa: PLW0603
    with _lock:
        _readers -= 1
        if _readers == 0:
            sys.setswitchinterval(_usual_s)
