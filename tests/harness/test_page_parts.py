"""What every page shares: the answer first, origins once, one colour per method, figures for a paper."""

import re
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.runs.batch import plan, play, start
from emulator.selectors.registry import SELECTORS
from harness.cli import run as joulefleet
from harness.report.charts import DotPlot, Scatter
from harness.report.emulations.answers import _beside_others
from harness.report.emulations.experiment_page import _clearly_first, _marked
from harness.report.looks import BASELINE_GREY, COLOURS, KNOWN, method_looks
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


def test_no_two_methods_look_alike() -> None:
    shipped = sorted(SELECTORS.entries())
    assert {"fedavg", *KNOWN} == set(shipped), "each has a look of its own"
    looks = method_looks(shipped)
    assert len(set(looks.values())) == len(shipped)
    assert {name: method_looks([name])[name] for name in shipped} == looks, "fixed by name"
    # What is compared most has colours of its own, so that nobody has to look for dashes.
    usual = method_looks(["fedavg", "fedprox", "oort", "tifl", "afl", "autofl", "fedrank"])
    assert len({look.color for look in usual.values()}) == len(usual)


def test_variants_and_own_methods_take_what_is_free() -> None:
    looks = method_looks(["oort", "oort mode=paper", "oort mode=official"])
    assert {look.color for look in looks.values()} == {looks["oort"].color}
    assert len({look.dash for look in looks.values()}) == 3
    assert method_looks(["oort (oracle)"])["oort (oracle)"] == looks["oort"]
    assert method_looks(["oort:mode=paper"]).popitem()[1] == method_looks(["oort mode=paper"]).popitem()[1]
    crowd = [*SELECTORS.entries(), "fedavg note=1", "somebodys_own", *(f"oort note={i}" for i in range(8))]
    assert len(set(method_looks(crowd).values())) == len(crowd) == 48
    assert method_looks(crowd)["somebodys_own"] == method_looks(reversed(crowd))["somebodys_own"]
    assert len(method_looks([*crowd, "one too many"])) == 49


SEEN_AS: dict[str, Any] = {
    "by most": np.eye(3),
    "with protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ],
    "with deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ],
    "with tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip
"""Linear RGB to linear RGB: Machado, Oliveira and Fernandes 2009, severity 1."""


def lab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIELAB under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(linear, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", SEEN_AS)
def test_everybody_can_tell_the_colours(eyes: str) -> None:
    seen = {}
    for color in (*COLOURS, BASELINE_GREY):
        srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen[color] = lab(np.asarray(SEEN_AS[eyes]) @ linear)
    for one, other in combinations(seen, 2):
        # 2.3 is just noticeable side by side; lines and dots are small and apart.
        assert np.linalg.norm(seen[one] - seen[other]) > 15, f"{one} and {other} {eyes}"


def test_figures_have_the_same_colours_as_lines() -> None:
    script = (files("harness.report") / "static" / "figures.js").read_text()
    assert re.findall(r"#[0-9a-f]{6}", script) == [*COLOURS, BASELINE_GREY]


def test_the_front_is_what_nobody_beats_in_both() -> None:
    points = {
        "cheap": (Interval(1.0), Interval(50.0)),
        "beaten": (Interval(2.0), Interval(45.0)),
        "middle": (Interval(2.0), Interval(60.0)),
        "worse": (Interval(3.0), Interval(60.0)),
        "best": (Interval(4.0), Interval(70.0)),
    }
    scatter = Scatter("t", "x", "y", points, method_looks(points), "emulated")
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
