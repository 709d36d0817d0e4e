"""A machine that is as fast now as it was an hour ago, for devices that are processes of it.

A virtual machine's cores are not: what its neighbours do makes the same work take up to a third more or less
processor time from one minute to the next. A phone's processor does not do that. So each core has

- a canary: a process that does a few training steps now and then and writes down how fast they were, as a
  share of how fast they were at first. `quota` and the emulated meters count processor time in this currency.
  Its step has to be of the kind that the devices do: a loop of plain Python swings twice as far;
- a filler: a busy loop of the lowest class, which gives way to whoever wants the core. A core that falls
  asleep between two slices of a device may be lent to a neighbour and come back with other people's caches.

    python -m tests.harness.federate.steady_host CORE GRAPH FILE   the canary
    python -m tests.harness.federate.steady_host CORE              the filler
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from device_agents.onnx_export.cache import GraphCache
from device_agents.workloads.tasks import Task, find_task
from tests.priority import ahead_of_others

PERIOD_S = 0.12
STEPS = 2
"""How often the canary sings, and how many steps it times: about a twelfth of its core."""

REMEMBERED = 8
"""Readings behind a speed: about a second. Single ones scatter by a tenth, such a second by 2.5 %."""

FIRST = 24
"""Readings behind the reference, which is 1."""

ROOT = Path(__file__).parents[3]


def canary(graph: Path, file: Path) -> None:
    """Write the speed of this core to a file, over and over, until the parent ends."""
    ahead_of_others(0)  # it has to sing on a busy core, too
    step = _training_step(graph)
    parent = os.getppid()
    first = [_reading_s(step) for _ in range(FIRST)]
    reference_s = median(first)
    last = deque(first[-REMEMBERED:], REMEMBERED)
    while os.getppid() == parent:
        last.append(_reading_s(step))
        written = file.with_suffix(".new")
        written.write_text(f"{reference_s / median(last):.4f}\n")
        written.replace(file)


def filler() -> None:
    """Use what nobody else wants, until the parent ends."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(10_000))


def _reading_s(step: Callable[[], object]) -> float:
    """Processor time of some steps."""
    time.sleep(PERIOD_S)
    step()  # fills the caches that others have used meanwhile
    began_s = time.thread_time()
    for _ in range(STEPS):
        step()
    return time.thread_time() - began_s


def _training_step(graph: Path) -> Callable[[], object]:
    import numpy as np

    from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
    from device_agents.workloads.models import initial_state
    from device_agents.workloads.tasks import synthetic_shard

    task = _task()
    x, y = synthetic_shard(task, task.batch_size, np.random.default_rng(0))
    trainer = OnnxRuntimeTrainer(task, {len(y): graph}, initial_state(task, 0), x, y, threads=1)
    everything = np.arange(len(y))
    return lambda: trainer.step(everything)


def _task() -> Task:
    """As the devices of the closed loop train it, but nothing is learnt: every step has the same numbers."""
    return replace(find_task("mnist-lenet5"), batch_size=32, learning_rate=0.0, momentum=0.0)


@contextlib.contextmanager
def steady_host(folder: Path) -> Iterator[dict[int, Path]]:
    """Watch the speed of every core, and keep it awake.

    Yields:
        For each core the file that holds its speed.
    """
    task = _task()
    graph = str(GraphCache(folder / "graphs").step(task, task.batch_size))
    files = {core: folder / f"speed-{core}.txt" for core in sorted(os.sched_getaffinity(0))}
    command = [sys.executable, "-m", "tests.harness.federate.steady_host"]
    processes = []
    try:
        for core, file in files.items():
            on_core = [*command, str(core)]
            processes += [subprocess.Popen(one, cwd=ROOT) for one in (on_core, [*on_core, graph, str(file)])]
        while not all(file.exists() for file in files.values()):
            if any(process.poll() is not None for process in processes):
                raise RuntimeError("a canary or a filler has died; its message is above")
            time.sleep(PERIOD_S)
        yield files
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)


def main(arguments: list[str]) -> None:
    os.sched_setaffinity(0, {int(arguments[0])})
    if len(arguments) == 1:
        filler()
    else:
        canary(Path(arguments[1]), Path(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
