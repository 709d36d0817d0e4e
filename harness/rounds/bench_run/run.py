"""One sitting at the bench: a new run, or one taken up again, until its jobs are done or someone stops it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bench.job.attempt import Bench
from harness.bench.job.board import StatusBoard
from harness.bench.job.workload import Workloads
from harness.bench.journal import JOURNAL, BenchJournal
from harness.bench.matrix import BenchJob, choose, expand, fingerprint, plan_devices
from harness.bench.plan import Plan, load_plan
from harness.evidence.salvage import salvage
from harness.inventory import Inventory, load_inventory
from harness.profiles.library import PROFILES, Built, build_run_profiles
from harness.rounds.bench_run.runner import JobOutcomes, Runner
from harness.rounds.host_load import HostLoadLog
from harness.rounds.session import finished_jobs, take_up
from joulefleet.errors import JoulefleetError
from joulefleet.records import storage_error, write_atomic
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.run import read_run

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BenchFiles:
    """What a person wrote, read and expanded.

    Attributes:
        jobs: All jobs of the plan.
    """

    plan_path: Path
    inventory_path: Path
    plan: Plan
    inventory: Inventory
    jobs: tuple[BenchJob, ...]

    @property
    def fingerprint(self) -> str:
        """Of what decides the results."""
        return fingerprint(self.plan, self.inventory)

    def command(self, run: Path) -> str:
        """The command that takes a run up again."""
        import shlex

        words = ["joulefleet", "bench", "run", str(self.plan_path), "--inventory", str(self.inventory_path)]
        return shlex.join([*words, "--resume", str(run)])


def read_files(plan_path: Path, inventory_path: Path) -> BenchFiles:
    """Read and check a plan and its inventory; touches nothing else."""
    plan, inventory = load_plan(plan_path), load_inventory(inventory_path)
    return BenchFiles(plan_path, inventory_path, plan, inventory, expand(plan, inventory))


View = Callable[[Runner, StatusBoard, Path], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Sitting:
    """How a sitting ended.

    Attributes:
        jobs: Of the whole plan, optional ones included.
        left: Neither finished nor unnecessary.
        built: Profiles of a complete run.
    """

    path: Path
    tally: JobOutcomes
    jobs: int
    left: int
    built: Built = field(default_factory=Built)


def sit(
    files: BenchFiles,
    root: Path,
    *,
    resume: Path | None = None,
    only: Sequence[str] = (),
    stop: threading.Event | None = None,
    view: View = lambda *_: nullcontext(),
    cache: Path | None = None,
) -> Sitting:
    """Run the jobs of a plan.

    Args:
        files: Plan and inventory.
        root: Folder of runs, for a new one.
        resume: A run to take up again.
        only: Do these jobs and leave the others for later.
        stop: Ends the sitting cleanly when set.
        view: Shows what is going on.
        cache: Folder of exported graphs.

    Raises:
        JoulefleetError: Jobs failed for good; the others are finished.
        KeyboardInterrupt: ``stop`` was set.
    """
    chosen = choose(files.jobs, only)
    workloads = Workloads(files.plan, {job.cell: None for job in chosen}, cache)
    path: Path | None = None
    try:
        with _open(files, root, resume) as run:
            path = run.path
            done = _work(run, files, chosen, workloads, stop or threading.Event(), view)
    finally:
        # Last of all, when the run is closed, and also when it failed: that is when people look.
        if path is not None:
            _describe(path)
    return done if done.left else replace(done, built=_build_profiles(done.path))


def _work(
    run: Run,
    files: BenchFiles,
    chosen: Sequence[BenchJob],
    workloads: Workloads,
    stop: threading.Event,
    view: View,
) -> Sitting:
    (run.path / "jobs").mkdir(exist_ok=True)
    journal = BenchJournal(run.journal(JOURNAL))
    try:
        take_up(run.path, journal)
        finished = finished_jobs(run.path, files.jobs)
        board = StatusBoard(plan_devices(files.plan, files.inventory))
        bench = Bench(
            run=run.path,
            run_id=run.record.run_id,
            plan=files.plan,
            inventory=files.inventory,
            inventory_path=files.inventory_path,
            workloads=workloads,
            board=board,
        )
        journal.write("sitting", jobs=len(chosen), finished_before=len(finished))
        runner = Runner(bench, run.path, journal, chosen, finished=finished)
        with HostLoadLog(run), view(runner, board, run.path):
            tally = runner.run(stop)
    finally:
        journal.close()
    left = _conclude(run, files, tally)
    return Sitting(run.path, tally, len(files.jobs), left)


def _build_profiles(path: Path) -> Built:
    """The profiles of a complete run, stored in it; the run stands, whatever becomes of them."""
    try:
        return build_run_profiles(path)
    except JoulefleetError as error:
        return Built(problems=(error.message,))
    except OSError as error:
        return Built(problems=(storage_error(path / PROFILES, error).message,))


def _describe(path: Path) -> None:
    """Page, test results and table beside the evidence; a failure here must not hide how the run ended."""
    from harness.outputs import write_outputs

    try:
        write_outputs(path)
    except JoulefleetError as error:
        log.warning("%s: no page was made: %s; `joulefleet report %s` tries again", path, error, path)


def _open(files: BenchFiles, root: Path, resume: Path | None) -> Run:
    if resume is None:
        config = {
            "plan.toml": files.plan_path.read_text(encoding="utf-8"),
            "devices.toml": files.inventory_path.read_text(encoding="utf-8"),
        }
        return RunStore(root).create(
            files.plan.name, kind="bench", config=config, fingerprint=files.fingerprint
        )
    record = read_run(resume)
    if record.status is RunStatus.RUNNING and record.fingerprint == files.fingerprint:
        salvage(resume)  # it was killed; refused if it is alive
    run = RunStore(resume.parent).resume(resume, fingerprint=files.fingerprint)
    _keep_inventory(resume / "config", files.inventory_path.read_text(encoding="utf-8"))
    return run


def _keep_inventory(config: Path, text: str) -> None:
    """Keep every inventory that a run was resumed with, where it differs: addresses may have changed."""
    known = sorted(config.glob("devices*.toml"))
    if all(path.read_text(encoding="utf-8") != text for path in known):
        write_atomic(config / f"devices-{len(known) + 1}.toml", text.encode())


def _conclude(run: Run, files: BenchFiles, tally: JobOutcomes) -> int:
    """The run's final status follows from how its jobs ended. Returns how many were not asked for."""
    if tally.stopped:
        raise KeyboardInterrupt
    if tally.failed:
        name, why = next(iter(tally.failed.items()))
        raise JoulefleetError(
            f"{len(tally.failed)} of {len(files.jobs)} jobs failed, the first one {name}: {why}",
            hint=f"see {run.path / 'failed'}; to try them again: {files.command(run.path)}",
        )
    left = len(files.jobs) - len(tally.finished) - len(tally.not_needed)
    if left:
        run.leave_open(f"{left} of {len(files.jobs)} jobs were not asked for")
    return left
