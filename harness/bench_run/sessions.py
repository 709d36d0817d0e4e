"""When the sessions of a plan may begin, from what the journal of its run says."""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from harness.bench.journal import JobHistory
from harness.bench.matrix import BenchJob
from harness.bench.plan import Repetitions

LONGEST_NAP_S = 1.0
"""Between two looks at the wall clock: a machine may be suspended, and its clock set."""


@dataclass(frozen=True, slots=True)
class NextSession:
    """A session that is yet to come.

    Attributes:
        number: From 1 on.
        planned: How many the plan asks for.
        from_utc: It may begin from then on.
    """

    number: int
    planned: int
    from_utc: datetime

    @property
    def text(self) -> str:
        """For people, in their own time zone."""
        return f"session {self.number} of {self.planned} from {self.from_utc.astimezone():%Y-%m-%d %H:%M %Z}"

    @property
    def early_s(self) -> float:
        """How much too early it would begin now; not above 0 when it may."""
        return (self.from_utc - datetime.now(UTC)).total_seconds()


def sessions_to_do(
    jobs: Sequence[BenchJob], histories: Mapping[str, JobHistory], finished: Container[str]
) -> dict[int | None, list[BenchJob]]:
    """The jobs of each session in which something is left to do, finished ones included, in order."""
    sessions: dict[int | None, list[BenchJob]] = {}
    for job in jobs:
        sessions.setdefault(job.session, []).append(job)

    def over(job: BenchJob) -> bool:
        return job.name in finished or (
            job.session is not None and job.name in histories and histories[job.name].state == "not_needed"
        )

    return {number: found for number, found in sessions.items() if not all(map(over, found))}


def waits_for(
    number: int | None,
    jobs: Sequence[BenchJob],
    histories: Mapping[str, JobHistory],
    repetitions: Repetitions,
) -> NextSession | None:
    """What a session has to wait for; None if it may begin, or has begun.

    Args:
        number: The session.
        jobs: Of the whole plan.
        histories: Of those that were begun.
        repetitions: What the plan says about sessions.
    """
    apart_s = repetitions.apart_s
    if number is None or apart_s is None or has_begun(number, jobs, histories):
        return None  # one that was interrupted goes on, whenever that is
    earlier = [job for job in jobs if job.session is not None and job.session < number]
    ended = [histories[job.name].since_utc for job in earlier if _was_tried(job, histories)]
    if not ended:
        return None
    from_utc = datetime.fromisoformat(max(ended)) + timedelta(seconds=apart_s)
    coming = NextSession(number, repetitions.sessions or 1, from_utc)
    return coming if coming.early_s > 0 else None


def has_begun(number: int, jobs: Sequence[BenchJob], histories: Mapping[str, JobHistory]) -> bool:
    """Whether a job of a session was tried."""
    return any(job.session == number and _was_tried(job, histories) for job in jobs)


def _was_tried(job: BenchJob, histories: Mapping[str, JobHistory]) -> bool:
    return job.name in histories and histories[job.name].attempt > 0


def wait_for(coming: NextSession, stop: threading.Event) -> None:
    """Sleep until a session may begin.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
    """
    while (left_s := coming.early_s) > 0:
        if stop.wait(min(left_s, LONGEST_NAP_S)):
            raise KeyboardInterrupt
