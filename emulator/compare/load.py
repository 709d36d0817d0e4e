"""Stored emulations as a comparison: found, checked for being comparable, and put side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from device_agents.workloads import ACCURACY, Metric
from emulator.compare.comparable import EMULATED, facts_of, told_apart, unequal
from emulator.compare.metrics import (
    NO_BUDGET,
    RunMetrics,
    Spending,
    best_of,
    classes_per_cohort,
    final_accuracy,
    run_metrics,
)
from emulator.compare.table import MethodComparison, Pair, compare
from emulator.compare.titles import METRICS, SHOWN, WITHIN
from emulator.round.outcome import Accounting
from emulator.round.selector import Family
from emulator.runs.opening import read_index
from emulator.runs.reading import FinishedRun, checked_rounds, how_to_go_on
from emulator.runs.result import Result, Results, emulations_below, load_result, run_of
from emulator.runs.software import OTHER_SOFTWARE, mixed_software
from emulator.selectors.registry import SELECTORS
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.runstore.folder import check_folder
from joulefleet.runstore.run import RunStatus, read_run

if TYPE_CHECKING:
    import pandas as pd

BASELINE = "fedavg"


def find_emulations(paths: Sequence[Path]) -> list[Path]:
    """Every emulation in these folders, in order and once.

    Raises:
        DataQualityError: A folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        inside = _in_order(emulations_below(path))
        if not inside:
            raise DataQualityError(f"{path}: no emulation here", hint="give folders of `joulefleet emulate`")
        for folder in inside:
            check_folder(folder)
        found.update(dict.fromkeys(inside))
    return list(found)


def _in_order(folders: Iterable[Path]) -> list[Path]:
    """Runs one after the other, each in the order of its plan: 5 stands before 10."""
    places: dict[Path, dict[Path, int]] = {}

    def place(folder: Path) -> tuple[str, int, str]:
        run = run_of(folder) or folder
        if run not in places:
            places[run] = {run / name: number for number, name in enumerate(_planned(run))}
        return str(run), places[run].get(folder, len(places[run])), str(folder)

    return sorted(folders, key=place)


def _planned(run: Path) -> list[str]:
    """Folders of a run's plan; of one that has none, or that cannot be read, nothing."""
    try:
        return [one.folder for one in read_index(run).planned]
    except (ConfigError, StorageError):
        return []


def load_emulations(paths: Sequence[Path]) -> tuple[list[FinishedRun], list[str]]:
    """Finished emulations, and what is wrong with the others.

    Raises:
        DataQualityError: None is finished, or a finished one is damaged.
    """
    loaded, warnings = [], []
    for path in find_emulations(paths):
        result = load_result(path)
        if result.record.rounds is None:
            warnings.append(f"{path}: not finished, left out; {how_to_go_on(path)}")
            continue
        if result.record.ended_early:
            warnings.append(f"{path}: {result.record.ended_early}")
        loaded.append(FinishedRun(method_name(result), _rounds(result), result))
    warnings += _half_runs(loaded)
    warnings += _software_notes(loaded)
    if not loaded:
        raise DataQualityError("none of these emulations is finished", hint="; ".join(warnings))
    return loaded, warnings


def load_results(*paths: Path | str | Sequence[Path | str]) -> Results:
    """Stored emulations of one or several runs as data frames, each row with its selector, seed and options.

    Examples:
        >>> found = load_results("emulations/RUN", "emulations/OTHER")
        >>> found.rounds.groupby(["method", "seed"])["energy_j_honest"].sum()

    Args:
        paths: Folders with emulations: runs, or folders of runs.

    Returns:
        Those that are finished; ``left_out`` names the others.

    Raises:
        DataQualityError: A folder holds none, or none is finished, or one is damaged.
    """
    given = [one for path in paths for one in ([path] if isinstance(path, Path | str) else path)]
    if not given:
        raise ConfigError("load_results: no folder is given", hint="e.g. load_results('emulations')")
    for path in map(Path, given):
        if not path.is_dir():
            raise StorageError(f"{path}: no such folder", hint="give folders of `joulefleet emulate`")
    loaded, warnings = load_emulations([Path(path) for path in given])
    return Results(tuple(one.result for one in loaded), tuple(warnings))


