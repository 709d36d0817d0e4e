"""A made-up comparison in every form, cell by cell: what is printed is what was found."""

import csv
import io
import math
from dataclasses import replace
from typing import Any

import pytest

from device_agents.workloads import ACCURACY, Metric
from emulator.compare.load import ComparedRuns
from emulator.compare.metrics import Spending
from emulator.compare.render import (
    aligned,
    as_csv,
    as_data,
    as_latex,
    as_markdown,
    as_text,
    notes,
    pair_rows,
    piped,
    rows,
    smallest_note,
)
from emulator.compare.table import Contrast, MethodComparison, MetricCell
from emulator.compare.titles import (
    TITLES,
    WITHIN,
    called,
    scale_of,
    target_text,
    title_of,
    value_text,
    worded,
)
from emulator.round.outcome import Accounting
from joulefleet.interval import Interval, Scale

NAN = math.nan
ERROR, SCORE = Metric("mae", higher_is_better=False), Metric("score")
RECALL = Metric("recall", share=True)


def against(reference: str, mean: float = 0.25, **changes: Any) -> Contrast:
    fields = {"ratio": 1.5, "p": 0.0625, "p_holm": 0.125, "tests": 2, "delta": -0.333}
    return Contrast(reference, Interval(mean, mean - 0.5, mean + 0.5), **{**fields, **changes})


def cell(mean: float, rank: float, *contrasts: Contrast, **changes: Any) -> MetricCell:
    fields: dict[str, Any] = {"middle": mean + 1, "seeds": 5, "reached": None, "unknown": 0}
    return MetricCell(
        Interval(mean, mean / 2, mean * 2), rank=rank, contrasts=contrasts, **{**fields, **changes}
    )


COLUMN = {
    "oort": cell(0.5, 2.0, against("fedavg")),
    "fedavg": cell(0.25, 3.04),
    "tifl": cell(0.75, 1.0, against("fedavg", NAN, p_holm=1.0, delta=NAN)),
    "afl": cell(0.75, NAN, against("fedavg", 0.5, delta=1.0)),
}
TIMES = {
    "oort": replace(cell(7200.0, 1.0, reached=4), value=Interval(7200.0)),
    "fedavg": cell(3600.0, 2.0, reached=5),
    "tifl": cell(1800.0, 3.0, reached=5, unknown=2),
    "afl": replace(cell(900.0, 4.0, reached=0), value=Interval(NAN)),
}
ENERGIES = {method: cell(float(i), float(i)) for i, method in enumerate(COLUMN, 1)}
SHARES = {"oort": 0.5, "fedavg": 1.0, "tifl": NAN, "afl": 0.256}
PAIRS = {("tifl", "afl"): against("afl", 0.125), ("tifl", "oort"): against("oort", p=NAN)}


def compared(judged_by: Metric = ACCURACY, **changes: Any) -> ComparedRuns:
    metrics = {"accuracy": COLUMN, "calendar_to_target_s": TIMES, "energy_j": ENERGIES}
    fields: dict[str, Any] = {
        "seeds": (3, 4, 5, 6, 7),
        "references": ("fedavg",),
        "cells": {method: {name: metrics[name][method] for name in metrics} for method in COLUMN},
        "pairs": {name: PAIRS if name == "accuracy" else {} for name in metrics},
        "finished": SHARES,
        "warnings": ("first | warning", "second\nwarning"),
    }
    table = MethodComparison(**{**fields, **changes}, judged_by=judged_by)
    origins = {method: f"of {method}" for method in COLUMN}
    return ComparedRuns(table, 0.8, Accounting.FREE, "made up", origins)


def test_rows_stand_by_rank_and_those_without_one_last() -> None:
    header, body = rows(compared().comparison, "accuracy")
    assert header == ["method", "mean [95 %] %", "n", "finished", "rank", "vs fedavg", "p (Holm)", "delta"]
    assert body == [
        ["tifl", "75 [37.5, 150]", "5", "-", "1.0", "-", "-", "-"],
        ["oort", "50 [25, 100]", "5", "50%", "2.0", "25 [-25, 75]", "0.125", "-0.33"],
        ["fedavg", "25 [12.5, 50]", "5", "100%", "3.0", "", "", ""],
        ["afl", "75 [37.5, 150]", "5", "26%", "-", "50 [0, 100]", "0.125", "+1.00"],
    ]


