"""The training that a job asks for, behind one small interface. Backends are imported when they are used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from device_agents.payload.faults import JobFault

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from device_agents.payload.job import JobSpec
    from device_agents.workloads.tasks import Task

Arrays = dict[str, "NDArray[Any]"]


@dataclass(frozen=True)
class Files:
    """What the host has sent for a job.

    Attributes:
        model: Weights to start from; from the seed without it.
        shard: Arrays ``x`` and ``y``; synthetic data of the right shape without it.
        graphs: Training step for ``onnxruntime``, by batch size.
        task: A task of the user's own, with its file where torch is to run it; else one of ours.
    """

    model: Path | None
    shard: Path | None
    graphs: dict[int, Path]
    task: Path | None = None


@dataclass(frozen=True)
class EpochLosses:
    """Losses of one epoch: mean, and root mean square where it is known."""

    loss: float
    loss_rms: float | None = None


class JobTrainer(Protocol):
    """Local training on the device's shard.

    Attributes:
        samples: Training samples of one epoch.
        random_operations: How the model's draws are made; empty if it has none. Known after the first epoch.
    """

    samples: int

    @property
    def random_operations(self) -> str:
        """See above."""

    def epoch(self) -> EpochLosses:
        """One pass over the shard."""

    def state(self) -> Arrays:
        """The weights now."""


def import_backend(spec: JobSpec) -> None:
    """Import what trains. Not to be interrupted: a half-imported numpy or torch cannot be imported again.

    Raises:
        JobFault: Unknown workload, or missing backend.
    """
    _import("numpy", spec)
    _check_workload(spec)
    _import(spec.backend, spec)


def build_trainer(spec: JobSpec, files: Files) -> JobTrainer:
    """The trainer for a job, after `import_backend`.

    Raises:
        JobFault: Data that does not fit.
    """
    model = None if files.model is None else _read_arrays(files.model)
    shard = None if files.shard is None else _read_arrays(files.shard)
    try:
        if spec.backend == "numpy":
            return SoftmaxTrainer(spec, model, shard)
        return TaskTrainer(_task_of(spec, files), spec, model, shard, files.graphs)
    except (KeyError, RuntimeError, ValueError) as error:  # RuntimeError: torch's word for a wrong shape
        raise JobFault("bad_data", f"{spec.workload} with backend {spec.backend}: {error}") from error


def _task_of(spec: JobSpec, files: Files) -> Task:
    """One of ours, or what the host has sent, whose file is run here and now, not in the first epoch.

    Raises:
        JobFault: The user's file does not run on this device.
    """
    from device_agents.workloads.own_code import blame, module_of
    from device_agents.workloads.tasks import find_task, unpack_task

    if files.task is None:
        return find_task(spec.workload)
    task = unpack_task(files.task.read_bytes())
    if task.code is not None:
        try:
            module_of(task.code)
        except (Exception, SystemExit) as error:
            raise JobFault("bad_job", f"{blame(task.code, error)} (on the device)") from error
    return task


def _check_workload(spec: JobSpec) -> None:
    """Before a backend is imported, which takes a phone many seconds."""
    if spec.task is not None:
        return
    from device_agents.workloads.tasks import TASKS

    known = ["softmax"] if spec.backend == "numpy" else list(TASKS)
    if spec.workload not in known:
        names = ", ".join(known)
        message = f"unknown workload {spec.workload!r} for backend {spec.backend}; known: {names}"
        raise JobFault("bad_job", message)


def _import(module: str, spec: JobSpec) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise JobFault("backend_missing", f"backend {spec.backend} needs {module}: {error}") from error


def _read_arrays(path: Path) -> Arrays:
    from device_agents.payload.tensors import unpack_arrays

    try:
        return unpack_arrays(path.read_bytes())
    except ValueError as error:
        raise JobFault("bad_data", f"{path.name}: {error}") from error


class SoftmaxTrainer:
    """Softmax regression in numpy, the smallest real training: for demonstrations and tests."""

    random_operations = ""

    def __init__(self, spec: JobSpec, model: Arrays | None, shard: Arrays | None) -> None:
        import numpy as np

        from device_agents.workloads.softmax import Softmax, synthetic_shard

        self._rng = np.random.default_rng(spec.seed)
        self._model = Softmax(batch_size=spec.batch_size) if spec.batch_size else Softmax()
        if shard is None:
            self._x, self._y = synthetic_shard(spec.samples, self._model, self._rng)
        else:
            self._x, self._y = shard["x"].astype(np.float64), shard["y"].astype(np.int64)
        if self._x.shape != (spec.samples, self._model.features) or self._y.shape != (spec.samples,):
            raise ValueError(f"a shard of {self._x.shape}, not {(spec.samples, self._model.features)}")
        self.samples = spec.samples
        self._parameters = self._model.initial()
        if model is not None:
            self._load(model)

    def _load(self, model: Arrays) -> None:
        weights = model.get("weights")
        if weights is None or weights.shape != self._parameters.shape:
            raise ValueError(f"softmax has one array `weights` of {self._parameters.shape}")
        self._parameters = weights.astype(self._parameters.dtype)

    def epoch(self) -> EpochLosses:
        """See `JobTrainer`."""
        self._parameters, loss = self._model.epoch(self._parameters, self._x, self._y, self._rng)
        return EpochLosses(loss)

    def state(self) -> Arrays:
        """See `JobTrainer`."""
        return {"weights": self._parameters}


class TaskTrainer:
    """A task on torch or onnxruntime."""

    def __init__(
        self, task: Task, spec: JobSpec, model: Arrays | None, shard: Arrays | None, graphs: dict[int, Path]
    ) -> None:
        import numpy as np

        from device_agents.workloads.tasks import synthetic_shard

        own = {"learning_rate": spec.learning_rate, "momentum": spec.momentum}
        changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        if spec.batch_size:
            changes["batch_size"] = spec.batch_size
        task = replace(task, **changes)
        self._rng = np.random.default_rng(spec.seed)
        if shard is None:
            x, y = synthetic_shard(task, spec.samples, self._rng)
        else:
            # Copied, because torch wants arrays that it may write to.
            x, y = np.array(shard["x"], task.input_dtype), np.array(shard["y"], task.target_dtype)
        if len(y) != spec.samples:
            raise ValueError(f"a shard of {len(y)} samples, not {spec.samples}")
        self.samples = spec.samples
        if spec.backend == "torch":
            import torch

            from device_agents.workloads.backend_torch import TorchTrainer
            from device_agents.workloads.models import initial_state

            if spec.threads:
                torch.set_num_threads(spec.threads)
            start = model or initial_state(task, spec.seed)
            self._trainer: Any = TorchTrainer(task, start, x, y, seed=spec.seed)
        else:
            from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer

            self._trainer = OnnxRuntimeTrainer(task, graphs, model or {}, x, y, spec.threads, spec.seed)

    @property
    def random_operations(self) -> str:
        """See `JobTrainer`."""
        return str(self._trainer.random_operations)

    def epoch(self) -> EpochLosses:
        """See `JobTrainer`."""
        result = self._trainer.epoch(self._rng)
        return EpochLosses(result.loss, result.loss_rms)

    def state(self) -> Arrays:
        """See `JobTrainer`."""
        state: Arrays = self._trainer.state()
        return state
