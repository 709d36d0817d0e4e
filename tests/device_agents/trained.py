"""Both backends side by side: small versions of the tasks, and how far two trainings are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from device_agents.onnx_export.cache import GraphCache
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import initial_state
from device_agents.workloads.tasks import TASKS, Task, synthetic_shard
from device_agents.workloads.trainer import LocalTrainer

Arrays = Mapping[str, NDArray[Any]]

# Which units drop out differs between the two backends, and is tested on its own.
_vgg = TASKS["cinic10-vgg16"]
UNDRAWN = {**TASKS, _vgg.name: replace(_vgg, options={**_vgg.options, "dropout": 0.0})}
# As small as the architecture allows; a batch that batch normalisation can make sense of.
SMALL = {
    "mnist-lenet5": replace(TASKS["mnist-lenet5"], batch_size=8),
    "cifar10-resnet18": replace(TASKS["cifar10-resnet18"], batch_size=8),
    "cinic10-vgg16": replace(UNDRAWN["cinic10-vgg16"], batch_size=2),
    "tinyimagenet-shufflenetv2": replace(TASKS["tinyimagenet-shufflenetv2"], batch_size=4),
    "shakespeare-lstm": replace(TASKS["shakespeare-lstm"], batch_size=4, input_shape=(10,)),
    "digits-mlp": replace(TASKS["digits-mlp"], batch_size=8),
}


_STATES: dict[tuple[str, int], Arrays] = {}


@dataclass(frozen=True)
class Setting:
    """Everything that two trainings have in common: ``steps`` full batches, each sample used once."""

    task: Task
    steps: int
    seed: int = 0
    _done: dict[int, int] = field(default_factory=dict)

    def state(self) -> Arrays:
        key = (self.task.name, self.seed)
        if key not in _STATES:
            _STATES.clear()  # one is enough: tests of a task follow one another
            _STATES[key] = initial_state(self.task, self.seed)
        return _STATES[key]

    def data(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return synthetic_shard(self.task, self.steps * self.task.batch_size, np.random.default_rng(self.seed))

    def torch(self, dtype: str) -> TorchTrainer:
        return TorchTrainer(self.task, self.state(), *self.data(), dtype)

    def onnxruntime(self, graphs: GraphCache, dtype: str) -> OnnxRuntimeTrainer:
        step = graphs.step(self.task, self.task.batch_size, dtype)
        return OnnxRuntimeTrainer(self.task, {self.task.batch_size: step}, self.state(), *self.data())

    def losses(self, trainer: LocalTrainer, until: int | None = None) -> list[float]:
        """The mean loss of each step, from where the trainer is to ``until`` or to the end."""
        size = self.task.batch_size
        order = np.arange(self.steps * size)
        first = self._done.get(id(trainer), 0)
        last = self._done[id(trainer)] = self.steps if until is None else until
        return [float(trainer.step(order[i * size : (i + 1) * size]).mean()) for i in range(first, last)]


def apart(ours: Arrays, theirs: Arrays) -> float:
    """The largest distance of two tensors of one name, relative to the tensor.

    Tensors a thousand times smaller than the whole are measured against that: in exact arithmetic the bias
    of a batch normalisation before another one has no gradient at all, and computed ones are rounding noise.
    """
    assert list(ours) == list(theirs)
    floor = 1e-3 * norm(theirs)
    return max(
        (
            float(np.linalg.norm(ours[name] - theirs[name]) / max(np.linalg.norm(theirs[name]), floor))
            for name in theirs
        ),
        default=0.0,
    )


def whole_apart(ours: Arrays, theirs: Arrays) -> float:
    """The distance of all tensors together, relative to all of them together."""
    return norm({name: ours[name] - theirs[name] for name in theirs}) / norm(theirs)


def norm(arrays: Arrays) -> float:
    return float(np.sqrt(sum(np.linalg.norm(array.astype(np.float64)) ** 2 for array in arrays.values())))


class Parts(NamedTuple):
    """A state by what its entries are."""

    parameters: Arrays
    statistics: Arrays
    counters: dict[str, int]


def split(state: Arrays, parameters: Arrays) -> Parts:
    """Tell the entries of a state apart by the names of the parameters."""
    rest = {name: array for name, array in state.items() if name not in parameters}
    return Parts(
        {name: state[name] for name in parameters},
        {name: array for name, array in rest.items() if array.dtype.kind == "f"},
        {name: int(array) for name, array in rest.items() if array.dtype.kind == "i"},
    )


@contextmanager
def other_kernels() -> Iterator[None]:
    """Let torch compute the same float32 step with its own kernels instead of oneDNN's."""
    mkldnn: Any = torch.backends.mkldnn
    mkldnn.enabled = False
    try:
        yield
    finally:
        mkldnn.enabled = True
