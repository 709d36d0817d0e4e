"""Devices held to a share of a core."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.federate.quota import _cpu_s, quotas

BURN = "while True: sum(range(1000))"
SPAWN = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"


def test_a_process_gets_its_share_and_no_more() -> None:
    with subprocess.Popen([sys.executable, "-c", SPAWN]) as root:
        children = Path(f"/proc/{root.pid}/task/{root.pid}/children")
        while not children.read_text():
            time.sleep(0.05)
        child = int(children.read_text())
        try:
            with quotas({root.pid: 0.2}):
                time.sleep(1.0)
                before_s, began_s = _cpu_s(child), time.monotonic()
                time.sleep(1.5)
                used = (_cpu_s(child) - before_s) / (time.monotonic() - began_s)
        finally:
            os.kill(child, signal.SIGKILL)
    # No more than its share and one bucket; a busy machine may give it less.
    assert 0.02 < used < 0.2 + 0.2 * 0.1 / 1.5 + 0.02
