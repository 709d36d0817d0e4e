"""The page of a bench run: what is in it, how large it gets, and what a real browser makes of a real run."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from harness.bench_run.run import read_bench_files, run_bench
from harness.cli import run as joulefleet
from harness.outputs import OUTPUTS, write_outputs
from harness.report.bench import charts as bench_charts
from harness.report.bench import page as bench_page
from harness.report.bench import profile_tables
from harness.report.bench import sections as bench_sections
from harness.report.page import ErrorBar, Number
from harness.results.stored_run import StoredRun
from joulefleet.errors import JoulefleetError
from joulefleet.provenance import Origin
from joulefleet.runstore import RunStore
from power import DeviceProfile
from power.energy import measure_energy
from power.profile import Quantity
from tests.harness.browser import browser, console_errors, drawn, open_page, requested_urls, wait_until_drawn
from tests.harness.local_bench import FAST, local_bench
from tests.harness.profile_captures import one_round, write
from tests.harness.stored_bench import HOSTILE, capture_with_a_gap, stored_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_bench(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Path:
    """A job of the real runner: an OpenSSH server as the device, an emulated Monsoon that watches it.

    The bench is over before the run is looked at: a browser must not inherit its precedence over everything.
    """
    with local_bench(tmp_path_factory.mktemp("bench"), sshd, {"alpha": "monsoon-lvpm"}) as running:
        sections = {**FAST, "repetitions": "count = 1"}
        plan = running.write_plan(sections, local_epochs=2, samples=200_000)
        return run_bench(
            read_bench_files(plan, running.inventory), running.folder / "runs", outputs=OUTPUTS
        ).path


def charts_of(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
    assert found
    charts: list[dict[str, Any]] = json.loads(found[1])
    return charts


def test_every_part_is_on_the_page(bench: Path) -> None:
    html = bench_page.bench_page(StoredRun(bench)).html()
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    assert headings == [
        "What it costs", "Findings", "Findings, one by one", "Power by job",
        "Profiles: every phase, load curves, notes", "Jobs", "Epochs", "Clock", "Provenance", "Configuration",
        "How this was made",
    ]  # fmt: skip
    for expected in (
        "Jobs: 1 failed, 3 finished, 4 pending. Epochs: 6 recorded, 6 usable. The run is interrupted.",
        '<span class="badge measured">measured</span>',
        '<span class="badge emulated">emulated</span>',
        "attempt_failed",
        "background load alone: game (50%)",
        "models = [&#34;softmax&#34;]",
        "Pixel 5",
        "standard uncertainty",
        "as recorded",
    ):
        assert expected in html
    assert "secret-user" not in html  # how a device is reached is nobody's business
    assert "bench-host.example" not in html
    assert HOSTILE not in html
    assert html.count("</script>") == 3


def test_bands_tell_joules_watts_and_seconds(bench: Path) -> None:
    charts = charts_of(bench_page.bench_page(StoredRun(bench)).html())
    power = [chart for chart in charts if chart.get("yLabel") == "power (W)"]
    assert len(power) == 3
    bands = {band["label"]: band for band in power[-1]["bands"]}
    assert {"idle", "download", "probe 1", "wait", "epoch 2", "upload"} <= set(bands)
    note = re.fullmatch(r"([\d.]+) J, ([\d.]+) W on average, ([\d.]+) s", bands["epoch 2"]["note"])
    assert note
    joules, watts, seconds = map(float, note.groups())
    assert (watts, seconds) == (pytest.approx(3.0, abs=0.003), 0.9)
    assert joules == pytest.approx(watts * seconds, rel=1e-3)
    start, end = bands["epoch 2"]["start"], bands["epoch 2"]["end"]
    inside = [w for t, w in zip(*power[-1]["data"], strict=True) if start < t < end]
    assert set(inside) == {3.0}
    clock = next(chart for chart in charts if chart.get("yLabel") == "residual (ms)")
    assert clock["data"][1] == pytest.approx([0.05] * 3)
    assert clock["series"][0]["halfWidth"] == pytest.approx([0.25] * 3)


def test_where_samples_are_missing_there_is_no_line_and_no_energy(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("gap", kind="bench") as run:
        capture_with_a_gap(run.path / "jobs" / "0001_board_x_rep1")
    html = bench_page.bench_page(StoredRun(run.path)).html()
    (power,) = charts_of(html)
    assert power["data"][1].count(None) == 1
    assert 2.0 < power["data"][0][power["data"][1].index(None)] < 2.4
    (band,) = power["bands"]
    assert band["note"].startswith("energy not known (a gap longer than")
    assert "No profile could be built" in html
    assert "no usable probe epoch" in html


def test_error_bars_show_the_interval(bench: Path) -> None:
    table = bench_page.cost_section(StoredRun(bench).device_profiles).tables[0]
    bars = [cell for row in table.rows for cell in row if isinstance(cell, ErrorBar)]
    assert len(bars) == 3 * 3
    for bar in bars:
        low, mean, high = bar.ends
        if bar.number.half_width:
            assert 0 <= low < mean < high <= 100
        assert mean == pytest.approx(100 * bar.number.value / bar.full, abs=0.01)
    assert max(bar.ends[2] for bar in bars) == 100


def test_a_marginal_energy_that_was_not_measured_is_said_not_drawn(bench: Path) -> None:
    profile = next(p for p in StoredRun(bench).device_profiles if len(p.load_curve) > 1)
    lines = [series.label for series in profile_tables._curve(profile).series]
    assert lines == ["duration of an epoch", "its marginal energy"]
    assert profile_tables.unmeasured_energy(profile) == ""

    def without(load: float, quantity: Quantity | None) -> DeviceProfile:
        levels = [
            level.model_copy(update={"epoch": level.epoch.model_copy(update={"marginal_j": quantity})})
            if level.load == load
            else level
            for level in profile.load_levels
        ]
        return profile.model_copy(update={"load_levels": tuple(levels)})

    top = max(level.load for level in profile.load_levels)
    for unknown in (None, Quantity(mean=-0.5, n=3), Quantity(mean=0.1, n=3, half_width_95=0.4)):
        changed = without(top, unknown)
        assert [s.label for s in profile_tables._curve(changed).series] == ["duration of an epoch"]
        assert f"could not be measured beside {top:.0%}" in profile_tables.unmeasured_energy(changed)
        assert "could not be measured, so" in profile_tables.unmeasured_energy(without(0.0, unknown))


def test_an_error_bar_stays_inside_its_cell() -> None:
    number = Number(-1.0, "J", Origin.EMULATED, 3.0)
    assert ErrorBar(number, 1.0).ends == (0.0, 0.0, 100.0)
    assert ErrorBar(number, 0.0).ends == (0.0, 0.0, 0.0)


def test_the_page_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore(tmp_path).create("long", kind="bench") as run:
        for i in range(3):
            write(
                run.path / "jobs" / f"000{i}_board_x_rep1", one_round([60.0, *[2.0] * 4]), capture_id=f"c{i}"
            )
    monkeypatch.setattr(bench_charts, "PAGE_POINTS", 3000)
    monkeypatch.setattr(bench_charts, "MAX_JOBS", 2)
    monkeypatch.setattr(bench_sections, "MAX_JOBS", 2)
    monkeypatch.setattr(bench_sections, "MAX_ROWS", 10)
    html = bench_page.bench_page(StoredRun(run.path)).html()
    power = [chart for chart in charts_of(html) if chart.get("yLabel") == "power (W)"]
    assert len(power) == 2
    assert all(len(chart["data"][0]) <= 1500 for chart in power)
    assert max(power[0]["data"][1]) == 3.0
    assert "decimated from 73,400 samples" in html
    assert "The first 2 of 3 jobs" in html
    assert "The first 10 of 15 rows" in html


def test_outputs_are_written_anew(bench: Path) -> None:
    report, junit, results = write_outputs(bench)
    assert write_outputs(bench) == (report, junit, results)
    assert report.name == "report.html"
    assert ET.fromstring(junit.read_bytes()).get("tests") == "8"
    assert pq.read_table(results).num_rows == 6


def test_a_run_in_which_everything_failed_has_a_page_too(tmp_path: Path) -> None:
    with (
        pytest.raises(JoulefleetError),
        RunStore(tmp_path).create("broken", kind="bench") as run,
    ):
        raise JoulefleetError("all 4 jobs failed")
    html = write_outputs(run.path)[0].read_text()
    assert "all 4 jobs failed" in html
    assert "No job has finished." in html
    assert charts_of(html) == []


def test_the_report_command(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench / "report.html").unlink(missing_ok=True)
    assert joulefleet(["report", bench.name, "--root", str(bench.parent), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(bench / "report.html")
    assert said["bytes"] == (bench / "report.html").stat().st_size


def test_open_calls_the_browser(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("demo", kind="demo") as run:
        (run.path / "report.html").write_text("a page")
    script, seen = tmp_path / "browser", tmp_path / "seen"
    script.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    script.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "harness", "report", str(run.path), "--open"],
        env={**os.environ, "BROWSER": f"{script} %s"}, check=True, capture_output=True,
    )  # fmt: skip
    assert seen.read_text().strip() == (run.path / "report.html").resolve().as_uri()


def test_a_run_of_another_kind_keeps_its_own_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore(tmp_path).create("demo", kind="demo") as run:
        pass
    assert joulefleet(["report", str(run.path)]) == 3
    assert "has no page" in capsys.readouterr().err
    (run.path / "report.html").write_text("mine")
    assert joulefleet(["report", str(run.path)]) == 0
    assert (run.path / "report.html").read_text() == "mine"


COUNT_PIXELS = """
const c = arguments[0], g = c.getContext("2d");
const pixels = g.getImageData(0, 0, c.width, c.height).data;
const seen = {line: 0, band: 0};
for (let i = 0; i < pixels.length; i += 4) {
  const [r, g, b, a] = pixels.slice(i, i + 4);
  if (a > 200 && r < 60 && g > 80 && g < 140 && b > 110) seen.line++;
  if (a > 10 && a < 60) seen.band++;
}
return seen;
"""


def pixels(driver: WebDriver, canvas: Any) -> dict[str, int]:
    counts: dict[str, int] = driver.execute_script(COUNT_PIXELS, canvas)
    return counts


def power_charts(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    charts = charts_of(path.read_text())
    return charts, [i for i, chart in enumerate(charts) if chart.get("yLabel") == "power (W)"]


def test_chromium_shows_a_real_run_and_one_with_several_jobs(
    real_run: Path, bench: Path, tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        look_at_a_real_run(driver, write_outputs(real_run)[0])
        picture = tmp_path / "report.png"
        assert driver.save_screenshot(str(picture))
        assert picture.stat().st_size > 10_000
        unfold_a_job(driver, write_outputs(bench)[0])
        assert console_errors(driver) == []
        schemes = {url.split(":")[0] for url in requested_urls(driver)}
        assert schemes <= {"file", "data", "chrome"}


def in_sight(driver: WebDriver) -> int:
    """Charts that no closed fold hides."""
    script = (
        "return [...document.querySelectorAll('.chart')]"
        ".filter(p => !p.closest('details:not([open])')).length"
    )
    count: int = driver.execute_script(script)
    return count


def unfold(driver: WebDriver, title: str) -> None:
    driver.find_element(By.XPATH, f"//summary[contains(., '{title}')]").click()
    wait_until_drawn(driver, in_sight(driver))


def overlay_two(driver: WebDriver) -> None:
    """Two recordings, aligned where the probe begins; another phase moves them."""
    unfold(driver, "Two recordings over each other")
    first, second, marker = (Select(e) for e in driver.find_elements(By.CSS_SELECTOR, ".pick select"))
    assert first.first_selected_option.text != second.first_selected_option.text
    assert marker.first_selected_option.text == "probe 1"
    place = driver.find_element(By.CSS_SELECTOR, ".pick + .chart")
    before = pixels(driver, place.find_element(By.TAG_NAME, "canvas"))
    assert before["line"] > 200
    marker.select_by_visible_text("upload")
    assert pixels(driver, place.find_element(By.TAG_NAME, "canvas")) != before


def look_at_a_real_run(driver: WebDriver, path: Path) -> None:
    charts, (power,) = power_charts(path)
    open_page(driver, path)
    assert drawn(driver) == in_sight(driver) < len(charts), "clock exchanges are folded away"
    place = driver.find_element(By.CSS_SELECTOR, f'[data-chart="{power}"]')
    canvas = place.find_element(By.TAG_NAME, "canvas")
    set_two_cursors(driver, place, next((path.parent / "jobs").iterdir()))
    before = pixels(driver, canvas)
    assert before["line"] > 500
    assert before["band"] > 5000
    hover_and_zoom(driver, place, charts[power])
    zoomed = pixels(driver, canvas)
    assert zoomed != before
    assert zoomed["line"] > 100
    assert console_errors(driver) == []


def set_two_cursors(driver: WebDriver, place: Any, job: Path) -> None:
    """Click twice: the page says the joules that the command line says of the same stretch."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
    over = place.find_element(By.CSS_SELECTOR, ".u-over")
    note = driver.find_element(By.CSS_SELECTOR, ".note.cursors")
    for part in (-0.2, 0.1):
        ActionChains(driver).move_to_element_with_offset(
            over, int(part * over.size["width"]), 5
        ).click().perform()
    found = re.match(r"([\d.]+) s to ([\d.]+) s .*?: ([\d.]+) ± ([\d.]+) J, mean ([\d.]+) W", note.text)
    assert found, note.text
    start_s, end_s, joules, half, mean_w = map(float, found.groups())
    measured = measure_energy(job, start_s, end_s)
    assert measured.budget is not None
    assert joules == pytest.approx(measured.budget.value_j, abs=10 ** -(len(found[3].split(".")[1])))
    assert half == pytest.approx(measured.budget.half_width_j, rel=0.06)  # two digits are shown
    assert mean_w == pytest.approx(measured.energy.mean_power_w, rel=1e-3)


