"""`joulefleet bench run`: the jobs of a plan, until they are done, a session waits or someone stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from emulator.own_code import use_code
from harness.bench.job.attempt import WAITING
from harness.bench.job.workload import Workloads
from harness.bench.journal import JOURNAL, JobHistory, job_histories, tell
from harness.bench.matrix import BenchJob, choose, expand, fingerprint
from harness.bench.plan import Plan, load_plan
from harness.bench_run.disk import require_disk
from harness.bench_run.job_threads import JobOutcomes, Runner
from harness.bench_run.sessions import NextSession, has_begun, sessions_to_do, wait_for, waits_for
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
from joulefleet.errors import ConfigError, JoulefleetError, StorageError
from joulefleet.files import storage_error
from joulefleet.runstore import Run

KIND = "bench"
PLAN_FILE = "plan.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFiles(RunFiles):
    """A plan and its inventory.

    Attributes:
        jobs: All jobs of the plan.
        own_code: The files of the user's own that it was given.
    """

    plan: Plan
    jobs: tuple[BenchJob, ...]
    own_code: tuple[Path, ...] = ()


def read_bench_files(plan_path: Path, inventory_path: Path, code: Sequence[Path] = ()) -> BenchFiles:
    """Read and check a plan, its inventory and the user's own code; touches nothing else."""
    own = use_code(*code).files if code else {}
    plan, inventory = load_plan(plan_path), load_inventory(inventory_path)
    return BenchFiles(
        kind=KIND,
        name=plan.name,
        config=texts({PLAN_FILE: plan_path, INVENTORY_FILE: inventory_path}),
        words=(
            *("bench", "run", str(plan_path), "--inventory", str(inventory_path)),
            *(word for path in code for word in ("--code", str(path))),
        ),
        fingerprint=fingerprint(plan, inventory, {name: one.sha256 for name, one in own.items()}),
        bench_plan=plan,
        inventory_path=inventory_path,
        inventory=inventory,
        plan=plan,
        jobs=expand(plan, inventory),
        own_code=tuple(code),
    )


