"""What a job left on its device, kept in the folder of an attempt that failed."""

from __future__ import annotations

from pathlib import Path

from device_agents.session.job_record import JobRecord
from harness.bench.job.telemetry import write_telemetry
from harness.evidence.capture import TELEMETRY
from joulefleet.records import storage_error
from joulefleet.runstore import Journal

LOG_FILE = "agent.log"
MARKERS_FILE = "device_markers.jsonl"
"""Markers as the device has them; those in ``markers.jsonl`` are the ones that had reached the host."""


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
