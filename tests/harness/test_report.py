"""The report page: what is in it, and what a real browser makes of it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.report.charts import MAX_POINTS, Band, Chart, DotPlot, Series
from harness.report.page import Number, Page, Section, Table
from harness.results.decimate import min_max_indices
from joulefleet.errors import StorageError
from joulefleet.interval import Interval
from joulefleet.provenance import Origin
from tests.harness.browser import browser, console_errors, open_page, requested_urls

CATCH_LABELS = """
window.labels = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
  window.labels.push(text);
  return write.call(this, text, ...where);
};
"""


def page() -> Page:
    t = np.linspace(0, 10, 100_000)
    power = 1.0 + (np.sin(t * 3) > 0)
    power[54_321] = 9.0  # one sample that must survive the decimation
    chart = Chart(
        "Power", "time (s)", "power (W)", t, [Series("power (W)", power)], "emulated",
        [Band(2.0, 4.0, "epoch 1", "3.21 J, 1.6 W, 2 s"), Band(5.0, 7.0, "epoch 2", "3 J")],
    )  # fmt: skip
    numbers = [("Energy per epoch", Number(3.214, "J", Origin.EMULATED, 0.057))]
    table = Table(["device", "energy"], [["</script><b>pi</b>", Number(1.0, "J", Origin.SCALED)]])
    return Page(
        "A run", "What happened.", [Section("Bench", "Text.", numbers, [chart], [table])], {"seed": "1"}
    )


def test_numbers_show_interval_unit_and_origin() -> None:
    assert Number(3.214, "J", Origin.EMULATED, 0.057).text == "3.214 ± 0.057 J"
    assert Number(123.456, "s", Origin.EMULATED, 12.3).text == "123 ± 12 s"
    assert Number(0.00123, "J", Origin.SCALED).text == "0.00123 J"
    html = page().html()
    assert '3.214 ± 0.057 J <span class="badge emulated">emulated</span>' in html
    assert "<td>1 J</td>" in html, "once above the table"
    assert html.count('<span class="badge scaled">scaled</span>') == 2, "there, and in the legend of all"


def test_decimation_keeps_every_peak() -> None:
    values = np.random.default_rng(0).normal(size=200_000)
    values[77_777], values[123_456] = 50.0, -50.0
    keep = min_max_indices([values], MAX_POINTS)
    assert len(keep) <= MAX_POINTS
    assert {0, 77_777, 123_456, 199_999} <= set(keep.tolist())
    assert (np.diff(keep) > 0).all()


@pytest.mark.parametrize("n", [100_003, 4_001])
def test_decimation_keeps_a_peak_near_the_end(n: int) -> None:
    values = np.zeros(n)
    values[n - 2] = 50.0
    keep = min_max_indices([values], MAX_POINTS)
    assert n - 2 in keep.tolist()
    assert len(keep) <= MAX_POINTS


def test_short_series_are_kept_whole() -> None:
    assert min_max_indices([np.zeros(10)], 100).tolist() == list(range(10))


def test_the_page_is_one_small_file_without_addresses(tmp_path: Path) -> None:
    path = page().write(tmp_path / "report.html")
    html = path.read_text()
    assert len(html) < 300_000
    assert 'src="http' not in html
    assert 'href="http' not in html
    with pytest.raises(StorageError, match="not overwritten"):
        page().write(path)


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    html = page().html()
    assert "<b>pi</b>" not in html
    assert html.count("</script>") == 3


def test_chromium_draws_it_without_complaint_or_network(
    tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    path = page().write(tmp_path / "report.html")
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        open_page(driver, path)
        assert driver.execute_script("return document.documentElement.dataset.drawn") == "1"
        canvas = driver.execute_script(
            """
            const c = document.querySelector(".chart canvas"), g = c.getContext("2d");
            const pixels = g.getImageData(0, 0, c.width, c.height).data;
            const seen = {line: 0, band: 0};
            for (let i = 0; i < pixels.length; i += 4) {
              const [r, g, b, a] = pixels.slice(i, i + 4);
              if (a > 200 && r < 60 && g > 80 && g < 140 && b > 110) seen.line++;
              if (a > 10 && a < 60) seen.band++;
            }
            return seen;
            """
        )
        assert canvas["line"] > 500  # the trace, in its own colour
        assert canvas["band"] > 5000  # the shaded epochs
        assert console_errors(driver) == []
        schemes = {url.split(":")[0] for url in requested_urls(driver)}
        assert schemes <= {"file", "data", "chrome"}  # chrome: the empty tab it starts with
        # In the same browser: a scale of millionths, and differences that are all below zero.
        small = np.array([0.0, 1e-6, 2.5e-6])
        chart = Chart("Small", "hours", "J", small, [Series("J", small)], "emulated")
        dots = DotPlot("Less", ("energy",), {"oort": [Interval(-40.0, -50.0, -30.0)]}, "%", "emulated")
        lines = [Series(f"method {i}", small) for i in range(8)]
        many = Chart("Many", "hours", "J", small, lines, "emulated")
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CATCH_LABELS})
        open_page(
            driver, Page("p", "", [Section("s", charts=[chart, dots, many])]).write(tmp_path / "small.html")
        )
        labels = driver.execute_script("return window.labels")
        assert {"0.0000005", "0.000001", "0.0000025"} <= set(labels), labels
        assert len(driver.find_elements("css selector", ".dots b.zero")) == 1
        assert len(driver.find_elements("css selector", ".u-legend .u-off")) == 2, "six of eight lines"
        assert "2 more lines" in driver.find_element("tag name", "main").text
        assert console_errors(driver) == []
        picture = tmp_path / "report.png"
        assert driver.save_screenshot(str(picture))
        assert picture.stat().st_size > 10_000
