"""Exported steps on disk, found by what decides their content.

A file's name holds two hashes: of everything that goes into the export, which is what is looked for, and of
the file itself, which shows a damaged one. Such a file is exported again.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from device_agents.onnx_export.step import export_step
from device_agents.workloads.models import MODELS
from device_agents.workloads.tasks import batch_sizes
from joulefleet.errors import ConfigError
from joulefleet.files import file_sha256, storage_error, write_atomic
from joulefleet.records import canonical_json

if TYPE_CHECKING:
    from device_agents.workloads.tasks import Task

_PACKAGE = Path(__file__).resolve().parent.parent
_SOURCES = ("onnx_export/*.py", "workloads/tasks.py", "workloads/losses.py", "workloads/models/*.py")
_DIGITS = 16


class GraphCache:
    """A folder of exported steps.

    Args:
        folder: Made if missing; several processes may use it at once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def shard(self, task: Task, samples: int, dtype: str = "float32") -> dict[int, Path]:
        """The graphs that training on ``samples`` samples takes: for full batches and for the last one."""
        sizes = sorted(set(batch_sizes(task, samples)))
        if not sizes:
            raise ConfigError(f"{samples} samples are too few for one step of task {task.name!r}")
        return {size: self.step(task, size, dtype) for size in sizes}

    def step(self, task: Task, batch_size: int, dtype: str = "float32") -> Path:
        """The graph of one step, exported if it is not there."""
        stem = f"{task.name}-{batch_size}-{dtype}-{_key(task, batch_size, dtype)}"
        for path in sorted(self._folder.glob(f"{stem}-*.onnx")):
            if path.stem == f"{stem}-{file_sha256(path)[:_DIGITS]}":
                return path
        data = export_step(task, batch_size, dtype)
        path = self._folder / f"{stem}-{hashlib.sha256(data).hexdigest()[:_DIGITS]}.onnx"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(self._folder, error) from error
        write_atomic(path, data, replace=True)
        return path


def _model_source(task: Task) -> str:
    """Hash of the model's own module, which need not be one of ours."""
    if task.code is not None:
        return task.code.sha256
    spec = find_spec(MODELS.get(task.model, task.model).partition(":")[0])
    return file_sha256(Path(spec.origin)) if spec is not None and spec.origin else ""


def sources() -> dict[str, str]:
    """Hash of each file whose code decides what a graph contains."""
    return {
        str(path.relative_to(_PACKAGE)): file_sha256(path)
        for pattern in _SOURCES
        for path in sorted(_PACKAGE.glob(pattern))
    }


def _key(task: Task, batch_size: int, dtype: str) -> str:
    """Hash of the shapes, the exporting code and the torch it traces with.

    The learning rate and the momentum are inputs of the step and not in it.
    """
    import torch

    facts = {
        "model": task.model,
        "options": dict(task.options),
        "input_shape": task.input_shape,
        "classes": task.classes,
        "vocabulary": task.vocabulary,
        "target_shape": task.target_shape,
        "loss": task.loss,
        "batch_size": batch_size,
        "dtype": dtype,
        "torch": torch.__version__,
        "sources": sources(),
        "model_source": _model_source(task),
    }
    return hashlib.sha256(canonical_json(facts)).hexdigest()[:_DIGITS]
