"""Runs of an experiment, read back and checked: what is missing, mixed or not a number never gets further."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.compare.load import BASELINE
from emulator.compare.metrics import final_accuracy
from emulator.compare.table import FEW_SEEDS
from emulator.experiments.plan import ExperimentPlan, PlanEntry, Variant
from emulator.experiments.runner import read_plan
from emulator.round.reward import BudgetRule
from emulator.runs.reading import FinishedRun, check_rounds, checked_rounds, how_to_go_on
from emulator.runs.result import EMULATION_FILE, EmulationRecord, Result, load_result
from emulator.runs.software import OTHER_SOFTWARE
from emulator.runs.tables import log_columns
from joulefleet.config import ClosedModel, validate
from joulefleet.errors import DataQualityError
from joulefleet.files import new_folder
from joulefleet.records import read_json, read_record, write_record
from joulefleet.runstore import read_table
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.run import read_run

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5
"""Of a long list of problems, so many are named."""


@dataclass(frozen=True, slots=True, eq=False)
class ExperimentResults:
    """A plan and its runs.

    Attributes:
        plan: What was to be run.
        runs: What was, in the order of the plan.
        missing: What was not, where that was allowed.
        warnings: What a reader has to know first.
    """

    plan: ExperimentPlan
    runs: tuple[FinishedRun, ...]
    missing: tuple[PlanEntry, ...]
    warnings: tuple[str, ...]

    def of(self, variant: Variant) -> dict[str, dict[int, FinishedRun]]:
        """Method to seed to run, on one variant; FedAvg's from where the variant takes its baseline."""
        own = self.own(variant)
        if not own or not variant.baseline:
            return own
        others = self.own(self.plan.variant(variant.baseline))
        return {BASELINE: others[BASELINE], **own} if BASELINE in others else own

    def own(self, variant: Variant) -> dict[str, dict[int, FinishedRun]]:
        """As `of`, without runs of another variant."""
        found: dict[str, dict[int, FinishedRun]] = {}
        for run in self.runs:
            if run.variant == variant.name:
                found.setdefault(run.method, {})[run.seed] = run
        return found


def load_experiment(path: Path, *, partial: bool = False) -> ExperimentResults:
    """Read an experiment's runs.

    Args:
        path: The run folder.
        partial: Go on without runs that are missing or were interrupted; the results name them.

    Raises:
        DataQualityError: Runs are missing, differ from the plan or among each other, or hold no numbers.
    """
    plan = read_plan(path)
    runs, missing = [], []
    for planned in plan.planned:
        found = _read(path, plan, planned)
        if found is None:
            missing.append(planned)
        else:
            runs.append(found)
    if missing and (not partial or not runs):
        names = _listed([one.folder for one in missing])
        raise DataQualityError(
            f"{path}: {len(missing)} of {len(plan.planned)} runs are missing or were interrupted: {names}",
            hint=f"{how_to_go_on(path)}; `joulefleet experiment table {path} --partial` shows what is there",
        )
    _check_alike(plan, runs)
    warnings = []
    if missing:
        part = f"{len(missing)} of {len(plan.planned)} runs are not here"
        warnings.append(f"{part}: this is a part of the experiment")
    mixed = read_run(path).host.get(OTHER_SOFTWARE, "")
    if mixed:
        warnings.append(f"results of other software are among these, accepted by who ran it: {mixed}")
    early = [f"{_name(run)}: {run.record.ended_early}" for run in runs if run.record.ended_early]
    return ExperimentResults(
        plan,
        tuple(runs),
        tuple(missing),
        (*warnings, *early, *_seed_warnings(runs)),
    )


PUBLISHED = ("experiment.json", "records.json", "rounds.parquet")
"""Files of published data: the plan, one record per run, and every round of every run."""


@dataclass(frozen=True, slots=True, eq=False)
class PublishedResult(Result):
    """A run of which the rounds alone were published."""

    table: pd.DataFrame

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per round."""
        return self.table

    @property
    def has_clients(self) -> bool:
        """No: they are a hundred times as much."""
        return False


def publish_experiment(results: ExperimentResults, folder: Path) -> None:
    """Write what every number of the tables can be computed from again: rounds of all runs, compressed.

    Raises:
        StorageError: Something is there already.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    played = {(run.variant, run.method, run.seed) for run in results.runs}
    kept = tuple(one for one in results.plan.planned if (one.variant, one.method, one.seed) in played)
    records = [
        {"variant": run.variant, "method": run.method, "record": run.record.model_dump(mode="json")}
        for run in results.runs
    ]
    parts = [run.rounds.assign(run=number) for number, run in enumerate(results.runs)]
    table = pa.Table.from_pandas(pd.concat(parts, ignore_index=True), preserve_index=False)
    with new_folder(folder) as hidden:
        write_record(hidden / PUBLISHED[0], results.plan.model_copy(update={"planned": kept}))
        (hidden / PUBLISHED[1]).write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
        pq.write_table(table, hidden / PUBLISHED[2], compression="zstd", compression_level=19)


class _PublishedRun(ClosedModel):
    variant: str
    method: str
    record: EmulationRecord


class _PublishedRuns(ClosedModel):
    runs: tuple[_PublishedRun, ...]


