"""One run's numbers, fixed in advance: final accuracy, time and energy to a target, totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from device_agents.workloads import ACCURACY, Metric
from emulator.compare.titles import LAST_TESTED
from emulator.round.outcome import Accounting, Fate
from emulator.runs.replay.happened import calendar_s
from emulator.runs.tables import KNOWN_COSTS, N_UNKNOWN
from emulator.scenario.model import TaskSection
from joulefleet.errors import ConfigError, DataQualityError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from emulator.runs.result import Result


NOT_ASKED = frozenset({Fate.REJECTED, Fate.PROFILED, Fate.SURPLUS})
"""Fates of devices that the method itself did without."""


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """What one run of one method with one seed reached.

    Attributes:
        accuracy: Mean test accuracy, or whatever the task is judged by, of the last ten rounds that were
            tested (`protocol.test_every`).
        best_accuracy: The best round's.
        accuracy_within_energy: Of the model after the last tested round that was over within the budget of
            energy; NaN without a budget, or if none was.
        accuracy_within_time: Likewise within the budget of R_T, summed.
        spent_less: Which budgets were not used up when the run ended: ``energy``, ``time``.
        time_to_target_s: Sum of R_T until the target was reached, without the time in which nobody was there;
            the run's whole sum if it never was.
        energy_to_target_j: Energy until then, likewise.
        rounds_to_target: Rounds until then, likewise.
        reached: Whether the target was reached; if not, the three before are lower bounds (censored).
        time_s: Sum of R_T over the whole run.
        calendar_to_target_s: Virtual time since the beginning when the target was reached, with the pauses
            between rounds and the time in which nobody was there; the run's whole span if it never was.
        calendar_s: The run's whole span.
        energy_j: Energy of the whole run.
        round_time_s: Mean R_T of a round.
        round_energy_j: Mean R_E of a round.
        classes_per_cohort: See `classes_per_cohort`; NaN if it was not asked for.
        unknown: Participations of which not every cost is known, in rounds whose cost under this accounting
            is therefore not; if any, all costs are lower bounds.
        asked: Participations that were to send an update.
        finished: Those that did.
    """

    accuracy: float
    best_accuracy: float
    time_to_target_s: float
    energy_to_target_j: float
    rounds_to_target: float
    reached: bool
    time_s: float
    energy_j: float
    round_time_s: float
    round_energy_j: float
    calendar_to_target_s: float = float("nan")
    calendar_s: float = float("nan")
    classes_per_cohort: float = float("nan")
    unknown: int = 0
    asked: int = 0
    finished: int = 0
    accuracy_within_energy: float = float("nan")
    accuracy_within_time: float = float("nan")
    spent_less: tuple[str, ...] = ()

    @property
    def finished_share(self) -> float:
        """Of those that were to send an update; NaN if nobody was."""
        return self.finished / self.asked if self.asked else float("nan")


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run may spend altogether, for ``accuracy within``; ``None`` for no budget.

    Attributes:
        energy_j: Energy without waiting, of everybody.
        time_s: Sum of R_T.
    """

    energy_j: float | None = None
    time_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse budgets of nothing.

        Raises:
            ConfigError: One is not above 0.
        """
        for name, value in (("energy", self.energy_j), ("time", self.time_s)):
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"a budget of {value:g} for {name}", hint="give a number above 0")


NO_BUDGET = Spending()


def final_accuracy(rounds: pd.DataFrame) -> float:
    """Mean test accuracy of the last tested rounds; NaN if none was. Profiling (round 0) is no round."""
    known = rounds[rounds["round"] > 0].sort_values("round")["test_accuracy"].dropna().to_numpy(float)
    return float(known[-LAST_TESTED:].mean()) if len(known) else float("nan")


def run_metrics(
    rounds: pd.DataFrame,
    target: float,
    accounting: Accounting,
    metric: Metric = ACCURACY,
    within: Spending = NO_BUDGET,
) -> RunMetrics:
    """Metrics of one run from its round table; round 0 (profiling) counts as cost."""
    rounds = rounds.sort_values("round")
    accuracy = rounds["test_accuracy"].to_numpy(float)
    each_s, each_j = (_known(rounds, f"{what}_{accounting.value}") for what in ("time_s", "energy_j"))
    time_s, energy_j = each_s[0].cumsum(), each_j[0].cumsum()
    unknown = each_s[1] | each_j[1]
    played = rounds["round"].to_numpy() > 0
    # The model before the first round is nobody's achievement, and only methods that profile are tested then.
    there = accuracy >= target if metric.higher_is_better else accuracy <= target
    hits = np.flatnonzero(there & played)
    at = int(hits[0]) if len(hits) else len(rounds) - 1
    known = accuracy[played & ~np.isnan(accuracy)]
    clock_s = calendar_s(rounds) if "start_ns" in rounds else np.full(len(rounds), np.nan)
    count = max(1, int(played.sum()))
    return RunMetrics(
        accuracy=final_accuracy(rounds),
        best_accuracy=best_of(metric, known.tolist()) if len(known) else float("nan"),
        time_to_target_s=float(time_s[at]),
        energy_to_target_j=float(energy_j[at]),
        rounds_to_target=float(rounds["round"].to_numpy()[at]),
        reached=bool(len(hits)),
        calendar_to_target_s=float(clock_s[at]),
        calendar_s=float(clock_s[-1]),
        time_s=float(time_s[-1]),
        energy_j=float(energy_j[-1]),
        round_time_s=float(time_s[-1] / count),
        round_energy_j=float(energy_j[-1] / count),
        unknown=int(rounds[N_UNKNOWN].to_numpy()[unknown].sum()) if unknown.any() else 0,
        **participations(rounds),
        accuracy_within_energy=_within(accuracy, played, energy_j, within.energy_j),
        accuracy_within_time=_within(accuracy, played, time_s, within.time_s),
        spent_less=tuple(
            name
            for name, spent, most in (("energy", energy_j, within.energy_j), ("time", time_s, within.time_s))
            if most is not None and spent[-1] < most
        ),
    )


def _within(
    accuracy: NDArray[np.float64], played: NDArray[np.bool_], spent: NDArray[np.float64], most: float | None
) -> float:
    """Of the last tested round by whose end no more was spent."""
    if most is None:
        return float("nan")
    tested = accuracy[played & ~np.isnan(accuracy) & (spent <= most)]
    return float(tested[-1]) if len(tested) else float("nan")


def best_of(metric: Metric, values: Sequence[float]) -> float:
    """The best of some values of a metric."""
    return max(values) if metric.higher_is_better else min(values)


def _known(rounds: pd.DataFrame, column: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A cost of each round, the lower bound where it is not known, and where that is."""
    values = rounds[column].to_numpy(float)
    unknown = np.isnan(values)
    if unknown.any() and KNOWN_COSTS[column] in rounds:
        values = np.where(unknown, rounds[KNOWN_COSTS[column]].to_numpy(float), values)
    return values, unknown


