"""Keeps all devices busy until every job is finished, given up or not needed. One thread per running job."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.bench.job.attempt import Attempt, Bench
from harness.bench.job.ending import Ending, Stopped
from harness.bench.job.failures import (
    attempts_before,
    ends_the_run,
    failed_record,
    put_aside,
)
from harness.bench.job.stages import Stage
from harness.bench.journal import BenchJournal, Listener, tell
from harness.bench.matrix import BenchJob
from harness.evidence.capture import CAPTURE_FILE
from harness.rounds.bench_run.precision import is_narrow
from harness.rounds.bench_run.queue import JobQueue
from harness.rounds.bench_run.retry import RetryPolicy, Verdict
from joulefleet.errors import describe
from joulefleet.records import storage_error

log = logging.getLogger(__name__)

JOBS = "jobs"
POLL_S = 0.1


@dataclass(slots=True)
class JobOutcomes:
    """How the jobs of a run ended.

    Attributes:
        finished: Folders of captures by job, those of earlier sittings included.
        failed: Why a job was given up.
        not_needed: Optional jobs that were not.
        stopped: Whether the user stopped the run before everything was over.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_needed: list[str] = field(default_factory=list)
    stopped: bool = False


class Runner:
    """Runs jobs.

    Args:
        bench: What all jobs share.
        run: The run's folder.
        journal: Where every step is noted.
        jobs: All jobs of this sitting, in order; finished ones included.
        finished: Those finished before, with their folders.

    Attributes:
        on_change: Told what happened to which job, with further facts, from any thread.
    """

    def __init__(
        self,
        bench: Bench,
        run: Path,
        journal: BenchJournal,
        jobs: Sequence[BenchJob],
        *,
        finished: dict[str, Path] | None = None,
    ) -> None:
        self._bench = bench
        self._run = run
        self._journal = journal
        self.on_change: Listener = lambda *_: None
        self.jobs = tuple(jobs)
        self.tally = JobOutcomes(finished=dict(finished or {}))
        todo = [job for job in self.jobs if job.name not in self.tally.finished]
        self.queue = JobQueue(todo, bench.inventory, parallel=bench.plan.parallel, is_needed=self._is_needed)
        self._changed = threading.Condition()
        self._endings: dict[int, Ending] = {}
        self._policy = RetryPolicy(bench.plan.retry, bench.inventory)
        self._last_end_s: dict[str, float] = {}
        self._fatal: BaseException | None = None
        self._stopping = False

    def run(self, stop: threading.Event) -> JobOutcomes:
        """Until nothing is left to do, or ``stop`` is set and what was running has ended cleanly.

        Raises:
            StorageError: The run's own disk refused; everything else only fails its job.
        """
        threads: list[threading.Thread] = []
        with self._changed:
            while not self._is_over():
                if stop.is_set() or self._fatal is not None:
                    self._end_all()
                job = None if self._stopping else self.queue.take()
                if job is None:
                    self._changed.wait(POLL_S)
                    continue
                threads.append(self._begin(job))
        for thread in threads:
            thread.join()
        if self._fatal is not None:
            raise self._fatal
        over = {*self.tally.finished, *self.tally.failed, *self.tally.not_needed}
        self.tally.stopped = self._stopping and any(job.name not in over for job in self.jobs)
        return self.tally

    def _end_all(self) -> None:
        """Begin nothing new and end what is running."""
        self._stopping = True
        for ending in self._endings.values():
            ending.request(Stopped("the run was stopped"))

    def _is_over(self) -> bool:
        return self.queue.is_empty or (self._stopping and not self._endings)

    def _begin(self, job: BenchJob) -> threading.Thread:
        self._endings[job.number] = ending = Ending()
        thread = threading.Thread(target=self._work, args=(job, ending), name=job.name, daemon=True)
        thread.start()
        return thread

    def _work(self, job: BenchJob, ending: Ending) -> None:
        """One attempt, and what follows from how it ended. Runs in a thread of its own."""
        verdict = Verdict(again=False)
        try:
            verdict = self._attempt(job, ending)
        except BaseException as error:  # not even the failure could be stored
            self._fatal = error
        finally:
            self._bench.board.clear(job.cell.device)
            with self._changed:
                self._last_end_s[job.cell.device] = time.monotonic()
                del self._endings[job.number]
                self.queue.release(job, again_in_s=verdict.wait_s if verdict.again else None)
                self._apply(job, verdict)
                self._changed.notify_all()

    def _apply(self, job: BenchJob, verdict: Verdict) -> None:
        """What a failure means for the other jobs of the same device or meter."""
        if verdict.out:
            why = f"{verdict.resource} is out: {self.tally.failed[job.name]}"
            for other in self.queue.drop(verdict.resource):
                self.tally.failed[other.name] = why
                self._note("gave_up", other, error=why)
        elif verdict.resource:
            self.queue.hold(verdict.resource, verdict.wait_s)

    def _attempt(self, job: BenchJob, ending: Ending) -> Verdict:
        """One attempt; tells what is to be done after it."""
        number = attempts_before(self._run, job.name) + 1
        at = Stage.RESERVE

        def on_stage(stage: Stage) -> None:
            nonlocal at
            at = stage
            self._policy.reached(job, stage)
            self._note("stage", job, attempt=number, stage=stage.value)
            self._bench.board.set(job.cell.device, job=job.name, attempt=number, stage=stage.value, epoch=0)

        on_stage(Stage.RESERVE)
        folder = self._run / JOBS / job.name
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(folder, error) from error
        try:
            last_end_s = self._last_end_s.get(job.cell.device)
            Attempt(self._bench, job, number, folder, ending, on_stage, last_end_s).run()
        except BaseException as error:
            log.info("%s, attempt %d, %s: %s", job.name, number, at, describe(error))
            if not (folder / CAPTURE_FILE).exists():  # else it failed after it was finished
                put_aside(self._run, folder, failed_record(job.name, number, at, error))
                return self._after_failure(job, number, at, error)
        self.tally.finished[job.name] = folder
        self._note("finished", job, attempt=number)
        return Verdict(again=False)

    def _after_failure(self, job: BenchJob, number: int, at: Stage, error: BaseException) -> Verdict:
        if isinstance(error, Stopped):
            self._note("stopped", job, attempt=number, stage=at.value)
            return Verdict(again=False)
        if ends_the_run(error):
            raise error
        verdict = self._policy.verdict(job, at, error)
        facts = {"attempt": number, "stage": at.value, "error": describe(error), "type": type(error).__name__}
        if verdict.again:
            self._note("attempt_failed", job, **facts, again_in_s=verdict.wait_s)
        else:
            self.tally.failed[job.name] = describe(error)
            self._note("gave_up", job, **facts)
        return verdict

    def _is_needed(self, job: BenchJob) -> bool:
        """Whether an optional repetition is; asked when all earlier ones of its cell are over."""
        until = self._bench.plan.repetitions.until_relative
        same = [j for j in self.jobs if j.cell == job.cell and j.repetition < job.repetition]
        folders = [self.tally.finished[j.name] for j in same if j.name in self.tally.finished]
        if until is None or not is_narrow(folders, until):
            return True
        self.tally.not_needed.append(job.name)
        self._note("not_needed", job)
        return False

    def _note(self, event: str, job: BenchJob, **facts: object) -> None:
        self._journal.write(event, job=job.name, **facts)
        tell(self.on_change, event, job.name, facts)