def load_published(folder: Path) -> ExperimentResults:
    """Read what `publish_experiment` wrote.

    Raises:
        DataQualityError: A file is missing, or they do not belong together.
        ConfigError: A record is none of ours.
        StorageError: A table has other columns, or values that cannot be.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in PUBLISHED:
        if not (folder / name).is_file():
            raise DataQualityError(f"{folder}: has no {name}, so these are no published data")
    plan = read_record(folder / PUBLISHED[0], ExperimentPlan)
    path = folder / PUBLISHED[1]
    records = validate({"runs": read_json(path)}, _PublishedRuns, name=str(path))
    table = read_table(folder, "rounds", Columns(pa.schema([("run", pa.int64())]), rising={"run": 0}))
    runs = []
    for number, one in enumerate(records.runs):
        part = table.filter(pc.equal(table["run"], number)).drop_columns("run")
        log_columns("rounds").check(folder / PUBLISHED[2], part)
        rounds = part.to_pandas().dropna(axis=1, how="all")
        check_rounds(folder, one.record, rounds)
        result = PublishedResult(folder, one.record, rounds)
        runs.append(FinishedRun(one.method, result.rounds, result, one.variant))
    if [(one.variant, one.method, one.seed) for one in plan.planned] != [
        (run.variant, run.method, run.seed) for run in runs
    ]:
        raise DataQualityError(f"{folder}: its runs are not those of its plan")
    _check_alike(plan, runs)
    return ExperimentResults(plan, tuple(runs), (), tuple(_seed_warnings(runs)))


def _read(path: Path, plan: ExperimentPlan, planned: PlanEntry) -> FinishedRun | None:
    folder = path / planned.folder
    if not (folder / EMULATION_FILE).is_file():
        return None
    result = load_result(folder)
    if result.record.rounds is None:
        return None
    expected = plan.scenario_of(planned)
    if result.record.scenario != expected or result.record.seed != planned.seed:
        ours, theirs = (s.model_dump(mode="json") for s in (expected, result.record.scenario))
        parts = [name for name in ours if ours[name] != theirs.get(name)] or ["seed"]
        raise DataQualityError(
            f"{folder}: is of another scenario than the plan says ({', '.join(parts)})",
            hint="an experiment's folder holds its own runs only; run it anew",
        )
    try:
        rounds = checked_rounds(result)
    except DataQualityError as error:
        error.hint = f"remove {folder}, then {how_to_go_on(path)}"
        raise
    if math.isnan(final_accuracy(rounds)):
        raise DataQualityError(
            f"{folder}: was never tested, so it has no accuracy to stand in a table",
            hint="`joulefleet compare` shows what such runs cost",
        )
    return FinishedRun(planned.method, rounds, result, planned.variant)


def _check_alike(plan: ExperimentPlan, runs: Sequence[FinishedRun]) -> None:
    """Whatever stands in one table rests on the same: also a FedAvg that another variant has lent."""

    def table(run: FinishedRun) -> str:
        variant = plan.variant(run.variant)
        return variant.baseline or variant.name

    _check_same(runs, table, ("trainer", "cost_origin", "energy", "traces"))
    _check_same(runs, lambda run: (table(run), run.seed), ("data", "partition", "profiles"))
    # Runs made before the content of profiles was noted may stand beside those that tell it.
    telling = [run for run in runs if "profiles_sha256" in run.record.facts]
    _check_same(telling, lambda run: (table(run), run.seed), ("profiles_sha256",))
    # Feasible ones are those of the method's own probes.
    common = [run for run in runs if run.record.scenario.reward.budgets is not BudgetRule.FEASIBLE]
    _check_same(common, lambda run: (run.variant, run.seed), ("budgets",))
    _check_same(runs, lambda run: (table(run), run.method), ("policy_sha256",))


def _check_same(runs: Sequence[FinishedRun], group: Any, facts: Sequence[str]) -> None:
    firsts: dict[Any, FinishedRun] = {}
    for run in runs:
        first = firsts.setdefault(group(run), run)
        for fact in facts:
            one, other = first.record.facts.get(fact), run.record.facts.get(fact)
            if one != other:
                raise DataQualityError(
                    f"{_name(first)} and {_name(run)} rest on different {fact}: "
                    f"{one!s:.80} and {other!s:.80}",
                    hint="runs of one table must come from the same data, profiles, policies and trainer; "
                    "run them anew",
                )


def _name(run: FinishedRun) -> str:
    return f"{run.variant}/{run.path.name}"


def _seed_warnings(runs: Sequence[FinishedRun]) -> list[str]:
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        seeds.setdefault((run.variant, run.method), set()).add(run.seed)
    single = sorted({method for (_, method), found in seeds.items() if len(found) == 1})
    few = sorted({method for (_, method), found in seeds.items() if 1 < len(found) < FEW_SEEDS})
    warnings = []
    if single:
        warnings.append(
            f"one seed only ({_listed(single)}): no interval and no test; differences may be chance"
        )
    if few:
        warnings.append(
            f"fewer than {FEW_SEEDS} seeds ({_listed(few)}): the intervals are wide, and only large "
            "differences show"
        )
    return warnings


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