def _half_runs(loaded: Sequence[FinishedRun]) -> list[str]:
    """Runs that were killed, or still go on: emulations that they never began leave no trace here."""
    runs = dict.fromkeys(run for one in loaded if (run := run_of(one.path)))
    return [
        f"{run}: not at its end, methods or seeds may be missing; {how_to_go_on(run)}"
        for run in runs
        if read_run(run).status is not RunStatus.COMPLETE
    ]


def _software_notes(loaded: Sequence[FinishedRun]) -> list[str]:
    """Runs of different software, and those that go on with, or have taken over, results of another one."""
    runs = dict.fromkeys(run for one in loaded if (run := run_of(one.path)))
    hosts = {run: read_run(run).host for run in runs}
    accepted = [
        f"{run}: holds results of other software, accepted by who ran it: {host[OTHER_SOFTWARE]}"
        for run, host in hosts.items()
        if OTHER_SOFTWARE in host
    ]
    mixed = mixed_software(runs)
    if mixed:
        accepted.append(f"these runs are of different software, whose numbers may differ: {'; '.join(mixed)}")
    return accepted


def _rounds(result: Result) -> pd.DataFrame:
    try:
        return checked_rounds(result)
    except DataQualityError as error:
        error.hint = f"leave {result.path} out of the comparison, or remove it and play it anew"
        raise


def method_name(result: Result) -> str:
    """What an emulation is called in tables."""
    try:
        return result.record.method
    except DataQualityError as error:
        raise DataQualityError(f"{result.path}: {error.message}") from error


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """A comparison of stored runs.

    Attributes:
        comparison: The methods side by side.
        target: Accuracy to reach that was used.
        accounting: Whose probes count.
        basis: What kind of energy, where the costs came from, and whether the target was fixed in advance.
        origins: Method to where its numbers come from: ``emulated``, or what a bench's costs claim.
        within: What runs may spend for the accuracies within a budget.
    """

    comparison: MethodComparison
    target: float
    accounting: Accounting
    basis: str
    origins: Mapping[str, str]
    within: Spending = NO_BUDGET

    def __str__(self) -> str:
        """The tables of the usual metrics, as ``joulefleet compare`` prints them."""
        from emulator.compare.render import as_text

        return as_text(self, self.shown)

    @property
    def shown(self) -> tuple[str, ...]:
        """The usual metrics, and those within the budgets that were given."""
        given = zip(WITHIN, (self.within.energy_j, self.within.time_s), strict=True)
        return (*SHOWN, *(metric for metric, budget in given if budget is not None))

    def frame(self) -> pd.DataFrame:
        """One row per method and metric, with intervals and tests, as ``joulefleet compare --format csv``."""
        from io import StringIO

        import pandas as pd

        from emulator.compare.render import as_csv

        return pd.read_csv(StringIO(as_csv(self, METRICS)))


