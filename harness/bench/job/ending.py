"""Ending a job from outside it: the user, a meter that went away, a current that is too high."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stopped(Exception):
    """The user asked the run to stop."""


class Ending:
    """Why one job has to end now; the first reason wins. Any thread may ask.

    Attributes:
        reason: What the job is to fail with; None while it may go on.
    """

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._on_request: Callable[[], None] | None = None

    def request(self, reason: BaseException) -> None:
        """End the job; returns at once."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            self._asked.set()
            call = self._on_request
        if call is not None:
            threading.Thread(target=call, name="ending", daemon=True).start()

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    def wait(self, seconds: float) -> bool:
        """Wait, unless the job has to end. Returns whether it has."""
        return self._asked.wait(max(0.0, seconds))

    def sleep(self, seconds: float) -> None:
        """Wait, unless the job has to end: then raise why."""
        self.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """While inside, a request also calls this, in a thread of its own."""
        with self._lock:
            self._on_request = call
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._on_request = None
