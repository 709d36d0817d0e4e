"""The table of a variant: every method over its seeds, against FedAvg, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from device_agents.workloads import ACCURACY, TASKS, Metric
from emulator.compare.censored import cost_to_target
from emulator.compare.load import BASELINE
from emulator.compare.metrics import RunMetrics, final_accuracy, run_metrics
from emulator.compare.statistics import holm, permutation_p
from emulator.compare.table import finishing_warnings
from emulator.compare.titles import TO_TARGET, scale_of
from emulator.experiments.paper import PaperRow, paper_table
from emulator.experiments.plan import Variant
from emulator.experiments.results import ExperimentResults
from emulator.experiments.vanilla import AgainstVanilla, against_vanilla, probes_an_epoch
from emulator.round.outcome import Accounting
from emulator.runs.reading import FinishedRun
from joulefleet.interval import Interval, Scale, student_interval

UNKNOWN = Interval(float("nan"))

BySeed = Mapping[int, RunMetrics]
Runs = Mapping[str, Mapping[int, FinishedRun]]
"""Method to seed to run."""


@dataclass(frozen=True, slots=True)
class AgainstBaseline:
    """A method against FedAvg on the seeds that both have.

    Attributes:
        energy: Energy per round as a share of FedAvg's under each accounting.
        speed: How many times as fast a round is, likewise.
        accuracy: Difference of the accuracies.
        p_holm: Of the paired permutation test of that difference, corrected for the number of tests; NaN for
            a method with fewer pairs than others, which could only weaken their tests.
        pairs: How many seeds both have.
    """

    energy: Mapping[Accounting, Interval]
    speed: Mapping[Accounting, Interval]
    accuracy: Interval
    p_holm: float
    pairs: int


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One method on one variant; means over seeds with 95 % intervals.

    Attributes:
        method: The selector.
        seeds: How many.
        accuracy: Mean of the last ten tested rounds.
        best_accuracy: Of the best round.
        rounds_to_target: Mean, or the Kaplan-Meier median if a run never reaches it; see `cost_to_target`.
        time_to_target_s: Likewise, honest.
        energy_to_target_j: Likewise, honest.
        reached: In how many runs the target was reached.
        finished: How many participations sent the update that they were to send, of all runs.
        asked: How many were to.
        round_time_s: Mean R_T under each accounting.
        round_energy_j: Mean R_E under each accounting.
        energy_j: Of the whole run, honest.
        time_s: Of the rounds of the whole run, honest.
        calendar_s: Of the whole run, with the pauses between rounds.
        against: FedAvg; ``None`` for FedAvg itself or without one.
        paper: What the paper reports; ``None`` for nothing.
        shown_times: What an accuracy is multiplied by to be shown: 100 of a share, 1 of an error.
    """

    method: str
    seeds: int
    accuracy: Interval
    best_accuracy: Interval
    rounds_to_target: Interval
    time_to_target_s: Interval
    energy_to_target_j: Interval
    reached: int
    finished: int
    asked: int
    round_time_s: Mapping[Accounting, Interval]
    round_energy_j: Mapping[Accounting, Interval]
    energy_j: Interval
    time_s: Interval
    calendar_s: Interval
    against: AgainstBaseline | None
    paper: PaperRow | None
    shown_times: float = 100.0


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The table of one variant.

    Attributes:
        variant: What was run.
        target: Accuracy to reach.
        target_note: Where that came from.
        rows: One per method, in the order of the plan.
        runs: What they were made of.
        vanilla: Of the methods that probe, their rounds against those without early exit.
    """

    variant: Variant
    target: float
    target_note: str
    rows: tuple[MethodRow, ...]
    runs: Runs
    vanilla: Mapping[str, AgainstVanilla]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the variant's emulations rest on, the same for all of them."""
        return next(run for by_seed in self.runs.values() for run in by_seed.values()).record.facts

    @property
    def metric(self) -> Metric:
        """What is called accuracy in the rows, where the task has another one."""
        return judged_by(self.runs)

    @property
    def warnings(self) -> list[str]:
        """Methods of which few participations finished."""
        return finishing_warnings({row.method: (row.finished, row.asked) for row in self.rows})

    @property
    def reductions(self) -> str:
        """What differs from the paper, in one line."""
        return self.variant.unlike_the_paper


@lru_cache(maxsize=1)
def summarise(results: ExperimentResults) -> tuple[VariantSummary, ...]:
    """The tables of all variants that have a run; kept, since every output asks for them."""
    found = ((variant, results.of(variant)) for variant in results.plan.variants)
    return tuple(summary_of(variant, runs) for variant, runs in found if runs)


def summary_of(variant: Variant, runs: Runs) -> VariantSummary:
    """The table of one variant."""
    target, note = _target(variant, runs)
    metrics = {
        accounting: {
            method: {
                seed: run_metrics(run.rounds, target, accounting, run.record.metric)
                for seed, run in by_seed.items()
            }
            for method, by_seed in runs.items()
        }
        for accounting in Accounting
    }
    p_holm = _p_values(metrics[Accounting.HONEST])
    rows = tuple(_row(variant, method, metrics, p_holm, judged_by(runs)) for method in runs)
    return VariantSummary(variant, target, note, rows, runs, _vanilla(runs))


