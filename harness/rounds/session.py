"""Taking up a run again: what is finished stays, what was torn apart is put aside, the rest is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.bench.job.failures import AttemptRecord, attempts_before, killed_record, put_aside
from harness.bench.journal import JOBS, JOURNAL, BenchJournal, job_histories
from harness.bench.matrix import BenchJob
from harness.evidence.capture import CAPTURE_FILE, MARKERS_FILE, open_capture
from joulefleet.errors import JoulefleetError
from joulefleet.records import file_sha256


def finished_jobs(run: Path, jobs: Sequence[BenchJob]) -> dict[str, Path]:
    """The jobs whose capture is whole, with their folders."""
    folders = {job.name: run / JOBS / job.name for job in jobs}
    return {name: folder for name, folder in folders.items() if is_whole(folder)}


def is_whole(folder: Path) -> bool:
    """Whether a folder holds a capture that belongs together."""
    if not (folder / CAPTURE_FILE).exists():
        return False
    try:
        capture = open_capture(folder)
    except JoulefleetError:
        return False
    return (
        capture.recording.record.sha256() == capture.record.recording_sha256
        and file_sha256(folder / MARKERS_FILE) == capture.record.markers_sha256
    )


def take_up(run: Path, journal: BenchJournal) -> None:
    """Put every attempt aside that a kill has left half done. Call with the run locked and salvaged."""
    histories = job_histories(run / f"{JOURNAL}.jsonl")
    for folder in sorted(p for p in (run / JOBS).glob("*") if p.is_dir()):
        if is_whole(folder):
            continue
        name = folder.name
        stage = histories[name].stage if name in histories else ""
        record = killed_record(name, attempts_before(run, name) + 1, stage)
        put_aside(run, folder, record)
        _note(journal, record)


def _note(journal: BenchJournal, record: AttemptRecord) -> None:
    journal.write("killed", job=record.job, attempt=record.attempt, stage=record.stage)
