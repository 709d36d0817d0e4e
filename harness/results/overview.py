"""Reading a bench run, finished or not: the state of its jobs, and what each capture says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.bench.journal import JOBS, JOURNAL, JobHistory, job_histories
from harness.bench.matrix import expand
from harness.bench.plan import load_plan
from harness.evidence.capture import Capture, open_capture
from harness.inventory import load_inventory, nearest
from harness.rounds.bench_run.precision import energy_per_epoch_j
from harness.rounds.session import is_whole
from joulefleet.errors import ConfigError
from joulefleet.runstore.store import summarise
from power.energy.index import EnergyIndex
from power.energy.windows import DEFAULT_POLICY, Window


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of a run.

    Attributes:
        state: ``pending``, ``running``, ``waiting`` for another attempt, ``finished``, ``failed``,
            ``not_needed`` or, after a kill, ``killed``.
        stage: Where it is or failed.
        error: Of its last failed attempt.
    """

    name: str
    state: str
    stage: str = ""
    attempt: int = 0
    since_utc: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run and its jobs; ``state`` as in ``joulefleet runs list``."""

    path: Path
    state: str
    jobs: tuple[JobLine, ...]

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        found: dict[str, int] = {}
        for job in self.jobs:
            found[job.state] = found.get(job.state, 0) + 1
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        jobs = [asdict(job) for job in self.jobs]
        return {"run": str(self.path), "state": self.state, "counts": self.counts(), "jobs": jobs}


def overview(path: Path) -> RunOverview:
    """Look at a run without disturbing it.

    Raises:
        ConfigError: It is not one of the bench.
    """
    summary = summarise(path)
    if summary.record is None or summary.record.kind != "bench":
        raise ConfigError(f"{path}: not a bench run", hint="`joulefleet runs list` shows the kinds")
    plan = load_plan(path / "config" / "plan.toml")
    inventory = load_inventory(path / "config" / "devices.toml")
    histories = job_histories(path / f"{JOURNAL}.jsonl")
    lines = [
        _line(path, job.name, histories.get(job.name, JobHistory()), alive=summary.alive)
        for job in expand(plan, inventory)
    ]
    return RunOverview(path, summary.state, tuple(lines))


def _line(run: Path, name: str, history: JobHistory, *, alive: bool) -> JobLine:
    state: str = history.state
    if state != "finished" and is_whole(run / JOBS / name):
        state = "finished"  # killed after the capture was written and before the journal was
    elif state in ("running", "waiting") and not alive:
        state = "killed" if state == "running" else "pending"
    stage = "" if state in ("finished", "pending", "not_needed") else history.stage
    error = "" if state == "finished" else history.error
    return JobLine(name, state, stage, history.attempt, history.since_utc, error)


def find_job(run: Path, wanted: str) -> Path:
    """The folder of a job by its name or number.

    Raises:
        ConfigError: There is no finished one.
    """
    folders = {p.name: p for p in sorted((run / JOBS).glob("*")) if is_whole(p)}
    for name, folder in folders.items():
        if wanted == name or (wanted.isdecimal() and int(name.split("_")[0]) == int(wanted)):
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
        "device": record.device.model_dump(mode="json"),
        "workload": record.workload,
        "backend": record.backend,
        "background": record.background.model_dump(mode="json"),
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
