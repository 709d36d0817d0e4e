"""Methods side by side over the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import ACCURACY, Metric
from emulator.compare.metrics import RunMetrics
from emulator.compare.statistics import cliffs_delta, holm, interquartile_mean, permutation_p
from emulator.compare.titles import METRICS, OF_THE_TASK, TO_TARGET, WITHOUT_COSTS, scale_of
from joulefleet.errors import DataQualityError
from joulefleet.interval import Interval, Scale, student_interval

Values = NDArray[np.float64]

FEW_SEEDS = 5
LITTLE_FINISHED = 0.5
"""Below this share of finished participations a method is warned of, whatever the others did."""
LESS_FINISHED = 0.1
"""And if it is so much less than that of the method that finished most."""
HIGHER_IS_BETTER = frozenset({"classes_per_cohort"})
"""Beside what the task is judged by, which says so itself."""

Runs = Mapping[str, Mapping[int, RunMetrics]]
"""Method to seed to metrics."""
Pair = tuple[str, str]
"""A method and the one that it is compared with."""


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
        p_holm: The same, corrected for the number of tests.
        tests: How many: one per other method, or one per named pair.
        delta: Cliff's delta, positive if this method's values are larger.
    """

    reference: str
    difference: Interval
    ratio: float
    p: float
    p_holm: float
    tests: int
    delta: float


@dataclass(frozen=True, slots=True)
class MetricCell:
    """One metric of one method.

    Attributes:
        value: Mean over seeds with its interval. For a censored metric it is the restricted mean: runs that
            never reached the target count with their whole length, so it is a lower bound.
        middle: Interquartile mean.
        seeds: How many.
        reached: In how many of them the target was reached; None for metrics without a target.
        rank: Mean rank among the methods over the common seeds, 1 for the best; runs that never reached the
            target share the last places. NaN for costs that are not known, or of no work: these have none.
        contrasts: Against each reference that is another method.
        unknown: In how many runs a part of it is not known (see `RunMetrics.unknown`); then the value is a
            lower bound, and it is compared with nothing.
    """

    value: Interval
    middle: float
    seeds: int
    reached: int | None
    rank: float
    contrasts: tuple[Contrast, ...]
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """All metrics of all methods.

    Attributes:
        seeds: Those that every method has; ranks and contrasts use these alone.
        references: What methods are compared with.
        cells: Method to metric to cell.
        pairs: Metric to the contrasts of the pairs that were named, in their order.
        finished: Method to the share of participations that sent the update they were to send.
        warnings: What a reader has to know before believing any of it.
        judged_by: What is called accuracy here, where the task has another metric.
    """

    seeds: tuple[int, ...]
    references: tuple[str, ...]
    cells: Mapping[str, Mapping[str, MetricCell]]
    pairs: Mapping[str, Mapping[Pair, Contrast]]
    finished: Mapping[str, float]
    warnings: tuple[str, ...]
    judged_by: Metric = ACCURACY


def compare(
    runs: Runs,
    references: Sequence[str],
    warnings: Sequence[str] = (),
    pairs: Sequence[Pair] = (),
    judged_by: Metric = ACCURACY,
) -> MethodComparison:
    """Put methods side by side.

    Args:
        runs: Metrics by method and seed.
        references: Methods to compare with, those of them that are there.
        warnings: What is already known to be wrong with the runs.
        pairs: Methods to compare in pairs besides, corrected for the number of pairs.
        judged_by: What is called accuracy in the runs.

    Raises:
        DataQualityError: There is nothing to compare, the methods have no seed in common, or a pair names a
            method that is not there.
    """
    if not runs:
        raise DataQualityError("no run to compare", hint="give folders of `joulefleet emulate`")
    common = sorted(set.intersection(*(set(by_seed) for by_seed in runs.values())))
    if not common:
        raise DataQualityError(
            "the methods have no seed in common, so nothing is paired",
            hint="run them with the same `--seeds`",
        )
    if absent := sorted({name for pair in pairs for name in pair} - set(runs)):
        raise DataQualityError(
            f"no run of {absent[0]!r}, which a pair names", hint=f"there are: {', '.join(sorted(runs))}"
        )
    pairs = tuple(dict.fromkeys(pairs))  # a pair that is named twice is one test
    references = tuple(name for name in references if name in runs)
    cells: dict[str, dict[str, MetricCell]] = {method: {} for method in runs}
    tested = {}
    for metric in METRICS:
        higher = _higher_is_better(metric, judged_by)
        paired, ranks = _paired(runs, metric, common, higher)
        scale = scale_of(metric, judged_by)
        for method, cell in _column(runs, metric, paired, ranks, references, scale).items():
            cells[method][metric] = cell
        tested[metric] = _contrasts(paired, scale, pairs)
    counts = finishing_counts(runs)
    finished = {m: done / asked if asked else float("nan") for m, (done, asked) in counts.items()}
    told = (*warnings, *_warnings(runs, common))
    return MethodComparison(tuple(common), references, cells, tested, finished, told, judged_by)


def _higher_is_better(metric: str, judged_by: Metric) -> bool:
    return judged_by.higher_is_better if metric in OF_THE_TASK else metric in HIGHER_IS_BETTER


