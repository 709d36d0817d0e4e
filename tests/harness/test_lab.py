"""The lab: a real server, a real browser, runs that grow while they are watched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.wait import WebDriverWait

from emulator.runs import plan, play, start
from harness.bench.journal import JOURNAL, BenchJournal
from harness.cli import run as joulefleet
from harness.lab.emulations import Emulations
from harness.lab.folders import Folders
from harness.lab.server import Lab
from joulefleet.runstore import RunStore
from power import measure_energy
from power.model import Finding, Severity
from power.recording import RecordingWriter
from tests.harness.browser import browser, console_errors, requested_urls
from tests.harness.lab_server import Served, serving
from tests.harness.stored_bench import recording, stored_bench
from tests.harness.test_emulation_page import SMALL, TEXT
from tests.power.synthetic import block, config, info, timebase

NASTY = '<img src=x onerror="document.title=1">[red]\x1b]0;owned\x07'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("lab")
    stored_bench(folder / "runs")
    index = plan(SMALL, ("fedavg", "oort"), [0])
    (folder / "emulations").mkdir()
    with start(folder / "emulations", index, TEXT) as stored:
        play(stored, index)
    with serving(folder, "runs", "emulations") as found:
        yield found


def run_of(served: Served, kind: str) -> str:
    """The stored run of a kind; others come and go with the tests."""
    stored = [one for one in served.data("/api/runs")["runs"] if one["name"] not in ("now", "linked", None)]
    (found,) = [one for one in stored if one["kind"] == kind]
    return f"/api/runs/{found['root']}/{found['run']}"


def test_who_does_not_know_the_word_is_told_nothing(served: Served) -> None:
    for token in ("", "x", served.lab.token[:-1], served.lab.token + "x"):
        status, text, _ = served.ask("/api/runs", token=token)
        assert status in (403, 404)
        assert "runs" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:PORT"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1.evil.example:PORT"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_other_names_and_other_sites_are_refused(served: Served, headers: dict[str, str]) -> None:
    asked = {name: value.replace("PORT", str(served.port)) for name, value in headers.items()}
    assert served.ask("/api/runs", **asked)[0] == 403
    assert served.ask("/", **asked)[0] == 403


def test_the_page_itself_may_ask(served: Served) -> None:
    own = f"http://127.0.0.1:{served.port}"
    status, _, headers = served.ask("/api/runs", origin=own, sec_fetch_site="same-origin")
    assert status == 200
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "..%2f..", "nothing", ".lock", "%00"])
def test_only_runs_below_the_roots_are_shown(served: Served, name: str) -> None:
    for place in (0, 1, 2, 99):
        assert served.ask(f"/api/runs/{place}/{name}")[0] == 404


def test_a_link_in_a_run_is_not_followed(served: Served, tmp_path: Path) -> None:
    with RunStore(served.folder / "runs").create("linked", kind="bench") as run:
        secret = tmp_path / "secret"
        secret.write_text("secret")
        (run.path / "report.html").symlink_to(secret)
    try:
        name = run.path.name
        assert served.ask(f"/api/runs/0/{name}")[0] == 404
        status, text, _ = served.ask(f"/page/{served.lab.page_key(0, name)}/0/{name}")
        assert (status, "secret" in str(text)) == (404, False)
    finally:
        (run.path / "report.html").unlink()
        (run.path / "run.json").unlink()


def test_joules_are_those_of_the_command_line(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_of(served, "bench")
    recordings = [one["recording"] for one in served.data(path)["recordings"] if one["finished"]]
    inside = recordings[0]
    asked = f"recording={quote(inside)}&from=0.25&to=1.5"
    found = served.data(f"{path}/energy?{asked}")
    folder = served.folder / "runs" / path.rsplit("/", 1)[1] / inside
    expected = measure_energy(folder, 0.25, 1.5)
    assert found["energy_j"] == expected.interval.mean
    assert (found["low_j"], found["high_j"]) == (expected.interval.low, expected.interval.high)
    assert found["min_w"] <= found["mean_w"] <= found["max_w"]
    capsys.readouterr()
    assert joulefleet(["meter", "show", str(folder), "--from", "0.25", "--to", "1.5", "--json"]) == 0
    assert found["energy_j"] == pytest.approx(json.loads(capsys.readouterr().out)["energy_j"], rel=1e-12)
    trace = served.data(f"{path}/trace?{asked}&points=50")
    assert 2 <= len(trace["t"]) <= 50
    assert min(trace["low"]) == pytest.approx(found["min_w"], rel=1e-5)


def test_a_new_attempt_is_not_taken_for_the_old_one(served: Served) -> None:
    path = run_of(served, "bench")
    job = served.folder / "runs" / path.rsplit("/", 1)[1] / "jobs" / "0009_again"
    asked = f"{path}/energy?recording=jobs/0009_again"
    found = []
    for watts in (1.0, 3.0):
        recording(job, [np.full(500, watts)])
        found.append(served.data(asked)["mean_w"])
        shutil.rmtree(job)
        assert served.ask(asked)[0] == 404, "it was put aside"
    assert found == pytest.approx([1.0, 3.0])


@pytest.mark.parametrize(
    "asked", ["from=a", "from=nan&to=1", "from=5&to=1", "from=-1&to=2", "from=0&to=1e9", ""]
)
def test_a_stretch_that_is_none_is_said(served: Served, asked: str) -> None:
    path = run_of(served, "bench")
    inside = served.data(path)["recordings"][0]["recording"]
    status, data, _ = served.ask(f"{path}/energy?recording={quote(inside)}&{asked}")
    assert status == 200 if not asked else status == 404
    assert ("error" in data) == bool(asked)
    assert served.ask(f"{path}/energy?recording=../../x")[0] == 404


def test_emulations_have_curves(served: Served) -> None:
    found = served.data(run_of(served, "emulation"))
    assert {(one["method"], one["seed"], one["played"], one["planned"]) for one in found["emulations"]} == {
        ("fedavg", 0, 4, 4),
        ("oort", 0, 4, 4),
    }
    assert (found["share"], found["count"]) == (1, 2)
    for one in found["emulations"]:
        assert (np.diff(one["time_s"]) > 0).all()
        assert (np.diff(one["energy_j"]) > 0).all()


def test_the_share_counts_emulations_that_have_not_begun(tmp_path: Path) -> None:
    index = plan(SMALL, ("fedavg", "oort"), [0, 1])
    with start(tmp_path, index, TEXT) as stored:
        assert Emulations().run(stored.path)["share"] == 0
        play(stored, index)
        shutil.rmtree(stored.path / index.planned[3].folder)
    found = Emulations().run(stored.path)
    assert (len(found["emulations"]), found["count"], found["share"]) == (3, 4, 0.75)


def test_a_runs_page_is_shut_in(served: Served) -> None:
    path = run_of(served, "emulation")
    run = served.folder / "emulations" / path.rsplit("/", 1)[1]
    (run / "report.html").write_text("<p>made elsewhere</p>")
    (found,) = [one for one in served.data("/api/runs")["runs"] if one["run"] == run.name]
    status, text, headers = served.ask(found["page"])
    assert (status, text) == (200, "<p>made elsewhere</p>")
    assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert served.lab.token not in found["page"], "a script in it may read its address"
    other = found["page"].replace(run.name, "another")
    assert served.ask(other)[0] == 404


@dataclass
class Growing:
    """A bench run that is going on: its journal and one recording, second by second."""

    writer: RecordingWriter
    began_ns: int
    seconds: int = 0

    def second(self, current_a: float) -> None:
        part = block([current_a] * 1_000, first_index=1_000 * self.seconds)
        t_ns = self.began_ns + part.ticks * 1_000_000
        self.writer.append(type(part)(t_ns, part.ticks, part.current_a, part.voltage_v, part.first_index, 0))
        self.writer.flush()
        self.seconds += 1


@pytest.fixture
def growing(served: Served) -> Iterator[Growing]:
    with RunStore(served.folder / "runs").create("now", kind="bench") as run:
        journal = BenchJournal(run.journal(JOURNAL))
        job = "0001_board_softmax_rep1"
        journal.write("planned", planned=[job])
        journal.write("attempt_failed", job=job, attempt=1, stage="connect", error=NASTY)
        journal.write("stage", job=job, attempt=2, stage="idle_before")
        folder = run.subfolder(f"jobs/{job}")
        began_ns = time.monotonic_ns()
        writer = RecordingWriter(folder, info(), config(), started_ns=began_ns)
        yield Growing(writer, began_ns)
        writer.abandon()
        journal.close()


def test_a_run_is_seen_while_it_grows(served: Served, growing: Growing) -> None:
    (now,) = [one for one in served.data("/api/runs")["runs"] if one["state"] == "running"]
    path = f"/api/runs/{now['root']}/{now['run']}"
    growing.second(0.5)
    (first,) = served.data(path)["live"]
    assert first["power_w"] == pytest.approx(2.0)
    assert (first["samples"], first["lost"], first["origin"]) == (1_000, 0, "emulated")
    assert [one["stage"] for one in first["stages"]] == ["idle_before"]
    for _ in range(70):
        growing.second(1.0)
    data = served.data(path)
    (later,) = data["live"]
    assert later["power_w"] == pytest.approx(4.0)
    assert later["energy_j"] == pytest.approx(2.0 + 70 * 4.0, abs=0.02)
    assert later["trace"]["t"][0] >= 9, "the last minute"
    (whole,) = served.data(f"{path}?whole=1")["live"]
    assert whole["trace"]["t"][0] < 1
    assert data["jobs"][0]["attempt"] == 2


def test_a_meter_that_failed_is_said_until_its_job_ends(served: Served, growing: Growing) -> None:
    (now,) = [one for one in served.data("/api/runs")["runs"] if one["state"] == "running"]
    growing.second(0.5)
    finding = Finding(code="meter_failed", severity=Severity.ERROR, message="no data for 3 s", count=1)
    growing.writer.close(timebase(1_000), (finding,))
    (said,) = served.data(f"/api/runs/{now['root']}/{now['run']}")["live"]
    assert said["problem"] == "The recording has ended: no data for 3 s"


def test_a_killed_lab_leaves_the_run_alone(served: Served, growing: Growing) -> None:
    root = served.folder / "runs"
    growing.second(0.5)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    words = ("-m", "harness", "lab", "--no-open", "--root", str(root))
    lab = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    try:
        place = urlsplit(next(iter(lab.stdout or ())).strip())
        other = Served(Lab(Folders((root,)), place.path.strip("/")), int(place.port or 0), served.folder)
        (now,) = [one for one in other.data("/api/runs")["runs"] if one["state"] == "running"]
        path = f"/api/runs/{now['root']}/{now['run']}"
        assert other.data(path)["live"][0]["samples"] == 1_000
    finally:
        lab.kill()
        lab.communicate()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    growing.second(0.5)
    assert served.data(path)["live"][0]["samples"] == 2_000


def test_chromium_sees_it_move(
    served: Served, growing: Growing, require_program: Callable[[str, str], str]
) -> None:
    def text(driver: webdriver.Chrome) -> str:
        found: str = driver.execute_script("return document.body.innerText")
        return found

    (now,) = [one for one in served.data("/api/runs")["runs"] if one["state"] == "running"]
    growing.second(0.5)
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        driver.get(served.address)
        WebDriverWait(driver, 60).until(lambda page: now["run"] in text(page))
        assert "runs, 1 going on" in text(driver)
        driver.get(f"{served.address}#/{now['root']}/{now['run']}")
        WebDriverWait(driver, 60).until(lambda page: "2 W" in text(page))
        assert "onerror" in text(driver), "shown as text"
        assert driver.execute_script("return document.querySelectorAll('img').length") == 0
        growing.second(1.25)
        WebDriverWait(driver, 60).until(lambda page: "5 W" in text(page))
        assert "a loose lead" not in text(driver)
        growing.second(0)  # how soon it shows: test_lab_live.py
        WebDriverWait(driver, 60).until(lambda page: "a loose lead" in text(page))
        growing.second(-0.2)
        WebDriverWait(driver, 60).until(lambda page: "The power is negative" in text(page))
        bench = run_of(served, "bench").split("/")
        inside = served.data(run_of(served, "bench"))["recordings"][0]["recording"]
        driver.get(f"{served.address}#/{bench[3]}/{bench[4]}/{inside}")
        WebDriverWait(driver, 60).until(lambda page: "numbers are" in text(page))
        joules = click_two(driver)
        said = driver.execute_script("return document.querySelector('.note').textContent")
        a, b = (float(x.removesuffix(" s")) for x in said.split(": ")[0].split(" to "))
        expected = measure_energy(served.folder / "runs" / bench[4] / inside, a, b).interval.mean
        assert joules == pytest.approx(expected, rel=1e-12)
        assert console_errors(driver) == []
        assert all(url.startswith((served.address, "data:", "chrome")) for url in requested_urls(driver))


def click_two(driver: webdriver.Chrome) -> float:
    """Put both cursors; the joules that the page then has."""
    over = driver.find_element("css selector", ".u-over")
    width = over.size["width"]
    for share in (-0.2, 0.1):
        ActionChains(driver).move_to_element_with_offset(over, round(share * width), 0).click().perform()
    said = "return document.querySelector('.note').textContent"
    WebDriverWait(driver, 60).until(lambda page: "Click" not in page.execute_script(said))
    return float(driver.execute_script("return document.querySelector('.note').dataset.energy"))


COLOURS_BY_COLUMN = """
const c = document.querySelector(".u-wrap canvas"), seen = { blue: 0, orange: 0, columns: c.width };
const pixels = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
for (let x = 0; x < c.width; x++) {
  let blue = false, orange = false;
  for (let y = 0; y < c.height; y++) {
    const [r, g, b, a] = pixels.slice(4 * (y * c.width + x), 4 * (y * c.width + x) + 4);
    blue = blue || (a > 200 && r < 60 && b > 130);
    orange = orange || (a > 200 && r > 180 && g < 140 && b < 60);
  }
  seen.blue += blue; seen.orange += orange;
}
return seen;
"""


def test_recordings_of_two_runs_are_both_drawn(
    tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    """Their samples are reduced to other moments, so neither has a value at those of the other."""
    paths: list[str] = []
    for name, samples in (("one", 9_000), ("two", 7_001)):
        with RunStore(tmp_path / "runs").create(name, kind="bench") as run:
            recording(run.path / "jobs" / "0001_board_x_rep1", [np.full(samples, 1.0 + len(paths))])
        paths.append(run.path.name)
    programs = require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    with serving(tmp_path, "runs") as served, browser(*programs) as driver:
        driver.get(f"{served.address}#compare/0/{paths[0]}|0/{paths[1]}")
        drawn = "return document.documentElement.dataset.drawn"
        WebDriverWait(driver, 60).until(lambda page: page.execute_script(drawn))
        text = driver.execute_script("return document.querySelector('.u-legend').innerText")
        assert "A: highest W" in text
        assert "B: lowest W" in text
        seen: dict[str, int] = {}
        for _ in range(50):  # the chart paints in a task of its own
            seen = driver.execute_script(COLOURS_BY_COLUMN)
            if seen["blue"] and seen["orange"]:
                break
            time.sleep(0.1)
        assert seen["blue"] > 0.7 * seen["columns"]
        assert seen["orange"] > 0.5 * seen["columns"]  # it is shorter
        assert console_errors(driver) == []


LAB_SAID = re.compile(
    r"([\d.]+) s to ([\d.]+) s: ([\d.]+) J, 95 %: ([\d.]+) to ([\d.]+); mean ([\d.]+) W, "
    r"lowest ([\d.]+) W, highest ([\d.]+) W"
)


def test_cursors_of_the_lab_say_what_lies_between_them(
    tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    """Four seconds of 1, 2, 3 and 4 W with noise; the later place is clicked first."""
    watts = np.repeat([1.0, 2.0, 3.0, 4.0], 1000) + np.random.default_rng(3).normal(0, 0.05, 4000)
    with RunStore(tmp_path / "runs").create("levels", kind="bench") as run:
        stored = recording(run.path / "jobs" / "0001_board_x_rep1", [watts])
    programs = require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    with serving(tmp_path, "runs") as served, browser(*programs) as driver:
        driver.get(f"{served.address}#/0/{run.path.name}/jobs/0001_board_x_rep1")
        WebDriverWait(driver, 60).until(lambda page: page.find_elements("css selector", ".u-over"))
        over = driver.find_element("css selector", ".u-over")

        def click(at_s: float) -> str:
            offset = round((at_s / 3.999 - 0.5) * over.size["width"])
            ActionChains(driver).move_to_element_with_offset(over, offset, 0).click().perform()
            note: str = driver.execute_script("return document.querySelector('.note').textContent")
            return note

        assert click(2.7) == "Click a second place."
        click(0.4)
        said = "return document.querySelector('.note').textContent"
        WebDriverWait(driver, 60).until(lambda page: LAB_SAID.fullmatch(page.execute_script(said)))
        found = LAB_SAID.fullmatch(driver.execute_script(said))
        assert found
        start_s, end_s, joules, low, high, mean_w, min_w, max_w = map(float, found.groups())
        assert (start_s, end_s) == pytest.approx((0.4, 2.7), abs=0.02)
        expected = measure_energy(stored.folder, start_s, end_s)
        interval = expected.interval
        assert (low, joules, high) == pytest.approx((interval.low, interval.mean, interval.high), rel=1e-4)
        assert low < joules < high
        assert mean_w == pytest.approx(expected.energy.mean_power_w, rel=1e-3)
        inside = watts[int(start_s * 1000) : int(end_s * 1000) + 1]
        assert (min_w, max_w) == pytest.approx((inside.min(), inside.max()), rel=1e-3)
        assert click(3.5) == "Click a second place.", "a third click begins anew"
        assert console_errors(driver) == []


MANY = ("fedavg", "fedprox", "oort", "tifl", "afl", "fedrank", "no_probe", "refl")


def test_the_lab_draws_six_lines_and_the_rest_on_demand(
    tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    index = plan(SMALL, MANY, [3, 4])
    with start(tmp_path / "emulations", index, TEXT) as stored:
        play(stored, index)
    programs = require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    with serving(tmp_path, "emulations") as served, browser(*programs) as driver:

        def lines(count: int) -> None:
            drawn = "return document.documentElement.dataset.lines"
            WebDriverWait(driver, 60).until(lambda page: page.execute_script(drawn) == str(count))

        emulations = served.data(f"/api/runs/0/{stored.path.name}")["emulations"]
        looks = {one["method"]: (one["color"], tuple(one["dash"])) for one in emulations}
        assert len(set(looks.values())) == len(MANY)
        driver.get(f"{served.address}#/0/{stored.path.name}")
        lines(6)
        names = driver.find_elements("css selector", ".methods button")
        assert sorted(name.text for name in names) == sorted(MANY)
        assert [name.get_attribute("aria-pressed") for name in names].count("true") == 6
        next(name for name in names if name.get_attribute("aria-pressed") == "false").click()
        lines(7)
        driver.find_element("css selector", ".methods input").click()
        lines(14)
        names[0].click()
        lines(12)
        assert console_errors(driver) == []
