"""The clock on the wall is set in the middle of a job: durations and energies do not follow it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import run as joulefleet
from harness.evidence.capture import open_capture, verify_capture
from tests.device_agents.conftest import sshd
from tests.harness.local_bench import FAST, local_bench

__all__ = ["sshd"]
pytestmark = pytest.mark.xdist_group("bench")

STEPS_S = (-3 * 3600, 2 * 86_400, -40 * 86_400)


@pytest.fixture
def library(tmp_path: Path, require_program: Callable[[str, str], str]) -> Path:
    built = tmp_path / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    compiler = require_program("gcc", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(source)], check=True)
    return built


def with_clock(library: Path, file: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by what a file says."""
    return {**os.environ, "LD_PRELOAD": str(library), "WALL_CLOCK": str(file)}


def set_clock(file: Path, offset_s: int) -> None:
    file.with_suffix(".new").write_text(f"{offset_s}\n")
    file.with_suffix(".new").replace(file)


def test_the_clock_is_really_set(tmp_path: Path, library: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, -3 * 3600)
    code = "import datetime as d, time; print(d.datetime.now(d.UTC).timestamp(), time.monotonic())"
    command = [sys.executable, "-c", code]
    environment = with_clock(library, clock)
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall_s, monotonic_s = map(float, told.stdout.split())
    assert abs(time.time() - 3 * 3600 - wall_s) < 60
    assert abs(time.monotonic() - monotonic_s) < 60


def test_a_bench_run_does_not_follow_the_clock_on_the_wall(
    tmp_path: Path, library: Path, sshd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    over = threading.Event()

    def steps() -> None:
        number = 0
        while not over.wait(0.7):
            set_clock(clock, STEPS_S[number % len(STEPS_S)])
            number += 1

    with local_bench(tmp_path / "bench", sshd, {"alpha": "monsoon-lvpm"}) as bench:
        bench.write_plan({**FAST, "repetitions": "count = 1"}, ['name = "none"\ncpu_share = 0'])
        command = [sys.executable, "-m", "harness", "bench", "run", str(bench.folder / "plan.toml")]
        command += ["--inventory", str(bench.inventory), "--root", str(tmp_path / "runs"), "--json"]
        thread = threading.Thread(target=steps)
        thread.start()
        try:
            environment = with_clock(library, clock)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
        finally:
            over.set()
            thread.join()
    assert done.returncode == 0, done.stdout + done.stderr
    path = Path(json.loads(done.stdout)["run"])
    (job,) = (path / "jobs").iterdir()
    capture = open_capture(job)
    assert verify_capture(capture) == []
    assert 1 < capture.recording.record.n_samples / 5000 < 60  # seconds, whatever the clock said
    for arguments in (["runs", "show", str(path)], ["bench", "status", str(path)], ["report", str(path)]):
        assert joulefleet(arguments) == 0
    assert " -" not in capsys.readouterr().out.replace(" --", "")  # no negative duration


HELD = """
import sys, threading, time
from paramiko.buffered_pipe import BufferedPipe, PipeTimeout
from device_agents.transport.steady_time import steady_timeouts
from tests.hostile.test_clock_steps import set_clock
from pathlib import Path
steady_timeouts()
threading.Timer(0.3, set_clock, (Path(sys.argv[1]), -3600)).start()
began_s = time.monotonic()
try:
    BufferedPipe().read(1, 1.0)
except PipeTimeout:
    print(time.monotonic() - began_s)
"""


def test_a_clock_that_is_put_back_holds_no_read_up(tmp_path: Path, library: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    command = [sys.executable, "-c", HELD, str(clock)]
    environment = with_clock(library, clock)
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert 0.9 < float(told.stdout) < 20