def judged_by(runs: Runs) -> Metric:
    """What the models of these runs are judged by."""
    return next(run for by_seed in runs.values() for run in by_seed.values()).record.metric


def _vanilla(runs: Runs) -> dict[str, AgainstVanilla]:
    whole = {m: list(by_seed.values()) for m, by_seed in runs.items() if probes_an_epoch(m)}
    found = {
        method: against_vanilla(runs_of)
        for method, runs_of in whole.items()
        if all(run.result.has_clients for run in runs_of)
    }
    return {method: one for method, one in found.items() if one is not None}


def _target(variant: Variant, runs: Runs) -> tuple[float, str]:
    if variant.target is not None:
        return variant.target, "fixed in advance"
    source = BASELINE if BASELINE in runs else next(iter(runs))
    target = float(np.mean([final_accuracy(run.rounds) for run in runs[source].values()]))
    note = f"taken from these runs: what {source} ends with (mean over seeds)"
    task = TASKS.get(variant.scenario.task.name)  # what is not ours is not run for a remark
    chance = 0.0 if task is None else 1 / task.classes
    if target < 2 * chance:
        note += f"; hardly better than guessing ({chance:.0%}), so what it takes to get there says nothing"
    return target, note


def _row(
    variant: Variant,
    method: str,
    metrics: Mapping[Accounting, Mapping[str, BySeed]],
    p_holm: Mapping[str, float],
    judged_by: Metric,
) -> MethodRow:
    honest = metrics[Accounting.HONEST][method]
    against = None
    if method != BASELINE and BASELINE in metrics[Accounting.HONEST]:
        against = _against(method, metrics, p_holm.get(method, float("nan")), judged_by)
    return MethodRow(
        method=method,
        seeds=len(honest),
        accuracy=_mean(honest, "accuracy", judged_by),
        best_accuracy=_mean(honest, "best_accuracy", judged_by),
        rounds_to_target=_mean(honest, "rounds_to_target"),
        time_to_target_s=_mean(honest, "time_to_target_s"),
        energy_to_target_j=_mean(honest, "energy_to_target_j"),
        reached=sum(run.reached for run in honest.values()),
        finished=sum(run.finished for run in honest.values()),
        asked=sum(run.asked for run in honest.values()),
        round_time_s={a: _mean(metrics[a][method], "round_time_s") for a in Accounting},
        round_energy_j={a: _mean(metrics[a][method], "round_energy_j") for a in Accounting},
        energy_j=_mean(honest, "energy_j"),
        time_s=_mean(honest, "time_s"),
        calendar_s=_mean(honest, "calendar_s"),
        against=against,
        paper=paper_table().get((variant.paper_split, variant.paper_task, method)),
        shown_times=100.0 if judged_by.share else 1.0,
    )


def _mean(by_seed: BySeed, metric: str, judged_by: Metric = ACCURACY) -> Interval:
    values, scale = np.array([getattr(run, metric) for run in by_seed.values()]), scale_of(metric, judged_by)
    if metric in TO_TARGET:
        return cost_to_target(values, np.array([run.reached for run in by_seed.values()]), scale)
    return student_interval(values, scale)


def _against(
    method: str, metrics: Mapping[Accounting, Mapping[str, BySeed]], p_holm: float, judged_by: Metric
) -> AgainstBaseline:
    energy, speed = {}, {}
    for accounting in Accounting:
        mine, base = metrics[accounting][method], metrics[accounting][BASELINE]
        common = sorted(set(mine) & set(base))
        energy[accounting] = _ratio([(mine[s].round_energy_j, base[s].round_energy_j) for s in common])
        speed[accounting] = _ratio([(base[s].round_time_s, mine[s].round_time_s) for s in common])
    gaps = _gaps(metrics[Accounting.HONEST], method)
    gap = student_interval(gaps)
    gap = gap.within(-1.0, 1.0) if judged_by.share else gap
    return AgainstBaseline(energy, speed, gap, p_holm, len(gaps))


def _ratio(pairs: list[tuple[float, float]]) -> Interval:
    """Mean of the paired ratios; unknown where the reference is nothing."""
    if not pairs or any(below <= 0 for _, below in pairs):
        return UNKNOWN
    return student_interval(np.array([above / below for above, below in pairs]), Scale.LOG)


def _gaps(honest: Mapping[str, BySeed], method: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    mine, base = honest[method], honest.get(BASELINE, {})
    common = sorted(set(mine) & set(base))
    return np.array([mine[seed].accuracy - base[seed].accuracy for seed in common])


def _p_values(honest: Mapping[str, BySeed]) -> dict[str, float]:
    """Corrected p-values of the methods that share most seeds with FedAvg, and at least two.

    Each further test raises the p-values of all, and one on fewer pairs has little chance of a small one.
    """
    gaps = {method: _gaps(honest, method) for method in honest if method != BASELINE}
    most = max(map(len, gaps.values()), default=0)
    tested = {method: values for method, values in gaps.items() if len(values) == most > 1}
    return dict(zip(tested, holm([permutation_p(values) for values in tested.values()]), strict=True))
