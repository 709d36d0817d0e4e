"""``journal.jsonl`` of a run on the bench: every step of every job, on disk before it is taken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol

from joulefleet.errors import StorageError
from joulefleet.runstore import Journal, read_journal

JOURNAL = "journal"
JOBS = "jobs"
"""Folder of a run that holds one folder per job."""

Listener = Callable[[str, str, dict[str, object]], None]
"""Told an event, the job or round that it is about, and further facts."""

P = ParamSpec("P")


class Note(Protocol):
    """Writes down what happened to a job or round."""

    def __call__(self, event: str, name: str, /, **facts: object) -> None:
        """An event, what it is about, and further facts."""


def tell(listener: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Tell a listener something, if it can still hear.

    What it prints may have nowhere to go: a terminal that was closed, a pipe whose reader has gone, a full
    disk under a log. That is no reason to end a run that nobody watches; the journal has it all.
    """
    with contextlib.suppress(OSError):
        listener(*args, **kwargs)


JobState = Literal["pending", "running", "waiting", "finished", "failed", "not_needed"]


class BenchJournal:
    """Appends records from several threads; each is on disk when `write` returns."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        """One record; ``job`` names what it is about."""
        with self._lock:
            self._journal.append({"event": event, "utc": datetime.now(UTC).isoformat(), **facts})
            self._journal.sync()

    def close(self) -> None:
        """No more records."""
        self._journal.close()


@dataclass(slots=True)
class JobHistory:
    """What the journal says about one job.

    Attributes:
        state: ``running`` may also mean killed; whether the run's lock is held tells.
        stage: The last one that began.
        attempt: The last one.
        since_utc: When the state or stage began.
        error: Of the last failed attempt.
    """

    state: JobState = "pending"
    stage: str = ""
    attempt: int = 0
    since_utc: str = ""
    error: str = ""


def read_steps(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a run's journal; none if there is no journal yet.

    Raises:
        StorageError: A line is none that `BenchJournal` writes.
    """
    for number, record in enumerate(read_journal(path) if path.exists() else (), start=1):
        wrong = _what_is_wrong(record)
        if wrong:
            raise StorageError(
                f"{path}:{number}: not a step of a run ({wrong})",
                hint="the file was changed after it was written: take it from a backup, or measure again",
            )
        yield record


def _what_is_wrong(record: dict[str, Any]) -> str:
    """Why a line is no step; empty if it is one."""
    event = record.get("event")
    if not isinstance(event, str):
        return "event is no text"
    needed = ("utc", *_NEEDED.get(event, ()))
    for name, fits in _FITS.items():
        value = record.get(name)
        if value is None and name not in needed:
            continue
        if not fits(value):
            return f"{name} is missing" if name not in record else f"{name} cannot be {str(value)[:40]!r}"
    return ""


def _is_time(value: object) -> bool:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return moment is not None and moment.tzinfo is not None and moment.year in _YEARS


def _is_name(value: object) -> bool:
    """Whether it can be the name of a folder in the run."""
    return isinstance(value, str) and 0 < len(value) < 256 and not {"/", "\0"} & {*value} and value[0] != "."


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_YEARS = range(1970, 2262)
_FITS: dict[str, Callable[[object], bool]] = {
    "utc": _is_time,
    "job": _is_name,
    "round": _is_name,
    "attempt": _is_count,
    "session": _is_count,
    "stage": _is_text,
    "error": _is_text,
    "note": _is_text,
    "planned": lambda value: isinstance(value, list) and all(map(_is_name, value)),
}
_NEEDED = {
    "stage": ("job", "attempt", "stage"),
    "finished": ("job",),
    "attempt_failed": ("job", "error"),
    "gave_up": ("job", "error"),
    "round_failed": ("round", "error"),
    "round_gave_up": ("round", "error"),
    "planned": ("planned",),
}


def job_histories(path: Path) -> dict[str, JobHistory]:
    """The jobs of a run's journal by name; empty if there is no journal yet."""
    return follow(read_steps(path))


def follow(records: Iterable[dict[str, Any]]) -> dict[str, JobHistory]:
    """The state of each job after all records."""
    jobs: dict[str, JobHistory] = {}
    for record in records:
        name = record.get("job")
        if name is not None:
            _apply(jobs.setdefault(name, JobHistory()), record)
    return jobs


_STATES: dict[str, JobState] = {
    "stage": "running",
    "finished": "finished",
    "attempt_failed": "waiting",
    "gave_up": "failed",
    "stopped": "pending",
    "killed": "pending",
    "not_needed": "not_needed",
}


def _apply(history: JobHistory, record: dict[str, Any]) -> None:
    history.state = _STATES.get(record["event"], history.state)
    history.since_utc = record["utc"]
    history.attempt = record.get("attempt", history.attempt)
    if record["event"] == "stage":
        history.stage = record["stage"]
    if record["event"] in ("attempt_failed", "gave_up"):
        history.error = record["error"]
