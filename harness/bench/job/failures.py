"""Failed attempts: what there is of them is kept under ``failed/``, with why; on the device they are ended.

A link that was cut may be noticed late on the other side. Until then the old job goes on, and would be
measured together with the new one. So would a job of another run, which is not ours to end.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path

from device_agents import AgentSession, JobRecord
from harness.bench.job.telemetry import write_telemetry
from harness.evidence.capture import TELEMETRY
from joulefleet.errors import (
    DataQualityError,
    DeviceError,
    DeviceUnreachable,
    JoulefleetError,
    StorageError,
    describe,
)
from joulefleet.files import storage_error
from joulefleet.records import StoredRecord, write_record
from joulefleet.runstore import Journal
from power.recording import OPENING_FILE, salvage_recording

log = logging.getLogger(__name__)

ATTEMPT_FILE = "attempt.json"
FAILED = "failed"


class AttemptRecord(StoredRecord):
    """``attempt.json``: why an attempt did not become a capture.

    Attributes:
        job: Name of the job.
        attempt: From 1 on.
        stage: In which it failed.
        error_type: Class of the error; ``Stopped`` for the user, ``Killed`` for an attempt found on resume.
        transient: Whether a retry may cure it.
        trace: Where in the program, for reports of bugs.
        recording_problem: Why its recording could not be made whole; empty if it could, or there is none.
    """

    job: str
    attempt: int
    stage: str
    utc: datetime
    error_type: str
    message: str
    hint: str = ""
    transient: bool = False
    trace: str = ""
    recording_problem: str = ""


def retryable(error: BaseException) -> bool:
    """Whether trying again may help: what is transient, or data that came out bad."""
    return isinstance(error, JoulefleetError) and (error.transient or isinstance(error, DataQualityError))


def ends_the_run(error: BaseException) -> bool:
    """Whether no other job can succeed either: nothing can be stored any more."""
    return isinstance(error, StorageError)


def failed_record(job: str, attempt: int, stage: str, error: BaseException) -> AttemptRecord:
    """Why an attempt failed."""
    return AttemptRecord(
        job=job,
        attempt=attempt,
        stage=stage,
        utc=datetime.now(UTC),
        error_type=type(error).__name__,
        message=describe(error),
        hint=error.hint if isinstance(error, JoulefleetError) else "",
        transient=retryable(error),
        trace="".join(traceback.format_exception(error))[-20_000:],
    )


def killed_record(job: str, attempt: int, stage: str) -> AttemptRecord:
    """An attempt that its process did not survive."""
    return AttemptRecord(
        job=job,
        attempt=attempt,
        stage=stage,
        utc=datetime.now(UTC),
        error_type="Killed",
        message="the run was killed during this attempt",
        transient=True,
    )


def put_aside(run: Path, folder: Path, record: AttemptRecord) -> Path:
    """Move an attempt to ``failed/`` with its reason, its recording made whole where that is possible.

    Raises:
        StorageError: Not even that can be stored.
    """
    problem = _salvage_problem(folder)
    kept = record.model_copy(update={"recording_problem": problem})
    write_record(folder / ATTEMPT_FILE, kept, replace=True)
    place = run / FAILED / f"{record.job}-attempt{record.attempt}"
    try:
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
    except OSError as error:
        raise storage_error(place, error) from error
    return place


def _salvage_problem(folder: Path) -> str:
    """Make a recording whole; says why if that fails, however it does: other jobs must not die of it."""
    if not (folder / OPENING_FILE).exists():
        return ""
    try:
        salvage_recording(folder)
    except Exception as error:
        unforeseen = None if isinstance(error, JoulefleetError) else error
        log.warning(
            "%s: its recording cannot be made whole: %s", folder, describe(error), exc_info=unforeseen
        )
        return describe(error)
    return ""


def attempts_before(run: Path, job: str) -> int:
    """The number of the last failed attempt; 0 if there is none."""
    numbers = [int(p.name.rpartition("-attempt")[2]) for p in (run / FAILED).glob(f"{job}-attempt*")]
    return max(numbers, default=0)


LOG_FILE = "agent.log"
MARKERS_FILE = "device_markers.jsonl"
"""Markers as the device has them; those in ``markers.jsonl`` are the ones that had reached the host."""

END_S = 30.0
"""How long an orphan may take to end after it was told to."""


def device_job_id(run_id: str, number: int, attempt: int) -> str:
    """Name of an attempt on the device."""
    return f"{run_id}-{number:04d}-a{attempt}"


def settle_orphans(session: AgentSession, run: Path, run_id: str, device: str, settled: set[str]) -> None:
    """Settle every failed attempt of this run on a device, each once per session; then it has to be free.

    Raises:
        DeviceBusy: A job of another run is on it.
        DeviceUnreachable: The link is down.
        DeviceError: An old job does not end.
    """
    for folder in sorted((run / FAILED).glob(f"*_{device}_*-attempt*")):
        number, attempt = int(folder.name.split("_")[0]), int(folder.name.rpartition("-attempt")[2])
        job_id = device_job_id(run_id, number, attempt)
        if job_id not in settled:
            _settle(session, job_id, folder)
            settled.add(job_id)
    session.require_free()


def _settle(session: AgentSession, job_id: str, folder: Path) -> None:
    try:
        session.cancel_orphan(job_id)
        record = session.attach(job_id, wait_s=END_S)
    except DeviceUnreachable:
        raise
    except DeviceError:
        return  # it had not begun there, or is gone already
    if record.state == "running":
        raise DeviceError(
            f"job {job_id} of an earlier attempt still runs on the device", hint="end it there, or reboot it"
        )
    keep_device_record(folder, record)
    with contextlib.suppress(DeviceError):
        session.forget(job_id)


def write_log(folder: Path, record: JobRecord) -> None:
    """What was printed on the device."""
    path = folder / LOG_FILE
    try:
        path.write_text(record.log, encoding="utf-8")
    except OSError as error:
        raise storage_error(path, error) from error


def keep_device_record(folder: Path, record: JobRecord) -> None:
    """Store log, markers and telemetry, each unless it is there already."""
    if not (folder / LOG_FILE).exists():
        write_log(folder, record)
    if record.markers and not (folder / MARKERS_FILE).exists():
        with Journal(folder / MARKERS_FILE) as markers:
            for marker in record.markers:
                markers.append(marker.model_dump(mode="json"))
    if not any(folder.glob(f"{TELEMETRY}.*")):
        write_telemetry(folder, record)
