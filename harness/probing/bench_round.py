"""One round on the bench: every candidate's part at the same time, each under its own meter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from device_agents.protocol import ProbeDone
from harness.bench.job.attempt import Attempt, Bench
from harness.bench.job.ending import Ending, Stopped
from harness.bench.job.failures import attempts_before, failed_record, put_aside
from harness.bench.job.stages import Stage
from harness.bench.journal import JOBS
from harness.evidence.capture import CAPTURE_FILE, CaptureRecord
from harness.probing.plan import ProbingPlan
from harness.probing.schedule import PlannedRound, RoundJob, kept
from harness.rounds.bench_run.runner import POLL_S
from harness.rounds.record import ProbingRoundRecord, probing_file
from harness.rounds.server import Choose, RoundServer
from joulefleet.errors import CalledOff, describe
from joulefleet.records import read_record, storage_error, write_record

Note = Callable[[str, RoundJob, dict[str, object]], None]


@dataclass(slots=True)
class RoundAttempt(Attempt):
    """A candidate's part of a round: like any job of the bench, but the server decides."""

    server: RoundServer = field(kw_only=True)

    def _decide(self, probe: ProbeDone) -> bool:
        board, device = self.bench.board, self.job.cell.device
        board.set(device, phase="wait", epoch=1)
        going_on = self.server.decide(device, probe, self.ending)
        board.set(device, phase="epoch" if going_on else "stopped")
        return going_on


@dataclass(slots=True)
class Member:
    """A candidate in a round.

    Attributes:
        stage: The last that began.
        error: Why its part failed; None if there is a capture.
    """

    job: RoundJob
    number: int
    folder: Path
    ending: Ending = field(default_factory=Ending)
    stage: Stage = Stage.RESERVE
    error: BaseException | None = None


def _choice(plan: ProbingPlan, planned: PlannedRound) -> Choose | None:
    """How the server chooses; None in a vanilla round, where nobody stops."""
    k = planned.chosen
    if k is None:
        return None
    return lambda reports: kept(plan.keep, plan.seed, planned.candidates, k, planned.repetition, reports)


class BenchRound:
    """Runs one round once.

    Args:
        bench: What all rounds share.
        plan: The probing plan.
        planned: The round.
        note: Told what happens to each part: the event, the job, further facts.
        last_end_s: Monotonic time at which each device's round before ended.
    """

    def __init__(
        self, bench: Bench, plan: ProbingPlan, planned: PlannedRound, note: Note, last_end_s: dict[str, float]
    ) -> None:
        self._bench = bench
        self._planned = planned
        self._note = note
        self._last_end_s = last_end_s
        self._server = RoundServer(
            planned.candidates,
            _choice(plan, planned),
            start_timeout_s=plan.timing.start_timeout_s,
            report_timeout_s=plan.timing.report_timeout_s,
        )
        self.members = tuple(
            Member(job, attempts_before(bench.run, job.name) + 1, bench.run / JOBS / job.name)
            for job in planned.jobs
        )

    def run(self, stop: threading.Event) -> ProbingRoundRecord | None:
        """All parts. If one fails the others go on to their end, but the round counts for nothing.

        Returns:
            The record, stored; None if the round failed: `failures` says why, the evidence is put aside.

        Raises:
            StorageError: Nothing can be stored.
        """
        threads = [
            threading.Thread(target=self._work, args=(member,), name=member.job.name, daemon=True)
            for member in self.members
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(POLL_S)
                if stop.is_set():
                    self._end_all()
        if self._server.late or any(member.error is not None for member in self.members):
            self._put_all_aside()
            return None
        return self._store()

    def failures(self) -> list[tuple[Member, BaseException]]:
        """Whose own part failed, and why; not who was called off with them."""
        return [
            (member, member.error)
            for member in self.members
            if member.error is not None and not isinstance(member.error, CalledOff)
        ]

    def why(self) -> str:
        """Why the round failed, in one sentence."""
        reasons = [f"{m.job.cell.device}: {describe(error)}" for m, error in self.failures()]
        if self._server.late:
            reasons.append(f"no report in time from {', '.join(sorted(self._server.late))}")
        called_off = [describe(m.error) for m in self.members if isinstance(m.error, CalledOff)]
        return "; ".join(reasons or called_off)

    def _end_all(self) -> None:
        for member in self.members:
            member.ending.request(Stopped("the run was stopped"))

    def _work(self, member: Member) -> None:
        device = member.job.cell.device
        try:
            self._attempt(member)
        except BaseException as error:
            if (member.folder / CAPTURE_FILE).exists():
                return  # it failed after it was finished
            member.error = error
            self._server.lost(device)
            self._note("part_failed", member.job, {"stage": member.stage.value, "error": describe(error)})
        finally:
            self._bench.board.clear(device)

    def _attempt(self, member: Member) -> None:
        job, device = member.job, member.job.cell.device

        def on_stage(stage: Stage) -> None:
            member.stage = stage
            self._note("stage", job, {"attempt": member.number, "stage": stage.value})
            self._bench.board.set(device, job=job.name, attempt=member.number, stage=stage.value, epoch=0)
            if stage is Stage.ROUND:
                self._server.wait_for_all(device, member.ending)

        on_stage(Stage.RESERVE)
        try:
            member.folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(member.folder, error) from error
        RoundAttempt(
            self._bench,
            job,
            member.number,
            member.folder,
            member.ending,
            on_stage,
            self._last_end_s.get(device),
            server=self._server,
        ).run()

    def _put_all_aside(self) -> None:
        """The whole captures of a failed round too: they are evidence, but of no round."""
        spoilt = CalledOff(f"its round failed: {self.why()}")
        for member in self.members:
            if member.folder.exists():
                record = failed_record(member.job.name, member.number, member.stage, member.error or spoilt)
                put_aside(self._bench.run, member.folder, record)

    def _store(self) -> ProbingRoundRecord:
        planned = self._planned
        captures = [read_record(m.folder / CAPTURE_FILE, CaptureRecord) for m in self.members]
        chosen = planned.candidates if self._server.chosen is None else self._server.chosen
        record = ProbingRoundRecord(
            number=planned.number,
            repetition=planned.repetition,
            candidates=planned.candidates,
            k=planned.chosen,
            chosen=tuple(device for device in planned.candidates if device in chosen),
            reports_s=self._server.reports,
            jobs=tuple(m.job.name for m in self.members),
            captures_sha256=tuple(capture.sha256() for capture in captures),
        )
        path = probing_file(self._bench.run, planned.name)
        path.parent.mkdir(exist_ok=True)
        write_record(path, record)
        return record
