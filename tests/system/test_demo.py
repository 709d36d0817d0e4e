"""The demo as a user runs it, and as a power cut ends it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.capture import salvage, verify_capture
from harness.inventory import load_inventory
from harness.profiles.library import captures_in
from joulefleet.runstore import RunStore, read_table
from power.profile.model import DeviceProfile, load_profile
from power.recording import open_recording
from tests.harness.browser import browser, console_errors, open_page, requested_urls

# Meters are recorded in real time: such tests run one after the other, not against each other.
# On a busy machine samples are lost and measured again.
pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.timeout(900)]

WATTS = {"board-a": (0.8, 2.0), "board-b": (0.5, 1.2)}
"""Idle, and on top of that with a busy processor, as `harness.demo.local_bench` sets them."""


def start_demo(root: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "demo", "--root", str(root), "--quick", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One complete demo, the quick one."""
    process = start_demo(tmp_path_factory.mktemp("demo") / "runs", "--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    assert "act 1, bench: 100%" in err
    assert "act 2, replay: 100%" in err
    found: dict[str, Any] = json.loads(out)
    return found


def profiles(finished: dict[str, Any]) -> list[DeviceProfile]:
    paths = sorted((Path(finished["bench"]["run"]) / "profiles").glob("*.json"))
    return [load_profile(path, verify=lambda _: True) for path in paths]


def test_two_devices_are_measured_in_both_backends(finished: dict[str, Any]) -> None:
    bench = Path(finished["bench"]["run"])
    captures = captures_in(bench)
    assert all(verify_capture(capture) == [] for capture in captures)
    cells = {(p.device, p.model, p.backend) for p in profiles(finished)}
    assert cells == {(d, "lenet5", b) for d in WATTS for b in ("torch", "onnxruntime")}
    for capture in captures:
        assert [p.epoch for p in capture.phases() if p.phase.value == "epoch"] == [1, 2, 3, 4, 5]
        assert capture.recording.record.info.emulated


def test_the_numbers_are_those_of_the_load(finished: dict[str, Any]) -> None:
    """Power is what the inventory's device was set to draw, whatever the processor's speed."""
    for profile in profiles(finished):
        idle_w, busy_w = WATTS[profile.device]
        assert profile.idle_power_w is not None
        assert profile.idle_power_w.mean == pytest.approx(idle_w, abs=0.1)
        watts = profile.epoch.gross_j.mean / profile.epoch.duration_s.mean
        # Less than idle and busy together when other work on this machine takes the core away.
        assert idle_w < watts < idle_w + 1.15 * busy_w
        assert profile.epoch.gross_j.half_width_95 is not None
        assert profile.epoch.gross_j.half_width_95 > 0


def test_the_replay_rests_on_exactly_these_profiles(finished: dict[str, Any]) -> None:
    replay = Path(finished["replay"]["run"])
    for method in ("fedavg", "oort", "fedrank"):
        folder = replay / "demo-replay" / f"{method}_s0"
        record = json.loads((folder / "emulation.json").read_text())
        assert {Path(path).name for path in record["scenario"]["fleet"]["profiles"]} == {
            path.name for path in (Path(finished["bench"]["run"]) / "profiles").glob("*.json")
        }
        assert set(record["facts"]["profiles"]) <= {profile.label for profile in profiles(finished)}
        assert record["facts"]["traces"]["origin"] == "emulated"
        assert record["facts"]["data"]["name"] == "digits28"
        assert set(read_table(folder, "rounds")["cost_origin"].to_pylist()) == {"emulated"}


def test_everything_it_says_is_labelled(finished: dict[str, Any]) -> None:
    assert {profile["origin"] for profile in finished["bench"]["profiles"]} == {"emulated"}
    assert finished["replay"]["origin"] == "emulated"
    probing = finished["probing"]
    assert probing["predicted"]["origin"] == probing["emulated_rounds"]["origin"] == "emulated"
    assert probing["paper"]["origin"] == "literature"
    assert all(profile.is_sealed for profile in profiles(finished))
    html = Path(finished["report"]).read_text()
    for stronger in ("measured", "imported", "scaled"):
        assert html.count(f'class="badge {stronger}"') == 1  # the legend at the foot, and nowhere else
    assert html.count('class="badge literature"') > 1  # the paper's figures
    assert html.count('class="badge emulated"') > 20


def test_probing_costs_more_the_more_of_it_is_counted(finished: dict[str, Any]) -> None:
    for source in ("predicted", "emulated_rounds"):
        honest, selected_only, free = (
            finished["probing"][source][name] for name in ("honest", "selected_only", "free")
        )
        assert honest["energy_saved"] <= selected_only["energy_saved"] <= free["energy_saved"]
        assert free["time_saved"] >= max(honest["time_saved"], selected_only["time_saved"])
        # 15 candidates train one epoch of five, 5 the other four; FedRank may keep cheaper ones than most.
        assert 1 - 35 / 75 - 0.1 < honest["energy_saved"] < 0.8


def test_what_it_says_to_run_next_is_real(finished: dict[str, Any]) -> None:
    """The demo's plan is one that `bench run` takes, with anybody's inventory."""
    config = Path(finished["run"]) / "config"
    assert tomllib.loads((config / "plan.toml").read_text())["name"] == "demo-bench"
    inventory = load_inventory(config / "devices.toml")
    assert {device.transport for device in inventory.devices.values()} == {"local"}
    assert any(f"{config}/plan.toml" in command for command in finished["next"])
    command = [sys.executable, "-m", "harness", "bench", "run", str(config / "plan.toml"), "--dry-run"]
    command += ["--inventory", str(config / "devices.toml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_three_runs_are_left_and_all_are_complete(finished: dict[str, Any]) -> None:
    runs = RunStore(Path(finished["run"]).parent).list()
    kinds = {run.record.kind: run.state for run in runs if run.record}
    assert kinds == {"demo": "complete", "bench": "complete", "experiment": "complete"}


def test_the_page_opens_in_chromium(
    finished: dict[str, Any], tmp_path: Path, require_program: Callable[[str, str], str]
) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        open_page(driver, Path(finished["report"]))
        # Costs by phase in time and energy, power of two open jobs, accuracy against energy, differences,
        # three curves, energy bars.
        assert driver.execute_script("return document.documentElement.dataset.drawn") == "10"
        assert console_errors(driver) == []
        assert {url.split(":")[0] for url in requested_urls(driver)} <= {"file", "data", "chrome"}
        for width in (1280, 420):
            driver.set_window_size(width, 900)
            wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert driver.execute_script(wide) <= 0
        assert driver.save_screenshot(str(tmp_path / "demo.png"))


@pytest.mark.campaign
def test_a_kill_at_any_moment_leaves_readable_runs(
    tmp_path: Path, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    kills = campaign_count(2, 40)
    rng = random.Random(7)
    recordings = 0
    for kill in range(kills):
        root = tmp_path / str(kill)
        process = start_demo(root)
        time.sleep(rng.uniform(0.5, campaign_count(9, 45)))
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
        assert {run.state for run in RunStore(root).list()} <= {"salvaged", "complete"}
    record_property("kills", kills)
    record_property("recordings_recovered", recordings)


def test_ctrl_c_is_an_interrupted_run(tmp_path: Path) -> None:
    """While the bench measures: its jobs are ended first, so both runs know."""
    process = start_demo(tmp_path, "--json")
    deadline_s = time.monotonic() + 300
    while not list(tmp_path.glob("*_demo-bench_*/jobs/*")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads(out)["error"]["type"] == "Interrupted"
    assert [run.state for run in RunStore(tmp_path).list()] == ["interrupted", "interrupted"]
