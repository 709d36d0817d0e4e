"""What people write about a run: kept beside it, never part of what was measured."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, Field

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError, StorageError
from joulefleet.runstore.journal import Journal, read_journal

NOTES_FILE = "notes.jsonl"
LONGEST = 2_000
"""Characters of a note: it is shown whole at the head of a page."""

MOST_BYTES = 1 << 20
"""Of all notes of a run: they are read whenever it is listed."""

_TAG = re.compile(r"(?<!\S)#(-?)([^\W\d][\w-]{0,39})(?![\w-])")


class RunNote(ClosedModel):
    """One note.

    Attributes:
        written_utc: When.
        text: What.
        job: Which recording of the run it is about; empty for all of it.
    """

    written_utc: AwareDatetime
    text: str = Field(min_length=1, max_length=LONGEST)
    job: str = ""


def add_note(run: Path, text: str, job: str = "") -> RunNote:
    """Write a note about a run, or about one of its jobs.

    Raises:
        ConfigError: It is empty or too long, the run has no such job, or has too many notes.
        StorageError: The notes lie somewhere else, or cannot be written.
    """
    if job and (Path(job).name != job or not (run / "jobs" / job).is_dir()):
        known = sorted(path.name for path in (run / "jobs").glob("*") if path.is_dir())
        hint = f"there are {', '.join(known[:5])}{', ...' * (len(known) > 5)}" if known else "it has no jobs"
        raise ConfigError(f"{run}: no job {job!r}", hint=hint)
    values = {"written_utc": datetime.now(UTC), "text": text.strip(), "job": job}
    note = validate(values, RunNote, name="the note")
    if _size(run / NOTES_FILE) > MOST_BYTES // 2:
        raise ConfigError(f"{run}: has as many notes as it can have", hint=f"shorten its {NOTES_FILE}")
    with Journal(run / NOTES_FILE) as journal:
        journal.append(note.model_dump(mode="json"))
    return note


def read_notes(run: Path) -> list[RunNote]:
    """All notes about a run, oldest first.

    Raises:
        StorageError: They are none, too many, or lie somewhere else.
    """
    path = run / NOTES_FILE
    size = _size(path)
    if size > MOST_BYTES:
        raise StorageError(f"{path}: {size:,} bytes of notes, {MOST_BYTES:,} are read")
    found = read_journal(path) if size else []
    return [validate(one, RunNote, name=str(path)) for one in found]


def tags(notes: Iterable[RunNote]) -> tuple[str, ...]:
    """The words in notes that begin with ``#``; ``#-word`` in a later one takes it away."""
    found: dict[str, None] = {}
    for note in notes:
        for minus, word in _TAG.findall(note.text):
            found.pop(word, None)
            if not minus:
                found[word] = None
    return tuple(found)


def _size(path: Path) -> int:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(facts.st_mode):  # a pipe would never answer, a link shows what is no note
        raise StorageError(f"{path}: no plain file")
    return facts.st_size
