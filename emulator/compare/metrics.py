"""One run's numbers, fixed in advance: final accuracy, time and energy to a target, totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.compare.titles import LAST_TESTED
from emulator.round.outcome import Accounting

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """What one run of one method with one seed reached.

    Attributes:
        accuracy: Mean test accuracy of the last ten rounds that were tested (`protocol.test_every`).
        best_accuracy: The best round's.
        time_to_target_s: Sum of R_T until the target was reached, without the time in which nobody was there;
            the run's whole sum if it never was.
        energy_to_target_j: Energy until then, likewise.
        rounds_to_target: Rounds until then, likewise.
        reached: Whether the target was reached; if not, the three before are lower bounds (censored).
        time_s: Sum of R_T over the whole run.
        energy_j: Energy of the whole run.
        round_time_s: Mean R_T of a round.
        round_energy_j: Mean R_E of a round.
        classes_per_cohort: See `emulator.compare.cohorts`; NaN if it was not asked for.
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
    classes_per_cohort: float = float("nan")


def final_accuracy(rounds: pd.DataFrame) -> float:
    """Mean test accuracy of the last tested rounds; NaN if none was. Profiling (round 0) is no round."""
    known = rounds[rounds["round"] > 0].sort_values("round")["test_accuracy"].dropna().to_numpy(float)
    return float(known[-LAST_TESTED:].mean()) if len(known) else float("nan")


def run_metrics(rounds: pd.DataFrame, target: float, accounting: Accounting) -> RunMetrics:
    """Metrics of one run from its round table; round 0 (profiling) counts as cost."""
    rounds = rounds.sort_values("round")
    accuracy = rounds["test_accuracy"].to_numpy(float)
    time_s = rounds[f"time_s_{accounting.value}"].to_numpy(float).cumsum()
    energy_j = rounds[f"energy_j_{accounting.value}"].to_numpy(float).cumsum()
    played = rounds["round"].to_numpy() > 0
    # The model before the first round is nobody's achievement, and only methods that profile are tested then.
    hits = np.flatnonzero((accuracy >= target) & played)
    at = int(hits[0]) if len(hits) else len(rounds) - 1
    known = accuracy[played & ~np.isnan(accuracy)]
    count = max(1, int(played.sum()))
    return RunMetrics(
        accuracy=final_accuracy(rounds),
        best_accuracy=float(known.max()) if len(known) else float("nan"),
        time_to_target_s=float(time_s[at]),
        energy_to_target_j=float(energy_j[at]),
        rounds_to_target=float(rounds["round"].to_numpy()[at]),
        reached=bool(len(hits)),
        time_s=float(time_s[-1]),
        energy_j=float(energy_j[-1]),
        round_time_s=float(time_s[-1] / count),
        round_energy_j=float(energy_j[-1] / count),
    )
