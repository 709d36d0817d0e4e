"""Commands that only look: their CPU time against that of importing what they could not do without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result import RATIO, Figure, figure
from joulefleet.runstore import RunStore
from power.profile import save_profile
from power.reference import reference_fleet

IMPORTS = ("-c", "import numpy, pyarrow, click, rich")
REPEATS, BAR = 9, 1.5
JOBS = 40
LISTS = ("meters", "selectors", "scenarios", "tasks", "data", "partitions", "commands")


def _bench_run(root: Path) -> Path:
    """A run whose jobs are half done, as `bench run` leaves it, with a profile."""
    with RunStore(root).create("quick", kind="bench") as run:
        names = [f"{number:04d}_board_softmax_rep1" for number in range(1, JOBS + 1)]
        utc = "2026-01-01T00:00:00+00:00"
        with run.journal("journal") as journal:
            journal.append({"event": "session", "utc": utc, "planned": names})
            for name in names[: JOBS // 2]:
                journal.append({"event": "stage", "utc": utc, "job": name, "stage": "round", "attempt": 1})
                journal.append({"event": "finished", "utc": utc, "job": name})
        save_profile(reference_fleet("mnist-lenet5")[0], run.subfolder("profiles") / "phone.json")
    return run.path


def _cpu_s(arguments: Sequence[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> list[Figure]:
    """Each command beside the imports, one after the other, so that both see the same machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _bench_run(folder / "runs")
        at = ("--root", str(path.parent))
        commands = [("runs", "list", *at), ("bench", "status", str(path)), ("profile", "list", *at)]
        commands += [("list", what) for what in LISTS]
        # As on a user's machine: compiled once, whatever the environment of this run says.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return [_against_imports(command, environment) for command in commands]


def _against_imports(command: tuple[str, ...], environment: dict[str, str]) -> Figure:
    arguments = ("-m", "harness", *command)
    for warm in (IMPORTS, arguments):
        _cpu_s(warm, environment)
    ratios = [_cpu_s(arguments, environment) / _cpu_s(IMPORTS, environment) for _ in range(REPEATS)]
    shown = " ".join(command[:2])
    return figure(
        "quick_commands",
        f"`joulefleet {shown}`, CPU time against importing numpy, pyarrow, click and rich",
        ratios,
        RATIO,
        bar=BAR,
        better="lower",
    )
