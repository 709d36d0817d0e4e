"""Where whoever runs a job takes part in it: its stages, the decision after the probe, what comes in."""

from __future__ import annotations

from collections.abc import Callable
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
