"""One run: a locked directory with a record of what it is, its tables, journals and log."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import platform
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

import joulefleet
from joulefleet.errors import StorageError, describe
from joulefleet.files import storage_error
from joulefleet.printable import PrintableFormatter
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore.folder import check_folder, open_plain, plain_opener
from joulefleet.runstore.journal import Journal
from joulefleet.runstore.table import TableWriter

if TYPE_CHECKING:
    import pyarrow as pa

RUN_FILE = "run.json"
LOCK_FILE = ".lock"


class RunStatus(StrEnum):
    """How a run stands. A run that is ``running`` but whose lock is free was killed."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SALVAGED = "salvaged"


class RunRecord(StoredRecord):
    """``run.json``: what this directory is, without opening anything else.

    Attributes:
        fingerprint: Hash of all that decides the result; ``--resume`` refuses another one.
        host: Facts about the machine: operating system, Python, package versions.
    """

    run_id: str
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    kind: str
    status: RunStatus
    created_utc: datetime
    ended_utc: datetime | None = None
    fingerprint: str = ""
    command: tuple[str, ...] = ()
    host: dict[str, str] = Field(default_factory=dict)
    error: str = ""


def host_facts() -> dict[str, str]:
    """What a reader needs to judge or repeat a run on another machine."""
    facts = {
        "system": platform.platform(),
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
        "python": platform.python_version(),
    }
    facts["version"] = joulefleet.__version__
    for package in ("numpy", "scipy", "pyarrow", "torch", "onnxruntime"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


class _RunLogHandler(logging.FileHandler):
    """``run.log``; a full disk silences it, and the append that really matters says why."""

    def _open(self) -> Any:
        return open(self.baseFilename, "a", encoding="utf-8", opener=plain_opener())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Do not print a traceback per message."""


class Run:
    """A run that this process is writing. Use as a context manager: leaving it sets the final status."""

    def __init__(self, path: Path, record: RunRecord, lock: RunLock) -> None:
        self.path = path
        self.record = record
        self._lock = lock
        self._left_open = ""
        log = path / "run.log"
        if log.exists():  # found now, not in the middle of the work by the first line that is logged
            os.close(open_plain(log, os.O_RDONLY))
        self._log = _RunLogHandler(log, delay=True)
        self._log.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def __enter__(self) -> Run:
        logging.getLogger().addHandler(self._log)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None and self._left_open:
                self._finish(RunStatus.INTERRUPTED, self._left_open)
            elif kind is None:
                self._finish(RunStatus.COMPLETE)
            elif issubclass(kind, KeyboardInterrupt):
                self._finish(RunStatus.INTERRUPTED, "interrupted")
            else:
                self._finish(RunStatus.FAILED, describe(error or kind()))
        finally:
            logging.getLogger().removeHandler(self._log)
            with contextlib.suppress(OSError):  # a full disk refuses even the last line of the log
                self._log.close()
            self._lock.close()

    def leave_open(self, why: str) -> None:
        """Leave the run so that it can be resumed although nothing failed: a part of it was not asked for."""
        self._left_open = why

    def note(self, **facts: str) -> None:
        """Add facts about what makes this run; they are on disk at once."""
        self.record = self.record.model_copy(update={"host": {**self.record.host, **facts}})
        write_record(self.path / RUN_FILE, self.record, replace=True)

    def table(self, name: str, schema: pa.Schema, *, folder: str = "", resume: bool = False) -> TableWriter:
        """A new bulk table; with ``resume`` one that continues where a killed run stopped."""
        return TableWriter(self.subfolder(folder), name, schema, resume=resume)

    def journal(self, name: str, *, folder: str = "") -> Journal:
        """A journal of JSON lines."""
        return Journal(self.subfolder(folder) / f"{name}.jsonl")

    def subfolder(self, folder: str) -> Path:
        """A folder inside the run, made if missing; refuses to leave the run."""
        root = self.path.resolve()
        path = root / folder
        # Resolved, a path through a link or with ".." is another one.
        if path.resolve() != path or not path.is_relative_to(root):
            raise StorageError(f"{folder!r} leads out of the run {self.path}")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error
        return path

    def _finish(self, status: RunStatus, error: str = "") -> None:
        self.record = self.record.model_copy(
            update={"status": status, "ended_utc": datetime.now(UTC), "error": error}
        )
        try:
            write_record(self.path / RUN_FILE, self.record, replace=True)
        except StorageError:
            # With a full disk the status stays `running`; the released lock says the run is over.
            if status is RunStatus.COMPLETE:
                raise
            logging.getLogger(__name__).warning("could not store the status of %s", self.path)


class RunLock:
    """An advisory lock on a run directory; the kernel frees it when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = open_plain(path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise StorageError(
                f"{path}: another process is writing this run", hint="wait for it, or stop that process"
            ) from error

    def close(self) -> None:
        """Let others take the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(path: Path) -> bool:
    """Whether a living process is writing this run."""
    try:
        fd = open_plain(path / LOCK_FILE, os.O_RDONLY)
    except (OSError, StorageError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def read_run(path: Path) -> RunRecord:
    """The record of a run directory that is about to be opened.

    Raises:
        StorageError: It is none, or something in it leads out of it.
    """
    check_folder(path)
    return read_record(path / RUN_FILE, RunRecord)
