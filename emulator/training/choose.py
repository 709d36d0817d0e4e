"""Opening a trainer: which implementation, how many workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from joulefleet.errors import ConfigError, MissingExtra
from joulefleet.install_hint import install_hint

if TYPE_CHECKING:
    from device_agents.workloads import Task
    from emulator.data.model import DataSet
    from emulator.training.client_data import ClientData
    from emulator.training.table import TableTrainer

BFLOAT16 = "cpu-bfloat16"
IMPLEMENTATIONS = ("auto", "cpu", "batched", BFLOAT16)

_SMALL = 10_000
"""Parameters up to which stacking wins on a CPU: calling torch costs more there than what it computes."""


def open_trainer(
    task: Task, clients: ClientData, *, implementation: str = "auto", workers: int | None = None
) -> TableTrainer:
    """A trainer for a task on the clients' data.

    Args:
        task: What is trained, and how.
        clients: On what; its seed is the root of the initial weights, too.
        implementation: One of `IMPLEMENTATIONS`; what ``auto`` became is the trainer's ``implementation``.
        workers: Processes of one thread, of ``cpu`` only; as many as this process has cores by default.

    Raises:
        ConfigError: The data does not fit the task, or a name is unknown.
        MissingExtra: torch is not installed.
    """
    chosen = resolved(task, clients, implementation)
    stacked = chosen.name == "batched"
    opened = _batched(task, clients) if stacked else _cpu(task, clients, workers, chosen.name)
    opened.note = chosen.note
    return opened


@dataclass(frozen=True, slots=True)
class Resolved:
    """An implementation; ``note`` says why, where it is not the one that was asked for."""

    name: str
    note: str = ""


def resolved(task: Task, clients: ClientData, implementation: str) -> Resolved:
    """The implementation that a name stands for, for a task and its data; raises as `open_trainer`."""
    _check_fit(task, clients.data)
    if implementation not in IMPLEMENTATIONS:
        raise ConfigError(
            f"no training implementation called {implementation!r}",
            hint=f"known: {', '.join(IMPLEMENTATIONS)}; in scenarios also surrogate, which trains nothing",
        )
    try:
        import torch  # noqa: F401 - whatever trains needs it
    except ModuleNotFoundError as error:
        raise MissingExtra("training needs torch", hint=install_hint("train")) from error
    chosen = best_for(task) if implementation == "auto" else implementation
    reason = _not_stacked(task, clients) if chosen == "batched" else ""
    return Resolved("cpu", f"cpu instead of batched: {reason}") if reason else Resolved(chosen)


def _not_stacked(task: Task, clients: ClientData) -> str:
    """Why this model's clients cannot share a stack, as a step of two of them shows; empty if they can."""
    from emulator.training.batched import BatchedTrainer

    count = min(len(clients.data.train), max(2, task.smallest_batch))
    if count < max(1, task.smallest_batch):
        return ""
    x, y = clients.data.inputs(clients.data.train.x[:count]), clients.data.train.y[:count]
    return BatchedTrainer(task, clients).why_not(x, y)


def best_for(task: Task) -> str:
    """Stacked on a GPU and for very small models, else one client at a time on each core.

    A model of the user's own is not stacked unasked: it may do what has no stacked form.
    """
    if task.code is not None:
        return "cpu"
    import torch

    from device_agents.workloads import Generators, build
    from emulator.training.layout import Layout

    with Generators().kept():
        small = Layout.of(build(task)).trainable <= _SMALL
    return "batched" if small or torch.cuda.is_available() else "cpu"


def _batched(task: Task, clients: ClientData) -> TableTrainer:
    import torch

    from emulator.training.batched import BatchedTrainer

    return BatchedTrainer(task, clients, "cuda" if torch.cuda.is_available() else "cpu")


def with_precision(implementation: str, precision: str) -> str:
    """The name of an implementation that computes in this precision.

    Raises:
        ConfigError: There is none.
    """
    if precision == "float32":
        return implementation
    if implementation not in ("auto", "cpu", BFLOAT16):
        raise ConfigError(
            f"trainer.precision = {precision!r} goes with trainer.kind auto or cpu, not {implementation!r}"
        )
    return BFLOAT16


def _cpu(task: Task, clients: ClientData, workers: int | None, name: str) -> TableTrainer:
    from emulator.training.autograd_model import AutogradModel
    from emulator.training.cpu import CpuTrainer
    from emulator.training.lenet5_model import LeNet5Model, fits

    half = name == BFLOAT16
    model = LeNet5Model(task) if fits(task) and not half else AutogradModel(task, bfloat16=half)
    opened = CpuTrainer(model, clients, len(os.sched_getaffinity(0)) if workers is None else workers)
    opened.implementation = name
    return opened


def _check_fit(task: Task, data: DataSet) -> None:
    tokens = data.train.x.dtype == "int64"
    if (
        data.input_shape != task.input_shape
        or data.classes != task.classes
        or tokens != bool(task.vocabulary)
    ):
        raise ConfigError(
            f"task {task.name!r} takes samples of shape {task.input_shape} in {task.classes} classes, "
            f"data set {data.name!r} has {data.input_shape} in {data.classes}",
            hint=f"use the data set it is made for: {task.data_set}",
        )
