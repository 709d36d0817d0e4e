"""Everything that a page shows is in `joulefleet export`: page by page, part by part, value by value."""

import csv
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.cli import run
from harness.outputs import page_of
from harness.report import page as page_module
from harness.report.charts import (
    Band,
    Chart,
    DotPlot,
    HeatMap,
    LineStyle,
    Overlay,
    Scatter,
    Series,
    StackedBars,
)
from harness.report.page import ErrorBar, Fold, Number, Page, Section, Table
from harness.report.page_tables import FIGURES, page_tables
from joulefleet.interval import Interval
from joulefleet.provenance import Origin
from tests.harness.stored_bench import stored_bench

EXPORTED = {"title", "text", "numbers", "charts", "tables", "folds"}
NOT_NUMBERS = {"files", "small_print", "folded"}
"""Configuration as written is in the run's own folder; how to read a table is no result."""


def test_every_kind_of_figure_and_every_part_of_a_section_has_an_export() -> None:
    assert set(FIGURES) == set(get_args(page_module.Figure))
    assert {field.name for field in fields(Section)} == EXPORTED | NOT_NUMBERS
    assert {field.name for field in fields(Page)} == {
        "title", "lead", "sections", "facts", "answers", "notes",
    }  # fmt: skip


def chart(name: str = "") -> Chart:
    x = np.array([0.0, 1.0, 2.0])
    lines = [
        Series("a", np.array([1.0, np.nan, 3.0]), half_width=np.array([0.5, 0.5, 0.5])),
        Series("b", x, low=x - 1, high=x + 1),
    ]
    return Chart("Lines", "s", "W", x, lines, "emulated", [Band(0.5, 1.5, "probe 1", "7 J")], recording=name)


def test_values_survive() -> None:
    number = Number(3.0, "J", Origin.MEASURED, 1.0)
    style = {"m": LineStyle("#000000")}
    section = Section(
        "All", "Words.",
        numbers=[("key", number)],
        charts=[
            chart(),
            DotPlot("Dots", ["x", "y"], {"row": [Interval(1.0, 0.5, 2.0), None]}, "J", "emulated"),
            HeatMap("Heat", {"r": np.array([1.0, 2.0])}, "device", "times", "emulated"),
            StackedBars("Bars", ["p", "q"], {"r": [4.0, 5.0]}, "J", "emulated"),
            Scatter("Points", "J", "%", {"m": (Interval(1.0), Interval(2.0, 1.0, 3.0))}, style, "emulated"),
        ],
        folds=[Fold("f", charts=[Overlay("Over", (chart("one"), chart("two")), "probe 1", "emulated")])],
        tables=[Table(["a", "a", "n"], [["t", Origin.MEASURED, ErrorBar(number, 5.0)]], "Caption", {0})],
    )  # fmt: skip
    found = {
        t.name.split("_", 2)[2]: t.rows for t in page_tables(Page("T", "L", [section], {"f": "1"}, ["A."]))
    }
    said, numbers, table, lines, dots, heat, bars, points, over = found.values()
    assert [(r["part"], r["text"]) for r in said] == [
        ("answer", "A."), ("lead", "L"), ("fact", "1"), ("text", "Words."),
    ]  # fmt: skip
    assert (numbers[0]["mean"], numbers[0]["unit"], numbers[0]["origin"]) == (3.0, "J", "measured")
    assert numbers[0]["low"] < 3.0 < numbers[0]["high"]
    assert (table[0]["a"], table[0]["a 2"], table[0]["n_mean"], table[0]["best"]) == (
        "t",
        "measured",
        3.0,
        True,
    )
    assert [(r["x"], r["y"], r["low"], r["high"]) for r in lines[:3]] == [
        (0.0, 1.0, 0.5, 1.5), (1.0, None, None, None), (2.0, 3.0, 2.5, 3.5),
    ]  # fmt: skip
    assert (lines[3]["line"], lines[3]["low"], lines[-1]["band"], lines[-1]["note"]) == (
        "b",
        -1,
        "probe 1",
        "7 J",
    )
    assert dots == [{"row": "row", "source": "x", "unit": "J", "mean": 1.0, "low": 0.5, "high": 2.0}]
    assert [r["value"] for r in heat] == [1.0, 2.0]
    assert [(r["part"], r["value"]) for r in bars] == [("p", 4.0), ("q", 5.0)]
    assert (points[0]["x_mean"], points[0]["x_low"], points[0]["y_high"], points[0]["on_front"]) == (
        1,
        None,
        3,
        True,
    )
    (of_recording,) = page_tables(Page("T", "L", [Section("s", charts=[chart("job")])]))[1:]
    assert [row.get("band") for row in of_recording.rows] == ["probe 1"]  # its samples are in ``power``
    assert [(r["recording"], r["shift_s"]) for r in over] == [("one", 0.5), ("two", 0.5)]


def test_charts_of_several_jobs_can_be_told_apart(tmp_path: Path) -> None:
    stored = stored_bench(tmp_path)
    page = page_of(stored)
    names = [name for section in page.sections for name, _ in section.named_charts()]
    assert len(set(names)) == len(names)
    tables = [table.name for table in page_tables(page) if "power_of_the_device" in table.name]
    for job in (path.name for path in (stored / "jobs").iterdir() if any(path.iterdir())):
        assert [re.sub(r"[^a-z0-9]+", "_", job.lower()) in table for table in tables].count(True) == 1


def test_all_three_formats_hold_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = stored_bench(tmp_path)
    expected = page_tables(page_of(stored))
    assert len(expected) > 8
    for form in ("csv", "parquet", "json"):
        assert run(["export", str(stored), "--format", form, "--out", str(tmp_path / form)]) == 0
    capsys.readouterr()
    for table in expected:
        as_parquet = pq.read_table(tmp_path / "parquet" / f"{table.name}.parquet").to_pylist()
        as_json = json.loads((tmp_path / "json" / f"{table.name}.json").read_text())["rows"]
        with (tmp_path / "csv" / f"{table.name}.csv").open(newline="", encoding="utf-8") as file:
            as_csv = list(csv.reader(file))
        assert len(as_parquet) == len(as_json) == len(as_csv) - 1 == len(table.rows)
        assert as_json == as_parquet
        assert as_csv[0] == list(table.columns)
