"""All five models of the paper: our exact trainer beside a plain torch loop, pfl-research, Flower and FLGo.

Each model has its contenders, one process that trains in one thread each. They are up at once and do short
blocks of work in turns; a ratio is of neighbouring blocks, by the CPU time of all of a contender's processes,
and the median of many counts. FedJAX is left out: it has none of the four larger models, and is the slowest
on LeNet-5 (`multi_client_training`). ``bfloat16`` is ours with ``trainer.precision = "bfloat16"``.

A large product of matrices (torch's ``@``) takes its turn as well, to compare a step with as many operations
of that kind. It is no limit: where oneDNN's convolutions and LSTM are faster than it, the ratio is below 1.

Three repeats by default; ``JOULEFLEET_BENCH=full`` makes them 21.
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
from device_agents.workloads import TASKS, count_task, initial_state, synthetic_shard

NAME = "model_training"
REPEATS = 21 if os.environ.get("JOULEFLEET_BENCH") == "full" else 3
OURS, HALF, PLAIN, PRODUCT = "ours", "ours, bfloat16", "plain torch", "large product"
PEERS = {
    "pfl-research": ("fl", "pfl_research.py"),
    "Flower": ("fl", "flower.py", "1"),
    "FLGo": ("flgo", "flgo_loop.py"),
}
PRODUCT_FLOP = 3 * 2 * 2048.0**3

MODELS = {
    "mnist-lenet5": ("4 4 600 1", 1.3),
    "cifar10-resnet18": ("2 2 128 1", 1.3),
    "cinic10-vgg16": ("1 1 96 1", 1.0),
    "tinyimagenet-shufflenetv2": ("2 2 128 1", 1.3),
    "shakespeare-lstm": ("2 2 96 1", 1.3),
}
"""Clients, of them in a block, samples, epochs; and the bar to the plain loop.

VGG-16's are large convolutions, which torch computes as fast as we could.
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
    _, chosen, samples, epochs = map(int, MODELS[task][0].split())
    steps = chosen * -(-samples // 32) * epochs
    ms = [1000 * seconds / steps for seconds in found[OURS]]
    note = f"load average {os.getloadavg()[0]:.1f} after"
    rows = [figure(NAME, f"{task}: a step of ours", ms, "ms", better="lower", note=note)]
    others = {name: times for name, times in found.items() if name in (PLAIN, *PEERS)}
    best = min(statistics.median(times) for times in others.values())
    for name, times in others.items():
        bar = MODELS[task][1] if name == PLAIN else None
        note = "the best of the others" if statistics.median(times) == best else ""
        rows.append(
            figure(NAME, f"{task}: ours to {name}", _ratios(times, found[OURS]), "x", bar=bar, note=note)
        )
    flop = count_task(TASKS[task]).training_flop * chosen * samples * epochs
    least = [seconds * flop / PRODUCT_FLOP for seconds in found[PRODUCT]]
    gflops = PRODUCT_FLOP / statistics.median(found[PRODUCT]) / 1e9
    note = f"{flop / steps / 1e9:.3g} GFLOP a step, the product at {gflops:.0f} GFLOP/s"
    for name in (OURS, PLAIN):
        what, ratios = f"{task}: {name} to as much in a large product", _ratios(found[name], least)
        rows.append(figure(NAME, what, ratios, "x", better="lower", note=note))
    if HALF in found:
        ratios = _ratios(found[OURS], found[HALF])
        rows.append(figure(NAME, f"{task}: bfloat16 to exact", ratios, "x", note="other numbers"))
    return rows


def _ratios(slower: list[float], faster: list[float]) -> list[float]:
    return [a / b for a, b in zip(slower, faster, strict=True)]


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
        PRODUCT: [sys.executable, "large_product.py"],
        HALF: [sys.executable, "joulefleet_cpu.py", "1", "cpu-bfloat16"],
    }
    for name, (environment, *script) in PEERS.items():
        with contextlib.suppress(PeerUnavailable):
            commands[name] = [str(peer_python(environment)), *script]
    return commands
