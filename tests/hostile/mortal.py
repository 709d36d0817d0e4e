"""Runs commands in processes that die.

``python -m tests.hostile.mortal`` imports the tool once and forks for each: one line of JSON in, one out. A
process dies by SIGKILL before its n-th operation on files (so every state is met that the disk can be in
between two of them), or after some seconds.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

OPERATIONS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
IMPORTED = (
    "emulator.runs.batch",
    "emulator.experiments.runner",
    "harness.cli.profile.commands",
    "harness.outputs",
    "harness.profiles.library",
    "harness.report.emulations.emulation_page",
    "harness.report.paper_figures",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pandas",
    "pyarrow.parquet",
    "traces.synth",
    "traces.storage.trace_set",
)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal), what it wrote, how much it did."""

    code: int
    out: str
    err: str
    operations: int
    seconds: float


class Mortal:
    """Starts the forking process with the context, and ends it."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}

    def __enter__(self) -> Mortal:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.mortal"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)
        assert self._server.stdout is not None
        self._server.stdout.close()

    def run(
        self,
        arguments: list[str],
        place: Path,
        *,
        before: int = 0,
        after_s: float = 0.0,
        timeout_s: float = 900,
    ) -> Ended:
        """Run ``joulefleet`` with these arguments in a folder; 0 means that it may live."""
        request = {
            "arguments": arguments, "place": str(place), "before": before, "after_s": after_s,
            "timeout_s": timeout_s, "notes": str(self._folder),
        }  # fmt: skip
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        return Ended(**answer, out=_read(self._folder / "out"), err=_read(self._folder / "err"))


def _read(path: Path) -> str:
    return path.read_text(errors="replace")


def serve() -> None:
    from harness.cli import READY

    for module in [target.split(":")[0] for target, _ in READY.values()] + list(IMPORTED):
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        counter = os.open(Path(request["notes"]) / "operations", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        began_s = time.monotonic()
        child = os.fork()
        if not child:
            be(request, counter)
        code = wait(child, began_s, request["after_s"], request["timeout_s"])
        seconds = time.monotonic() - began_s
        answer = {"code": code, "operations": os.fstat(counter).st_size, "seconds": seconds}
        os.close(counter)
        print(json.dumps(answer), flush=True)


def wait(child: int, began_s: float, after_s: float, timeout_s: float) -> int:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - began_s > (after_s or timeout_s):
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def be(request: dict[str, Any], counter: int) -> None:
    """Become the command."""
    notes = Path(request["notes"])
    for number, name in ((0, os.devnull), (1, notes / "out"), (2, notes / "err")):
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["place"])
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    done = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes) or not (flags or 0) & WRITING:
                return
        elif event in OPERATIONS:
            path = arguments[0]
        else:
            return
        if isinstance(path, str) and path.startswith("/dev"):
            return
        done += 1
        os.write(counter, b".")
        if done == request["before"]:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    from harness.cli import main

    sys.argv = ["joulefleet", *request["arguments"]]
    main()


if __name__ == "__main__":
    serve()
