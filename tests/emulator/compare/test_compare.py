"""Tables of methods over paired seeds, from made-up runs whose answers are known."""

import csv
import io
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from emulator.compare.comparable import unequal
from emulator.compare.load import ComparedRuns, _best_heuristic, _default_target
from emulator.compare.metrics import RunMetrics, final_accuracy, run_metrics
from emulator.compare.render import as_csv, as_data, as_latex, as_markdown, as_text
from emulator.compare.table import MethodComparison, compare
from emulator.compare.titles import METRICS
from emulator.round.outcome import Accounting
from emulator.runs.reading import FinishedRun
from emulator.runs.result import EmulationRecord, Result
from emulator.scenario.model import FleetSection, Scenario, TracesSection
from joulefleet.errors import DataQualityError


def rounds(accuracy: list[float], time_s: float = 10.0, energy_j: float = 2.0) -> pd.DataFrame:
    n = len(accuracy)
    return pd.DataFrame(
        {
            "round": np.arange(1, n + 1),
            "test_accuracy": accuracy,
            "time_s_honest": time_s,
            "energy_j_honest": energy_j,
        }
    )


def metrics(accuracy: list[float], time_s: float = 10.0, target: float = 0.8):
    return run_metrics(rounds(accuracy, time_s), target, Accounting.HONEST)


def shown(table: MethodComparison) -> ComparedRuns:
    return ComparedRuns(table, 0.8, Accounting.HONEST, "made up", dict.fromkeys(table.cells, "emulated"))


def test_every_metric_has_a_title() -> None:
    assert set(METRICS) == {field.name for field in fields(RunMetrics)} - {
        *("reached", "unknown", "asked", "finished", "spent_less")
    }


def test_the_accuracy_is_of_the_last_ten_rounds_that_were_tested() -> None:
    tested = [0.1, math.nan] * 5 + [0.9, math.nan] * 10
    assert final_accuracy(rounds(tested)) == pytest.approx(0.9)
    assert math.isnan(final_accuracy(rounds([math.nan])))


def test_a_run_that_reaches_its_target() -> None:
    found = metrics([0.5, 0.7, 0.85, 0.9])
    assert (found.reached, found.time_to_target_s, found.energy_to_target_j) == (True, 30.0, 6.0)
    assert found.rounds_to_target == 3
    assert found.accuracy == pytest.approx(0.7375)
    assert (found.best_accuracy, found.time_s, found.round_time_s) == (0.9, 40.0, 10.0)


def test_a_run_that_does_not_counts_whole_and_says_so() -> None:
    found = metrics([0.5, 0.6])
    assert (found.reached, found.time_to_target_s) == (False, 20.0)


@pytest.mark.parametrize("untrained", [np.nan, 0.1, 0.95])
def test_profiling_is_a_cost_but_no_round(untrained: float) -> None:
    """Not even where the model before the first round happens to be above the target."""
    table = rounds([0.5, 0.9])
    table = pd.concat([pd.DataFrame([{**table.iloc[0], "round": 0, "test_accuracy": untrained}]), table])
    found = run_metrics(table, 0.8, Accounting.HONEST)
    assert found.rounds_to_target == 2
    assert found.time_to_target_s == 30.0
    assert found.round_time_s == 15.0
    assert found.accuracy == pytest.approx(0.7)


def fleet_of_runs():
    noise = np.random.default_rng(0).normal(0, 0.03, 8)
    return {
        "fedavg": {s: metrics([0.6, 0.7 + noise[s]]) for s in range(8)},
        "better": {s: metrics([0.7, 0.75 + noise[s]], 5.0) for s in range(8)},
        "same": {s: metrics([0.6, 0.7 + noise[s]]) for s in range(8)},
    }


def test_pairing_finds_a_small_difference_under_large_noise() -> None:
    table = compare(fleet_of_runs(), ["fedavg"])
    contrast = table.cells["better"]["accuracy"].contrasts[0]
    assert contrast.difference.mean == pytest.approx(0.075)
    assert contrast.p == pytest.approx(2 / 2**8)
    assert contrast.p_holm == pytest.approx(4 / 2**8)
    assert table.cells["same"]["accuracy"].contrasts[0].p == 1.0
    assert table.cells["better"]["accuracy"].rank == 1.0
    assert table.cells["same"]["accuracy"].rank == 2.5
    assert table.cells["better"]["time_s"].contrasts[0].ratio == pytest.approx(0.5)


