"""Background load beside the training: other processes that take CPU time or memory bandwidth.

Each core's load is a process of its own (`device_agents.payload.load_worker`), so that it competes with the
training through the kernel's scheduler, as an app would. The workers read a pipe whose other end only this
agent holds: they end when told to, and also when the agent dies in whatever way.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 5.0
MAX_STEPS = 500


@dataclass(frozen=True)
class LoadStepSpec:
    """One stretch of load; see `device_agents.job.LoadStep`."""

    duration_s: float
    cpu: float


@dataclass(frozen=True)
class LoadSpec:
    """What to run beside the training; see `device_agents.job.BackgroundLoad`."""

    kind: str
    cores: int
    steps: tuple[LoadStepSpec, ...]
    buffer_bytes: int


def parse_load(value: dict[str, Any]) -> LoadSpec:
    """From a job.

    Raises:
        ValueError: Out of range.
    """
    steps = tuple(LoadStepSpec(float(step["duration_s"]), float(step["cpu"])) for step in value["steps"])
    load = LoadSpec(str(value["kind"]), int(value["cores"]), steps, int(value["buffer_bytes"]))
    if load.kind not in ("cpu", "memory") or not 1 <= load.cores <= 64:
        raise ValueError("kind cpu or memory on 1 to 64 cores")
    if not 1 <= len(steps) <= MAX_STEPS or any(not 0 <= s.cpu <= 1 or s.duration_s <= 0 for s in steps):
        raise ValueError(f"1 to {MAX_STEPS} steps of positive duration and 0 to 1 of a core")
    if not 1 << 12 <= load.buffer_bytes <= 1 << 30:
        raise ValueError("buffers of 4 KiB to 1 GiB")
    return load


class Interference:
    """The workers of one load."""

    def __init__(self, load: LoadSpec) -> None:
        self._load = load
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the workers. Returns when all of them work: starting an interpreter is not the load."""
        # The package's parent: a folder, or the zip that the agent runs from. Python imports from either.
        source = str(Path(__file__).parents[2])
        command = [sys.executable, "-m", "device_agents.payload.load_worker", json.dumps(asdict(self._load))]
        try:
            for _ in range(self._load.cores):
                self._workers.append(
                    subprocess.Popen(  # noqa: S603 - our own module, no shell
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        env={**os.environ, "PYTHONPATH": source},
                    )
                )
            for worker in self._workers:
                if worker.stdout is None or worker.stdout.readline() != b"ready\n":
                    raise RuntimeError("a background load worker did not start")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> dict[str, Any]:
        """End the workers. Returns their own CPU time, wall time and copied bytes, all workers together."""
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        reports = []
        for worker in self._workers:
            with contextlib.suppress(ValueError):  # killed before it could report
                reports.append(json.loads(_last_words(worker)))
        self._workers = []
        total = {"workers": len(reports)}
        for name in ("cpu_s", "wall_s", "copied_bytes"):
            total[name] = sum(report[name] for report in reports)
        return total


def _last_words(worker: subprocess.Popen[bytes]) -> bytes:
    try:
        # communicate() would flush the closed stdin; reading to the end is enough, the report is one line.
        worker.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    with worker.stdout as stdout:  # type: ignore[union-attr]
        return stdout.read()
