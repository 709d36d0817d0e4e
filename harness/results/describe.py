"""What the finished jobs of a run measured, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.bench.journal import JOBS
from harness.bench_run.queue import energy_per_epoch_j
from harness.evidence.capture import CAPTURE_FILE, Capture, is_whole, open_capture
from harness.inventory import nearest
from joulefleet.errors import ConfigError
from power import Window
from power.energy import DEFAULT_POLICY, EnergyIndex


def find_job(run: Path, wanted: str) -> Path:
    """The folder of a job by its name or number.

    Raises:
        ConfigError: There is no finished one.
        StorageError: Its recording cannot be read.
    """
    folders = {p.name: p for p in sorted((run / JOBS).glob("*")) if (p / CAPTURE_FILE).exists()}
    for name, folder in folders.items():
        if wanted == name or (wanted.isdecimal() and int(name.split("_")[0]) == int(wanted)):
            if not is_whole(folder):
                open_capture(folder)  # which says why, if it cannot be read
                break
            return folder
    raise ConfigError(f"{run}: no finished job {wanted!r}", hint=nearest(wanted, folders))


def describe_capture(capture: Capture) -> dict[str, Any]:
    """What one job measured, as plain data: phases with seconds and gross joules, idle power, clock."""
    record = capture.record
    phases = capture.phases()
    index = EnergyIndex(capture.recording, DEFAULT_POLICY)
    energies = index.integrate([Window(p.start_ns, p.end_ns) for p in phases])
    idle = index.integrate([Window(w.start_ns, w.end_ns) for w in record.idle])
    return {
        "capture_id": record.capture_id,
        "origin": capture.provenance().origin.value,
        "instrument_accuracy": capture.recording.info.accuracy.source,
        "calibration_sha256": capture.provenance().calibration_sha256,
        "device": record.device.model_dump(mode="json"),
        "workload": record.workload,
        "backend": record.backend,
        "background": record.background.model_dump(mode="json"),
        "session": record.session.model_dump(mode="json") if record.session else None,
        "began_utc": capture.recording.record.started_utc.isoformat(),
        "repetition": record.repetition,
        "attempt": record.attempt,
        "energy_per_epoch_j": energy_per_epoch_j(capture),
        "idle_power_w": [energy.mean_power_w for energy in idle],
        "temperature": record.temperature.model_dump() if record.temperature else None,
        "throttled_epochs": list(record.throttled_epochs),
        "clock": record.clock.model_dump(mode="json"),
        "phases": [
            {
                "phase": phase.phase.value,
                "epoch": phase.epoch,
                "duration_s": phase.duration_s,
                "energy_j": energy.energy_j,
                "problems": list(energy.problems),
            }
            for phase, energy in zip(phases, energies, strict=True)
        ],
        "findings": [
            f.model_dump(mode="json") for f in (*record.findings, *capture.recording.record.findings)
        ],
    }


def describe_run(path: Path) -> list[dict[str, Any]]:
    """Every finished job of a run in one line each."""
    lines = []
    for folder in sorted((path / JOBS).glob("*")):
        if is_whole(folder):
            capture = open_capture(folder)
            lines.append(
                {
                    "job": folder.name,
                    "origin": capture.provenance().origin.value,
                    "energy_per_epoch_j": energy_per_epoch_j(capture),
                    "sync_uncertainty_s": capture.record.clock.sync_uncertainty_s,
                    "findings": len(capture.record.findings),
                }
            )
    return lines
