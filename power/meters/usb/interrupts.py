"""Ctrl-C and python-libusb1, which is not made for exceptions that come from nowhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


def without_interrupt(call: Callable[[], T]) -> T:
    """Do something with python-libusb1; Ctrl-C meanwhile comes afterwards.

    Python raises KeyboardInterrupt wherever the main thread is. Inside python-libusb1 it would leave a count
    of users, or the note of a transfer, for whose end closing waits forever. In a callback it would be lost.
    """
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        return call()
    pressed: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: pressed.append(frame))
    try:
        return call()
    finally:
        signal.signal(signal.SIGINT, usual)
        if pressed:
            usual(signal.SIGINT, pressed[0])
