"""All five models of the paper: our exact trainer beside a plain torch loop and pfl-research, in turns.

Each model has three contenders, one process and one thread each, which are up at once and do short blocks of
work in turns; a ratio is of neighbouring blocks, by CPU time, and the median of many counts. The others
(Flower, FLGo) run a plain torch loop per client, with more around it; `multi_client_training` has them all.
``bfloat16`` is our trainer with ``trainer.precision = "bfloat16"``.

Seven repeats by default; ``JOULEFLEET_BENCH=full`` makes them 21.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.result import Figure, figure
from benchmarks.suite.contender import Contender
from benchmarks.suite.peers import PeerUnavailable, peer_python
from device_agents.workloads import TASKS, initial_state, synthetic_shard

NAME = "model_training"
REPEATS = 21 if os.environ.get("JOULEFLEET_BENCH") == "full" else 7
OURS, HALF, PLAIN, PEER = "ours", "ours, bfloat16", "plain torch", "pfl-research"

MODELS = {
    "mnist-lenet5": ("4 4 600 1", 1.3),
    "cifar10-resnet18": ("2 2 64 1", 1.3),
    "cinic10-vgg16": ("1 1 64 1", 1.0),
    "tinyimagenet-shufflenetv2": ("2 2 96 1", 1.3),
    "shakespeare-lstm": ("2 2 64 1", 1.0),
}
"""Clients, of them in a block, samples, epochs; and the bar to the plain loop.

VGG-16's convolutions and the LSTM's products run at the speed of one large matrix product already.
"""


def run(repeats: int = REPEATS) -> list[Figure]:
    """One model after the other."""
    rows: list[Figure] = []
    commands = _commands()
    for task in MODELS:
        rows += _figures(task, _measured(task, repeats, commands))
    return rows


def _measured(task: str, repeats: int, commands: dict[str, list[str]]) -> dict[str, list[float]]:
    """CPU seconds of each contender's blocks, after one to warm up."""
    sizes, _ = MODELS[task]
    settings = {"BLOCK_TASK": task, "BLOCK_SIZES": sizes}
    with tempfile.TemporaryDirectory(prefix="model-") as folder, contextlib.ExitStack() as stack:
        _write_work(Path(folder), task, sizes)
        contenders = {
            name: stack.enter_context(Contender.started(command, Path(folder), settings))
            for name, command in commands.items()
        }
        for contender in contenders.values():
            contender.block()
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(repeats):
            for name, contender in contenders.items():
                found[name].append(contender.block().cpu_s)
    return found


def _figures(task: str, found: dict[str, list[float]]) -> list[Figure]:
    clients, _, samples, epochs = map(int, MODELS[task][0].split())
    steps = clients * -(-samples // 32) * epochs
    ms = [1000 * seconds / steps for seconds in found[OURS]]
    note = f"load average {os.getloadavg()[0]:.1f} after"
    rows = [figure(NAME, f"{task}: a step of ours", ms, "ms", better="lower", note=note)]
    others = {name: times for name, times in found.items() if name in (PLAIN, PEER)}
    best = min(statistics.median(times) for times in others.values())
    for name, times in others.items():
        ratios = [theirs / ours for theirs, ours in zip(times, found[OURS], strict=True)]
        bar = MODELS[task][1] if name == PLAIN else None
        note = "the best of the others" if statistics.median(times) == best else ""
        rows.append(figure(NAME, f"{task}: ours to {name}", ratios, "x", bar=bar, note=note))
    if HALF in found:
        ratios = [ours / half for ours, half in zip(found[OURS], found[HALF], strict=True)]
        rows.append(figure(NAME, f"{task}: bfloat16 to exact", ratios, "x", note="other numbers"))
    return rows


def _write_work(folder: Path, name: str, sizes: str) -> None:
    """Random samples: the work is the same."""
    task = TASKS[name]
    clients, _, samples, _ = map(int, sizes.split())
    x, y = synthetic_shard(task, clients * samples, np.random.default_rng(0))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.savez(folder / "start.npz", **initial_state(task, 0))  # type: ignore[arg-type]


def _commands() -> dict[str, list[str]]:
    commands = {
        OURS: [sys.executable, "joulefleet_cpu.py", "1", "cpu"],
        PLAIN: [sys.executable, "plain_torch.py"],
        HALF: [sys.executable, "joulefleet_cpu.py", "1", "cpu-bfloat16"],
    }
    with contextlib.suppress(PeerUnavailable):
        commands[PEER] = [str(peer_python("fl")), "pfl_research.py"]
    return commands