def compare_emulations(
    paths: Sequence[Path | str] | Path | str,
    *,
    target: float | None = None,
    accounting: Accounting | str = Accounting.HONEST,
    pairs: Sequence[Pair] = (),
    with_cohorts: bool = False,
    mixed: bool = False,
    within_energy_j: float | None = None,
    within_time_s: float | None = None,
) -> ComparedRuns:
    """Compare stored emulations, paired by seed.

    Examples:
        >>> print(compare("emulations/RUN"))
        >>> compare(["emulations/RUN", "emulations/OTHER"], target=0.8).frame()

    Args:
        paths: A folder with emulations, or several.
        target: Accuracy, or what else the task is judged by, to reach; by default what the baseline ends with
            on average, or the worst method without one.
        accounting: Whose probes count: ``honest``, ``selected_only`` or ``free``.
        pairs: Methods to test against each other besides.
        with_cohorts: Whether to count the classes of each cohort, which needs the data of the runs.
        mixed: Whether runs may be compared that differ in more than who chose, with a warning.
        within_energy_j: How accurate is the model when this energy is spent?
        within_time_s: And when so many seconds of R_T are?

    Raises:
        ConfigError: There is no such accounting, or the target is no accuracy.
        DataQualityError: No run is finished, one is damaged, or they differ in more than who chose.
    """
    if accounting not in list(Accounting):
        raise ConfigError(f"no accounting {accounting!r}", hint=f"known: {', '.join(Accounting)}")
    accounting, within = Accounting(accounting), Spending(within_energy_j, within_time_s)
    folders = [paths] if isinstance(paths, Path | str) else paths
    found, warnings = load_emulations([Path(folder) for folder in folders])
    metric = _judged_by(found)
    if target is not None and metric.share and not 0 <= target <= 1:
        raise ConfigError(f"target {target}: an accuracy is between 0 and 1", hint="e.g. 0.8 for 80 %")
    differ = unequal(found)
    if differ and not mixed:
        raise DataQualityError(
            "; ".join(differ),
            hint="compare the runs of one scenario at a time, as in `joulefleet compare emulations/RUN`; "
            "`--mixed` compares them all the same",
        )
    loaded, twice = _once(told_apart(found))
    warnings += differ + twice
    after_the_fact = "" if target is not None else "; target taken from these runs, not fixed in advance"
    if target is None:
        target = _default_target(loaded, metric)
    runs: dict[str, dict[int, RunMetrics]] = {}
    for one in loaded:
        metrics = run_metrics(one.rounds, target, accounting, metric, within)
        if with_cohorts:
            metrics = replace(metrics, classes_per_cohort=classes_per_cohort(one.result))
        runs.setdefault(one.method, {})[one.seed] = metrics
    references = [name for name in (BASELINE, _best_heuristic(loaded, metric)) if name]
    if BASELINE not in runs and any(one.record.swept for one in loaded):
        # Of a sweep the first variant, as it was planned; it may be the best heuristic, too.
        references = list(dict.fromkeys([loaded[0].method, *references]))
    facts = [facts_of(one.record) for one in loaded]
    basis = sorted(
        {f"{f['energy']} energy, costs {f['cost_origin']}, training {f['trainer']}" for f in facts}
    )
    played = sorted({str(f["played"]) for f in facts})
    gaps = sorted({gap for f in facts for gap in f.get("not_measured", ())})
    basis_text = f"{'; '.join([*basis, *gaps])}; {' and '.join(played)}{after_the_fact}"
    table = compare(runs, references, warnings, pairs, metric)
    origins = {m: _origin(loaded, m) for m in runs}
    return ComparedRuns(table, target, accounting, basis_text, origins, within)


def _origin(loaded: Sequence[FinishedRun], method: str) -> str:
    facts = [facts_of(one.record) for one in loaded if one.method == method]
    found = {EMULATED if f["played"] == EMULATED else str(f["cost_origin"]) for f in facts}
    return " and ".join(sorted(found))


def _once(loaded: Sequence[FinishedRun]) -> tuple[list[FinishedRun], list[str]]:
    """Each method and seed once, and what was left out: it must not decide the target either."""
    kept: dict[tuple[str, int], FinishedRun] = {}
    twice = [one for one in loaded if kept.setdefault((one.method, one.seed), one) is not one]
    notes = [
        f"{one.path}: {one.method} with seed {one.seed} is there twice; the first counts" for one in twice
    ]
    return list(kept.values()), notes


def _means(loaded: Sequence[FinishedRun]) -> dict[str, float]:
    """Of the methods with any accuracy: a run that ended early may never have been tested."""
    finals: dict[str, list[float]] = {}
    for one in loaded:
        if not np.isnan(final := final_accuracy(one.rounds)):
            finals.setdefault(one.method, []).append(final)
    return {method: float(np.mean(values)) for method, values in finals.items()}


def _judged_by(loaded: Sequence[FinishedRun]) -> Metric:
    """The one metric of all runs: an error beside an accuracy is no comparison, whoever asks for it."""
    found = {one.record.metric: one.path for one in loaded}
    if len(found) > 1:
        listed = ", ".join(f"{metric.name} ({path})" for metric, path in found.items())
        raise DataQualityError(f"the runs are judged by different metrics: {listed}")
    return next(iter(found))


def _default_target(loaded: Sequence[FinishedRun], metric: Metric = ACCURACY) -> float:
    means = _means(loaded)
    if not means:
        raise DataQualityError("none of these runs was ever tested", hint="give an accuracy with `--target`")
    worst = min if metric.higher_is_better else max
    return means.get(BASELINE, worst(means.values()))


def _best_heuristic(loaded: Sequence[FinishedRun], metric: Metric = ACCURACY) -> str:
    """The heuristic with the best mean accuracy here; picked after the fact, so it is hard to beat."""
    known = SELECTORS.entries()
    means = {
        method: mean
        for method, mean in _means(loaded).items()
        if (name := method.partition(" ")[0]) in known and SELECTORS.load(name).family is Family.HEURISTIC
    }
    best = best_of(metric, list(means.values())) if means else None
    return next((method for method, mean in means.items() if mean == best), "")
