"""Failed attempts: what there is of them is kept under ``failed/``, with why."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path

from joulefleet.errors import DataQualityError, JoulefleetError, StorageError, describe
from joulefleet.records import StoredRecord, storage_error, write_record
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
        log.warning("%s: its recording cannot be made whole", folder, exc_info=error)
        return describe(error)
    return ""


def attempts_before(run: Path, job: str) -> int:
    """The number of the last failed attempt; 0 if there is none."""
    numbers = [int(p.name.rpartition("-attempt")[2]) for p in (run / FAILED).glob(f"{job}-attempt*")]
    return max(numbers, default=0)
