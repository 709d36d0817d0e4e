"""Contenders of a benchmark: processes that stay up and do a block of work at each ``go``, in turns."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.peers import REQUIREMENTS as SCRIPTS
from benchmarks.suite.records import REPOSITORY


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one contender.

    Attributes:
        cpu_s: CPU time of all its processes.
        path_s: CPU time of its first process and of the busiest other one: how long it would take on idle
            cores if the first did nothing while the others work.
        wall_s: How long it took.
        loss: Mean of the clients' last epochs.
    """

    cpu_s: float
    path_s: float
    wall_s: float
    loss: float


class Contender:
    """A process that does a block of work whenever it is told to."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._answer()

    @classmethod
    @contextlib.contextmanager
    def started(
        cls, command: list[str], folder: Path, settings: Mapping[str, str] | None = None
    ) -> Iterator[Contender]:
        """Run it until the end of the block."""
        log = folder / f"{command[1]}-{len(command)}-{time.monotonic_ns()}.log"
        environment = {**os.environ, "BLOCK_FOLDER": str(folder), "PYTHONPATH": str(REPOSITORY)}
        environment.update(OMP_NUM_THREADS="1", RAY_DEDUP_LOGS="0", **(settings or {}))
        with log.open("w") as errors:
            process = subprocess.Popen(
                [command[0], str(SCRIPTS / command[1]), *command[2:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        with process:
            try:
                yield cls(process, log)
            finally:
                _pipe(process.stdin).close()  # the end of its input ends it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()

    def block(self) -> Block:
        """Have it do one."""
        before, wall_s = _tree_cpu_s(self._process.pid), time.perf_counter()
        stdin = _pipe(self._process.stdin)
        stdin.write("go\n")
        stdin.flush()
        answer = self._answer()
        wall_s = time.perf_counter() - wall_s
        after = _tree_cpu_s(self._process.pid)
        used = {process: cpu_s - before.get(process, 0.0) for process, cpu_s in after.items()}
        first = used.pop(self._process.pid)
        return Block(
            first + sum(used.values()), first + max(used.values(), default=0.0), wall_s, answer["loss"]
        )

    def _answer(self) -> dict[str, Any]:
        for line in _pipe(self._process.stdout):
            if line.startswith("@@ "):
                text = line[3:].strip()
                return {} if text == "ready" else dict(json.loads(text))
        raise RuntimeError(f"{self._process.args!r} ended:\n{self._log.read_text()[-2000:]}")


def _pipe(stream: Any) -> Any:
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    return stream


def _tree_cpu_s(root: int) -> dict[int, float]:
    """CPU time of a process and of each of its descendants, with that of their children that ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    members, size = {root}, 0
    while len(members) > size:
        size = len(members)
        members |= {child for child, parent in parents.items() if parent in members}
    return {member: ticks.get(member, 0) / os.sysconf("SC_CLK_TCK") for member in members}