def participations(rounds: pd.DataFrame) -> dict[str, int]:
    """How many devices were to send an update, and how many did; those told to stop were not to."""
    played = rounds[rounds["round"] > 0]
    counts = {fate: int(played[f"n_{fate.value}"].sum()) for fate in Fate if f"n_{fate.value}" in played}
    asked = sum(count for fate, count in counts.items() if fate not in NOT_ASKED)
    return {"asked": asked, "finished": counts.get(Fate.FINISHED, 0)}


def classes_per_cohort(result: Result) -> float:
    """Mean over the rounds of a stored run of the classes that those who sent an update hold together.

    A diagnostic. It uses the true labels of the partition, which no selector but an oracle sees: it explains
    an accuracy, it cannot earn one. Random cohorts of single-class devices hold 7 or 8 of 10 classes,
    loss-greedy ones 3 to 5.

    Raises:
        DataQualityError: The run trained on no data, or on other data than are at hand now.
    """
    record = result.record
    made = record.facts.get("partition")
    if made is None:
        raise DataQualityError(f"{result.path}: trained on no data, so there are no classes to count")
    scenario = record.scenario
    if "metric" in record.facts or scenario.code:
        raise DataQualityError(
            f"{result.path}: cohorts are counted for the classes of joulefleet's own tasks",
            hint="leave --cohorts out",
        )
    held, sha256 = _holdings(scenario.task.model_dump_json(), scenario.fleet.devices, record.seed)
    if sha256 != made["sha256"]:
        raise DataQualityError(
            f"{result.path}: the data at hand are not those of the run",
            hint="set JOULEFLEET_DATA to the folder that it was run with",
        )
    clients = result.clients
    finished = clients[clients["chosen"] & (clients["fate"] == Fate.FINISHED.value) & (clients["round"] > 0)]
    counts = [held[devices.to_numpy()].any(0).sum() for _, devices in finished.groupby("round")["device"]]
    return float(np.mean(counts)) if counts else float("nan")


@lru_cache(maxsize=64)
def _holdings(task_json: str, devices: int, seed: int) -> tuple[NDArray[np.bool_], str]:
    """Which device holds which class, and the hash of who has what; the same for every method of a seed."""
    from emulator.runs.learners import data_of

    data, partition = data_of(TaskSection.model_validate_json(task_json), devices, seed)
    return partition.label_counts(data.train.y, data.classes) > 0, partition.sha256()