def test_equal_ranks_stand_by_name() -> None:
    alike = {m: {"accuracy": cell(0.5, 1.5)} for m in ("b", "c", "a")}
    table = compared(cells=alike, finished=dict.fromkeys(alike, 1.0), references=()).comparison
    header, body = rows(table, "accuracy")
    assert header[-1] == "rank"
    assert [row[0] for row in body] == ["a", "b", "c"]


def test_every_reference_has_its_columns() -> None:
    both = cell(0.5, 1.0, against("fedavg"), against("oort", 0.5))
    cells = {"tifl": {"accuracy": both}, "oort": {"accuracy": cell(0.5, 2.0)}}
    table = compared(cells=cells, references=("fedavg", "oort")).comparison
    header, body = rows(table, "accuracy")
    assert header[5:] == ["vs fedavg", "p (Holm)", "delta", "vs oort", "p (Holm)", "delta"]
    assert body[0][5:] == ["25 [-25, 75]", "0.125", "-0.33", "50 [0, 100]", "0.125", "-0.33"]
    data = as_data(compared(cells=cells, references=("fedavg", "oort")))
    contrasts = data["methods"]["tifl"]["accuracy"]["contrasts"]
    assert [one["difference"]["mean"] for one in contrasts] == [0.25, 0.5]


def test_what_was_missed_is_a_median_and_what_is_not_known_a_lower_bound() -> None:
    header, body = rows(compared().comparison, "calendar_to_target_s")
    assert header[1] == "mean [95 %] h"
    assert [row[:3] for row in body] == [
        ["oort", "median 2", "4/5"],
        ["fedavg", "1 [0.5, 2]", "5/5"],
        ["tifl", ">= 0.5 [0.25, 1]", "5/5, 2 unknown"],
        ["afl", "half never reach it", "0/5"],
    ]


def test_named_pairs_stand_as_they_were_named() -> None:
    header, body = pair_rows(compared().comparison, "accuracy")
    assert header == ["pair", "difference [95 %] %", "p (Holm, 2 pairs)", "delta"]
    assert body == [
        ["tifl vs afl", "12.5 [-37.5, 62.5]", "0.125", "-0.33"],
        ["tifl vs oort", "25 [-25, 75]", "0.125", "-0.33"],
    ]
    one = {"accuracy": {("tifl", "afl"): against("afl")}}
    assert pair_rows(compared(pairs=one).comparison, "accuracy")[0][2] == "p (Holm, 1 pair)"
    unknown = {"accuracy": {("tifl", "afl"): against("afl", NAN, delta=NAN)}}
    assert pair_rows(compared(pairs=unknown).comparison, "accuracy")[1][0][1:] == ["-", "-", "-"]


def test_notes_count_the_tests_that_were_made() -> None:
    """2 / 2^5 for one test of five pairs; three methods against a reference, two named pairs."""
    first, _, _, references, pairs = notes(compared())
    assert first == "target 80.0%, accounting free, seeds 3, 4, 5, 6, 7; made up"
    tail = "5 paired seeds: none can be below"
    assert references == f"p (Holm), 3 tests against each reference, {tail} 0.188"
    assert pairs == f"p (Holm), 2 tests of named pairs, {tail} 0.125"
    assert smallest_note(5, 1, "of some") == f"p (Holm), 1 test of some, {tail} 0.0625"
    assert len(notes(compared(references=(), pairs={"accuracy": {}}))) == 3


def test_notes_tell_the_budgets_that_were_given() -> None:
    until = "for the model after the last tested round within it"
    for within, told in (
        (Spending(1500.0, None), f"energy budget 1500 J, {until}"),
        (Spending(None, 90.5), f"time budget 90.5 s of R_T, {until}"),
        (Spending(2e7, 60.0), f"energy budget 2e+07 J, time budget 60 s of R_T, {until}"),
    ):
        found = notes(replace(compared(), within=within))
        assert found[:1] + found[2:] == notes(compared())
        assert found[1] == told


def test_text_is_aligned_and_begins_with_what_a_reader_has_to_know() -> None:
    lines = as_text(compared(), ["accuracy", "energy_j"]).split("\n")
    assert lines[:3] == ["warning: first | warning", r"warning: second\nwarning", ""]
    assert lines[3] == "accuracy, last 10 tested rounds"
    assert lines[4].startswith("method  mean [95 %] %   n  finished  rank  vs fedavg     p (Holm)  delta")
    assert lines[5] == "tifl    75 [37.5, 150]  5  -         1.0   -             -         -"
    assert lines[9:11] == ["", "accuracy, last 10 tested rounds, named pairs"]
    assert lines[14:16] == ["", "energy, without waiting"]
    assert lines[16].startswith("method  mean [95 %] J  n")
    assert lines[21] == ""
    assert lines[22:] == notes(compared())
    bare = compared(warnings=())
    assert as_text(bare, ["energy_j"]).startswith("energy, without waiting\nmethod")
    assert aligned(["a", "bb"], [["ccc", "d"], ["e", "\x1b"]]) == ["a    bb", "ccc  d", r"e    \x1b"]


