"""A probing run: every round of a plan on the bench, both ways, until all are done or someone stops it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from harness.bench.job.failures import ends_the_run
from harness.bench.job.hooks import Stopped
from harness.bench.job.live_status import StatusBoard
from harness.bench.job.workload import Workloads
from harness.bench.journal import Listener
from harness.inventory import load_inventory
from harness.probing.plan import ProbingPlan, load_probing_plan
from harness.probing.round import ProbingRound
from harness.probing.schedule import PlannedRound, expand_rounds, fingerprint
from harness.rounds.record import PROBING, probing_file, read_probing_rounds
from harness.rounds.retry import RetryPolicy, Verdict, device_resource, meter_resource
from harness.rounds.session import (
    INVENTORY_FILE,
    NO_OUTPUTS,
    RunFiles,
    RunOutputs,
    Session,
    open_session,
    texts,
)

PLAN_FILE = "probing.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbingFiles(RunFiles):
    """A probing plan, its rounds and its inventory."""

    plan: ProbingPlan
    rounds: tuple[PlannedRound, ...]


def read_probing_files(plan_path: Path, inventory_path: Path) -> ProbingFiles:
    """Read and check a probing plan and its inventory; touches nothing else."""
    plan, inventory = load_probing_plan(plan_path), load_inventory(inventory_path)
    return ProbingFiles(
        kind=PROBING,
        name=plan.name,
        config=texts({PLAN_FILE: plan_path, INVENTORY_FILE: inventory_path}),
        words=("probing", "validate", str(plan_path), "--inventory", str(inventory_path)),
        fingerprint=fingerprint(plan, inventory),
        bench_plan=plan.bench(),
        inventory_path=inventory_path,
        inventory=inventory,
        plan=plan,
        rounds=expand_rounds(plan, inventory),
    )


@dataclass(slots=True)
class ProbingOutcome:
    """How the rounds of a run ended.

    Attributes:
        path: The run's folder.
        finished: Names of rounds, those of earlier sessions included.
        failed: Why a round was given up.
    """

    path: Path
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_probing(
    files: ProbingFiles,
    root: Path,
    *,
    resume: Path | None = None,
    stop: threading.Event | None = None,
    listener: Listener = lambda *_: None,
    board: StatusBoard | None = None,
    outputs: RunOutputs = NO_OUTPUTS,
    cache: Path | None = None,
) -> ProbingOutcome:
    """Run the rounds of a plan, one after the other. A round that fails for good does not stop the others.

    Args:
        files: Plan and inventory.
        root: Folder of runs, for a new one.
        resume: A run to take up again: finished rounds are kept.
        stop: Ends it cleanly when set.
        listener: Told what happens to which job or round.
        board: Where the devices' state is written as it changes, for a live view.
        outputs: What is written beside the evidence.
        cache: Folder of exported graphs.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
    """
    cells = {job.cell: None for planned in files.rounds for job in planned.jobs}
    workloads = Workloads(files.bench_plan, cells, cache)
    with open_session(files, root, resume=resume, outputs=outputs, listener=listener, board=board) as session:
        finished = read_probing_rounds(session.path)
        session.put_aside_unfinished({job for record in finished for job in record.jobs})
        outcome = _Rounds(session, files, workloads).run(stop or threading.Event())
        if outcome.failed:
            session.run.leave_open(f"{len(outcome.failed)} of {len(files.rounds)} rounds failed")
        return outcome


class _Rounds:
    """Runs rounds in order, each until it succeeds or is given up."""

    def __init__(self, session: Session, files: ProbingFiles, workloads: Workloads) -> None:
        self._session = session
        self._files = files
        self._workloads = workloads
        self._policy = RetryPolicy(files.plan.retry, files.inventory)
        self._out: dict[str, str] = {}
        self._outcome = ProbingOutcome(session.path)

    def run(self, stop: threading.Event) -> ProbingOutcome:
        for planned in self._files.rounds:
            if probing_file(self._session.path, planned.name).exists():
                self._outcome.finished.append(planned.name)
                continue
            why = self._until_done(planned, stop)
            if why:
                self._outcome.failed[planned.name] = why
                self._session.note("round_gave_up", planned.name, error=why)
            else:
                self._outcome.finished.append(planned.name)
        return self._outcome

    def _until_done(self, planned: PlannedRound, stop: threading.Event) -> str:
        """Returns why the round was given up; empty if it was not."""
        why = ""
        for tried in range(1, self._files.plan.retry.attempts + 1):
            if stop.is_set():
                raise KeyboardInterrupt
            out = self._unusable(planned)
            if out:
                return out
            self._session.note("round", planned.name, candidates=list(planned.candidates))
            attempt = ProbingRound(self._session.bench, self._files.plan, planned, self._workloads)
            record = attempt.run(stop, self._policy.reached)
            if record is not None:
                self._session.note("round_finished", planned.name, chosen=list(record.chosen))
                return ""
            verdict = self._after_failure(attempt)
            why = attempt.why()
            self._session.note("round_failed", planned.name, attempt=tried, error=why)
            if not verdict.again:
                break
            stop.wait(verdict.wait_s)
        return why

    def _after_failure(self, attempt: ProbingRound) -> Verdict:
        """Again only if trying again may help with every part that failed."""
        again, wait_s = True, self._files.plan.retry.wait_s
        for member, error in attempt.failures():
            if isinstance(error, Stopped):
                raise KeyboardInterrupt
            if ends_the_run(error):
                raise error
            verdict = self._policy.verdict(member.job, member.stage, error)
            again, wait_s = again and verdict.again, max(wait_s, verdict.wait_s)
            if verdict.out:
                self._out[verdict.resource] = attempt.why()
        return Verdict(again=again, wait_s=wait_s)

    def _unusable(self, planned: PlannedRound) -> str:
        """Why a candidate cannot take part in this session any more."""
        for device in planned.candidates:
            for resource in (device_resource(device), meter_resource(self._files.inventory, device)):
                if resource in self._out:
                    return f"{resource} is out: {self._out[resource]}"
        return ""
