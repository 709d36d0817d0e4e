"""One module after the other, each in a process of its own; what has finished is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.result import Figure
from benchmarks.suite.machine import commit, this_machine
from benchmarks.suite.records import REPOSITORY, ModuleResult
from joulefleet.records import read_record, write_record

NOT_BENCHMARKS = {"__init__", "__main__", "memory", "result"}
LIMIT_S = 7200.0
"""A module that takes longer hangs: some peers do, instead of ending with an error."""


def names() -> list[str]:
    """Every benchmark module."""
    folder = REPOSITORY / "benchmarks"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def run_in_child(name: str, folder: Path) -> ModuleResult:
    """Run a module in a process of its own; its result is on disk when this returns."""
    target = folder / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.suite.runner", name, str(target)]
    target.unlink(missing_ok=True)
    process = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True)
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)
    if target.exists():
        return read_record(target, ModuleResult)
    ended = f"exit code {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
    result = _result(name, time.monotonic(), os.getloadavg()[0], error=f"its process ended with {ended}")
    write_record(target, result, replace=True)
    return result


def run_here(name: str) -> ModuleResult:
    """Run a module in this process."""
    started_s, load = time.monotonic(), os.getloadavg()[0]
    try:
        figures = tuple(import_module(f"benchmarks.{name}").run())
    except Exception as error:
        traceback.print_exc()
        return _result(name, started_s, load, error=f"{type(error).__name__}: {error}"[:2000])
    return _result(name, started_s, load, figures=figures)


def _result(
    name: str, started_s: float, load: float, *, figures: tuple[Figure, ...] = (), error: str = ""
) -> ModuleResult:
    return ModuleResult(
        module=name,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        full=os.environ.get("JOULEFLEET_BENCH") == "full",
        took_s=round(time.monotonic() - started_s, 1),
        load_before=round(load, 2),
        load_after=round(os.getloadavg()[0], 2),
        figures=figures,
        error=error,
        machine=this_machine(),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a module: its own children are in its session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(name: str, target: str) -> None:
    """The child's part."""
    write_record(Path(target), run_here(name), replace=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