def test_markdown_and_latex_have_every_table() -> None:
    parts = as_markdown(compared(), ["accuracy", "energy_j"]).split("\n\n")
    assert parts[:2] == [r"> first \| warning", r"> second\nwarning"]
    assert parts[2::2][:3] == [
        "### accuracy, last 10 tested rounds",
        "### accuracy, last 10 tested rounds, named pairs",
        "### energy, without waiting",
    ]
    assert parts[5].split("\n") == [
        "| pair | difference [95 %] % | p (Holm, 2 pairs) | delta |",
        "| --- | --- | --- | --- |",
        "| tifl vs afl | 12.5 [-37.5, 62.5] | 0.125 | -0.33 |",
        "| tifl vs oort | 25 [-25, 75] | 0.125 | -0.33 |",
    ]
    assert len(parts[-1].split("\n")) == len(notes(compared()))
    assert parts[-1].startswith("- target 80.0%")
    assert piped(["a|"], [["b"]]) == "| a\\| |\n| --- |\n| b |"
    comments, *tables = as_latex(compared(), ["calendar_to_target_s", "accuracy"]).split("\n\n")
    assert comments.split("\n")[:3] == [
        "% first | warning", r"% second\nwarning",
        "% target 80.0%, accounting free, seeds 3, 4, 5, 6, 7; made up",
    ]  # fmt: skip
    assert len(comments.split("\n")) == 2 + len(notes(compared()))
    assert [table.split("\n")[0] for table in tables] == [
        "% calendar time to target",
        "% accuracy, last 10 tested rounds",
        "% accuracy, last 10 tested rounds, named pairs",
    ]
    assert tables[2].split("\n")[1:] == [
        r"\begin{tabular}{lrrr}", r"\toprule",
        r"pair & difference [95 \%] \% & p (Holm, 2 pairs) & delta \\", r"\midrule",
        r"tifl vs afl & 12.5 [-37.5, 62.5] & 0.125 & -0.33 \\",
        r"tifl vs oort & 25 [-25, 75] & 0.125 & -0.33 \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    assert r"oort & median 2 & 4/5 & 50\% & 1.0" in tables[0]
    assert r"tifl & $\geq$ 0.5 [0.25, 1]" in tables[0]


def test_csv_has_a_row_for_every_contrast_and_nothing_for_what_is_not_known() -> None:
    table = list(csv.DictReader(io.StringIO(as_csv(compared(), ["accuracy", "calendar_to_target_s"]))))
    found = {(row["metric"], row["method"], row["reference"]): row for row in table}
    assert list(found) == [
        ("accuracy", "oort", "fedavg"), ("accuracy", "fedavg", ""), ("accuracy", "tifl", "fedavg"),
        ("accuracy", "tifl", "afl"), ("accuracy", "tifl", "oort"), ("accuracy", "afl", "fedavg"),
        *(("calendar_to_target_s", method, "") for method in COLUMN),
    ]  # fmt: skip
    assert found["accuracy", "oort", "fedavg"] == {
        "metric": "accuracy", "method": "oort", "mean": "0.5", "low_95": "0.25", "high_95": "1.0",
        "median": "", "iqm": "1.5", "seeds": "5", "reached": "", "rank": "2.0", "reference": "fedavg",
        "difference": "0.25", "difference_low_95": "-0.25", "difference_high_95": "0.75", "ratio": "1.5",
        "p": "0.0625", "p_holm": "0.125", "tests": "2", "delta": "-0.333", "factor": "",
        "factor_low_95": "", "factor_high_95": "", "accounting": "", "target": "",
        "origin": "of oort", "unknown": "0", "finished": "0.5",
    }  # fmt: skip
    assert found["accuracy", "tifl", "oort"]["p"] == found["accuracy", "tifl", "oort"]["finished"] == ""
    time = found["calendar_to_target_s", "tifl", ""]
    assert [time[name] for name in ("reached", "unknown", "accounting", "target", "delta")] == [
        "5", "2", "free", "0.8", "",
    ]  # fmt: skip
    missed = found["calendar_to_target_s", "oort", ""]
    assert [missed[name] for name in ("mean", "low_95", "median", "reached")] == ["", "", "7200.0", "4"]
    error = csv.DictReader(io.StringIO(as_csv(compared(ERROR), ["accuracy"])))
    assert {row["metric"] for row in error} == {"mae"}


def test_data_are_plain_and_say_what_is_not_known() -> None:
    data = as_data(compared(finished={**SHARES, "oort": math.inf}))
    assert data["judged_by"] == {
        "name": "accuracy",
        "higher_is_better": True,
        "share": True,
        "relative": False,
    }
    assert (data["target"], data["accounting"], data["basis"]) == (0.8, "free", "made up")
    assert data["origins"] == {method: f"of {method}" for method in COLUMN}
    assert (data["seeds"], data["references"]) == ([3, 4, 5, 6, 7], ["fedavg"])
    assert data["finished"] == {"oort": None, "fedavg": 1.0, "tifl": None, "afl": 0.256}
    assert data["warnings"] == ["first | warning", "second\nwarning"]
    assert data["notes"] == notes(compared())
    assert list(data["methods"]) == list(COLUMN)
    afl = data["methods"]["afl"]["accuracy"]
    assert afl["value"] == {"mean": 0.75, "low": 0.375, "high": 1.5, "values": []}
    assert (afl["rank"], afl["seeds"], afl["contrasts"][0]["delta"]) == (None, 5, 1.0)
    assert list(data["methods"]["afl"]) == ["accuracy", "calendar_to_target_s", "energy_j"]
    (first, second) = data["pairs"]["accuracy"]
    assert (first["method"], first["reference"], first["p"]) == ("tifl", "afl", 0.0625)
    assert (second["method"], second["reference"], second["p"]) == ("tifl", "oort", None)
    assert data["pairs"]["energy_j"] == []


def test_a_task_of_another_metric_has_its_own_words() -> None:
    assert title_of("accuracy", ACCURACY) == ("accuracy, last 10 tested rounds", 100.0, "%")
    assert title_of("accuracy", RECALL) == ("recall, last 10 tested rounds", 100.0, "%")
    assert title_of("best_accuracy", ERROR) == ("best mae (less is better)", 1.0, "")
    assert title_of("best_accuracy", SCORE) == ("best score", 1.0, "")
    assert title_of("calendar_s", ERROR) == ("calendar time", pytest.approx(1 / 3600), "h")
    assert [called(name, ERROR) for name in ("best_accuracy", "time_s")] == ["best_mae", "time_s"]
    text = "Accuracy: accuracy - FedAvg, points; accuracy %"
    assert worded(text, ACCURACY) == text
    assert worded(text, RECALL) == "recall: recall % - FedAvg; recall %"
    assert worded(text, ERROR) == "mae: mae - FedAvg; mae"


def test_scales_and_targets_of_each_kind_of_metric() -> None:
    found = {m.name: scale_of("accuracy", m) for m in (ACCURACY, RECALL, ERROR, SCORE)}
    expected = (Scale.LOGIT, Scale.LOGIT, Scale.LOG, Scale.LINEAR)
    assert found == dict(zip(("accuracy", "recall", "mae", "score"), expected, strict=True))
    assert {scale_of("time_s", m) for m in (ACCURACY, ERROR, SCORE)} == {Scale.LOG}
    assert (target_text(0.8123, ACCURACY), target_text(0.8123, ACCURACY, 2)) == ("81.2%", "81.23%")
    assert (target_text(0.81234, ERROR), value_text(0.81234, ERROR)) == ("mae 0.8123", "0.8123")
    assert (value_text(0.8123, RECALL), value_text(0.8123, RECALL, 0)) == ("81.2%", "81%")


def test_shares_are_shown_in_per_cent_and_calendar_time_in_hours() -> None:
    factors = {metric: factor for metric, (_, factor, unit) in TITLES.items() if unit == "%"}
    assert factors == dict.fromkeys(("accuracy", "best_accuracy", *WITHIN), 100.0)
    others = {metric: factor for metric, (_, factor, unit) in TITLES.items() if unit != "%"}
    hours = {metric: 1 / 3600 for metric in others if metric.startswith("calendar")}
    assert others == dict.fromkeys(others, 1.0) | hours
