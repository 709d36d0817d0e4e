"""Where whoever runs a job takes part in it: stages, the decision after the probe, what comes in, the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from device_agents import JobResult, Ping
    from device_agents.protocol import ProbeDone
    from harness.evidence.capture import HostWindow
    from power import SampleBlock


class Stage(StrEnum):
    """Where a job is; each is journaled when it begins. The meter runs from ``meter`` to ``collect``."""

    RESERVE = "reserve"
    COOLDOWN = "cooldown"
    METER = "meter"
    CONNECT = "connect"
    DEPLOY = "deploy"
    IDLE_BEFORE = "idle_before"
    ROUND = "round"
    """Sync pattern, download, load alone, warm-up, probe, wait, remaining epochs, upload, sync pattern."""
    IDLE_AFTER = "idle_after"
    COLLECT = "collect"
    VERIFY = "verify"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class SoFar:
    """What the host knows when a probe's report has come in.

    Attributes:
        heard_ns: When it came, host time.
        pings: Clock exchanges until now.
        idle: When the device was left alone until now.
    """

    heard_ns: int
    pings: tuple[Ping, ...]
    idle: tuple[HostWindow, ...]


Decider = Callable[["ProbeDone", SoFar], bool]
"""Given the probe's report: whether the device goes on. It may take its time, the device waits."""


def _nothing(_: object) -> None:
    """What a hook does that nobody needs."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called during one attempt at a job, from the thread that runs it.

    Attributes:
        decide: Says whether the device goes on after the probe; None for always, after the plan's wait.
        on_stage: Told each stage before it begins; may hold it up, or raise to fail the attempt.
        on_block: Sees the samples as they come in, from the recorder's thread.
        on_result: Given what came back from the round.
    """

    decide: Decider | None = None
    on_stage: Callable[[Stage], None] = _nothing
    on_block: Callable[[SampleBlock], None] = _nothing
    on_result: Callable[[JobResult], None] = _nothing


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
