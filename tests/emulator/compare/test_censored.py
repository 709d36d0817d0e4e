"""Costs to a target that some runs missed, and accuracies within a budget, by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from emulator.compare.censored import cost_text, cost_to_target, kaplan_meier_median, last_where_missed
from emulator.compare.metrics import Spending, run_metrics
from emulator.compare.table import compare
from emulator.round.outcome import Accounting
from joulefleet.errors import ConfigError
from joulefleet.interval import Scale


def median(*runs: float) -> float:
    """Costs; of runs that missed the target negative."""
    values = np.array(runs)
    return kaplan_meier_median(np.abs(values), values > 0)


def test_the_median_by_hand() -> None:
    """6, 13, 21+, 30, 31+, 37, 38+, 47+: 7/8, 6/8, then 6/8 * 4/5 = 0.6, then 0.6 * 2/3 = 0.4 at 37."""
    assert median(6, 13, -21, 30, -31, 37, -38, -47) == 37
    assert median(1, 2, 3) == 2
    assert median(1, 2, 3, 4) == 2
    assert median(5, -5) == 5
    assert median(-1, 5, -6) == 5
    assert math.isnan(median(5, -6, -7))
    assert math.isnan(median(-1, -2))
    assert median(4, 4, -9, 9) == 4
    # Who gave up before the others got there is no longer at risk: of two left, one is half.
    assert median(-1, -1, 10, 20) == 10


def test_student_only_if_every_run_got_there() -> None:
    values = np.array([8.0, 10.0, 12.0])
    whole = cost_to_target(values, np.array([True, True, True]), Scale.LOG)
    assert whole.mean == pytest.approx(10.0)
    assert whole.known
    missed = cost_to_target(values, np.array([True, True, False]), Scale.LOG)
    assert missed.mean == 10.0
    assert not missed.known
    assert not missed.values


def test_places_of_missed_runs_are_the_last_however_early_they_ended() -> None:
    yes, no = np.array([True, True]), np.array([False, False])
    mine, theirs = last_where_missed(np.array([30.0, 20.0]), yes, np.array([1.0, 2.0]), no)
    assert (mine.tolist(), theirs.tolist()) == ([2.0, 1.0], [3.5, 3.5])


def test_words() -> None:
    assert cost_text("12 [11, 13]", 10, 10) == "12 [11, 13]"
    assert cost_text("12", 7, 10) == "median 12"
    assert cost_text("-", 3, 10) == "half never reach it"


def table(accuracy: list[float], profiling_j: float = 0.0) -> pd.DataFrame:
    """A round takes 2 s and 10 J, and before the first ``profiling_j``."""
    n = len(accuracy)
    costs = {f"time_s_{a.value}": [0.0, *[2.0] * n] for a in Accounting}
    costs |= {f"energy_j_{a.value}": [profiling_j, *[10.0] * n] for a in Accounting}
    return pd.DataFrame({"round": range(n + 1), "test_accuracy": [0.99, *accuracy], **costs})


@pytest.mark.parametrize(
    ("energy_j", "profiling_j", "expected"),
    [
        (10.0, 0.0, 0.2),
        (29.9, 0.0, 0.4),
        (30.0, 0.0, 0.3),
        (30.0, 5.0, 0.4),
        (9.0, 0.0, math.nan),
        (40.0, 0.0, 0.5),
        (99.0, 0.0, 0.5),
    ],
)
def test_the_accuracy_that_energy_buys(energy_j: float, profiling_j: float, expected: float) -> None:
    """The model after the last round that was paid for, worse than the one before or not; no earlier one."""
    rounds = table([0.2, 0.4, 0.3, 0.5], profiling_j)
    found = run_metrics(rounds, 0.9, Accounting.HONEST, within=Spending(energy_j=energy_j))
    assert found.accuracy_within_energy == pytest.approx(expected, nan_ok=True)
    assert math.isnan(found.accuracy_within_time)
    assert found.spent_less == (("energy",) if energy_j == 99.0 else ())


def test_the_accuracy_that_time_buys_where_not_every_round_is_tested() -> None:
    rounds = table([0.2, math.nan, math.nan, 0.5])
    found = run_metrics(rounds, 0.9, Accounting.HONEST, within=Spending(time_s=7.0))
    assert found.accuracy_within_time == 0.2
    assert found.spent_less == ()
    for time_s, ended_before in ((8.0, ()), (8.1, ("time",))):
        found = run_metrics(rounds, 0.9, Accounting.HONEST, within=Spending(time_s=time_s))
        assert found.spent_less == ended_before


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_budgets_of_nothing_are_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match=r"budget of .* for time"):
        Spending(time_s=wrong)


def test_runs_that_end_before_their_budget_are_told() -> None:
    within = Spending(energy_j=35.0)
    runs = {
        "long": {
            s: run_metrics(table([0.2, 0.4, 0.3, 0.5]), 0.1, Accounting.HONEST, within=within) for s in (0, 1)
        },
        "short": {s: run_metrics(table([0.2, 0.6]), 0.1, Accounting.HONEST, within=within) for s in (0, 1)},
    }
    found = compare(runs, ["long"])
    assert found.cells["long"]["accuracy_within_energy"].value.mean == pytest.approx(0.3)
    assert found.cells["short"]["accuracy_within_energy"].contrasts[0].difference.mean == pytest.approx(0.3)
    assert any("short: 2 of 2 runs ended before the energy budget" in text for text in found.warnings)
    assert not any("long: " in text and "budget" in text for text in found.warnings)


def test_factors_are_geometric_means_of_pairs() -> None:
    """Half of the time with one seed and a quarter with another: the square root of an eighth."""
    runs = {
        "base": {s: run_metrics(table([0.9] * 4), 0.1, Accounting.HONEST) for s in (0, 1)},
        "fast": {
            0: run_metrics(table([0.9] * 2), 0.1, Accounting.HONEST),
            1: run_metrics(table([0.9]), 0.1, Accounting.HONEST),
        },
    }
    contrast = compare(runs, ["base"]).cells["fast"]["time_s"].contrasts[0]
    assert contrast.factor.mean == pytest.approx(math.sqrt(1 / 8))
    assert math.isnan(compare(runs, ["base"]).cells["fast"]["accuracy"].contrasts[0].factor.mean)
