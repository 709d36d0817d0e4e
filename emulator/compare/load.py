"""Stored emulations as a comparison: found, checked for being comparable, and put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.compare.cohorts import classes_per_cohort
from emulator.compare.metrics import LAST_ROUNDS, RunMetrics, run_metrics
from emulator.compare.table import Comparison, Pair, compare
from emulator.emulation import RECORD, Result, load_result
from emulator.outcome import Accounting
from emulator.policies.store import SUFFIX
from emulator.selectors.base import SELECTORS, Family
from fedjoule.errors import DataQualityError

if TYPE_CHECKING:
    import pandas as pd

BASELINE = "fedavg"
SHARED_FACTS = ("data", "partition", "traces", "profiles", "profiles_sha256")
"""What runs with the same seed rest on, whoever chooses."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One finished emulation."""

    path: Path
    method: str
    seed: int
    rounds: pd.DataFrame
    result: Result


def find_emulations(paths: Sequence[Path]) -> list[Path]:
    """Every emulation in these folders, in order and once.

    Raises:
        DataQualityError: A folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        inside = [record.parent for record in sorted(path.rglob(RECORD))]
        if not inside:
            raise DataQualityError(f"{path}: no emulation here", hint="give folders of `fedjoule emulate`")
        found.update(dict.fromkeys(inside))
    return list(found)


def load_emulations(paths: Sequence[Path]) -> tuple[list[Loaded], list[str]]:
    """Finished emulations, and what is wrong with the others."""
    loaded, warnings = [], []
    for path in find_emulations(paths):
        result = load_result(path)
        if result.record.rounds is None:
            warnings.append(f"{path}: not finished, left out; `fedjoule emulate --resume` continues it")
            continue
        if result.record.ended_early:
            warnings.append(f"{path}: {result.record.ended_early}")
        loaded.append(Loaded(path, method_name(result), result.record.seed, result.rounds, result))
    if not loaded:
        raise DataQualityError("none of these emulations is finished", hint="; ".join(warnings))
    return loaded, warnings


def method_name(result: Result) -> str:
    """The selector with the options that it was given, be it the scenario's or an object of one's own."""
    record, section = result.record, result.record.scenario.selector
    # Runs from before options were noted: those of the scenario are another selector's if an object played.
    own = section.options if record.selector == section.name else {}
    options = dict(record.facts.get("selector_options", own))
    if str(options.get("policy", "")).endswith(SUFFIX):  # what is in it counts, not where it lies
        digest = record.facts.get("policy_sha256")
        options["policy"] = Path(options["policy"]).name + (f":{digest[:8]}" if digest else "")
    listed = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
    return record.selector + (f" ({listed})" if listed else "")


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of stored runs.

    Attributes:
        comparison: The methods side by side.
        target: Accuracy to reach that was used.
        basis: What kind of energy, where the costs came from, and whether the target was fixed in advance.
    """

    comparison: Comparison
    target: float
    basis: str


def compare_emulations(
    paths: Sequence[Path],
    *,
    target: float | None = None,
    accounting: Accounting = Accounting.HONEST,
    pairs: Sequence[Pair] = (),
    with_cohorts: bool = False,
    mixed: bool = False,
) -> Compared:
    """Compare stored emulations, paired by seed.

    Args:
        paths: Folders with emulations.
        target: Accuracy to reach; by default what the baseline ends with on average, or the worst method
            without one.
        accounting: Whose probes count.
        pairs: Methods to test against each other besides.
        with_cohorts: Whether to count the classes of each cohort, which needs the data of the runs.
        mixed: Whether runs of different scenarios may be compared, with a warning.

    Raises:
        DataQualityError: No run is finished, or they are of different scenarios.
    """
    found, warnings = load_emulations(paths)
    differ = _unequal(found)
    if differ and not mixed:
        raise DataQualityError(
            differ[0],
            hint="compare the runs of one scenario at a time, as in `fedjoule compare emulations/RUN`; "
            "`--mixed` compares them all the same",
        )
    loaded, twice = _once(found)
    warnings += differ + twice
    after_the_fact = "" if target is not None else "; target taken from these runs, not fixed in advance"
    if target is None:
        target = _default_target(loaded)
    runs: dict[str, dict[int, RunMetrics]] = {}
    for one in loaded:
        metrics = run_metrics(one.rounds, target, accounting)
        if with_cohorts:
            metrics = replace(metrics, classes_per_cohort=classes_per_cohort(one.result))
        runs.setdefault(one.method, {})[one.seed] = metrics
    references = [name for name in (BASELINE, _best_heuristic(loaded)) if name]
    facts = [one.result.record.facts for one in loaded]
    basis = sorted(
        {f"{f['energy']} energy, costs {f['cost_origin']}, training {f['trainer']}" for f in facts}
    )
    played = sorted({str(f.get("played", "emulated")) for f in facts})
    basis_text = f"{'; '.join(basis)}; {' and '.join(played)}{after_the_fact}"
    return Compared(compare(runs, references, warnings, pairs), target, basis_text)


