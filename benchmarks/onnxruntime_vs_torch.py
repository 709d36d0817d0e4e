"""The same training step on onnxruntime and on torch, one thread each, in turn, for the paper's models."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from benchmarks.result import Figure, figure
from device_agents import GraphCache
from device_agents.workloads import (
    TASKS,
    LocalTrainer,
    OnnxRuntimeTrainer,
    Task,
    TorchTrainer,
    initial_state,
    synthetic_shard,
)

T = TypeVar("T")

PAPERS = (
    "mnist-lenet5",
    "cifar10-resnet18",
    "cinic10-vgg16",
    "tinyimagenet-shufflenetv2",
    "shakespeare-lstm",
)
REPEATS = 5
BLOCK_S = 0.5  # long enough for the clock, short enough that both meet the same neighbours


def run(repeats: int = REPEATS) -> list[Figure]:
    """Steps per CPU-second at the tasks' own batch size; a busy machine then slows both alike."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="onnxruntime-vs-torch-") as folder:
            graphs = GraphCache(Path(folder))
            return [row for name in PAPERS for row in _compare(TASKS[name], graphs, repeats)]
    finally:
        torch.set_num_threads(threads)


def _compare(task: Task, graphs: GraphCache, repeats: int) -> list[Figure]:
    state = initial_state(task, seed=0)
    x, y = synthetic_shard(task, task.batch_size, np.random.default_rng(0))
    export_s, files = _timed(lambda: graphs.shard(task, task.batch_size))
    load_s, ours = _timed(lambda: OnnxRuntimeTrainer(task, files, state, x, y, threads=1))
    trainers: dict[str, LocalTrainer] = {"onnxruntime": ours, "torch": TorchTrainer(task, state, x, y)}
    steps = {name: _steps_per_block(trainer) for name, trainer in trainers.items()}
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(repeats):
        for name, trainer in trainers.items():
            rates[name].append(_rate(trainer, steps[name]))
    note = f"export {export_s:.1f} s, load {load_s:.1f} s of CPU"
    ratios = [ours / theirs for ours, theirs in zip(rates["onnxruntime"], rates["torch"], strict=True)]
    rows = [
        figure("onnxruntime_vs_torch", f"{task.name}, {name}", rates[name], "steps/CPU-s") for name in rates
    ]
    rows.append(figure("onnxruntime_vs_torch", f"{task.name}, onnxruntime to torch", ratios, "x", note=note))
    return rows


def _steps_per_block(trainer: LocalTrainer) -> int:
    """As many steps as fill a block, after two to warm up."""
    _rate(trainer, 2)
    return max(1, round(BLOCK_S * _rate(trainer, 1)))


def _rate(trainer: LocalTrainer, steps: int) -> float:
    batch = np.arange(trainer.samples)
    start_s = time.process_time()
    for _ in range(steps):
        trainer.step(batch)
    return steps / (time.process_time() - start_s)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start_s = time.process_time()
    result = work()
    return time.process_time() - start_s, result
