"""Devices held to a share of a core."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.federate.quota import TICK_S, Bucket, _cpu_s, quotas
from tests.priority import ahead_of_others, in_real_time

pytestmark = pytest.mark.xdist_group("bench")  # its devices go before others' work

BURN = "while True: sum(range(1000))"
SPAWN = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"


def used_share(share: float, speed: Path | None = None) -> float:
    """What a process that wants a whole core gets of it."""
    with subprocess.Popen([sys.executable, "-c", SPAWN]) as root:
        children = Path(f"/proc/{root.pid}/task/{root.pid}/children")
        while not children.read_text():
            time.sleep(0.05)
        child = int(children.read_text())
        try:
            with quotas({root.pid: share}, {root.pid: speed} if speed else {}):
                time.sleep(1.0)
                before_s, began_s = _cpu_s(child), time.monotonic()
                time.sleep(1.5)
                return (_cpu_s(child) - before_s) / (time.monotonic() - began_s)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_process_gets_its_share_and_no_more() -> None:
    # One bucket more at most; a busy machine may give it less.
    assert 0.02 < used_share(0.2) < 0.2 + 0.2 * 0.1 / 1.5 + 0.02


def test_on_a_core_that_is_faster_than_usual_it_gets_less(tmp_path: Path) -> None:
    """Otherwise the device would be faster, too."""
    (tmp_path / "speed").write_text("2.0\n")
    assert 0.02 < used_share(0.4, tmp_path / "speed") < 0.2 + 0.2 * 0.1 / 1.5 + 0.02


def test_time_that_another_takes_is_made_up_for() -> None:
    """Two devices on one core, the second of which holds it for long stretches at a time."""
    core = min(os.sched_getaffinity(0))
    with (
        subprocess.Popen([sys.executable, "-c", BURN]) as small,
        subprocess.Popen([sys.executable, "-c", BURN]) as large,
    ):
        devices = {small.pid: Bucket(small.pid, 0.1), large.pid: Bucket(large.pid, 0.6)}
        try:
            for pid, bucket in devices.items():
                os.sched_setaffinity(pid, {core})
                ahead_of_others(pid)  # as devices are: they take turns of 100 ms
                bucket._used_s[pid] = _cpu_s(pid)  # as if it were below an SSH server
            before_s, began_s = _cpu_s(small.pid), time.monotonic()
            last_s = began_s
            with in_real_time(3):
                while last_s < began_s + 5.0:
                    time.sleep(TICK_S)
                    now_s = time.monotonic()
                    for bucket in devices.values():
                        bucket.pass_by(now_s - last_s)
                    last_s = now_s
            used = (_cpu_s(small.pid) - before_s) / (last_s - began_s)
        finally:
            small.kill()
            large.kill()
    # Without the making up it was 0.079 and 0.086; the first tenth of a second goes to fill the bucket.
    assert 0.088 < used < 0.12
