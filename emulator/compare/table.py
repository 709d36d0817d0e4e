"""Methods side by side over the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from emulator.compare.metrics import RunMetrics
from emulator.compare.statistics import (
    Interval,
    bootstrap_mean,
    cliffs_delta,
    holm,
    interquartile_mean,
    permutation_p,
)
from fedjoule.errors import DataQualityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW_SEEDS = 5
METRICS = tuple(field.name for field in fields(RunMetrics) if field.name != "reached")
HIGHER_IS_BETTER = frozenset({"accuracy", "best_accuracy"})
CENSORED = frozenset({"time_to_target_s", "energy_to_target_j", "rounds_to_target"})

Runs = Mapping[str, Mapping[int, RunMetrics]]
"""Method to seed to metrics."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A method against a reference on the seeds both have.

    Of a censored metric, a run that never reached the target counts with the largest value that any method
    has on that seed: one that gives up early must not pass for fast.

    Attributes:
        reference: The method compared with.
        difference: Mean of the paired differences with its interval.
        ratio: Mean over the reference's mean.
        p: Of the paired permutation test.
        p_holm: The same, corrected for the number of methods.
        delta: Cliff's delta, positive if this method's values are larger.
    """

    reference: str
    difference: Interval
    ratio: float
    p: float
    p_holm: float
    delta: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one method.

    Attributes:
        value: Mean over seeds with its interval. For a censored metric it is the restricted mean: runs that
            never reached the target count with their whole length, so it is a lower bound.
        middle: Interquartile mean.
        seeds: How many.
        reached: In how many of them the target was reached; None for metrics without a target.
        rank: Mean rank among the methods over the common seeds, 1 for the best; runs that never reached the
            target share the last places.
        contrasts: Against each reference that is another method.
    """

    value: Interval
    middle: float
    seeds: int
    reached: int | None
    rank: float
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All metrics of all methods.

    Attributes:
        seeds: Those that every method has; ranks and contrasts use these alone.
        references: What methods are compared with.
        cells: Method to metric to cell.
        warnings: What a reader has to know before believing any of it.
    """

    seeds: tuple[int, ...]
    references: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Cell]]
    warnings: tuple[str, ...]


def compare(runs: Runs, references: Sequence[str], warnings: Sequence[str] = ()) -> Comparison:
    """Put methods side by side.

    Args:
        runs: Metrics by method and seed.
        references: Methods to compare with, those of them that are there.
        warnings: What is already known to be wrong with the runs.

    Raises:
        DataQualityError: There is nothing to compare, or the methods have no seed in common.
    """
    if not runs:
        raise DataQualityError("no run to compare", hint="give folders of `fedjoule emulate`")
    common = sorted(set.intersection(*(set(by_seed) for by_seed in runs.values())))
    if not common:
        raise DataQualityError(
            "the methods have no seed in common, so nothing is paired",
            hint="run them with the same `--seeds`",
        )
    references = tuple(name for name in references if name in runs)
    cells: dict[str, dict[str, Cell]] = {method: {} for method in runs}
    for metric in METRICS:
        for method, cell in _column(runs, metric, common, references).items():
            cells[method][metric] = cell
    return Comparison(tuple(common), references, cells, (*warnings, *_warnings(runs, common)))


def _column(runs: Runs, metric: str, seeds: Sequence[int], references: Sequence[str]) -> dict[str, Cell]:
    paired = {m: np.array([getattr(by_seed[s], metric) for s in seeds]) for m, by_seed in runs.items()}
    if metric in CENSORED:
        reached = {m: np.array([by_seed[s].reached for s in seeds]) for m, by_seed in runs.items()}
        ranks = _ranks({m: np.where(reached[m], paired[m], np.inf) for m in runs}, metric)
        longest = np.max(list(paired.values()), axis=0)
        paired = {m: np.where(reached[m], paired[m], longest) for m in runs}
    else:
        ranks = _ranks(paired, metric)
    contrasts = {reference: _contrasts(paired, reference) for reference in references}
    column = {}
    for method, by_seed in runs.items():
        values = np.array([getattr(run, metric) for run in by_seed.values()])
        values = values[~np.isnan(values)]
        column[method] = Cell(
            value=bootstrap_mean(values),
            middle=interquartile_mean(values),
            seeds=len(values),
            reached=sum(run.reached for run in by_seed.values()) if metric in CENSORED else None,
            rank=ranks[method],
            contrasts=tuple(contrasts[r][method] for r in references if r != method),
        )
    return column


def _contrasts(paired: Mapping[str, NDArray[np.float64]], reference: str) -> dict[str, Contrast]:
    base = paired[reference]
    others = [method for method in paired if method != reference]
    p_values = [permutation_p(paired[method] - base) for method in others]
    found = {}
    for method, p, p_holm in zip(others, p_values, holm(p_values), strict=True):
        values = paired[method]
        both = ~np.isnan(values) & ~np.isnan(base)
        mean = float(base[both].mean()) if both.any() else float("nan")
        found[method] = Contrast(
            reference=reference,
            difference=bootstrap_mean(values[both] - base[both]),
            ratio=float(values[both].mean()) / mean if both.any() and mean != 0 else float("nan"),
            p=p,
            p_holm=p_holm,
            delta=cliffs_delta(values[both], base[both]),
        )
    return found


def _ranks(paired: Mapping[str, NDArray[np.float64]], metric: str) -> dict[str, float]:
    """Mean rank over seeds, ties shared; what is not known is worst."""
    from scipy.stats import rankdata

    table = np.array(list(paired.values()))
    table = np.where(np.isnan(table), -np.inf if metric in HIGHER_IS_BETTER else np.inf, table)
    ranks = rankdata(-table if metric in HIGHER_IS_BETTER else table, axis=0).mean(axis=1)
    return dict(zip(paired, map(float, ranks), strict=True))


def _warnings(runs: Runs, common: Sequence[int]) -> list[str]:
    found = []
    if len(common) < FEW_SEEDS:
        found.append(
            f"{len(common)} paired seed{'s' if len(common) != 1 else ''}: fewer than {FEW_SEEDS} show large "
            "differences at most"
        )
    uneven = [method for method, by_seed in runs.items() if len(by_seed) > len(common)]
    if uneven:
        found.append(f"not every seed was run with every method; more seeds than common: {', '.join(uneven)}")
    for method, by_seed in runs.items():
        missed = sum(not run.reached for run in by_seed.values())
        if missed:
            found.append(
                f"{method}: the target was not reached in {missed} of {len(by_seed)} runs; "
                "their whole length counts in the mean, which is a lower bound, and they rank last"
            )
        if any(np.isnan(run.accuracy) for run in by_seed.values()):
            found.append(f"{method}: some runs have no accuracy at all")
    return found
