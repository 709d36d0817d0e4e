"""A machine that is never idle, so that profiles and rounds find the same one.

Each core has a busy loop of the lowest class: whoever wants the core gets it at once. Whether this is what
makes profiles of one run hold for another is not shown yet (docs/results/probing-fidelity.md).

    python -m tests.harness.federate.busy_cores CORE
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def main(core: int) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(10_000))


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy meanwhile."""
    command = [sys.executable, "-m", "tests.harness.federate.busy_cores"]
    cwd = Path(__file__).parents[3]
    spinning = [subprocess.Popen([*command, str(core)], cwd=cwd) for core in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.terminate()
        for process in spinning:
            process.wait(10)


if __name__ == "__main__":
    main(int(sys.argv[1]))
