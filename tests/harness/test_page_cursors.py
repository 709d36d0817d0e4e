"""Two cursors, and two recordings over each other, on a run's page in Chromium, against the samples."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from harness.report.bench.page import bench_page
from harness.results.stored_run import StoredRun
from joulefleet.runstore import RunStore
from power.energy import measure_energy
from power.recording import open_recording
from tests.harness.browser import browser, console_errors, open_page
from tests.harness.profile_captures import one_round, write
from tests.harness.stored_bench import capture_with_a_gap

SILENT_S = 0.7
"""The first recording began so long before its first sample, from which cursors count."""

FIRST, SECOND, GAP = (f"000{i}_board_x_rep{i}" for i in (1, 2, 3))
SAID = re.compile(
    r"([\d.]+) s to ([\d.]+) s after the first sample: ([\d.]+) \u00b1 ([\d.]+) J, mean ([\d.]+) W, "
    r"lowest ([\d.]+) W, highest ([\d.]+) W\. "
    r"The same: joulefleet meter show JOB --from ([\d.]+) --to ([\d.]+)"
)
KEEP_PLOTS = """
const real = uPlot;
window.plots = [];
uPlot = function (options, data, place) {
  const plot = new real(options, data, place);
  plots.push({ plot, data });
  return plot;
};
Object.assign(uPlot, real);
"""
OVERLAY = """
const { plot, data } = plots.filter(one => one.plot.root.closest(".pick + .chart")).at(-1);
const series = plot.series.slice(1).map(s => ({ label: s.label, stroke: s.stroke() }));
return { data, series, x: plot.axes[0].label, y: plot.axes[1].label };
"""
DARK_COLUMNS = """
const c = arguments[0], [left, top, width, height] = arguments[1].map(Math.round), found = [];
const pixels = c.getContext("2d").getImageData(left, top, width, height).data;
for (let x = 0; x < width; x++) {
  let dark = 0;
  for (let y = 0; y < height; y++) {
    const at = 4 * (y * width + x);
    if (pixels[at + 3] > 120 && pixels[at] + pixels[at + 1] + pixels[at + 2] < 180) dark++;
  }
  if (dark > 0.9 * height) found.push(x);
}
return found;
"""


@dataclass
class Trace:
    """The power trace of a job on the open page."""

    driver: WebDriver
    job: Path
    chart: dict[str, Any]
    place: WebElement

    def said(self) -> str:
        """What the note under the trace says."""
        return self.place.find_element(By.XPATH, "following-sibling::p[contains(@class, 'cursors')]").text

    def pointer(self, at_s: float) -> ActionChains:
        """The mouse at a moment of the recording; half a pixel is lost."""
        over = self.place.find_element(By.CSS_SELECTOR, ".u-over")
        first, last = self.chart["data"][0][0], self.chart["data"][0][-1]
        offset = round(
            ((at_s + self.chart["cells"]["first"] - first) / (last - first) - 0.5) * over.size["width"]
        )
        return ActionChains(self.driver).move_to_element_with_offset(over, offset, 40)

    def click(self, *moments_s: float) -> str:
        """What it says after these clicks, seconds after the first sample."""
        for at_s in moments_s:
            self.pointer(at_s).click().perform()
        return self.said()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    noisy: dict[str, Any] = {"gain_rel": 0.001, "noise_w": 0.05, "rng": rng}
    with RunStore(tmp_path_factory.mktemp("runs")).create("cursors", kind="bench") as made:
        jobs = made.path / "jobs"
        write(jobs / FIRST, one_round([1.0, 0.9, 0.8]), silent_ns=round(SILENT_S * 1e9), **noisy)
        write(jobs / SECOND, one_round([0.7, 0.6, 0.5], train_w=5.0, load_w=2.0), **noisy)
        capture_with_a_gap(jobs / GAP)
    (made.path / "report.html").write_text(bench_page(StoredRun(made.path)).html(), encoding="utf-8")
    return made.path


@pytest.fixture(scope="module")
def page(run: Path, require_program: Callable[[str, str], str]) -> Iterator[WebDriver]:
    programs = require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    with browser(*programs) as driver:
        open_page(driver, run / "report.html")
        driver.execute_script(KEEP_PLOTS)
        for fold in driver.find_elements(By.TAG_NAME, "summary"):
            driver.execute_script("arguments[0].parentElement.open = true", fold)
        yield driver
        assert console_errors(driver) == []


def trace(driver: WebDriver, run: Path, job: str) -> Trace:
    charts = driver.execute_script("return JSON.parse(document.getElementById('charts').textContent)")
    number = next(i for i, chart in enumerate(charts) if chart.get("recording") == job)
    place = driver.find_element(By.CSS_SELECTOR, f'[data-chart="{number}"]')
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
    return Trace(driver, run / "jobs" / job, charts[number], place)


@pytest.mark.parametrize("moments", [(0.4, 1.6), (3.3, 2.2), (0.1, 7.0), (2.52, 2.6)])
def test_cursors_say_what_the_samples_between_them_are(
    page: WebDriver, run: Path, moments: tuple[float, float]
) -> None:
    shown = trace(page, run, FIRST)
    shown.click(*moments)
    found = SAID.fullmatch(shown.said())
    assert found, shown.said()
    start_s, end_s, joules, half, mean_w, low_w, high_w, from_s, to_s = map(float, found.groups())
    assert (from_s, to_s) == (start_s, end_s)
    # Edges are 1/400 of the trace apart, and a pixel is about as wide.
    cell_s = shown.chart["cells"]["edges"][-1] / 400
    assert (start_s, end_s) == pytest.approx(sorted(moments), abs=1.5 * cell_s)
    measured = measure_energy(shown.job, start_s, end_s)
    assert measured.budget is not None
    assert joules == pytest.approx(measured.budget.value_j, abs=10 ** -len(found[3].split(".")[1]))
    # Two digits are shown. Noise is summed over cells of 18 samples here, whose outermost count twice.
    assert 0.94 < half / measured.budget.half_width_j < 1.15
    assert mean_w == pytest.approx(measured.energy.mean_power_w, rel=1e-3)
    blocks = list(open_recording(shown.job).blocks())
    t_s = np.concatenate([block.t_ns - blocks[0].t_ns[0] for block in blocks]) * 1e-9
    power_w = np.concatenate([block.power_w for block in blocks])[(t_s >= start_s) & (t_s < end_s)]
    assert (low_w, high_w) == pytest.approx((power_w.min(), power_w.max()), rel=1e-3)


def test_cursors_are_drawn_where_they_were_put(page: WebDriver, run: Path) -> None:
    shown = trace(page, run, FIRST)
    shown.click(0.5, 6.5)
    canvas = shown.place.find_element(By.TAG_NAME, "canvas")
    over = shown.place.find_element(By.CSS_SELECTOR, ".u-over")
    box = page.execute_script(
        "const [c, o] = [...arguments].map(one => one.getBoundingClientRect()), d = devicePixelRatio;"
        "return [(o.x - c.x) * d, (o.y - c.y) * d, o.width * d, o.height * d]",
        canvas,
        over,
    )
    columns = np.array(page.execute_script(DARK_COLUMNS, canvas, box))
    length_s = shown.chart["data"][0][-1] - shown.chart["data"][0][0]
    at = columns / box[2] * length_s
    cell_s = shown.chart["cells"]["edges"][-1] / 400
    assert len(columns), "nothing is drawn"
    for moment_s in (0.5, 6.5):
        assert np.abs(at - moment_s).min() < 2 * cell_s
    assert all(min(abs(t - 0.5), abs(t - 6.5)) < 2 * cell_s for t in at), "two lines, and no more"


def test_one_cursor_says_nothing_and_a_drag_is_none(page: WebDriver, run: Path) -> None:
    shown = trace(page, run, SECOND)
    assert shown.said() == "Click two places for the joules between them."
    shown.pointer(1.0).click_and_hold().perform()
    shown.pointer(3.0).release().perform()
    assert shown.said() == "Click two places for the joules between them.", "that was a zoom"
    ActionChains(page).double_click(shown.place.find_element(By.CSS_SELECTOR, ".u-over")).perform()
    # Those two clicks were two cursors in one place, between which there is nothing.
    assert shown.said() == "Click a second place."
    assert shown.click(1.0) == "Click a second place."
    assert SAID.fullmatch(shown.click(2.0))
    assert shown.click(3.0) == "Click a second place.", "a third click begins anew"
    found = SAID.fullmatch(shown.click(4.0))
    assert found
    assert float(found[1]) == pytest.approx(3.0, abs=0.05)


def test_where_samples_are_missing_joules_are_not_known(page: WebDriver, run: Path) -> None:
    shown = trace(page, run, GAP)
    assert shown.click(1.0, 3.0).endswith(" s after the first sample: not known, samples are missing")
    assert SAID.fullmatch(shown.click(0.2, 1.5))
    assert SAID.fullmatch(shown.click(2.6, 4.0)), "after the gap"


def test_two_recordings_begin_together(page: WebDriver) -> None:
    """Levels on both sides of the marker's begin and end; the recordings began at other times."""
    first, second, marker = (Select(e) for e in page.find_elements(By.CSS_SELECTOR, ".pick select"))
    first.select_by_visible_text(FIRST)
    second.select_by_visible_text(SECOND)
    marker.select_by_visible_text("probe 1")
    levels = {
        ("probe 1", FIRST): {-0.05: 1.5, 0.05: 3.0, 0.95: 3.0, 1.05: 1.0},
        ("probe 1", SECOND): {-0.05: 2.0, 0.05: 5.0, 0.65: 5.0, 0.75: 1.0},
        ("epoch 3", FIRST): {-0.05: 3.0, 0.75: 3.0, 0.85: 2.0},
        ("epoch 3", SECOND): {-0.05: 5.0, 0.45: 5.0, 0.55: 2.0},
        ("upload", FIRST): {-0.05: 3.0, 0.05: 2.0, 0.25: 2.0, 0.35: 0.8},
        ("upload", SECOND): {-0.05: 5.0, 0.05: 2.0, 0.25: 2.0, 0.35: 0.8},
    }
    for phase, one, other in (
        ("probe 1", FIRST, SECOND),
        ("epoch 3", FIRST, SECOND),
        ("upload", FIRST, SECOND),
        ("upload", SECOND, FIRST),
    ):
        first.select_by_visible_text(one)
        second.select_by_visible_text(other)
        marker.select_by_visible_text(phase)
        drawn = page.execute_script(OVERLAY)
        assert (drawn["x"], drawn["y"]) == (f"time since {phase} began (s)", "power (W)")
        assert [line["label"] for line in drawn["series"]] == [one, other]
        assert drawn["series"][0]["stroke"] != drawn["series"][1]["stroke"]
        t_s = np.array(drawn["data"][0])
        for line, name in zip(drawn["data"][1:], (one, other), strict=True):
            watts = np.array([np.nan if w is None else w for w in line])
            for at_s, level in levels[phase, name].items():
                near = watts[np.abs(t_s - at_s) < 0.01]
                assert np.nanmean(near) == pytest.approx(level, abs=0.1), (phase, name, at_s)
    second.select_by_visible_text(GAP)
    place = page.find_element(By.CSS_SELECTOR, ".pick + .chart")
    assert place.text == f"{GAP}: no phase upload"