def _once(loaded: Sequence[Loaded]) -> tuple[list[Loaded], list[str]]:
    """Each method and seed once, and what was left out: it must not decide the target either."""
    kept: dict[tuple[str, int], Loaded] = {}
    twice = [one for one in loaded if kept.setdefault((one.method, one.seed), one) is not one]
    told = [
        f"{one.path}: {one.method} with seed {one.seed} is there twice; the first counts" for one in twice
    ]
    return list(kept.values()), told


def _final(one: Loaded) -> float:
    played = one.rounds[one.rounds["round"] > 0]
    accuracy = played["test_accuracy"].dropna().to_numpy(float)
    return float(accuracy[-LAST_ROUNDS:].mean()) if len(accuracy) else float("nan")


def _means(loaded: Sequence[Loaded]) -> dict[str, float]:
    """Of the methods with any accuracy: a run that ended early may never have been tested."""
    finals: dict[str, list[float]] = {}
    for one in loaded:
        if not np.isnan(final := _final(one)):
            finals.setdefault(one.method, []).append(final)
    return {method: float(np.mean(values)) for method, values in finals.items()}


def _default_target(loaded: Sequence[Loaded]) -> float:
    means = _means(loaded)
    if not means:
        raise DataQualityError("none of these runs was ever tested", hint="give an accuracy with `--target`")
    return means.get(BASELINE, min(means.values()))


def _best_heuristic(loaded: Sequence[Loaded]) -> str:
    """The heuristic with the highest mean accuracy here; picked after the fact, so it is hard to beat."""
    known = SELECTORS.entries()
    means = {
        method: mean
        for method, mean in _means(loaded).items()
        if (name := method.partition(" ")[0]) in known and SELECTORS.load(name).family is Family.HEURISTIC
    }
    return max(means, key=lambda m: means[m], default="")


def _unequal(loaded: Sequence[Loaded]) -> list[str]:
    """How the runs differ in more than who chose and which seed."""
    return _unequal_scenarios(loaded) + _unequal_facts(loaded)


def _unequal_scenarios(loaded: Sequence[Loaded]) -> list[str]:
    # Names and numbers of processes decide no result.
    ignored: Any = {
        "name": True,
        "seeds": True,
        "selector": True,
        "checkpoint_every": True,
        "trainer": {"workers"},
    }
    first = loaded[0].result.record.scenario.model_dump(exclude=ignored)
    for one in loaded[1:]:
        other = one.result.record.scenario.model_dump(exclude=ignored)
        if other != first:
            parts = [name for name in first if first[name] != other.get(name)]
            where = f"{loaded[0].path} and {one.path}"
            return [f"the scenarios differ ({', '.join(parts)}), so not the methods alone: {where}"]
    return []


def _unequal_facts(loaded: Sequence[Loaded]) -> list[str]:
    """The same paths may hold other files; a fact that a run does not tell is not held against it."""
    firsts: dict[tuple[int, str], Loaded] = {}
    for one in loaded:
        facts = one.result.record.facts
        for name in [name for name in SHARED_FACTS if name in facts]:
            first = firsts.setdefault((one.seed, name), one)
            if first.result.record.facts[name] != facts[name]:
                what = f"runs with seed {one.seed} rest on different {name}"
                return [f"{what}, so not the methods alone: {first.path} and {one.path}"]
    return []
