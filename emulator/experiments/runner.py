"""Where an experiment is played: one run folder, resumable, with what another experiment has played already.

The same scenario and seed give the same result, so emulations can be taken over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.experiments.plan import ExperimentPlan, Preset
from emulator.runs.assembly import make_selector, profiles_sha256
from emulator.runs.fleet_inputs import profiles_of
from emulator.runs.learners import task_of
from emulator.runs.reading import checked_rounds
from emulator.runs.result import EMULATION_FILE, EmulationRecord, is_finished, load_result
from emulator.runs.software import check_software, note_accepted, source_facts
from emulator.scenario.model import Scenario
from emulator.training.choose import best_for
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.files import new_folder
from joulefleet.records import read_record, write_record
from joulefleet.runstore import Run, RunStatus, RunStore

KIND = "experiment"
PLAN_FILE = "experiment.json"
TAKEN_FROM = "taken_from"


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


@dataclass(frozen=True, slots=True)
class Taken:
    """What came from other experiments.

    Attributes:
        count: How many emulations.
        damaged: Why others, which would have fitted, were left where they are.
    """

    count: int
    damaged: tuple[str, ...]


def take_over(
    run: Run, plan: ExperimentPlan, donors: Sequence[Path], *, accept_other_software: bool = False
) -> Taken:
    """Copy what donors hold of a plan and its run does not.

    Args:
        run: Where the plan is played.
        plan: What is wanted.
        donors: Runs of experiments.
        accept_other_software: Whether donors may come from other software; the run then says so.

    Raises:
        ConfigError: See `check_donors`.
    """
    check_donors(donors, accept_other_software=accept_other_software)
    there = {
        _key(record.scenario, record.seed): path
        for path, record in _finished(donors)
        if _has_same_policy(record) and _has_same_trainer(record) and _has_same_profiles(record)
    }
    taken, damaged = 0, []
    for planned in plan.planned:
        scenario = plan.scenario_of(planned)
        source = there.get(_key(scenario, planned.seed))
        target = run.path / planned.folder
        if source is None or target.exists():
            continue
        try:
            checked_rounds(load_result(source))
        except (DataQualityError, StorageError) as error:
            damaged.append(error.message)
            continue
        record = read_record(source / EMULATION_FILE, EmulationRecord)
        origin = {TAKEN_FROM: f"{source.parents[1].name}/{source.parent.name}/{source.name}"}
        update = {"scenario": scenario, "facts": {**record.facts, **origin}}
        left_out = shutil.ignore_patterns(EMULATION_FILE, "checkpoint*", ".*")
        with new_folder(target) as copy:
            shutil.copytree(source, copy, ignore=left_out, dirs_exist_ok=True)
            write_record(copy / EMULATION_FILE, record.model_copy(update=update))
        taken += 1
    if taken:
        note_accepted(run, donors)
    return Taken(taken, tuple(damaged))


def check_donors(donors: Sequence[Path], *, accept_other_software: bool = False) -> None:
    """Before anything is made.

    Raises:
        ConfigError: A donor was made by other software, whose numbers may differ, and that is not accepted.
        StorageError: It is no experiment.
    """
    for donor in donors:
        read_plan(donor)
        hint = "leave out --reuse, and it is all played anew"
        check_software(donor, hint, accept=accept_other_software)


def _finished(donors: Sequence[Path]) -> Iterator[tuple[Path, EmulationRecord]]:
    for donor in donors:
        for planned in read_plan(donor).planned:
            folder = donor / planned.folder
            if is_finished(folder):
                yield folder, read_record(folder / EMULATION_FILE, EmulationRecord)


def _has_same_policy(record: EmulationRecord) -> bool:
    """Whether its selector would begin with the same policy now.

    Those of the package change between releases; a file may be another one under the same name, or gone.
    """
    try:
        now = make_selector(record.scenario).policy_sha256
    except (ConfigError, StorageError):
        return False
    return bool(record.facts.get("policy_sha256") == now)


def _has_same_trainer(record: EmulationRecord) -> bool:
    """Whether ``auto`` would become the same here: with a GPU it is another one, and other bits."""
    scenario = record.scenario
    if scenario.trainer.kind != "auto":
        return True
    return bool(record.facts["trainer"] == best_for(task_of(scenario.task)))


def _has_same_profiles(record: EmulationRecord) -> bool:
    """Whether the profiles that it names hold what they held; runs from before that was noted cannot tell."""
    noted = record.facts.get("profiles_sha256")
    if noted is None:
        return True
    try:
        now = profiles_of(record.scenario.fleet, task_of(record.scenario.task))
    except (ConfigError, StorageError):
        return False
    return bool(noted == profiles_sha256(tuple(now)))


def _key(scenario: Scenario, seed: int) -> tuple[str, int]:
    """Everything that decides a result; the scenario's name does not."""
    plain: dict[str, Any] = {"name": "any"}
    return scenario.model_copy(update=plain).sha256(), seed
