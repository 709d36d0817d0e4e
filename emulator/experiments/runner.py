"""Plays an experiment: one emulation after the other into one run folder, resumable."""

from __future__ import annotations

from pathlib import Path

from emulator.experiments.plan import ExperimentPlan, Preset
from emulator.runs.assembly import make_selector
from emulator.runs.software import check_software, note_accepted, source_facts
from joulefleet.errors import StorageError
from joulefleet.records import read_record
from joulefleet.runstore import Run, RunStatus, RunStore

KIND = "experiment"
PLAN_FILE = "experiment.json"


def check_methods(plan: ExperimentPlan) -> None:
    """A method that cannot be made is found now, not after hours."""
    for one in {one.method: one for one in reversed(plan.planned)}.values():
        make_selector(plan.scenario_of(one))


def start(root: Path, plan: ExperimentPlan) -> Run:
    """A new run folder."""
    check_methods(plan)
    return RunStore(root).create(
        _run_name(plan.name, plan.preset),
        kind=KIND,
        fingerprint=plan.sha256(),
        facts=source_facts(),
        records={PLAN_FILE: plan},
    )


def resume(root: Path, plan: ExperimentPlan, *, accept_other_software: bool = False) -> Run:
    """Take up the newest run of exactly this plan that has not come to its end.

    Args:
        root: Folder of runs.
        plan: What to run.
        accept_other_software: Whether to go on if it was begun with other software; the run then says so.

    Raises:
        StorageError: There is none.
        ConfigError: It was begun with other software, which is not accepted.
    """
    fingerprint = plan.sha256()
    complete = None
    for summary in reversed(RunStore(root).list()):
        record = summary.record
        if record is None or record.kind != KIND or record.fingerprint != fingerprint:
            continue
        if record.status is not RunStatus.COMPLETE:
            hint = "start it anew, without --resume"
            check_software(summary.path, hint, accept=accept_other_software)
            run = RunStore(root).resume(summary.path, fingerprint=fingerprint)
            note_accepted(run, [run.path])
            return run
        complete = complete or summary.path
    if complete:
        raise StorageError(
            f"{complete}: is complete, nothing to resume",
            hint=f"`joulefleet experiment table {complete}` shows it; without --resume it runs anew",
        )
    raise StorageError(
        f"{root}: no unfinished run of {plan.name} with preset {plan.preset.value}, these variants and seeds",
        hint="give the preset, seeds and variants that it was started with, or start it without --resume",
    )


def read_plan(path: Path) -> ExperimentPlan:
    """The plan of a run folder."""
    if not (path / PLAN_FILE).is_file():
        raise StorageError(
            f"{path}: not a run of `joulefleet experiment` (no {PLAN_FILE})",
            hint="give the folder that `joulefleet experiment run` printed",
        )
    return read_record(path / PLAN_FILE, ExperimentPlan)


def _run_name(name: str, preset: Preset) -> str:
    return f"{name}-{preset.value}"
