"""Keeps all devices busy until every job is finished, given up or not needed. One thread per running job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.bench.job.attempt import Attempt, Bench
from harness.bench.job.failures import ends_the_run
from harness.bench.job.hooks import Ending, Hooks, Stopped
from harness.bench.job.workload import Workloads
from harness.bench.matrix import BenchJob
from harness.bench_run.queue import JobQueue, is_narrow
from harness.rounds.retry import RetryPolicy, Verdict
from joulefleet.errors import describe

log = logging.getLogger(__name__)

POLL_S = 0.1


@dataclass(slots=True)
class JobOutcomes:
    """How the jobs of a run ended.

    Attributes:
        finished: Folders of captures by job, those from before included.
        failed: Why a job was given up.
        not_needed: Optional jobs that were not.
        stopped: Whether the user stopped the run before everything was over.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_needed: list[str] = field(default_factory=list)
    stopped: bool = False

    def add(self, later: JobOutcomes) -> None:
        """What became of further jobs."""
        self.finished |= later.finished
        self.failed |= later.failed
        self.not_needed += later.not_needed
        self.stopped = later.stopped


class Runner:
    """Runs jobs.

    Args:
        bench: What all jobs share.
        workloads: What they train.
        jobs: To do, in order; finished ones included.
        finished: Those finished before, with their folders.

    Attributes:
        outcomes: How jobs ended so far.
    """

    def __init__(
        self,
        bench: Bench,
        workloads: Workloads,
        jobs: Sequence[BenchJob],
        *,
        finished: dict[str, Path] | None = None,
    ) -> None:
        self._bench = bench
        self._workloads = workloads
        self.jobs = tuple(jobs)
        self.outcomes = JobOutcomes(finished=dict(finished or {}))
        todo = [job for job in self.jobs if job.name not in self.outcomes.finished]
        self.queue = JobQueue(todo, bench.inventory, parallel=bench.plan.parallel, is_needed=self._is_needed)
        self._changed = threading.Condition()
        self._endings: dict[int, Ending] = {}
        self._policy = RetryPolicy(bench.plan.retry, bench.inventory)
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
        over = {*self.outcomes.finished, *self.outcomes.failed, *self.outcomes.not_needed}
        self.outcomes.stopped = self._stopping and any(job.name not in over for job in self.jobs)
        return self.outcomes

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
            with self._changed:
                del self._endings[job.number]
                self.queue.release(job, again_in_s=verdict.wait_s if verdict.again else None)
                self._apply(job, verdict)
                self._changed.notify_all()

    def _apply(self, job: BenchJob, verdict: Verdict) -> None:
        """What a failure means for the other jobs of the same device or meter."""
        if verdict.out:
            why = f"{verdict.resource} is out: {self.outcomes.failed[job.name]}"
            for other in self.queue.drop(verdict.resource):
                self.outcomes.failed[other.name] = why
                self._bench.note("gave_up", other.name, error=why)
        elif verdict.resource:
            self.queue.hold(verdict.resource, verdict.wait_s)

    def _attempt(self, job: BenchJob, ending: Ending) -> Verdict:
        """One attempt; tells what is to be done after it."""
        hooks = Hooks(on_stage=lambda stage: self._policy.reached(job, stage))
        attempt = Attempt(self._bench, job, self._workloads.of(job.cell), hooks, ending)
        try:
            attempt.run()
        except BaseException as error:
            log.info("%s, attempt %d, %s: %s", job.name, attempt.number, attempt.stage, describe(error))
            if not attempt.captured:
                attempt.put_aside(error)
                return self._after_failure(attempt, error)
        self._bench.board.set(job.cell.device, failure="")
        self.outcomes.finished[job.name] = attempt.folder
        self._bench.note("finished", job.name, attempt=attempt.number)
        return Verdict(again=False)

    def _after_failure(self, attempt: Attempt, error: BaseException) -> Verdict:
        job, number, stage = attempt.job, attempt.number, attempt.stage
        if isinstance(error, Stopped):
            self._bench.note("stopped", job.name, attempt=number, stage=stage.value)
            return Verdict(again=False)
        if ends_the_run(error):
            raise error
        self._bench.board.set(job.cell.device, failure=f"{stage.value}: {describe(error)}")
        verdict = self._policy.verdict(job, stage, error)
        facts = {
            "attempt": number,
            "stage": stage.value,
            "error": describe(error),
            "type": type(error).__name__,
        }
        if verdict.again:
            self._bench.note("attempt_failed", job.name, **facts, again_in_s=verdict.wait_s)
        else:
            self.outcomes.failed[job.name] = describe(error)
            self._bench.note("gave_up", job.name, **facts)
        return verdict

    def _is_needed(self, job: BenchJob) -> bool:
        """Whether an optional repetition is; asked when all earlier ones of its cell are over."""
        until = self._bench.plan.repetitions.until_relative
        same = [other.name for other in self.jobs if job.follows(other)]
        folders = [self.outcomes.finished[name] for name in same if name in self.outcomes.finished]
        if until is None or not is_narrow(folders, until):
            return True
        self.outcomes.not_needed.append(job.name)
        self._bench.note("not_needed", job.name)
        return False
