"""The state of a bench run and of its jobs, finished or not.

It is asked for again and again while a run goes on, so nothing is imported here that opens a capture.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.bench.journal import JOBS, JOURNAL, JobHistory, follow, read_steps
from joulefleet.errors import ConfigError
from joulefleet.runstore.store import summarise


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of a run.

    Attributes:
        state: ``pending``, ``running``, ``waiting`` for another attempt, ``finished``, ``failed``,
            ``not_needed``, after a kill ``killed``, or ``lost``: it finished, and its capture is not there.
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
    """A run and its jobs; ``state`` as in ``joulefleet runs list``.

    Attributes:
        waits_for: The session that may not begin yet, and from when on it may; empty if there is none.
    """

    path: Path
    state: str
    jobs: tuple[JobLine, ...]
    waits_for: str = ""

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        found: dict[str, int] = {}
        for job in self.jobs:
            found[job.state] = found.get(job.state, 0) + 1
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        jobs = [asdict(job) for job in self.jobs]
        return {
            "run": str(self.path),
            "state": self.state,
            "counts": self.counts(),
            "waits_for": self.waits_for or None,
            "jobs": jobs,
        }


def overview(path: Path) -> RunOverview:
    """Look at a run without disturbing it.

    Raises:
        ConfigError: It is not one of the bench.
    """
    summary = summarise(path)
    if summary.record is None or summary.record.kind != "bench":
        raise ConfigError(f"{path}: not a bench run", hint="`joulefleet runs list` shows the kinds")
    records = list(read_steps(path / f"{JOURNAL}.jsonl"))
    histories = follow(records)
    planned = next((record["planned"] for record in records if "planned" in record), None)
    lines = [
        _line(path, name, histories.get(name, JobHistory()), alive=summary.alive)
        for name in (_job_names(path) if planned is None else planned)
    ]
    stretches = [record for record in records if record.get("event") in ("session", "waiting")]
    waits_for = str(stretches[-1]["note"]) if stretches and stretches[-1]["event"] == "waiting" else ""
    return RunOverview(path, summary.state, tuple(lines), waits_for)


def _job_names(run: Path) -> list[str]:
    """The jobs by the plan, for runs whose journal does not list them."""
    from harness.bench.matrix import expand
    from harness.bench.plan import load_plan
    from harness.inventory import load_inventory

    config = run / "config"
    return [
        job.name for job in expand(load_plan(config / "plan.toml"), load_inventory(config / "devices.toml"))
    ]


def _line(run: Path, name: str, history: JobHistory, *, alive: bool) -> JobLine:
    state: str = history.state
    if state != "finished" and _has_capture(run / JOBS / name):
        state = "finished"  # killed after the capture was written and before the journal was
    elif state == "finished" and not (run / JOBS / name / "capture.json").exists():
        state = "lost"
    elif state in ("running", "waiting") and not alive:
        state = "killed" if state == "running" else "pending"
    stage = "" if state in ("finished", "pending", "not_needed", "lost") else history.stage
    error = {"finished": "", "lost": "its capture is missing"}.get(state, history.error)
    return JobLine(name, state, stage, history.attempt, history.since_utc, error)


def _has_capture(folder: Path) -> bool:
    if not (folder / "capture.json").exists():  # the usual answer, without loading what reads captures
        return False
    from harness.evidence.capture import is_whole

    return is_whole(folder)
