"""The store: a folder of runs, each named ``<utc>_<name>_<id>``."""

from __future__ import annotations

import contextlib
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joulefleet.errors import ConfigError, JoulefleetError, StorageError
from joulefleet.files import new_folder, write_atomic
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore.folder import check_folder
from joulefleet.runstore.notes import read_notes, tags
from joulefleet.runstore.run import (
    RUN_FILE,
    Run,
    RunLock,
    RunRecord,
    RunStatus,
    host_facts,
    is_locked,
    read_run,
)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of ``joulefleet runs list``. ``record`` is None when ``run.json`` cannot be read."""

    path: Path
    record: RunRecord | None
    alive: bool
    problem: str = ""
    tags: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """The status a person should read: a run without a living writer is not running."""
        if self.record is None:
            return "unreadable"
        if self.record.status is RunStatus.RUNNING and not self.alive:
            return "killed"
        return self.record.status.value

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        record = self.record
        return {
            "path": str(self.path),
            "state": self.state,
            "name": record.name if record else None,
            "kind": record.kind if record else None,
            "created_utc": record.created_utc.isoformat() if record else None,
            "tags": list(self.tags),
            "problem": self.problem,
        }


class RunStore:
    """Runs under one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(
        self,
        name: str,
        *,
        kind: str,
        config: Mapping[str, str] | None = None,
        fingerprint: str = "",
        facts: Mapping[str, str] | None = None,
        records: Mapping[str, StoredRecord] | None = None,
    ) -> Run:
        """A new run directory, complete with all that its resume needs before anyone can see it.

        Args:
            name: Of the run.
            kind: What it is.
            config: Texts by the name of their file in ``config/``.
            fingerprint: Of what decides its result.
            facts: About what makes it, beside those of the host.
            records: By file name, such as its plan.
        """
        record = _begun(name, kind, fingerprint, facts)
        path = self._path(record)
        # Built under a hidden name and renamed, so that a kill in between leaves no half-made run.
        with new_folder(path) as hidden:
            write_record(hidden / RUN_FILE, record)
            for file, other in (records or {}).items():
                write_record(hidden / file, other)
            (hidden / "config").mkdir()
            for file, text in (config or {}).items():
                # Addresses, users, key files: not for others of this machine.
                write_atomic(hidden / "config" / file, text.encode(), mode=0o600)
            lock = RunLock(hidden)
        return Run(path, record, lock)

    @contextlib.contextmanager
    def create_whole(self, name: str, *, kind: str) -> Iterator[tuple[Path, Path]]:
        """A run that is made in one go: it appears, complete, when everything went well, and else never was.

        Gives its folder, and the one to write into.
        """
        record = _begun(name, kind)
        path = self._path(record)
        with new_folder(path) as hidden:
            yield path, hidden
            over = {"status": RunStatus.COMPLETE, "ended_utc": datetime.now(UTC)}
            write_record(hidden / RUN_FILE, record.model_copy(update=over))

    def _path(self, record: RunRecord) -> Path:
        return self.root / f"{record.created_utc:%Y%m%dT%H%M%SZ}_{record.name}_{record.run_id}"

    def resume(self, path: Path, *, fingerprint: str, complete: bool = False) -> Run:
        """Take a run up again that was killed, interrupted, salvaged or failed.

        Args:
            path: Its folder.
            fingerprint: Of what is to be run.
            complete: Whether it may be complete: more is added to it.

        Raises:
            ConfigError: Its fingerprint differs: something that decides the result has changed.
            StorageError: It is complete, or another process is writing it.
        """
        record = read_run(path)
        if record.fingerprint != fingerprint:
            raise ConfigError(
                f"{path}: was started with another configuration (fingerprint {record.fingerprint[:12]} "
                f"against {fingerprint[:12]})",
                hint="start a new run, or restore the configuration kept in its config/ folder",
            )
        if record.status is RunStatus.COMPLETE and not complete:
            raise StorageError(f"{path}: is complete, nothing to resume")
        lock = RunLock(path)
        record = record.model_copy(update={"status": RunStatus.RUNNING, "ended_utc": None, "error": ""})
        write_record(path / RUN_FILE, record, replace=True)
        return Run(path, record, lock)

    def list(self) -> list[RunSummary]:
        """All runs, oldest first; an unreadable one is listed with its problem, never skipped."""
        if not self.root.is_dir():
            return []
        folders = (p for p in sorted(self.root.iterdir()) if p.is_dir() and not p.name.startswith("."))
        return [summarise(path) for path in folders]


def _begun(name: str, kind: str, fingerprint: str = "", facts: Mapping[str, str] | None = None) -> RunRecord:
    return RunRecord(
        run_id=secrets.token_hex(4),
        name=name,
        kind=kind,
        status=RunStatus.RUNNING,
        created_utc=datetime.now(UTC),
        fingerprint=fingerprint,
        command=(Path(sys.argv[0]).name, *sys.argv[1:]) if sys.argv else (),
        host=host_facts() | dict(facts or {}),
    )


def summarise(path: Path) -> RunSummary:
    """Look at one run directory without failing."""
    try:
        if not stat.S_ISREG((path / RUN_FILE).lstat().st_mode):  # a pipe would never answer
            return RunSummary(path, None, alive=False, problem=f"{RUN_FILE} is no plain file")
        record = read_record(path / RUN_FILE, RunRecord)
    except OSError as error:
        return RunSummary(path, None, is_locked(path), problem=f"{RUN_FILE}: {error.strerror or error}")
    except JoulefleetError as error:
        return RunSummary(path, None, is_locked(path), problem=error.message)
    try:
        return RunSummary(path, record, is_locked(path), tags=tags(read_notes(path)))
    except (JoulefleetError, OSError) as error:  # no reason to hide the run
        return RunSummary(path, record, is_locked(path), problem=str(error))


def find_run(root: Path, reference: str) -> Path:
    """A run by path, directory name, or unambiguous id or name.

    Raises:
        StorageError: Nothing matches, several runs do, or something in it leads out of it.
    """
    found = _match(root, reference)
    check_folder(found)
    return found


def _match(root: Path, reference: str) -> Path:
    for direct in (Path(reference), root / reference):
        if (direct / RUN_FILE).is_file():
            return direct
    matches = [run.path for run in RunStore(root).list() if reference in run.path.name.split("_")]
    if len(matches) == 1:
        return matches[0]
    problem = f"{len(matches)} runs match" if matches else "no run matches"
    hint = f"`joulefleet runs list --root {root}` shows them"
    raise StorageError(f"{problem} {reference!r} in {root}", hint=hint)
