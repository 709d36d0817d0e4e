"""The training that a job asks for, behind one small interface. Backends are imported when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from device_agents.payload.faults import JobFault

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from device_agents.payload.job import JobSpec

Arrays = dict[str, "NDArray[Any]"]


class Trainer(Protocol):
    """Local training on the device's shard.

    Attributes:
        samples: Training samples of one epoch.
    """

    samples: int

    def load(self, state: Arrays) -> None:
        """Start from these weights.

        Raises:
            ValueError: They do not fit the model.
        """

    def epoch(self) -> float:
        """One pass over the shard. Returns the mean loss seen on the way."""

    def state(self) -> Arrays:
        """The weights now."""


def build_trainer(spec: JobSpec, shard: Path | None, graph: Path | None) -> Trainer:
    """The trainer for a job, with weights from its seed.

    Args:
        spec: The job.
        shard: File with arrays ``x`` and ``y``; None for synthetic data of the right shape.
        graph: File with the training step for ``onnxruntime``.

    Raises:
        JobFault: Unknown workload, missing backend, or data that does not fit.
    """
    for module in ("numpy", spec.backend):
        try:
            importlib.import_module(module)
        except ImportError as error:  # noqa: PERF203 - two turns, once
            raise JobFault("backend_missing", f"backend {spec.backend} needs {module}: {error}") from error
    data = None if shard is None else read_arrays(shard)
    try:
        return SoftmaxTrainer(spec, data)
    except (KeyError, ValueError) as error:
        raise JobFault("bad_job", f"{spec.workload} with backend {spec.backend}: {error}") from error


def read_arrays(path: Path) -> Arrays:
    """The arrays in a file that was received.

    Raises:
        JobFault: They are not in the layout.
    """
    from device_agents.payload.tensors import unpack

    try:
        return unpack(path.read_bytes())
    except ValueError as error:
        raise JobFault("bad_data", f"{path.name}: {error}") from error


class SoftmaxTrainer:
    """Softmax regression in numpy, the smallest real training: for demonstrations and tests."""

    def __init__(self, spec: JobSpec, data: Arrays | None) -> None:
        import numpy as np

        from device_agents.workloads.softmax import Softmax, synthetic_shard

        if spec.workload != "softmax":
            raise ValueError(f"unknown workload {spec.workload!r}; known: softmax")
        self._rng = np.random.default_rng(spec.seed)
        self._model = Softmax()
        if data is None:
            self._x, self._y = synthetic_shard(spec.samples, self._model, self._rng)
        else:
            self._x, self._y = data["x"].astype(np.float64), data["y"].astype(np.int64)
        if self._x.shape != (spec.samples, self._model.features) or self._y.shape != (spec.samples,):
            raise ValueError(f"a shard of {self._x.shape}, not {(spec.samples, self._model.features)}")
        self.samples = spec.samples
        self._parameters = self._model.initial()

    def load(self, state: Arrays) -> None:
        """See `Trainer`."""
        weights = state.get("weights")
        if weights is None or weights.shape != self._parameters.shape:
            raise ValueError(f"softmax has one array `weights` of {self._parameters.shape}")
        self._parameters = weights.astype(self._parameters.dtype)

    def epoch(self) -> float:
        """See `Trainer`."""
        self._parameters, loss = self._model.epoch(self._parameters, self._x, self._y, self._rng)
        return loss

    def state(self) -> Arrays:
        """See `Trainer`."""
        return {"weights": self._parameters}
