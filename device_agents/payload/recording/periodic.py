"""Work at a steady rate in a thread of its own, on a schedule that does not drift."""

from __future__ import annotations

import threading
import time
import traceback
from abc import ABC, abstractmethod


class Periodic(ABC):
    """Calls `turn` every ``period_s``, first at once.

    Attributes:
        name: What it is for.
        cpu_s: Processor time of its thread so far.
        missed: Turns left out because the one before took too long or the device was busy.
        failure: What ended it early, or what it had to go on without, if anything.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self.name = name
        self.cpu_s = 0.0
        self.missed = 0
        self.failure: Exception | None = None
        self._period_s = period_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def turn(self) -> None:
        """What is done each time; an exception ends it."""

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it and wait for the turn that is under way. May be called without `start`."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        try:
            while not self._over.wait(max(0.0, due_s - time.monotonic())):
                self.turn()
                late = int((time.monotonic() - due_s) / self._period_s)
                self.missed += late
                due_s += (late + 1) * self._period_s
                self.cpu_s = time.thread_time()
        except Exception as error:
            self.failure = error
            traceback.print_exc()  # into agent.log
