"""Where the agent keeps things on the device: one folder per job, a cache of blobs, a log.

::

    <state>/agent.log
    <state>/lock                            held while a process works on any job
    <state>/cache/<sha256>
    <state>/jobs/<job id>/journal.jsonl     markers, decision, end
                          telemetry.jsonl   telemetry and power blocks
                          agent.log         what was printed during the job
                          model             what was downloaded
                          result            what is uploaded
                          lock              held while a process works on the job; contains its number
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from device_agents.payload.faults import JobFault
from device_agents.payload.recording.clocks import same_boot

_JOB_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # no separators: an id is never a path

FILES = {"journal": "journal.jsonl", "telemetry": "telemetry.jsonl", "log": "agent.log"}
"""What ``collect`` can ask for."""


def default_state() -> Path:
    """``$JOULEFLEET_STATE``, else a folder in the home directory. Never /tmp: Termux has none."""
    return Path(os.environ.get("JOULEFLEET_STATE") or Path.home() / ".joulefleet")


class JobFolder:
    """Everything about one job on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / FILES["journal"]
        self.telemetry = path / FILES["telemetry"]
        self.log = path / FILES["log"]
        self.model = path / "model"
        self.result = path / "result"
        self._lock = path / "lock"

    def create(self) -> int:
        """Make the folder and lock it. Returns the descriptor that holds the lock until it is closed.

        Raises:
            JobFault: There is a job of this name already.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            raise JobFault("bad_job", f"there is already a job {self.path.name!r} on this device") from None
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, str(os.getpid()).encode())  # before the lock: who finds it held finds the number, too
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def worker(self) -> int | None:
        """The process that works on the job now, or None. The kernel frees the lock however it dies."""
        with open(self._lock, "rb") as file:  # noqa: PTH123 - the descriptor is what matters
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
        return None

    def wait(self) -> None:
        """Block until no process works on the job."""
        with open(self._lock, "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_SH)

    def first_and_last(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first and the last complete record of the journal; empty if there is none."""
        with contextlib.suppress(OSError, ValueError):
            lines = self.journal.read_bytes().rpartition(b"\n")[0].split(b"\n")
            return json.loads(lines[0]), json.loads(lines[-1])
        return {}, {}

    def status(self, now: dict[str, Any]) -> dict[str, Any]:
        """What is known about the job; ``now`` holds this boot's ``boot_id`` and ``clock``."""
        first, last = self.first_and_last()
        if self.worker() is not None:
            state = "running"
        elif last.get("type") == "done":
            state = "done"
        else:
            state = "died" if not first or same_boot(first, now) else "rebooted"
        sizes = {f"{name}_bytes": _size(self.path / file) for name, file in FILES.items()}
        return {"state": state, "result": last.get("result"), **sizes}


class StateFolder:
    """The agent's folder on the device."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        self.log = root / "agent.log"
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)

    def new_job(self, job_id: object) -> JobFolder:
        """The folder of a job that does not exist yet.

        Raises:
            JobFault: That is no job id.
        """
        if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
            raise JobFault("bad_job", f"{job_id!r:.80} is not a job id")
        return JobFolder(self.root / "jobs" / job_id)

    def job(self, job_id: object) -> JobFolder:
        """The folder of a job that exists.

        Raises:
            JobFault: There is none.
        """
        folder = self.new_job(job_id)
        if not (folder.path / "lock").exists():
            raise JobFault("unknown_job", f"no job {job_id!r} on this device")
        return folder

    @contextlib.contextmanager
    def working_on(self, job_id: object) -> Iterator[JobFolder]:
        """The folder of a new job, and for that time the whole device: two jobs would be measured as one.

        Raises:
            JobFault: That is no job id, or not a new one; ``busy`` if another process works on a job.
        """
        folder = self.new_job(job_id)
        device = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.require_free()
                raise JobFault("busy", "another job begins or ends at this moment") from None
            job = folder.create()
        except BaseException:
            os.close(device)
            raise
        try:
            yield folder
        finally:
            os.close(device)  # first: who waits for the job may begin the next one at once
            os.close(job)

    def require_free(self) -> None:
        """Make sure that no process works on a job.

        Raises:
            JobFault: ``busy``: one does; says which.
        """
        for lock in (self.root / "jobs").glob("*/lock"):
            worker = None
            with contextlib.suppress(FileNotFoundError):  # forgotten by another process meanwhile
                worker = JobFolder(lock.parent).worker()
            if worker is not None:
                how = f"wait until it ends, or end it there: kill {worker}"
                raise JobFault("busy", f"job {lock.parent.name!r} is running on the device ({how})")

    def forget(self, job_id: object) -> None:
        """Remove a job that no process works on.

        Raises:
            JobFault: There is none, or it is still running.
        """
        folder = self.job(job_id)
        if folder.worker() is not None:
            raise JobFault("busy", f"job {job_id!r} is still running")
        shutil.rmtree(folder.path)

    def clear_cache(self) -> int:
        """Remove every cached blob. Returns the bytes freed."""
        files = list(self.cache.iterdir())
        freed = sum(_size(file) for file in files)
        for file in files:
            file.unlink()
        return freed


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