def test_failures_are_never_dropped() -> None:
    runs = {
        "a": {0: metrics([0.9]), 1: metrics([0.1, 0.1, 0.1])},
        "b": {0: metrics([0.9]), 1: metrics([0.9])},
    }
    table = compare(runs, ["b"])
    cell = table.cells["a"]["time_to_target_s"]
    assert (cell.reached, cell.seeds, cell.value.mean) == (1, 2, 10.0)
    assert any("a: the target was not reached in 1 of 2" in w for w in table.warnings)
    assert "median 10 " in as_text(shown(table), ["time_to_target_s"])


def test_who_gives_up_early_does_not_pass_for_fast() -> None:
    """Three rounds of 10 s to the target against two rounds of 1 s that never get there."""
    runs = {
        "fedavg": {s: metrics([0.1, 0.5, 0.9]) for s in range(6)},
        "hasty": {s: metrics([0.1, 0.1], time_s=1.0) for s in range(6)},
        "slow": {s: metrics([0.1, 0.5, 0.9], time_s=20.0) for s in range(6)},
    }
    column = {m: cells["time_to_target_s"] for m, cells in compare(runs, ["fedavg"]).cells.items()}
    assert [column[m].rank for m in ("fedavg", "slow", "hasty")] == [1.0, 2.0, 3.0]
    assert math.isnan(column["hasty"].value.mean)  # half of its runs never get there
    assert (column["hasty"].contrasts[0].p, column["hasty"].contrasts[0].delta) == (2 / 2**6, 1.0)


def test_what_one_method_does_not_know_takes_nothing_from_the_others() -> None:
    unknown = replace(metrics([0.1, 0.1]), time_to_target_s=math.nan)
    runs = {
        "fedavg": {s: metrics([0.1, 0.9]) for s in range(6)},
        "slow": {s: metrics([0.1, 0.1, 0.1]) for s in range(6)},
        "broken": dict.fromkeys(range(6), unknown),
    }
    column = {m: cells["time_to_target_s"] for m, cells in compare(runs, ["fedavg"]).cells.items()}
    assert column["slow"].contrasts[0].delta == 1.0
    assert column["broken"].rank == 2.5


def test_few_and_uneven_seeds_are_told() -> None:
    runs = {"a": {0: metrics([0.9]), 1: metrics([0.9])}, "b": {1: metrics([0.9])}}
    table = compare(runs, [])
    assert table.seeds == (1,)
    assert any("1 paired seed:" in w for w in table.warnings)
    assert any("more seeds than common: a" in w for w in table.warnings)


def test_nothing_in_common() -> None:
    with pytest.raises(DataQualityError, match="no seed in common"):
        compare({"a": {0: metrics([0.9])}, "b": {1: metrics([0.9])}}, [])
    with pytest.raises(DataQualityError, match="no run"):
        compare({}, [])


def test_every_form_carries_every_method() -> None:
    table = compare(fleet_of_runs(), ["fedavg", "absent"])
    assert table.references == ("fedavg",)
    for text in (form(shown(table), METRICS) for form in (as_text, as_markdown, as_latex)):
        assert all(name in text for name in table.cells)
    listed = list(csv.DictReader(io.StringIO(as_csv(shown(table), ["accuracy"]))))
    assert {row["method"] for row in listed} == set(table.cells)
    assert float(next(r for r in listed if r["method"] == "better")["difference"]) == pytest.approx(0.075)
    data = json.loads(json.dumps(as_data(shown(table)), allow_nan=False))
    assert data["methods"]["better"]["accuracy"]["contrasts"][0]["reference"] == "fedavg"


def test_latex_escapes_names() -> None:
    runs = {"power_of_choice": {0: metrics([0.9])}, "fedavg": {0: metrics([0.9])}}
    assert r"power\_of\_choice" in as_latex(shown(compare(runs, ["fedavg"])), ["accuracy"])


def test_every_form_says_what_it_rests_on() -> None:
    found = shown(compare(fleet_of_runs(), ["fedavg"], ["a warning"], pairs=[("better", "same")]))
    for text in (form(found, ["accuracy"]) for form in (as_text, as_markdown, as_latex)):
        assert "a warning" in text
        assert "target 80.0%, accounting honest, seeds 0, 1, 2, 3, 4, 5, 6, 7; made up" in text
        assert "Student's t interval" in text
        assert "2 tests against each reference, 8 paired seeds: none can be below 0.0156" in text
        assert "1 test of named pairs, 8 paired seeds: none can be below 0.00781" in text
    metrics = ["accuracy", "energy_to_target_j", "energy_j"]
    listed = {row["metric"]: row for row in csv.DictReader(io.StringIO(as_csv(found, metrics)))}
    assert {metric: (row["accounting"], row["target"]) for metric, row in listed.items()} == {
        "accuracy": ("", ""),
        "energy_to_target_j": ("honest", "0.8"),
        "energy_j": ("honest", ""),
    }
    assert {row["origin"] for row in listed.values()} == {"emulated"}


