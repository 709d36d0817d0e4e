"""One attempt at a round of a probing plan: it counts only if the part of every candidate succeeds."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from harness.bench.job.attempt import Bench
from harness.bench.job.workload import Workloads
from harness.bench.journal import JOBS
from harness.evidence.capture import CAPTURE_FILE, CaptureRecord
from harness.probing.plan import ProbingPlan
from harness.probing.schedule import PlannedRound, kept
from harness.rounds.record import ProbingRoundRecord, probing_file
from harness.rounds.round import OnStage, Participant, play_round
from harness.rounds.server import Choose, Report, RoundServer
from joulefleet.errors import CalledOff, describe
from joulefleet.records import read_record, write_record


def _choice(plan: ProbingPlan, planned: PlannedRound) -> Choose | None:
    """How the server chooses; None in a vanilla round, where nobody stops."""
    k = planned.chosen
    if k is None:
        return None

    def choose(reports: Mapping[str, Report]) -> frozenset[str]:
        durations_s = {device: report.duration_s for device, report in reports.items()}
        return kept(plan.keep, plan.seed, planned.candidates, k, planned.repetition, durations_s)

    return choose


class ProbingRound:
    """Runs one round once.

    Args:
        bench: What all rounds share.
        plan: The probing plan.
        planned: The round.
        workloads: What the candidates train.

    Attributes:
        members: The candidates.
    """

    def __init__(self, bench: Bench, plan: ProbingPlan, planned: PlannedRound, workloads: Workloads) -> None:
        self._bench = bench
        self._planned = planned
        self._server = RoundServer(
            planned.candidates,
            _choice(plan, planned),
            start_timeout_s=plan.timing.start_timeout_s,
            report_timeout_s=plan.timing.report_timeout_s,
            needs_all=True,
        )
        self.members = [Participant(job, workloads.of(job.cell)) for job in planned.jobs]

    def run(self, stop: threading.Event, on_stage: OnStage) -> ProbingRoundRecord | None:
        """All parts. If one fails the others go on to their end, but the round counts for nothing.

        Returns:
            The record, stored; None if the round failed: `failures` says why, the evidence is put aside.

        Raises:
            StorageError: Nothing can be stored.
        """
        play_round(self._bench, self._server, self.members, stop, on_stage)
        if self._server.failure is not None:
            raise self._server.failure
        if not self._server.late and all(member.error is None for member in self.members):
            return self._store()
        spoilt = CalledOff(f"its round failed: {self.why()}")
        for member in self.members:
            member.put_aside(spoilt)  # whole captures too: they are evidence, but of no round
        return None

    def failures(self) -> list[tuple[Participant, BaseException]]:
        """Whose own part failed, and why; not who was called off with them."""
        return [
            (member, member.error)
            for member in self.members
            if member.error is not None and not isinstance(member.error, CalledOff)
        ]

    def why(self) -> str:
        """Why the round failed, in one sentence."""
        reasons = [f"{member.device}: {describe(error)}" for member, error in self.failures()]
        if self._server.late:
            reasons.append(f"no report in time from {', '.join(sorted(self._server.late))}")
        called_off = [describe(m.error) for m in self.members if isinstance(m.error, CalledOff)]
        return "; ".join(reasons or called_off)

    def _store(self) -> ProbingRoundRecord:
        planned, run = self._planned, self._bench.run
        names = [member.job.name for member in self.members]
        captures = [read_record(run / JOBS / name / CAPTURE_FILE, CaptureRecord) for name in names]
        chosen = planned.candidates if self._server.chosen is None else self._server.chosen
        record = ProbingRoundRecord(
            number=planned.number,
            repetition=planned.repetition,
            candidates=planned.candidates,
            k=planned.chosen,
            chosen=tuple(device for device in planned.candidates if device in chosen),
            reports_s={device: report.duration_s for device, report in self._server.reports.items()},
            jobs=tuple(names),
            captures_sha256=tuple(capture.sha256() for capture in captures),
        )
        path = probing_file(run, planned.name)
        path.parent.mkdir(exist_ok=True)
        write_record(path, record)
        return record
