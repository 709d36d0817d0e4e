"""The page of a probing run: the answer, checked by hand, and what a browser makes of the figures."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from emulator import Accounting
from harness import open_run
from harness.cli import run as joulefleet
from harness.outputs import write_outputs
from harness.probing.cost_rows import cost_rows
from harness.probing.validation import MeasuredCell, MeasuredSaving
from harness.report.bench.probing_page import _said, _text
from joulefleet.interval import Interval
from joulefleet.provenance import Origin
from power.profile import Quantity
from tests.harness.browser import browser, console_errors, drawn, open_page, requested_urls
from tests.harness.stored_bench import HOSTILE
from tests.harness.stored_probing import stored_probing

# Three epochs of 1 s and 2 s at 2.2 W above idle; 0.4 s at 0.7 W to receive, 0.3 s at 1.2 W to send.
VANILLA_S = 0.4 + 3 * 2.0 + 0.3
PROBING_S = 0.4 + 2.0 + 2 * 1.0 + 0.3
VANILLA_J = 2 * 0.28 + 2.2 * (3 + 6) + 0.36
PROBING_J = 2 * 0.28 + 2.2 * (1 + 2) + 2.2 * 2 + 0.36


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_probing(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def html(run: Path) -> str:
    return write_outputs(run)[0].read_text(encoding="utf-8")


def charts_of(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
    assert found
    charts: list[dict[str, Any]] = json.loads(found[1])
    return charts


def test_the_answer_comes_first(html: str) -> None:
    answer = re.search(r'<ul class="answers"><li>(.*?)</li>', html, re.DOTALL)
    lead = re.search(r'<p class="lead">(.*?)</p>', html, re.DOTALL)
    assert lead
    assert answer
    said = re.match(
        r"Stopping after the first epoch saved ([\d.]+) ± [\d.]+ % of a vanilla round&#39;s time and "
        r"([\d.]+) ± [\d.]+ % of the energy where 1 of 2 devices went on \(emulated\)\.",
        answer[1],
    )
    assert said, answer[1]
    assert float(said[1]) == pytest.approx(100 * (1 - PROBING_S / VANILLA_S), abs=0.1)
    assert float(said[2]) == pytest.approx(100 * (1 - PROBING_J / VANILLA_J), abs=0.1)
    assert "4 of 4 rounds finished" in lead[1]


def test_every_part_is_on_the_page(html: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "What stopping after the first epoch saved", "A round both ways", "Devices and parts", "Rounds",
        "Findings", "Findings, one by one", "Power by job", "Clock", "Provenance", "Configuration",
        "How this was made",
    ]  # fmt: skip
    for expected in (
        "download and probe of every candidate",
        "M = 2, K = 1, stopped",
        "it states neither M nor which costs are counted",
        "keep = &#34;fastest&#34;",
    ):
        assert expected in html
    assert "secret-user" not in html
    assert "fast.example" not in html
    assert HOSTILE not in html
    assert html.count("</script>") == 3


def test_figures_show_measured_predicted_emulated_and_the_paper(html: str) -> None:
    time, energy, parts = (chart for chart in charts_of(html) if chart.get("kind") in ("dots", "stack"))
    assert time["sources"] == ["bench", "formula", "emulator", "the paper"]
    honest = {row["label"]: row["values"] for row in energy["rows"]}["M = 2, K = 1: honest"]
    mean, low, high = honest[0]
    assert low < mean < high
    assert mean == pytest.approx(100 * (1 - PROBING_J / VANILLA_J), abs=0.1)
    assert honest[1][0] == pytest.approx(mean, abs=1.0)
    assert honest[2] == [pytest.approx(mean, abs=1.0), None, None]
    assert honest[3] is None
    assert time["rows"][-1]["values"] == [None, None, None, [10.6, None, None]]
    by_round = {row["label"]: row["values"] for row in parts["rows"]}
    assert sum(by_round["M = 2, vanilla"]) > sum(by_round["M = 2, K = 1"])


def test_an_interval_holds_only_what_can_be_true() -> None:
    """0.6 s ± 0.8 s, 0.6 J ± 0.8 J gross and net, and 80 % ± 30 % of the time saved."""
    wide = Quantity(mean=0.6, n=2, half_width_95=0.8)
    saved = Quantity(mean=0.8, n=2, half_width_95=0.3)
    saving = MeasuredSaving(wide, wide, saved, saved, wide, wide)
    cell = MeasuredCell(2, 1, 2, wide, wide, wide, {Accounting.HONEST: saving}, None, None)
    gross, net = (list(cost_rows(cell, kind)) for kind in ("gross", "net"))
    assert [_text(row.time_s, ".3g", "s") for row in gross] == ["0.6 s [0, 1.4]"] * 2
    assert _text(gross[1].energy_j, ".3g", "J") == "0.6 J [0, 1.4]"
    assert _text(net[1].energy_j, ".3g", "J") == "0.6 J [-0.2, 1.4]"
    assert gross[1].time_saved is not None
    assert _text(gross[1].time_saved.times(100), ".1f", "%") == "80.0 % [50.0, 100.0]"
    assert _text(Interval(0.6), ".3g", "J") == "0.6 J"


def test_a_run_without_an_answer_says_so(tmp_path: Path) -> None:
    html = write_outputs(stored_probing(tmp_path, rounds=1))[0].read_text(encoding="utf-8")
    assert "It is not known what stopping after the first epoch saves" in html
    assert "no vanilla round with its probing round is finished" in html


def test_one_repetition_has_no_interval(tmp_path: Path) -> None:
    html = write_outputs(stored_probing(tmp_path, rounds=2))[0].read_text(encoding="utf-8")
    assert "(one repetition, no interval)" in html
    assert "round_missing" in html


def test_the_most_severe_findings_come_first(html: str) -> None:
    section = html[html.index("<h2>Findings</h2>") :]
    severities = re.findall(r"<td[^>]*>(error|warning|info)</td>", section[: section.index("</section>")])
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert {"warning", "info"} <= set(severities)


def test_the_report_command_and_a_notebook(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "report.html").unlink(missing_ok=True)
    assert joulefleet(["report", run.name, "--root", str(run.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(run / "report.html")
    rounds = open_run(run).rounds()
    assert list(rounds["m"]) == [2, 2, 2, 2]
    assert sorted(rounds["k"].dropna()) == [1, 1]
    assert set(rounds.loc[rounds["k"].notna(), "chosen"]) == {"fast"}


def test_chromium_draws_it(run: Path, html: str, require_program: Callable[[str, str], str]) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        write_outputs(run)
        open_page(driver, run / "report.html")
        assert drawn(driver) >= 3
        dots = driver.find_elements(By.CSS_SELECTOR, ".dots .dot")
        assert len(dots) == 2 * (3 * 3 + 1)
        places = [dot.rect["x"] for dot in dots]
        assert max(places) - min(places) > 100
        assert all(dot.rect["width"] > 2 for dot in dots)
        assert console_errors(driver) == []
        assert {url.split(":")[0] for url in requested_urls(driver)} <= {"file", "data", "chrome"}


@pytest.mark.parametrize(("half_width", "told"), [(0.2, False), (0.32, True), (0.4, True)])
def test_a_saving_whose_shown_interval_holds_zero_says_so(half_width: float, told: bool) -> None:
    share = Quantity(mean=0.331, sd=0.1, n=4, half_width_95=half_width)
    text = _said(share, Origin.EMULATED)
    assert ("not distinguishable from 0" in text) is told, text
    assert bool(re.search(r"\[-|± 4", text)) is told, "as its shown ends do"