View = Callable[[Session, Runner], AbstractContextManager[None]]
"""Shows what is going on while the context lasts; it may become the session's listener."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """How far a bench run came.

    Attributes:
        outcomes: Of the jobs.
        jobs: Of the whole plan, optional ones included.
        left: Neither finished nor unnecessary.
        coming: The session that has to wait; None if nothing has to.
        built: Profiles of a complete run.
    """

    path: Path
    outcomes: JobOutcomes
    jobs: int
    left: int
    coming: NextSession | None = None
    built: Built = field(default_factory=Built)


@dataclass(frozen=True, slots=True)
class Pace:
    """What becomes of a session that would begin too early, and of a job whose meter is in use.

    Attributes:
        wait: They wait. Otherwise the run ends after the session before, and a resumed one refuses; a job
            fails and is tried again as the plan says.
        now: It begins all the same, once; the journal and its profiles tell that it was closer than asked.
        announce: Told what is waited for, and in which run.
    """

    wait: bool = False
    now: bool = False
    announce: Callable[[NextSession, Path], None] = lambda *_: None


IN_TIME = Pace()


def run_bench(
    files: BenchFiles,
    root: Path,
    *,
    resume: Path | None = None,
    only: Sequence[str] = (),
    pace: Pace = IN_TIME,
    stop: threading.Event | None = None,
    view: View = lambda *_: nullcontext(),
    outputs: RunOutputs = NO_OUTPUTS,
    cache: Path | None = None,
) -> BenchResult:
    """Run the jobs of a plan; if it has sessions, those that may begin.

    Args:
        files: Plan and inventory.
        root: Folder of runs, for a new one.
        resume: A run to take up again.
        only: Do these jobs and leave the others for later.
        pace: What becomes of a session that would begin too early.
        stop: Ends the run cleanly when set.
        view: Shows what is going on.
        outputs: What is written beside the evidence.
        cache: Folder of exported graphs.

    Raises:
        ConfigError: The next session of the run to resume may not begin yet.
        JoulefleetError: Jobs failed for good; the others are finished.
        KeyboardInterrupt: ``stop`` was set.
    """
    stop = stop or threading.Event()
    chosen = choose(files.jobs, only)
    require_disk(files, files.plan, chosen, root, resume)
    workloads = Workloads(files.plan, {job.cell: None for job in chosen}, cache)
    coming = None if resume is None else _too_early(files, chosen, resume, pace)
    while True:
        if coming is not None and resume is not None:
            tell(pace.announce, coming, resume)
            wait_for(coming, stop)
        with open_session(files, root, resume=resume, outputs=outputs, wait_for_meters=pace.wait) as session:
            outcomes, coming = _work(session, files, chosen, workloads, pace, stop, view)
            left = _conclude(session.run, files, outcomes, coming, keep_on=pace.wait)
        resume = session.path
        if coming is None or not pace.wait:
            break
        pace = replace(pace, now=False)
    done = BenchResult(resume, outcomes, len(files.jobs), left, coming)
    return done if left else replace(done, built=_build_profiles(done.path))


def _histories(files: BenchFiles, run: Path) -> dict[str, JobHistory]:
    """What was done so far, as far as the plan allows for it."""
    path = run / f"{JOURNAL}.jsonl"
    found = job_histories(path)
    spared = [name for name, history in found.items() if history.state == "not_needed"]
    if spared and files.plan.repetitions.until_relative is None:
        raise StorageError(f"{path}: says that {spared[0]} is not needed, and the plan asks for every job")
    return found


def _too_early(files: BenchFiles, chosen: Sequence[BenchJob], resume: Path, pace: Pace) -> NextSession | None:
    """The session that a resumed run has to wait for; refused unless it is to be waited for or begun now."""
    histories = _histories(files, resume)
    finished = {name for name, history in histories.items() if history.state == "finished"}
    number = next(iter(sessions_to_do(chosen, histories, finished)), None)
    coming = waits_for(number, files.jobs, histories, files.plan.repetitions)
    if coming is None or pace.now:
        return None
    if not pace.wait:
        raise ConfigError(
            f"{resume}: too early for {coming.text}",
            hint="come back then, wait with --wait, or begin with --now (marked as closer than asked)",
        )
    return coming


def _work(
    session: Session,
    files: BenchFiles,
    chosen: Sequence[BenchJob],
    workloads: Workloads,
    pace: Pace,
    stop: threading.Event,
    view: View,
) -> tuple[JobOutcomes, NextSession | None]:
    """The sessions that may begin, one after the other; then what has to wait."""
    whole = {folder.name: folder for folder in job_folders(session.path) if is_whole(folder)}
    session.put_aside_unfinished(whole)
    outcomes = JobOutcomes(finished={job.name: whole[job.name] for job in files.jobs if job.name in whole})
    before = _histories(files, session.path)
    now = pace.now
    for number, jobs in sessions_to_do(chosen, before, outcomes.finished).items():
        # What is made up for of an earlier session does not put off one that may begin.
        late = number is not None and has_begun(number - 1, files.jobs, before)
        histories = before if late else _histories(files, session.path)
        coming = waits_for(number, files.jobs, histories, files.plan.repetitions)
        if coming is not None and not now:
            session.note("waiting", note=coming.text, from_utc=coming.from_utc.isoformat())
            return outcomes, coming
        # A session that was begun before and goes on is not the one that was meant.
        now = now and number is not None and has_begun(number, files.jobs, before)
        # All names: whoever asks for the state of the run need not expand the plan.
        planned = files.plan.repetitions.sessions
        session.note(
            "session",
            note=None if number is None else f"{number} of {planned}",
            session=number,
            jobs=len(jobs),
            finished_before=len(outcomes.finished),
            closer_than_asked_s=None if coming is None else coming.early_s,
            planned=[job.name for job in files.jobs],
        )
        finished = {job.name: whole[job.name] for job in jobs if job.name in whole}
        runner = Runner(session.bench, workloads, jobs, finished=finished)
        with view(session, runner):
            outcomes.add(runner.run(stop))
        if outcomes.stopped:
            break
    return outcomes, None


def _build_profiles(path: Path, without: Container[tuple[str, str, str]] = ()) -> Built:
    """The profiles of a run, stored in it; the run stands, whatever becomes of them."""
    try:
        return build_run_profiles(path, without=without)
    except JoulefleetError as error:
        return Built(problems=(error.message,))
    except OSError as error:
        return Built(problems=(storage_error(path / PROFILES, error).message,))


def _built_of_the_others(path: Path, jobs: Sequence[BenchJob], outcomes: JobOutcomes) -> str:
    """Build the profiles of the cells that were measured to the end; says which."""
    over = {*outcomes.finished, *outcomes.not_needed}
    cells = [job.cell for job in jobs if job.name not in over]
    built = _build_profiles(path, without={(cell.device, cell.model, cell.backend) for cell in cells})
    places = ", ".join(stored.place for stored in built.profiles)
    return f"; profiles of the others: {places}" if places else ""


def _conclude(
    run: Run, files: BenchFiles, outcomes: JobOutcomes, coming: NextSession | None, *, keep_on: bool
) -> int:
    """The run's final status follows from how its jobs ended. Returns how many are left.

    With ``keep_on`` what failed is tried again before the coming session, rather than ending the run.
    """
    if outcomes.stopped:
        raise KeyboardInterrupt
    if outcomes.failed and not (keep_on and coming is not None):
        name, why = next(iter(outcomes.failed.items()))
        wait = " --wait (for meters in use)" if WAITING in why else ""
        raise JoulefleetError(
            f"{len(outcomes.failed)} of {len(files.jobs)} jobs failed, the first one {name}: {why}",
            hint=f"see {run.path / 'failed'}; to try them again: {files.command(run.path)}{wait}"
            + _built_of_the_others(run.path, files.jobs, outcomes),
        )
    histories = _histories(files, run.path)
    spared = {
        job.name
        for job in files.jobs
        if job.session is not None and job.name in histories and histories[job.name].state == "not_needed"
    }
    left = len(files.jobs) - len(outcomes.finished) - len(spared.union(outcomes.not_needed))
    if left:
        asked = f"{left} of {len(files.jobs)} jobs were not asked for"
        run.leave_open(asked if coming is None else f"waits for {coming.text}")
    return left
