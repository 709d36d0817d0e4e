"""A probing run: every round of a plan on the bench, both ways, until all are done or someone stops it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.bench.job.attempt import Bench
from harness.bench.job.board import StatusBoard
from harness.bench.job.ending import Stopped
from harness.bench.job.failures import attempts_before, ends_the_run, killed_record, put_aside
from harness.bench.job.stages import Stage
from harness.bench.job.workload import Workloads
from harness.bench.journal import JOBS, JOURNAL, BenchJournal, Listener, job_histories, tell
from harness.bench.matrix import plan_devices
from harness.evidence.salvage import salvage
from harness.inventory import Inventory, load_inventory
from harness.probing.bench_round import BenchRound
from harness.probing.plan import ProbingPlan, load_probing_plan
from harness.probing.schedule import PlannedRound, RoundJob, expand_rounds, fingerprint
from harness.rounds.bench_run.queue import device_resource, meter_resource
from harness.rounds.bench_run.retry import RetryPolicy, Verdict
from harness.rounds.host_load import HostLoadLog
from harness.rounds.record import PROBING, ROUNDS, probing_file, read_probing_rounds
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.run import read_run

PLAN_FILE = "probing.toml"
INVENTORY_FILE = "devices.toml"


@dataclass(frozen=True, slots=True)
class ProbingFiles:
    """What a person wrote, read and expanded."""

    plan_path: Path
    inventory_path: Path
    plan: ProbingPlan
    inventory: Inventory
    rounds: tuple[PlannedRound, ...]

    @property
    def fingerprint(self) -> str:
        """Of what decides the results."""
        return fingerprint(self.plan, self.inventory)

    def command(self, run: Path) -> str:
        """The command that takes a run up again."""
        import shlex

        words = ["joulefleet", "probing", "validate", str(self.plan_path), "--inventory"]
        return shlex.join([*words, str(self.inventory_path), "--resume", str(run)])


def read_files(plan_path: Path, inventory_path: Path) -> ProbingFiles:
    """Read and check a probing plan and its inventory; touches nothing else."""
    plan, inventory = load_probing_plan(plan_path), load_inventory(inventory_path)
    return ProbingFiles(plan_path, inventory_path, plan, inventory, expand_rounds(plan, inventory))


@dataclass(slots=True)
class ProbingOutcome:
    """How the rounds of a run ended.

    Attributes:
        path: The run's folder.
        finished: Names of rounds, those of earlier sittings included.
        failed: Why a round was given up.
    """

    path: Path
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_plan(
    files: ProbingFiles,
    root: Path,
    *,
    resume: Path | None = None,
    stop: threading.Event | None = None,
    listener: Listener = lambda *_: None,
    cache: Path | None = None,
) -> ProbingOutcome:
    """Run the rounds of a plan, one after the other. A round that fails for good leaves the others be.

    Args:
        files: Plan and inventory.
        root: Folder of runs, for a new one.
        resume: A run to take up again: finished rounds are kept.
        stop: Ends it cleanly when set.
        listener: Told what happens to which job or round.
        cache: Folder of exported graphs.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
    """
    bench_plan = files.plan.bench()
    workloads = Workloads(bench_plan, {job.cell: None for r in files.rounds for job in r.jobs}, cache)
    with _open(files, root, resume) as run:
        tell(listener, "run", str(run.path), {})
        (run.path / JOBS).mkdir(exist_ok=True)
        journal = BenchJournal(run.journal(JOURNAL))
        try:
            _take_up(run.path, journal)
            bench = Bench(
                run=run.path,
                run_id=run.record.run_id,
                plan=bench_plan,
                inventory=files.inventory,
                inventory_path=files.inventory_path,
                workloads=workloads,
                board=StatusBoard(plan_devices(bench_plan, files.inventory)),
            )
            with HostLoadLog(run):
                tally = _Rounds(bench, files, journal, listener).run(stop or threading.Event())
        finally:
            journal.close()
        if tally.failed:
            run.leave_open(f"{len(tally.failed)} of {len(files.rounds)} rounds failed")
        return tally


class _Rounds:
    """Runs rounds in order, each until it succeeds or is given up."""

    def __init__(self, bench: Bench, files: ProbingFiles, journal: BenchJournal, listener: Listener) -> None:
        self._bench = bench
        self._files = files
        self._journal = journal
        self._listener = listener
        self._policy = RetryPolicy(files.plan.retry, files.inventory)
        self._out: dict[str, str] = {}
        self._last_end_s: dict[str, float] = {}
        self._tally = ProbingOutcome(bench.run)

    def run(self, stop: threading.Event) -> ProbingOutcome:
        for planned in self._files.rounds:
            if probing_file(self._bench.run, planned.name).exists():
                self._tally.finished.append(planned.name)
                continue
            why = self._until_done(planned, stop)
            if why:
                self._tally.failed[planned.name] = why
                self._note("round_gave_up", planned.name, error=why)
            else:
                self._tally.finished.append(planned.name)
        return self._tally

    def _until_done(self, planned: PlannedRound, stop: threading.Event) -> str:
        """Returns why the round was given up; empty if it was not."""
        why = ""
        for tried in range(1, self._files.plan.retry.attempts + 1):
            if stop.is_set():
                raise KeyboardInterrupt
            out = self._unusable(planned)
            if out:
                return out
            self._note("round", planned.name, candidates=list(planned.candidates))
            attempt = BenchRound(self._bench, self._files.plan, planned, self._note_job, self._last_end_s)
            record = attempt.run(stop)
            self._last_end_s |= dict.fromkeys(planned.candidates, time.monotonic())
            if record is not None:
                self._note("round_finished", planned.name, chosen=list(record.chosen))
                return ""
            verdict = self._after_failure(attempt)
            why = attempt.why()
            self._note("round_failed", planned.name, attempt=tried, error=why)
            if not verdict.again:
                break
            stop.wait(verdict.wait_s)
        return why

    def _after_failure(self, attempt: BenchRound) -> Verdict:
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
        """Why a candidate cannot take part in this sitting any more."""
        for device in planned.candidates:
            for resource in (device_resource(device), meter_resource(self._files.inventory, device)):
                if resource in self._out:
                    return f"{resource} is out: {self._out[resource]}"
        return ""

    def _note_job(self, event: str, job: RoundJob, facts: dict[str, object]) -> None:
        if event == "stage":
            self._policy.reached(job, Stage(str(facts["stage"])))
        self._journal.write(event, job=job.name, **facts)
        tell(self._listener, event, job.name, facts)

    def _note(self, event: str, name: str, **facts: object) -> None:
        self._journal.write(event, round=name, **facts)
        tell(self._listener, event, name, facts)


def _open(files: ProbingFiles, root: Path, resume: Path | None) -> Run:
    if resume is None:
        config = {
            PLAN_FILE: files.plan_path.read_text(encoding="utf-8"),
            INVENTORY_FILE: files.inventory_path.read_text(encoding="utf-8"),
        }
        return RunStore(root).create(
            files.plan.name, kind=PROBING, config=config, fingerprint=files.fingerprint
        )
    record = read_run(resume)
    if record.status is RunStatus.RUNNING and record.fingerprint == files.fingerprint:
        salvage(resume)  # it was killed; refused if it is alive
    return RunStore(resume.parent).resume(resume, fingerprint=files.fingerprint)


def _take_up(run: Path, journal: BenchJournal) -> None:
    """Put every part of a round aside that a kill has left half done."""
    (run / ROUNDS).mkdir(exist_ok=True)
    whole = {job for record in read_probing_rounds(run) for job in record.jobs}
    histories = job_histories(run / f"{JOURNAL}.jsonl")
    for folder in sorted(p for p in (run / JOBS).glob("*") if p.is_dir() and p.name not in whole):
        name = folder.name
        stage = histories[name].stage if name in histories else ""
        record = killed_record(name, attempts_before(run, name) + 1, stage)
        put_aside(run, folder, record)
        journal.write("killed", job=name, attempt=record.attempt, stage=stage)
