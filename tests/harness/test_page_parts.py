"""What every page shares: the answer first, origins once, one colour per method, figures for a paper."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.runs.batch import plan, play, start
from harness.cli import run as joulefleet
from harness.report.charts import COLOURS, DASHES, KNOWN, DotPlot, Scatter, method_style
from harness.report.emulations.answers import _beside_others
from harness.report.emulations.experiment_page import _clearly_first, _marked
from harness.report.page import Fold, Number, Page, Section, Table
from harness.report.page_tables import page_tables
from joulefleet.interval import Interval
from joulefleet.provenance import Origin
from tests.harness.test_emulation_page import SMALL


def test_an_origin_that_all_rows_share_is_shown_once() -> None:
    rows = [["a", Origin.EMULATED, Origin.LITERATURE], ["b", Origin.EMULATED, "-"]]
    shown, said = Table(["name", "here", "there"], rows).shown()
    assert said == [("here", Origin.EMULATED)]
    assert shown.headers == ["name", "there"]
    assert shown.rows == [["a", Origin.LITERATURE], ["b", "-"]]
    mixed = Table(["name", "origin"], [["a", Origin.EMULATED], ["b", Origin.MEASURED]])
    assert mixed.shown() == (mixed, [])
    assert Table(["name"], []).shown()[1] == []


def test_the_answer_comes_first_and_is_text() -> None:
    page = Page("title", "lead", [Section("s", small_print="how")], answers=["<b>42</b> J [40, 44]"])
    html = page.html()
    assert html.index("&lt;b&gt;42") < html.index("lead</p>") < html.index("<h2>s")
    assert html.index("How to read this") > html.index("<h2>s")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.3 [11, 14]", '12.3<span class="interval">[11, 14]</span>'),
        (">= 12.3 [11, 14] (7/10)", '&gt;= 12.3<span class="interval">[11, 14] (7/10)</span>'),
        ("9.5 (9 and 10)", '9.5<span class="interval">(9 and 10)</span>'),
        ("<i> [1, 2]", "&lt;i&gt; [1, 2]"),
        ("names [a, b]", "names [a, b]"),
    ],
)
def test_an_interval_stands_below_its_mean(text: str, expected: str) -> None:
    page = Page("t", "l", [Section("s", tables=[Table(["x"], [[text]])])])
    assert f"<td>{expected}</td>" in page.html()


def test_a_method_looks_the_same_everywhere() -> None:
    assert method_style("oort") == method_style("oort (oracle)")
    looks = {name: method_style(name) for name in ("fedavg", *KNOWN)}
    assert len(set(looks.values())) == len(looks), "methods that are known can be told apart"
    paper, official = method_style("oort mode=paper"), method_style("oort mode=official")
    assert paper.color == official.color == method_style("oort").color
    assert paper.dash, "a variant is dashed"
    assert method_style("somebodys_own") == method_style("somebodys_own")
    assert method_style("somebodys_own").color in COLOURS
    assert method_style("somebodys_own").dash in DASHES


def test_the_front_is_what_nobody_beats_in_both() -> None:
    points = {
        "cheap": (Interval(1.0), Interval(50.0)),
        "beaten": (Interval(2.0), Interval(45.0)),
        "middle": (Interval(2.0), Interval(60.0)),
        "worse": (Interval(3.0), Interval(60.0)),
        "best": (Interval(4.0), Interval(70.0)),
    }
    styles = {name: method_style(name) for name in points}
    scatter = Scatter("t", "x", "y", points, styles, "emulated")
    assert scatter.front() == ["cheap", "middle", "best"]


def test_figures_for_a_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = plan(SMALL, ("fedavg", "oort"), [0])
    with start(tmp_path / "emulations", index, "") as stored:
        play(stored, index)
    out = tmp_path / "figures"
    assert joulefleet(["figures", str(stored.path), "--out", str(out)]) == 0
    files = sorted(out.iterdir())
    assert {path.suffix for path in files} == {".svg", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in files)
    first = files[1].read_text()
    assert files[1].name.startswith("01-accuracy-against-energy")
    assert "test accuracy (%)" in first, "text stays text"
    before = {path.name: path.read_bytes() for path in files}
    assert joulefleet(["figures", str(stored.path), "--out", str(out)]) == 0
    assert before.keys() == {path.name for path in out.iterdir()}
    assert joulefleet(["figures", str(tmp_path / "none"), "--out", str(out)]) != 0
    assert "no run matches" in capsys.readouterr().err


def test_differences_are_signed_as_people_read_them() -> None:
    from harness.report.emulations.charts import _less_one, _slower

    less = _less_one(Interval(0.8, 0.7, 0.9))
    assert (less.mean, less.low, less.high) == pytest.approx((-20, -30, -10))
    faster = _slower(Interval(2.0, 1.6, 2.5))
    assert (faster.mean, faster.low, faster.high) == pytest.approx((-50, -60, -37.5))
    assert DotPlot("t", ("a",), {"m": [less]}, "%", "emulated").as_data()["rows"][0]["values"][0][0] == -20


def test_an_origin_that_all_numbers_share_is_said_once() -> None:
    numbers = [Number(1.0, "s", Origin.EMULATED), Number(2.0, "J", Origin.EMULATED)]
    shown, origins = Table(["a", "b"], [numbers]).shown()
    assert (list(shown.rows), origins) == ([["1 s", "2 J"]], [("", Origin.EMULATED)])
    mixed = Table(["a", "b"], [[numbers[0], Number(2.0, "J", Origin.MEASURED)]])
    assert mixed.shown() == (mixed, [])


def test_what_is_folded_is_exported_too() -> None:
    fold = Fold("more", tables=[Table(["a"], [["x"]], "inside")])
    page = Page("p", "", [Section("s", folds=[fold])])
    assert "inside" in page.html()
    assert any(table.name.endswith("inside") for table in page_tables(page))


@pytest.mark.parametrize(
    ("others", "marked"),
    [
        ([Interval(9.0, 8.0, 10.0)], "Marked"),
        ([Interval(9.0, 5.5, 10.0)], "intervals overlap"),
        ([Interval(9.0, 8.0, 10.0), Interval(20.0)], "not all have an interval"),
    ],
)
def test_the_first_is_marked_only_where_it_is_clearly_so(others: list[Interval], marked: str) -> None:
    costs = [Interval(5.0, 4.0, 6.0), *others]
    rows: Any = [SimpleNamespace(energy_to_target_j=cost, reached=3, seeds=3) for cost in costs]
    assert marked in _marked(rows)
    assert _clearly_first(rows) is (marked == "Marked")
    rows[0].reached = 2  # not with every seed
    assert not _clearly_first(rows)


def test_an_answer_says_whether_the_difference_is_clear() -> None:
    def row(method: str, cost: Interval) -> Any:
        return SimpleNamespace(method=method, energy_to_target_j=cost)

    def said(*ends: Interval) -> str:
        rows = [row(name, cost) for name, cost in zip(("oort", "fedavg"), ends, strict=True)]
        return _beside_others(rows[0], rows, "energy_to_target_j", "J")

    least = Interval(5.0, 4.0, 6.0)
    assert said(least, Interval(9.0, 8.0, 10.0)) == "5.0 ± 1.0 J; fedavg takes 9.0 ± 1.0 J"
    assert said(least, Interval(6.0, 5.0, 7.0)).endswith("(intervals overlap: no clear difference)")
    assert said(Interval(5.0), Interval(9.0)).endswith("takes 9 J (too few seeds for an interval)")
    two = Interval(5.0, values=(4.0, 6.0))
    assert said(two, Interval(9.0)).startswith("5 J (4 and 6); fedavg takes 9 J")
