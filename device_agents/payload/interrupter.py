"""Ending work from outside it: cancel, deadline, lost link.

Training is a long call in the main thread. A signal makes Python run its handler there between two steps, so
nothing has to be polled and an epoch costs the same with or without the possibility to end it.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Callable, TypeVar

from device_agents.payload.faults import CANCELLED, DEADLINE, Interrupted

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")


class Interrupter:
    """Raises `Interrupted` in the main thread, but only inside `run`: bookkeeping is never torn apart."""

    def __init__(self) -> None:
        self._reason = ""
        self._armed = False
        self._busy = False
        self.terminating = False

    def install(self) -> None:
        """Take over the signals; call from the main thread."""
        signal.signal(signal.SIGUSR1, self._on_request)
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a lost terminal; the end of input tells it better
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_terminate)

    def begin(self, deadline_s: float) -> None:
        """A job begins: forget earlier requests, start the deadline."""
        self._reason = ""
        self._busy = True
        signal.setitimer(signal.ITIMER_REAL, deadline_s)  # counts monotonic time

    def end(self) -> None:
        """The job is over."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._busy = False

    def request(self, reason: str) -> None:
        """End the work that is running; from any thread. The first reason wins."""
        self._reason = self._reason or reason
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def check(self) -> None:
        """Raise if the work is to end."""
        if self._reason:
            raise Interrupted(self._reason)

    def run(self, work: Callable[[], T]) -> T:
        """Do something that may be interrupted at any point."""
        try:
            self._armed = True
            self.check()
            return work()
        finally:
            self._armed = False

    def _on_request(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed and self._reason:
            self._armed = False  # once is enough: the way out must not be interrupted again
            raise Interrupted(self._reason)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        self._reason = self._reason or DEADLINE
        self._on_request(number, frame)

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminating = True
        if not self._busy:
            raise SystemExit(128 + number)
        self._reason = self._reason or CANCELLED
        self._on_request(number, frame)
