"""One session at a run on the bench: opened anew or resumed, noted in its journal, described at its end.

`joulefleet bench run`, `probing validate` and `bench federate` differ in what they do in between.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.bench.job.attempt import Bench
from harness.bench.job.failures import attempts_before, killed_record, put_aside
from harness.bench.job.live_status import StatusBoard
from harness.bench.journal import JOBS, JOURNAL, BenchJournal, Listener, job_histories, tell
from harness.bench.live_check import require_ready_meters
from harness.bench.matrix import plan_devices
from harness.bench.plan import Plan
from harness.evidence.capture import salvage
from harness.inventory import Inventory
from harness.rounds.host_load import HostLoadLog
from joulefleet.errors import JoulefleetError, StorageFull
from joulefleet.files import write_atomic
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.run import read_run

log = logging.getLogger(__name__)

INVENTORY_FILE = "devices.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What a person wrote for a run on the bench, read and checked.

    Attributes:
        kind: Of the run.
        name: Part of the run's folder.
        config: Text of each file, by the name under which the run keeps it.
        words: The command that begins such a run.
        fingerprint: Hash of what decides the results.
        bench_plan: How the jobs of the run are measured.
        inventory_path: Where the devices are listed; beside it lie the pinned host keys.
        inventory: The devices.
    """

    kind: str
    name: str
    config: Mapping[str, str]
    words: tuple[str, ...]
    fingerprint: str
    bench_plan: Plan
    inventory_path: Path
    inventory: Inventory

    def command(self, run: Path) -> str:
        """The command that takes a run up again."""
        return shlex.join(["joulefleet", *self.words, "--resume", str(run)])


def texts(paths: Mapping[str, Path | None]) -> dict[str, str]:
    """What stands in some files, by the names under which a run keeps them; None is passed over."""
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path is not None}


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """What layers above write beside the evidence; a failure there costs no evidence.

    Attributes:
        of_capture: Given the folder of each new capture.
        of_run: Given the run's folder at the end of the session, also if that failed.
    """

    of_capture: Callable[[Path], object] = lambda _: None
    of_run: Callable[[Path], object] = lambda _: None


NO_OUTPUTS = RunOutputs()


class Session:
    """A run that is open.

    Attributes:
        run: The run.
        bench: What its jobs share.
        listener: Told what happens to which job or round; may be replaced.
    """

    def __init__(
        self,
        run: Run,
        files: RunFiles,
        outputs: RunOutputs,
        listener: Listener,
        *,
        board: StatusBoard | None = None,
        wait_for_meters: bool = False,
    ) -> None:
        self.run = run
        self.listener = listener
        self._journal = BenchJournal(run.journal(JOURNAL))
        self.bench = Bench(
            run=run.path,
            run_id=run.record.run_id,
            plan=files.bench_plan,
            inventory=files.inventory,
            inventory_path=files.inventory_path,
            board=board or StatusBoard(plan_devices(files.bench_plan, files.inventory)),
            wait_for_meters=wait_for_meters,
            note=self._note_job,
            on_capture=outputs.of_capture,
        )

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    def note(self, event: str, name: str = "", /, **facts: object) -> None:
        """Something happened to a round, or to the run."""
        about = {"round": name} if name else {}
        self._journal.write(event, **about, **facts)
        tell(self.listener, event, name, facts)

    def _note_job(self, event: str, name: str, /, **facts: object) -> None:
        self._journal.write(event, job=name, **facts)
        tell(self.listener, event, name, facts)

    def put_aside_unfinished(self, whole: Container[str]) -> None:
        """Put every job aside that a kill has left half done: those that are not among ``whole``."""
        histories = job_histories(self.path / f"{JOURNAL}.jsonl")
        for folder in job_folders(self.path):
            name = folder.name
            if name in whole:
                continue
            stage = histories[name].stage if name in histories else ""
            record = killed_record(name, attempts_before(self.path, name) + 1, stage)
            put_aside(self.path, folder, record)
            self._journal.write("killed", job=name, attempt=record.attempt, stage=stage)

    def close(self) -> None:
        """No more notes."""
        self._journal.close()


@contextlib.contextmanager
def open_session(
    files: RunFiles,
    root: Path,
    *,
    resume: Path | None = None,
    outputs: RunOutputs = NO_OUTPUTS,
    listener: Listener = lambda *_: None,
    board: StatusBoard | None = None,
    wait_for_meters: bool = False,
) -> Iterator[Session]:
    """Open a run, or take one up again, for as long as the context lasts.

    Args:
        files: What a person wrote.
        root: Folder of runs, for a new one.
        resume: A run to take up again.
        outputs: What is written beside the evidence.
        listener: Told what happens to which job or round.
        board: Where the devices' state is written; a new one if None.
        wait_for_meters: Whether a job waits for a meter that another process holds, rather than failing.

    Raises:
        ConfigError: The run to resume was begun with something else.
        MeterError: A meter is set so that no recording could begin; there is no run then.
    """
    require_ready_meters(files.bench_plan, files.inventory)
    path: Path | None = None
    try:
        with _open(files, root, resume) as run:
            path = run.path
            (path / JOBS).mkdir(exist_ok=True)
            tell(listener, "run", str(path), {})
            opened = Session(run, files, outputs, listener, board=board, wait_for_meters=wait_for_meters)
            with contextlib.closing(opened) as session, HostLoadLog(run):
                yield session
    except StorageFull as error:
        if path is not None:
            error.hint = f"free some space; to go on: {files.command(path)}"
        raise
    finally:
        # Last of all, when the run is closed, and also when it failed: that is when people look.
        if path is not None:
            _describe(path, outputs)


def _open(files: RunFiles, root: Path, resume: Path | None) -> Run:
    if resume is None:
        return RunStore(root).create(
            files.name, kind=files.kind, config=files.config, fingerprint=files.fingerprint
        )
    record = read_run(resume)
    if record.status is RunStatus.RUNNING and record.fingerprint == files.fingerprint:
        salvage(resume)  # it was killed; refused if it is alive
    run = RunStore(resume.parent).resume(resume, fingerprint=files.fingerprint)
    _keep_inventory(resume / "config", files.config[INVENTORY_FILE])
    return run


def _keep_inventory(config: Path, text: str) -> None:
    """Keep every inventory that a run was resumed with, where it differs: addresses may have changed."""
    known = sorted(config.glob("devices*.toml"))
    if all(path.read_text(encoding="utf-8") != text for path in known):
        write_atomic(config / f"devices-{len(known) + 1}.toml", text.encode(), mode=0o600)


def _describe(path: Path, outputs: RunOutputs) -> None:
    """Page and tables; a failure here must not hide how the run ended."""
    try:
        outputs.of_run(path)
    except JoulefleetError as error:
        log.warning("%s: no page was made: %s; `joulefleet report %s` tries again", path, error, path)


def job_folders(run: Path) -> list[Path]:
    """Of all jobs that are finished or were begun."""
    return sorted(path for path in (run / JOBS).glob("*") if path.is_dir())
