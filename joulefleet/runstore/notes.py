"""What people write about a run: kept beside it, never part of what was measured."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, Field

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError
from joulefleet.runstore.journal import Journal, read_journal

NOTES_FILE = "notes.jsonl"
LONGEST = 2_000
"""Characters of a note: it is shown whole at the head of a page."""


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
        ConfigError: It is empty or too long, or the run has no such job.
    """
    if job and not (run / "jobs" / job).is_dir():
        known = sorted(path.name for path in (run / "jobs").glob("*") if path.is_dir())
        hint = f"there are {', '.join(known[:5])}{', ...' * (len(known) > 5)}" if known else "it has no jobs"
        raise ConfigError(f"{run}: no job {job!r}", hint=hint)
    values = {"written_utc": datetime.now(UTC), "text": text.strip(), "job": job}
    note = validate(values, RunNote, name="the note")
    with Journal(run / NOTES_FILE) as journal:
        journal.append(note.model_dump(mode="json"))
    return note


def read_notes(run: Path) -> list[RunNote]:
    """All notes about a run, oldest first."""
    path = run / NOTES_FILE
    found = read_journal(path) if path.exists() else []
    return [validate(one, RunNote, name=str(path)) for one in found]