def test_a_name_with_a_bar_does_not_break_a_markdown_table() -> None:
    runs = {"a|b": {0: metrics([0.9])}, "fedavg": {0: metrics([0.9])}}
    assert r"| a\|b |" in as_markdown(shown(compare(runs, ["fedavg"])), ["accuracy"])


def test_named_pairs_are_corrected_for_their_own_number() -> None:
    table = compare(fleet_of_runs(), ["fedavg"], pairs=[("better", "same"), ("same", "fedavg")])
    found = table.pairs["accuracy"]
    twice = compare(fleet_of_runs(), ["fedavg"], pairs=[*found, *found])
    assert twice.pairs["accuracy"] == found, "a pair that is named twice is one test"
    assert list(found) == [("better", "same"), ("same", "fedavg")]
    contrast = found["better", "same"]
    assert contrast.difference.mean == pytest.approx(0.075)
    assert (contrast.p, contrast.p_holm, contrast.tests) == pytest.approx((2 / 2**8, 4 / 2**8, 2))
    assert found["same", "fedavg"].p_holm == 1.0
    assert found["same", "fedavg"].difference.mean == 0.0
    for text in (as_text(shown(table), ["accuracy"]), as_markdown(shown(table), ["accuracy"])):
        assert "better vs same" in text
        assert "p (Holm, 2 pairs)" in text
    listed = list(csv.DictReader(io.StringIO(as_csv(shown(table), ["accuracy"]))))
    assert [(r["reference"], r["tests"]) for r in listed if r["method"] == "better"] == [
        ("fedavg", "2"),
        ("same", "2"),
    ]
    assert as_data(shown(table))["pairs"]["accuracy"][0]["method"] == "better"


def test_a_pair_that_was_not_run() -> None:
    with pytest.raises(DataQualityError, match="no run of 'worse'"):
        compare(fleet_of_runs(), [], pairs=[("better", "worse")])


def loaded(method: str, accuracy: list[float], seed: int = 0, **facts: object) -> FinishedRun:
    record = EmulationRecord(scenario=Scenario(name="s"), seed=seed, facts=facts)
    return FinishedRun(method, rounds(accuracy), Result(Path(method), record))


@pytest.mark.parametrize("fact", ["data", "partition", "traces", "profiles", "profiles_sha256"])
def test_runs_of_a_seed_that_rest_on_different_facts_are_told(fact: str) -> None:
    one, other, silent = ({fact: {"a": 1}}, {fact: {"a": 2}}, {})
    (warning,) = unequal([loaded("a", [0.5], **one), loaded("b", [0.5], **other)])
    assert f"seed 0 rest on different {fact}, so not the methods alone: a and b" in warning
    assert not unequal([loaded("a", [0.5], **one), loaded("b", [0.5], 1, **other)])
    assert not unequal([loaded("a", [0.5], **one), loaded("b", [0.5], **one)])
    # Stored before the fact was noted: nothing can be said of it.
    assert not unequal([loaded("a", [0.5], **one), loaded("b", [0.5], **silent)])
    assert unequal([loaded("a", [0.5]), loaded("b", [0.5], **one), loaded("c", [0.5], **other)])


def test_files_may_lie_elsewhere() -> None:
    """Their content is held against one another by its hash."""

    def at(folder: str, name: str = "phones", other: str = "phone.json") -> FinishedRun:
        traces = TracesSection(source=f"{folder}/{name}", at_end="wrap")
        fleet = FleetSection(profiles=(f"{folder}/pi.json", f"{folder}/{other}"), traces=traces)
        record = EmulationRecord(scenario=Scenario(name="s", fleet=fleet), seed=0, facts={})
        return replace(loaded(folder, [0.5]), result=Result(Path(), record))

    assert not unequal([at("here"), at("/there")])
    for changed in (at("here", "others"), at("here", other="tablet.json")):
        assert "scenarios differ (fleet)" in unequal([at("here"), changed])[0]


def test_the_target_is_of_the_runs_that_were_tested() -> None:
    """One that ended before its first test has no accuracy, which is not the worst of all."""
    untested = loaded("untested", [math.nan, math.nan])
    assert _default_target([untested, loaded("a", [0.5]), loaded("b", [0.25])]) == 0.25
    assert _best_heuristic([loaded("oort", [math.nan]), loaded("tifl", [0.5])]) == "tifl"
    with pytest.raises(DataQualityError, match="ever tested"):
        _default_target([untested])