def _paired(
    runs: Runs, metric: str, seeds: Sequence[int], higher: bool
) -> tuple[dict[str, Values], dict[str, float]]:
    """Each method's values over the common seeds, as tests take them, and its mean rank.

    A method whose costs are not known in whole with one seed, or are of no work, is NaN with all of them: the
    other seeds would be those on which nothing failed.
    """
    partly = {m for m, by_seed in runs.items() if any(_unranked(by_seed[s], metric) for s in seeds)}
    if partly:
        whole = {m: by_seed for m, by_seed in runs.items() if m not in partly}
        paired, ranks = _paired(whole, metric, seeds, higher) if whole else ({}, {})
        nothing = np.full(len(seeds), np.nan)
        return paired | dict.fromkeys(partly, nothing), ranks | dict.fromkeys(partly, float("nan"))
    values = {m: np.array([getattr(by_seed[s], metric) for s in seeds]) for m, by_seed in runs.items()}
    if metric not in TO_TARGET:
        return values, _ranks(values, higher)
    reached = {m: np.array([by_seed[s].reached for s in seeds]) for m, by_seed in runs.items()}
    # What one method does not know (NaN) must not take the others' values away.
    longest = np.fmax.reduce(list(values.values()))
    ranks = _ranks({m: np.where(reached[m], values[m], np.inf) for m in runs}, higher)
    return {m: np.where(reached[m], values[m], longest) for m in runs}, ranks


def _column(
    runs: Runs,
    metric: str,
    paired: Mapping[str, Values],
    ranks: Mapping[str, float],
    references: Sequence[str],
    scale: Scale,
) -> dict[str, MetricCell]:
    contrasts = {
        r: _contrasts(paired, scale, [(method, r) for method in runs if method != r]) for r in references
    }
    column = {}
    for method, by_seed in runs.items():
        values = np.array([getattr(run, metric) for run in by_seed.values()])
        values = values[~np.isnan(values)]
        column[method] = MetricCell(
            value=student_interval(values, scale),
            middle=interquartile_mean(values),
            seeds=len(values),
            reached=sum(run.reached for run in by_seed.values()) if metric in TO_TARGET else None,
            rank=ranks[method],
            contrasts=tuple(contrasts[r][method, r] for r in references if r != method),
            unknown=sum(_unknown(run, metric) for run in by_seed.values()),
        )
    return column


def _unknown(run: RunMetrics, metric: str) -> bool:
    return run.unknown > 0 and metric not in WITHOUT_COSTS


def _unranked(run: RunMetrics, metric: str) -> bool:
    """Costs of which a part is not known, and those of a run in which nobody finished anything."""
    return metric not in WITHOUT_COSTS and (run.unknown > 0 or run.finished_share == 0)


def _difference(values: Values, scale: Scale) -> Interval:
    """Differences have no scale but the linear one; of accuracies none is larger than 1."""
    found = student_interval(values)
    return found.within(-1.0, 1.0) if scale is Scale.LOGIT else found


def _contrasts(paired: Mapping[str, Values], scale: Scale, pairs: Sequence[Pair]) -> dict[Pair, Contrast]:
    p_values = [permutation_p(paired[method] - paired[reference]) for method, reference in pairs]
    found = {}
    for (method, reference), p, p_holm in zip(pairs, p_values, holm(p_values), strict=True):
        values, base = paired[method], paired[reference]
        both = ~np.isnan(values) & ~np.isnan(base)
        mean = float(base[both].mean()) if both.any() else float("nan")
        found[method, reference] = Contrast(
            reference=reference,
            difference=_difference(values[both] - base[both], scale),
            ratio=float(values[both].mean()) / mean if both.any() and mean != 0 else float("nan"),
            p=p,
            p_holm=p_holm,
            tests=len(pairs),
            delta=cliffs_delta(values[both], base[both]),
        )
    return found


def _ranks(paired: Mapping[str, Values], higher: bool) -> dict[str, float]:
    """Mean rank over seeds, ties shared; what is not known is worst."""
    from scipy.stats import rankdata

    table = np.array(list(paired.values()))
    table = np.where(np.isnan(table), -np.inf if higher else np.inf, table)
    ranks = rankdata(-table if higher else table, axis=0).mean(axis=1)
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
        if unknown := sum(run.unknown for run in by_seed.values()):
            found.append(
                f"{method}: of {unknown} participation{'s' * (unknown > 1)} not every cost is known; its "
                "times and energies are lower bounds, compared with nothing and not ranked"
            )
    return found + finishing_warnings(finishing_counts(runs))


def finishing_warnings(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """Methods that did less than they were asked: work that was not done is neither slow nor costly.

    Args:
        counts: Method to how many participations finished, and how many were to.
    """
    shares = {method: finished / asked for method, (finished, asked) in counts.items() if asked}
    least = max([LITTLE_FINISHED, *(share - LESS_FINISHED for share in shares.values())])
    return [
        f"{method}: only {counts[method][0]:,} of {counts[method][1]:,} participations finished "
        f"({share:.0%}): "
        "its times and energies are of work that was cut short, not of a fast and cheap method"
        for method, share in shares.items()
        if share < least
    ]


def finishing_counts(runs: Runs) -> dict[str, tuple[int, int]]:
    """What `finishing_warnings` takes."""
    return {
        method: (sum(run.finished for run in by_seed.values()), sum(run.asked for run in by_seed.values()))
        for method, by_seed in runs.items()
    }
