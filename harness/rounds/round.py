"""One round on the bench: every participant's job at the same time, each under its own meter."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.bench.job.attempt import Attempt, Bench
from harness.bench.job.hooks import Ending, Hooks, SoFar, Stage, Stopped
from harness.bench.job.workload import Assignment
from harness.bench.matrix import BenchJob
from harness.rounds.server import Report, RoundServer
from joulefleet.errors import describe

if TYPE_CHECKING:
    from device_agents import JobResult
    from device_agents.protocol import ProbeDone
    from power import SampleBlock

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class RoundJob(BenchJob):
    """One device's part of a round; ``label`` says of which."""

    label: str = field(kw_only=True)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.number:04d}_{self.cell.device}_{self.label}_rep{self.repetition}"


class Participant:
    """A device in a round: what it is to do, and how that ended.

    Args:
        job: Its part.
        assignment: What it trains.

    Attributes:
        attempt: At its part; None before the round.
        error: Why its part failed; None if there is a capture.
    """

    def __init__(self, job: RoundJob, assignment: Assignment) -> None:
        self.job = job
        self.assignment = assignment
        self.attempt: Attempt | None = None
        self.error: BaseException | None = None

    @property
    def device(self) -> str:
        """Its name."""
        return self.job.cell.device

    @property
    def stage(self) -> Stage:
        """The last that began."""
        return Stage.RESERVE if self.attempt is None else self.attempt.stage

    @property
    def reason(self) -> str:
        """Why its part failed, in one sentence."""
        return "" if self.error is None else f"{self.stage.value}: {describe(self.error)}"

    def see(self, block: SampleBlock) -> None:
        """Samples of its meter, as they come in."""

    def epoch_j(self, probe: ProbeDone, so_far: SoFar) -> float:
        """What its first epoch took, as far as the meter shows when the server chooses."""
        return math.nan

    def take(self, result: JobResult) -> None:
        """What came back from its device."""

    def put_aside(self, error: BaseException) -> None:
        """Keep what there is of its part as evidence of no round."""
        if self.attempt is not None:
            self.attempt.put_aside(self.error or error)


OnStage = Callable[[RoundJob, Stage], None]
"""Told each stage of each part before it begins."""


def play_round(
    bench: Bench,
    server: RoundServer,
    participants: Sequence[Participant],
    stop: threading.Event,
    on_stage: OnStage = lambda *_: None,
) -> None:
    """Run all parts to their end; `Participant.error` says whose failed.

    Args:
        bench: What all rounds share.
        server: Lets them begin, and decides.
        participants: Filled in with what became of them.
        stop: Ends all parts when set.
        on_stage: Told how the parts get on.
    """
    parts = [_Part(bench, server, one, on_stage) for one in participants]
    for part in parts:
        part.thread.start()
    for part in parts:
        while part.thread.is_alive():
            part.thread.join(POLL_S)
            if stop.is_set():
                for other in parts:
                    other.ending.request(Stopped("the run was stopped"))


class _Part:
    """One participant's thread."""

    def __init__(self, bench: Bench, server: RoundServer, one: Participant, on_stage: OnStage) -> None:
        self._bench = bench
        self._server = server
        self._one = one
        self._on_stage = on_stage
        self.ending = Ending()
        hooks = Hooks(decide=self._decide, on_stage=self._begin, on_block=one.see, on_result=one.take)
        self._attempt = one.attempt = Attempt(bench, one.job, one.assignment, hooks, self.ending)
        self.thread = threading.Thread(target=self._work, name=one.job.name, daemon=True)

    def _work(self) -> None:
        try:
            self._attempt.run()
        except BaseException as error:
            if not self._attempt.captured:
                self._server.lost(self._one.device)
                fail(self._bench, self._one, error)

    def _begin(self, stage: Stage) -> None:
        self._on_stage(self._one.job, stage)
        if stage is Stage.ROUND:
            self._server.wait_for_all(self._one.device, self.ending)

    def _decide(self, probe: ProbeDone, so_far: SoFar) -> bool:
        # Nobody waits for a meter that lags behind if nothing is decided by what it shows.
        energy_j = self._one.epoch_j(probe, so_far) if self._server.chooses else math.nan
        return self._server.decide(self._one.device, Report(probe, energy_j), self.ending)


def fail(bench: Bench, one: Participant, error: BaseException) -> None:
    """A participant's part failed."""
    one.error = error
    bench.note("part_failed", one.job.name, stage=one.stage.value, error=describe(error))
