"""`joulefleet bench run`: the jobs of a plan, until they are done or someone stops it; then its profiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bench.job.workload import Workloads
from harness.bench.matrix import BenchJob, choose, expand, fingerprint
from harness.bench.plan import Plan, load_plan
from harness.bench_run.job_threads import JobOutcomes, Runner
from harness.evidence.capture import is_whole
from harness.inventory import load_inventory
from harness.profiles.library import PROFILES, Built, build_run_profiles
from harness.rounds.session import (
    INVENTORY_FILE,
    NO_OUTPUTS,
    RunFiles,
    RunOutputs,
    Session,
    job_folders,
    open_session,
    texts,
)
from joulefleet.errors import JoulefleetError
from joulefleet.records import storage_error
from joulefleet.runstore import Run

KIND = "bench"
PLAN_FILE = "plan.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFiles(RunFiles):
    """A plan and its inventory.

    Attributes:
        jobs: All jobs of the plan.
    """

    plan: Plan
    jobs: tuple[BenchJob, ...]


def read_bench_files(plan_path: Path, inventory_path: Path) -> BenchFiles:
    """Read and check a plan and its inventory; touches nothing else."""
    plan, inventory = load_plan(plan_path), load_inventory(inventory_path)
    return BenchFiles(
        kind=KIND,
        name=plan.name,
        config=texts({PLAN_FILE: plan_path, INVENTORY_FILE: inventory_path}),
        words=("bench", "run", str(plan_path), "--inventory", str(inventory_path)),
        fingerprint=fingerprint(plan, inventory),
        bench_plan=plan,
        inventory_path=inventory_path,
        inventory=inventory,
        plan=plan,
        jobs=expand(plan, inventory),
    )


View = Callable[[Session, Runner], AbstractContextManager[None]]
"""Shows what is going on while the context lasts; it may become the session's listener."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """How a session of a bench run ended.

    Attributes:
        outcomes: Of the jobs.
        jobs: Of the whole plan, optional ones included.
        left: Neither finished nor unnecessary.
        built: Profiles of a complete run.
    """

    path: Path
    outcomes: JobOutcomes
    jobs: int
    left: int
    built: Built = field(default_factory=Built)


def run_bench(
    files: BenchFiles,
    root: Path,
    *,
    resume: Path | None = None,
    only: Sequence[str] = (),
    stop: threading.Event | None = None,
    view: View = lambda *_: nullcontext(),
    outputs: RunOutputs = NO_OUTPUTS,
    cache: Path | None = None,
) -> BenchResult:
    """Run the jobs of a plan.

    Args:
        files: Plan and inventory.
        root: Folder of runs, for a new one.
        resume: A run to take up again.
        only: Do these jobs and leave the others for later.
        stop: Ends the session cleanly when set.
        view: Shows what is going on.
        outputs: What is written beside the evidence.
        cache: Folder of exported graphs.

    Raises:
        JoulefleetError: Jobs failed for good; the others are finished.
        KeyboardInterrupt: ``stop`` was set.
    """
    chosen = choose(files.jobs, only)
    workloads = Workloads(files.plan, {job.cell: None for job in chosen}, cache)
    with open_session(files, root, resume=resume, outputs=outputs) as session:
        outcomes = _work(session, files, chosen, workloads, stop or threading.Event(), view)
        left = _conclude(session.run, files, outcomes)
    done = BenchResult(session.path, outcomes, len(files.jobs), left)
    return done if left else replace(done, built=_build_profiles(done.path))


def _work(
    session: Session,
    files: BenchFiles,
    chosen: Sequence[BenchJob],
    workloads: Workloads,
    stop: threading.Event,
    view: View,
) -> JobOutcomes:
    whole = {folder.name: folder for folder in job_folders(session.path) if is_whole(folder)}
    session.put_aside_unfinished(whole)
    finished = {job.name: whole[job.name] for job in files.jobs if job.name in whole}
    # All names: whoever asks for the state of the run need not expand the plan.
    planned = [job.name for job in files.jobs]
    session.note("session", jobs=len(chosen), finished_before=len(finished), planned=planned)
    runner = Runner(session.bench, workloads, chosen, finished=finished)
    with view(session, runner):
        return runner.run(stop)


def _build_profiles(path: Path) -> Built:
    """The profiles of a complete run, stored in it; the run stands, whatever becomes of them."""
    try:
        return build_run_profiles(path)
    except JoulefleetError as error:
        return Built(problems=(error.message,))
    except OSError as error:
        return Built(problems=(storage_error(path / PROFILES, error).message,))


def _conclude(run: Run, files: BenchFiles, outcomes: JobOutcomes) -> int:
    """The run's final status follows from how its jobs ended. Returns how many were not asked for."""
    if outcomes.stopped:
        raise KeyboardInterrupt
    if outcomes.failed:
        name, why = next(iter(outcomes.failed.items()))
        raise JoulefleetError(
            f"{len(outcomes.failed)} of {len(files.jobs)} jobs failed, the first one {name}: {why}",
            hint=f"see {run.path / 'failed'}; to try them again: {files.command(run.path)}",
        )
    left = len(files.jobs) - len(outcomes.finished) - len(outcomes.not_needed)
    if left:
        run.leave_open(f"{left} of {len(files.jobs)} jobs were not asked for")
    return left
