"""Emulations that another experiment has already played: the same scenario and seed give the same result."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from emulator.assembly.assemble import make_selector, profiles_sha256, task_of
from emulator.assembly.profiles import profiles_of
from emulator.batch import is_finished
from emulator.emulation import RECORD, EmulationRecord
from emulator.experiments.plan import ExperimentPlan
from emulator.experiments.runner import check_software, read_plan
from emulator.scenario.model import Scenario
from emulator.training.choose import best_for
from fedjoule.errors import ConfigError, StorageError
from fedjoule.records import read_record, write_record
from fedjoule.runstore import Run

TAKEN_FROM = "taken_from"


def take_over(run: Run, plan: ExperimentPlan, donors: Sequence[Path]) -> int:
    """Copy what donors hold of a plan and its run does not; returns how many emulations that were.

    Raises:
        ConfigError: See `check_donors`.
    """
    check_donors(donors)
    there = {
        _key(record.scenario, record.seed): path
        for path, record in _finished(donors)
        if _has_same_policy(record) and _has_same_trainer(record) and _has_same_profiles(record)
    }
    taken = 0
    for planned in plan.planned:
        scenario = plan.scenario_of(planned)
        source = there.get(_key(scenario, planned.seed))
        target = run.path / planned.folder
        if source is None or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside it first, so that nothing is there of a copy that is cut short.
        copy = target.with_name(f".{target.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(RECORD, "checkpoint*", ".*"))
        record = read_record(source / RECORD, EmulationRecord)
        origin = {TAKEN_FROM: f"{source.parents[1].name}/{source.parent.name}/{source.name}"}
        update = {"scenario": scenario, "facts": {**record.facts, **origin}}
        write_record(copy / RECORD, record.model_copy(update=update))
        copy.rename(target)
        taken += 1
    return taken


def check_donors(donors: Sequence[Path]) -> None:
    """Before anything is made.

    Raises:
        ConfigError: A donor was made by another version, whose numbers may differ.
        StorageError: It is no experiment.
    """
    for donor in donors:
        read_plan(donor)
        check_software(donor, hint="leave out --reuse, and it is all played anew")


def _finished(donors: Sequence[Path]) -> Iterator[tuple[Path, EmulationRecord]]:
    for donor in donors:
        for planned in read_plan(donor).planned:
            folder = donor / planned.folder
            if is_finished(folder):
                yield folder, read_record(folder / RECORD, EmulationRecord)


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
