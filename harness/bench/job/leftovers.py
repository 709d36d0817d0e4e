"""What attempts leave on a device: ended if it still runs, fetched as evidence, removed.

A link that was cut may be noticed late on the other side. Until then the old job goes on, and would be
measured together with the new one. So would a job of another run, which is not ours to end.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from device_agents import AgentSession, JobRecord
from harness.bench.job.failures import FAILED
from harness.bench.job.telemetry import write_telemetry
from harness.evidence.capture import TELEMETRY
from joulefleet.errors import DeviceError, DeviceUnreachable
from joulefleet.records import storage_error
from joulefleet.runstore import Journal

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