def unfold_a_job(driver: WebDriver, path: Path) -> None:
    charts, power = power_charts(path)
    assert len(power) == 3
    open_page(driver, path)
    at_first = in_sight(driver)
    assert drawn(driver) == at_first < len(charts)
    unfold(driver, charts[power[1]]["recording"])
    second = driver.find_element(By.CSS_SELECTOR, f'[data-chart="{power[1]}"] canvas')
    assert pixels(driver, second)["band"] > 5000
    assert drawn(driver) == in_sight(driver) > at_first
    overlay_two(driver)


def hover_and_zoom(driver: WebDriver, place: Any, chart: dict[str, Any]) -> None:
    """Point at an epoch, where the note tells its cost; then drag over it."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
    over = place.find_element(By.CSS_SELECTOR, ".u-over")
    times = chart["data"][0]
    band = next(b for b in chart["bands"] if b["label"] == "epoch 2")

    def at(seconds: float) -> int:
        """Pixels from the middle of the plot, whose x axis is as wide as the data."""
        share = (seconds - times[0]) / (times[-1] - times[0])
        return round((share - 0.5) * over.size["width"])

    middle = (band["start"] + band["end"]) / 2
    ActionChains(driver).move_to_element_with_offset(over, at(middle), 0).perform()
    note = place.find_element(By.XPATH, "following-sibling::p[not(contains(@class, 'cursors'))]").text
    assert note == f"epoch 2: {band['note']}"
    assert re.search(r"[\d.]+ J, [\d.]+ W on average, [\d.]+ s", note)
    (
        ActionChains(driver)
        .move_to_element_with_offset(over, at(band["start"]) - 20, 0)
        .click_and_hold()
        .move_to_element_with_offset(over, at(band["end"]) + 20, 0)
        .release()
        .perform()
    )
