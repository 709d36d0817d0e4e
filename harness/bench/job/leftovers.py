"""What earlier attempts have left on a device: ended if it still runs, fetched as evidence, removed.

A link that was cut may be noticed late on the other side. Until then the old job goes on, and would be
measured together with the new one. So would a job of another run, which is not ours to end.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from device_agents.session.agent_session import AgentSession
from harness.bench.device_record import keep_device_record
from harness.bench.job.failures import FAILED
from joulefleet.errors import DeviceError, DeviceUnreachable

END_S = 30.0
"""How long an orphan may take to end after it was told to."""


def device_job_id(run_id: str, number: int, attempt: int) -> str:
    """Name of an attempt on the device."""
    return f"{run_id}-{number:04d}-a{attempt}"


def settle_orphans(session: AgentSession, run: Path, run_id: str, device: str, settled: set[str]) -> None:
    """Settle every failed attempt of this run on a device, each once per sitting; then it has to be free.

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
