"""The page of a run of `joulefleet emulate`, and what a real browser makes of it on screen and on paper."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emulator.compare import load_emulations
from emulator.experiments import Variant, summary_of
from emulator.runs.batch import plan, play, run, start
from emulator.runs.result import EMULATION_FILE
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from harness.cli import run as joulefleet
from harness.report.charts import HeatMap
from harness.report.emulations.charts import MAX_CELLS
from harness.report.emulations.emulation_page import emulation_page
from harness.report.emulations.experiment_page import variant_curves, variant_tables
from harness.report.looks import method_looks
from harness.report.page import Page, Section
from tests.harness.browser import browser, console_errors, drawn, open_page, requested_urls, wait_until_drawn

DEVICES = 20
SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=DEVICES, speed_spread=0.3),
    protocol=ProtocolSection(rounds=4, k=3, candidates=6),
    trainer=TrainerSection(kind="surrogate"),
)
TEXT = 'name = "small"  # as it was written'
METHODS = ("fedavg", "fedrank")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = plan(SMALL, METHODS, [0, 1])
    with start(tmp_path_factory.mktemp("emulations"), index, TEXT) as stored:
        play(stored, index)
    return stored.path


def headings(page: Page) -> list[str]:
    return [section.title for section in page.sections]


def heat_map(page: Page) -> HeatMap:
    charts = [chart for section in page.sections for chart in section.all_charts()]
    (found,) = [chart for chart in charts if isinstance(chart, HeatMap)]
    return found


def section(page: Page, title: str) -> Section:
    return next(one for one in page.sections if one.title == title)


def test_every_part_is_on_the_page(emulated: Path) -> None:
    page = emulation_page(emulated)
    assert headings(page) == [
        "Methods", "Methods: every number", "small: curves", "The world it ran in", "What counts",
        "small: what early exit saves", "Scenario", "Provenance",
    ]  # fmt: skip
    titles = [chart.title for chart in section(page, "small: curves").all_charts()]
    for words in (
        "Test accuracy against rounds", "against virtual time", "against energy", "How often each device",
        "by what it went into",
    ):  # fmt: skip
        assert any(words in title for title in titles), words
    html = page.html()
    for words in (
        "Gini of times chosen", "Drop-outs by reason", "rejected work J", "wait J", "as it was written",
        "&#34;candidates&#34;: 6", "profiles sha256", "literature",
    ):  # fmt: skip
        assert words in html, words


def test_the_summary_holds_what_the_rounds_say(emulated: Path) -> None:
    totals, rounds, *_ = section(emulation_page(emulated), "What counts").tables
    folders = [emulated / f"fedrank_s{seed}" for seed in (0, 1)]
    energy_j = np.array([_rounds(folder, "energy_j_honest") for folder in folders])
    assert [row[0] for row in totals.rows] == list(METHODS)
    assert str(totals.rows[1][7]).startswith(f"{energy_j.sum(1).mean():.4g} (")
    assert str(rounds.rows[1][4]).startswith(f"{energy_j.mean():.4g} (")


def _rounds(folder: Path, column: str) -> list[float]:
    import pyarrow.parquet as pq

    values: list[float] = pq.read_table(folder / "rounds.parquet")[column].to_pylist()
    return values


def test_one_selector_with_one_seed_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(SMALL, seed=3, out=tmp_path)
    assert joulefleet(["report", str(result.run_path)]) == 0
    assert "report.html" in capsys.readouterr().out
    page = emulation_page(result.run_path)
    curves = ["small: curves", "The world it ran in", "What counts"]
    assert headings(page) == ["Methods", "Methods: every number", *curves, "Scenario", "Provenance"]
    assert (result.run_path / "report.html").read_text().count("<h2>") == 8  # and how it was made


def test_what_is_not_finished_is_named_and_left_out(
    emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(emulated, tmp_path / "part"))
    for name in METHODS:
        record = copy / f"{name}_s1" / EMULATION_FILE
        record.write_text(json.dumps({**json.loads(record.read_text()), "rounds": None}))
    assert joulefleet(["report", str(copy)]) == 0
    html = (copy / "report.html").read_text()
    assert "Before you read on" in html
    assert "fedrank_s1: not finished" in html
    for name in METHODS:
        shutil.rmtree(copy / f"{name}_s0")
    capsys.readouterr()
    assert joulefleet(["report", str(copy)]) == 6
    assert "none of these emulations is finished" in capsys.readouterr().err


def test_a_large_fleet_is_shown_in_groups(tmp_path: Path) -> None:
    fleet = FleetSection(devices=2 * MAX_CELLS + 1, speed_spread=0.3)
    result = run(SMALL.model_copy(update={"fleet": fleet}), seed=0, out=tmp_path)
    found = heat_map(emulation_page(result.run_path))
    (values,) = found.rows.values()
    assert (len(values), found.column) == (267, "3 devices")
    clients = result.clients
    share = np.bincount(clients["device"][clients["chosen"]], minlength=fleet.devices) / 4
    assert values == pytest.approx(100 * share.reshape(-1, 3).mean(1))


PRINTED = "return getComputedStyle(document.querySelector(arguments[0])).display"


def test_chromium_draws_and_prints_it(emulated: Path, require_program: Callable[[str, str], str]) -> None:
    assert joulefleet(["report", str(emulated)]) == 0
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        open_page(driver, emulated / "report.html")
        assert drawn(driver) == 2 + 3 + 1, "accuracy against energy, differences; curves; bars"
        driver.execute_script("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        wait_until_drawn(driver, 2 + 3 + 1 + 1 + 2)
        cells = "return document.querySelectorAll('.heat:not(.stack):not(.dots) .cells i').length"
        assert driver.execute_script(cells) == len(METHODS) * DEVICES
        assert console_errors(driver) == []
        assert {url.split(":")[0] for url in requested_urls(driver)} <= {"file", "data", "chrome"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        # The scale of the heat map is on paper, and so is the name of what is folded.
        scale = driver.find_element("xpath", "//p[starts-with(text(), 'light: 0, dark:')]")
        assert scale.is_displayed()
        driver.execute_script("document.querySelectorAll('details').forEach(fold => { fold.open = false; })")
        assert driver.execute_script(PRINTED, "details:not([open]) summary") != "none"
        said = "return getComputedStyle(document.querySelector('summary'), '::after').content"
        assert "open it on the screen to print it" in driver.execute_script(said)
        pdf = base64.b64decode(driver.print_page())
        assert pdf.startswith(b"%PDF")


@pytest.mark.parametrize("order", [METHODS, METHODS[::-1]])
def test_curves_begin_with_the_best(emulated: Path, order: tuple[str, ...]) -> None:
    loaded, _ = load_emulations([emulated])
    runs = {method: {one.seed: one for one in loaded if one.method == method} for method in order}
    scenario = loaded[0].record.scenario
    summary = summary_of(Variant(name="v", title="v", scenario=scenario, reductions=("none",)), runs)
    looks = method_looks(summary.runs)
    lines = variant_curves(summary, looks).charts[0].as_data()["series"]
    assert [line["label"] for line in lines] == [
        row[0] for row in variant_tables(summary, looks)[0].tables[0].rows
    ]
