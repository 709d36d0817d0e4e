"""Methods side by side over the same seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import ACCURACY, Metric
from emulator.compare.censored import cost_to_target, kaplan_meier_median, last_where_missed
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

NOT_KNOWN = Interval(float("nan"))

Runs = Mapping[str, Mapping[int, RunMetrics]]
"""Method to seed to metrics."""
Pair = tuple[str, str]
"""A method and the one that it is compared with."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A method against a reference on the seeds both have.

    Where a run of either never reached the target, the difference is that of the Kaplan-Meier medians,
    without an interval, and the test is of ranks, in which such runs come last (`emulator.compare.censored`).

    Attributes:
        reference: The method compared with.
        difference: Mean of the paired differences with its interval.
        ratio: Mean over the reference's mean; of medians where a run missed the target.
        factor: Geometric mean of the paired ratios, Student's interval on the logarithms; of times, energies
            and counts alone.
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
    factor: Interval = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class MetricCell:
    """One metric of one method.

    Attributes:
        value: Mean over seeds with its interval. Where a run never reached the target: the Kaplan-Meier
            median, without one, and unknown if half of the runs never did.
        middle: Interquartile mean; unknown where a run never reached the target.
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
        paired = _paired(runs, metric, common, higher)
        scale = scale_of(metric, judged_by)
        for method, cell in _column(runs, metric, paired, references, scale).items():
            cells[method][metric] = cell
        tested[metric] = _contrasts(paired, scale, pairs)
    counts = finishing_counts(runs)
    finished = {m: done / asked if asked else float("nan") for m, (done, asked) in counts.items()}
    told = (*warnings, *_warnings(runs, common))
    return MethodComparison(tuple(common), references, cells, tested, finished, told, judged_by)


def _higher_is_better(metric: str, judged_by: Metric) -> bool:
    return judged_by.higher_is_better if metric in OF_THE_TASK else metric in HIGHER_IS_BETTER


@dataclass(frozen=True, slots=True)
class _Paired:
    """A metric of all methods over the common seeds.

    Attributes:
        values: Method to values.
        reached: Method to whether each is that of a run that reached the target; all of them without one.
        ranks: Method to mean rank.
    """

    values: dict[str, Values]
    reached: dict[str, NDArray[np.bool_]]
    ranks: dict[str, float]


def _paired(runs: Runs, metric: str, seeds: Sequence[int], higher: bool) -> _Paired:
    """Each method's values over the common seeds, and its mean rank.

    A method whose costs are not known in whole with one seed, or are of no work, is NaN with all of them: the
    other seeds would be those on which nothing failed.
    """
    partly = {m for m, by_seed in runs.items() if any(_unranked(by_seed[s], metric) for s in seeds)}
    if partly:
        whole = {m: by_seed for m, by_seed in runs.items() if m not in partly}
        paired = _paired(whole, metric, seeds, higher) if whole else _Paired({}, {}, {})
        return _Paired(
            paired.values | dict.fromkeys(partly, np.full(len(seeds), np.nan)),
            paired.reached | dict.fromkeys(partly, np.ones(len(seeds), bool)),
            paired.ranks | dict.fromkeys(partly, float("nan")),
        )
    values = {m: np.array([getattr(by_seed[s], metric) for s in seeds]) for m, by_seed in runs.items()}
    reached = {m: _reached(by_seed, metric, seeds) for m, by_seed in runs.items()}
    ranks = _ranks({m: np.where(reached[m], values[m], np.inf) for m in runs}, higher)
    return _Paired(values, reached, ranks)


def _reached(by_seed: Mapping[int, RunMetrics], metric: str, seeds: Sequence[int]) -> NDArray[np.bool_]:
    return np.array([metric not in TO_TARGET or by_seed[seed].reached for seed in seeds])


def _column(
    runs: Runs,
    metric: str,
    paired: _Paired,
    references: Sequence[str],
    scale: Scale,
) -> dict[str, MetricCell]:
    contrasts = {
        r: _contrasts(paired, scale, [(method, r) for method in runs if method != r]) for r in references
    }
    column = {}
    for method, by_seed in runs.items():
        values = np.array([getattr(run, metric) for run in by_seed.values()])
        known = ~np.isnan(values)
        values, reached = values[known], _reached(by_seed, metric, list(by_seed))[known]
        column[method] = MetricCell(
            value=cost_to_target(values, reached, scale),
            middle=interquartile_mean(values) if reached.all() else float("nan"),
            seeds=len(values),
            reached=sum(run.reached for run in by_seed.values()) if metric in TO_TARGET else None,
            rank=paired.ranks[method],
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


def _contrasts(paired: _Paired, scale: Scale, pairs: Sequence[Pair]) -> dict[Pair, Contrast]:
    found = [_contrast(paired, scale, pair, len(pairs)) for pair in pairs]
    corrected = holm([one.p for one in found])
    return {pair: replace(one, p_holm=p) for pair, one, p in zip(pairs, found, corrected, strict=True)}


def _contrast(paired: _Paired, scale: Scale, pair: Pair, tests: int) -> Contrast:
    """Two methods; ``p_holm`` is still to be corrected."""
    method, reference = pair
    both = ~np.isnan(paired.values[method]) & ~np.isnan(paired.values[reference])
    mine, base = paired.values[method][both], paired.values[reference][both]
    here, there = paired.reached[method][both], paired.reached[reference][both]
    if here.all() and there.all():
        gaps, difference = mine - base, _difference(mine - base, scale)
        middles, factor = (_mean(mine), _mean(base)), _factor(mine, base, scale)
    else:
        places, other_places = last_where_missed(mine, here, base, there)
        gaps, factor = places - other_places, NOT_KNOWN
        middles = kaplan_meier_median(mine, here), kaplan_meier_median(base, there)
        difference = Interval(middles[0] - middles[1])
    p = permutation_p(gaps)
    return Contrast(
        reference=reference,
        difference=difference,
        ratio=middles[0] / middles[1] if middles[1] else float("nan"),
        p=p,
        p_holm=p,
        tests=tests,
        delta=cliffs_delta(*last_where_missed(mine, here, base, there)),
        factor=factor,
    )


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _factor(mine: Values, base: Values, scale: Scale) -> Interval:
    """How many times the reference, pair by pair."""
    if scale is not Scale.LOG or not len(mine) or min(mine.min(), base.min()) <= 0:
        return NOT_KNOWN
    logs = student_interval(np.log(mine / base))
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))


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
                "there is a Kaplan-Meier median instead of a mean, and they rank last"
            )
        found += [
            f"{method}: {ended} of {len(by_seed)} runs ended before the {budget} budget was spent; "
            "of these it is the accuracy after their last tested round"
            for budget in ("energy", "time")
            if (ended := sum(budget in run.spent_less for run in by_seed.values()))
        ]
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
