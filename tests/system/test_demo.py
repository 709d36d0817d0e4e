"""The demo as a user runs it, and as a power cut ends it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedjoule.runstore import RunStore, read_table
from harness.capture import open_capture
from harness.salvage import salvage
from power.profile import load_profile
from power.recording import open_recording
from tests.harness.browser import browser, console_errors, open_page, requested_urls


def start_demo(root: Path) -> subprocess.Popen[str]:
    # Where the tests themselves were started in the background, SIGINT would be ignored.
    env = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [*env, sys.executable, "-m", "harness", "demo", "--root", str(root), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """One complete demo."""
    process = start_demo(tmp_path_factory.mktemp("demo") / "runs")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return json.loads(out)


def test_everything_it_says_is_labelled_emulated(finished: dict[str, dict[str, object]]) -> None:
    assert finished["profile"]["origin"] == "emulated"
    assert finished["emulation"]["origin"] == "emulated"
    run = Path(finished["run"])
    (path,) = (run / "profiles").glob("*.json")
    profile = load_profile(path, verify=lambda _: True)
    assert profile.origin.value == "emulated"
    assert profile.is_sealed
    assert set(read_table(run / "emulation", "rounds")["cost_origin"].to_pylist()) == {"emulated"}
    html = (run / "report.html").read_text()
    for stronger in ("measured", "imported", "scaled", "literature"):
        assert html.count(f'class="badge {stronger}"') == 1  # the legend at the foot, and nowhere else
    assert html.count('class="badge emulated"') > 20


def test_the_numbers_are_those_of_the_load(finished: dict[str, object]) -> None:
    """The emulated device draws 0.8 W idle and 2.0 W more with one core busy."""
    (path,) = (Path(finished["run"]) / "profiles").glob("*.json")
    profile = load_profile(path)
    assert profile.idle_power_w.mean == pytest.approx(0.8, abs=0.1)
    watts = profile.epoch.gross_j.mean / profile.epoch.duration_s.mean
    assert 1.0 < watts < 3.0  # less than 2.8 W when other work on this machine takes the core away


def test_the_evidence_is_whole(finished: dict[str, object]) -> None:
    run = Path(finished["run"])
    capture = open_capture(run / "bench")
    assert [p.epoch for p in capture.phases() if p.phase.value == "epoch"] == [1, 2, 3, 4, 5] * 3 + [1]
    assert len(read_table(run / "emulation", "rounds")) == 30
    assert len(read_table(run / "emulation", "clients")) == 150
    assert RunStore(run.parent).list()[0].state == "complete"


def test_the_page_opens_in_chromium(
    finished: dict[str, object], tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        open_page(driver, Path(finished["report"]))
        assert driver.execute_script("return document.documentElement.dataset.drawn") == "3"
        assert driver.execute_script("return document.querySelectorAll('.chart canvas').length") == 3
        assert console_errors(driver) == []
        assert {url.split(":")[0] for url in requested_urls(driver)} <= {"file", "data", "chrome"}
        assert driver.save_screenshot(str(tmp_path / "demo.png"))


@pytest.mark.campaign
def test_a_kill_at_any_moment_leaves_a_readable_run(
    tmp_path: Path, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    kills = campaign_count(4, 40)
    rng = random.Random(7)
    recordings = 0
    for kill in range(kills):
        root = tmp_path / str(kill)
        process = start_demo(root)
        time.sleep(rng.uniform(0.1, 6.0))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        for run in RunStore(root).list():
            assert run.state in ("killed", "complete")
            salvage(run.path)
            for table in run.path.rglob("*.parquet"):
                read_table(table.parent, table.stem)
            for opening in run.path.rglob("recording.json"):
                assert len(open_recording(opening.parent)) > 0
                recordings += 1
            assert list(run.path.rglob(".*.tmp")) == []
        assert [run.state for run in RunStore(root).list()] in ([], ["salvaged"], ["complete"])
    record_property("kills", kills)
    record_property("recordings_recovered", recordings)


def test_ctrl_c_is_an_interrupted_run(tmp_path: Path) -> None:
    process = start_demo(tmp_path)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads(out)["error"]["type"] == "Interrupted"
    assert {run.state for run in RunStore(tmp_path).list()} <= {"interrupted"}
