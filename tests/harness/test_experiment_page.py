"""The page of an experiment, and what a real browser makes of it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emulator.experiments.results import load_experiment
from harness.outputs import write_experiment
from harness.report.charts import Chart, HeatMap, Series, StackedBars
from harness.report.emulations.charts import selection_map
from harness.report.emulations.experiment_page import experiment_page
from harness.report.page import Page, Section
from joulefleet.runstore.run import read_run
from tests.emulator.small_experiment import METHODS, played, small_plan
from tests.harness.browser import browser, console_errors, drawn, open_page, requested_urls, wait_until_drawn


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = played(tmp_path_factory.mktemp("experiments"), small_plan())
    write_experiment(path)
    return path


def test_the_page_says_what_the_issue_asks_for(finished: Path) -> None:
    page = experiment_page(load_experiment(finished), read_run(finished))
    titles = [chart.title for section in page.sections for chart in section.all_charts()]
    for words in (
        "Test accuracy against rounds", "against virtual time", "against energy", "Reward of each round",
        "Validation loss", "TD loss", "Rank loss", "How often each device was chosen", "by what it went into",
        "Accuracy over candidates", "Energy per round over candidates", "Speed per round over candidates",
        "Energy saved by early exit over candidates", "Time saved by early exit over candidates",
    ):  # fmt: skip
        assert any(words in title for title in titles), words
    html = page.html()
    for words in (
        "Gini of times chosen",
        "Jain of times chosen",
        "Drop-outs by reason",
        "How the paper was read",
        "what early exit saves",
        "rejected work J",
        "waiting is outside R_E",
    ):
        assert words in html
    assert html.count("a formula instead of training") >= 3  # with every scenario and series
    assert len(html) < 300_000


def test_a_series_starts_from_its_base(finished: Path) -> None:
    page = experiment_page(load_experiment(finished), read_run(finished))
    series = next(section for section in page.sections if "over candidates" in section.title)
    # Against FedAvg, to the target, against vanilla, and where the energy went: each at every value.
    assert len(series.tables) == 4
    for table in series.tables:
        assert [row[0] for row in table.rows] == ["6", "9"]
    chart = series.charts[0].as_data()
    assert chart["data"][0] == [6.0, 9.0]
    assert len(chart["series"][0]["low"]) == 2


def test_the_heat_map_names_who_is_not_on_it(finished: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "part"))
    shutil.rmtree(copy / "plain" / "fedavg_s0")
    results = load_experiment(copy, partial=True)
    heat = selection_map(results.of(results.plan.variants[0]))
    assert (heat.title, list(heat.rows)) == ("How often each device was chosen, seed 1", list(METHODS))
    shutil.rmtree(copy / "plain" / "oort_s1")
    results = load_experiment(copy, partial=True)
    heat = selection_map(results.of(results.plan.variants[0]))
    assert heat.title.endswith("seed 0 (without fedavg)")


def test_figures_are_plain_data() -> None:
    heat = HeatMap("Chosen", {"a": np.array([1.0, np.nan])}, "device", "%", "emulated").as_data()
    assert heat["rows"] == [{"label": "a", "values": [1.0, None]}]
    bars = StackedBars("Energy", ["train", "probe"], {"a": [1.0, 2.0]}, "J", "emulated").as_data()
    assert bars["parts"] == ["train", "probe"]


def test_chromium_draws_it_without_complaint_or_network(
    finished: Path, tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        open_page(driver, finished / "report.html")
        at_first = drawn(driver)
        # Scatter, differences; curves, bars; the series with bars of its own. The rest is folded away.
        assert at_first == 2 + 3 + 1 + 6
        driver.execute_script("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        wait_until_drawn(driver, at_first + 1 + 4)
        assert drawn(driver) == at_first + 1 + 4
        cells = "return document.querySelectorAll('.heat:not(.stack):not(.dots) .cells i').length"
        assert driver.execute_script(cells) == len(METHODS) * 12
        bars = driver.execute_script("return document.querySelectorAll('.heat.stack').length")
        assert bars == len(METHODS) + 2
        assert console_errors(driver) == []
        assert {url.split(":")[0] for url in requested_urls(driver)} <= {"file", "data", "chrome"}
        picture = tmp_path / "experiment.png"
        assert driver.save_screenshot(str(picture))
        assert picture.stat().st_size > 10_000
        open_page(driver, ribbon_page().write(tmp_path / "ribbon.html"))
        ribbon = driver.execute_script(
            """
            const c = document.querySelector(".chart canvas"), g = c.getContext("2d");
            const pixels = g.getImageData(0, 0, c.width, c.height).data;
            let seen = 0;
            for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 10 && pixels[i] < 80) seen++;
            return seen;
            """
        )
        assert ribbon > 20_000  # the shaded seeds: half of the canvas
        assert console_errors(driver) == []


def ribbon_page() -> Page:
    x = np.arange(10.0)
    line = Series("a", np.zeros(10), low=np.full(10, -1.0), high=np.full(10, 1.0))
    return Page("Ribbon", "", [Section("One", charts=[Chart("a", "x", "y", x, [line], "emulated")])])
