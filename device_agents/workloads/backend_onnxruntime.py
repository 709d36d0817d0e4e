"""Training with onnxruntime and numpy alone: the step is a graph that the host exported.

The graph's contract (`device_agents.onnx_export.step` writes it): inputs ``x``, ``y``, ``learning_rate``,
``momentum``, ``state/NAME`` for every entry of the model's state and ``velocity/NAME`` for every parameter;
outputs ``losses`` (one per sample) and, for each input that the step changes, ``next/`` and its name. What a
model draws (dropout) are inputs too, ``draw/uniform/N`` from 0 to 1 and ``draw/normal/N``: numpy draws them
here before each step, so that a graph is a function of its inputs on every onnxruntime.

Nothing is copied between steps: the state lives in two sets of arrays. A step reads one set and writes the
other, and the next step goes the other way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # noqa: TID253 - this module is onnxruntime's side of a choice; import it when that is made
from onnxruntime.capi.onnxruntime_pybind11_state import (  # noqa: TID253
    NotImplemented as NotImplementedByRuntime,
)

from device_agents.workloads.random_operations import SEEDED
from device_agents.workloads.tasks import batch_sizes
from device_agents.workloads.trainer import LocalTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from device_agents.workloads.tasks import Task

    Arrays = dict[str, NDArray[Any]]

_NEXT = "next/"
_STATE = "state/"
_VELOCITY = "velocity/"
_DRAW = "draw/"
_UNIFORM = _DRAW + "uniform/"
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,  # a mask that is a buffer
}


class OnnxRuntimeTrainer(LocalTrainer):
    """Runs exported steps, one graph per batch size.

    Args:
        task: What is trained, and how.
        graphs: The exported step for each batch size that an epoch has, as file or bytes.
        state: The weights and buffers to start from; the momentum starts at zero.
        x: The shard's samples.
        y: Their labels.
        threads: Of onnxruntime; 1 computes in the calling thread, 0 leaves the number to it.
        seed: See `LocalTrainer`.
    """

    def __init__(
        self,
        task: Task,
        graphs: Mapping[int, Path | bytes],
        state: Mapping[str, NDArray[Any]],
        x: NDArray[Any],
        y: NDArray[Any],
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(task, x, y, seed)
        sizes = sorted(set(batch_sizes(task, len(y))), reverse=True)
        missing = [size for size in sizes if size not in graphs]
        if missing:
            raise ValueError(f"no exported step of task {task.name!r} for batches of {missing}")
        sessions = {size: _open(graphs[size], threads) for size in sizes}
        first = sessions[sizes[0]]
        settings = {
            "learning_rate": np.array(task.learning_rate, _dtype(first, "learning_rate")),
            "momentum": np.array(task.momentum, _dtype(first, "momentum")),
        }
        current = _initial(first, state)
        self._generations = (current, {name: np.empty_like(array) for name, array in current.items()})
        self._newest = 0
        self._steps = {
            size: _BoundStep(session, size, self._generations, settings) for size, session in sessions.items()
        }
        self._entropy = 0
        if any(item.name.startswith(_DRAW) for item in first.get_inputs()):
            self.random_operations = f"numpy, as inputs of the graph: {SEEDED}"
        self._x = np.ascontiguousarray(x, _dtype(first, "x"))
        self._y = np.ascontiguousarray(y, _dtype(first, "y"))

    def draw(self, entropy: int) -> None:
        """See `LocalTrainer`."""
        self._entropy = entropy

    def step(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """See `LocalTrainer`."""
        bound = self._steps[len(indices)]
        np.take(self._x, indices, axis=0, out=bound.x)
        np.take(self._y, indices, axis=0, out=bound.y)
        bound.draw(self._entropy)
        bound.run(self._newest)
        self._newest = 1 - self._newest
        return bound.losses.copy()

    def state(self) -> Arrays:
        """See `LocalTrainer`."""
        return self._copy(_STATE)

    def velocity(self) -> Arrays:
        """See `LocalTrainer`."""
        return self._copy(_VELOCITY)

    def _copy(self, prefix: str) -> Arrays:
        arrays = self._generations[self._newest].items()
        return {name[len(prefix) :]: array.copy() for name, array in arrays if name.startswith(prefix)}


class _BoundStep:
    """A graph whose inputs and outputs are fixed to arrays, in both directions."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        size: int,
        generations: tuple[Arrays, Arrays],
        settings: Arrays,
    ) -> None:
        shapes = {item.name: item.shape for item in session.get_inputs()}
        if shapes["y"][0] != size:
            raise ValueError(f"the step given for batches of {size} was exported for {shapes['y'][:1]}")
        self.x = np.empty(shapes["x"], _dtype(session, "x"))
        self.y = np.empty(shapes["y"], _dtype(session, "y"))
        self.losses = np.empty(size, _dtype(session, "learning_rate"))
        self._session = session
        self._draws = {
            item.name: np.empty(item.shape, _DTYPES[item.type])
            for item in session.get_inputs()
            if item.name.startswith(_DRAW)
        }
        batch = {"x": self.x, "y": self.y, **settings, **self._draws}
        self._bindings = [
            self._bind({**batch, **generations[0]}, generations[1]),
            self._bind({**batch, **generations[1]}, generations[0]),
        ]

    def draw(self, entropy: int) -> None:
        """What the model's random operations take in the next run."""
        if not self._draws:
            return
        rng = np.random.default_rng(entropy)
        for name, array in self._draws.items():
            fill = rng.random if name.startswith(_UNIFORM) else rng.standard_normal
            fill(out=array, dtype=array.dtype)

    def run(self, newest: int) -> None:
        """Read generation ``newest``, write the other."""
        self._session.run_with_iobinding(self._bindings[newest])

    def _bind(self, inputs: Arrays, outputs: Arrays) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, _shared(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(_NEXT + name, _shared(array))
        binding.bind_ortvalue_output("losses", _shared(self.losses))
        return binding


def _open(graph: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    source = graph if isinstance(graph, bytes) else str(graph)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except NotImplementedByRuntime:
        # Older ones (1.16 to 1.20 do) fuse float64 products into operators that they have for float32 only.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _shared(array: NDArray[Any]) -> onnxruntime.OrtValue:
    """A view of the array's memory; onnxruntime copies only when told to put it on another device."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _initial(session: onnxruntime.InferenceSession, state: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays that change from step to step: the given state and a momentum of zero."""
    wanted = {item.name: item for item in session.get_inputs()}
    names = {name[len(_STATE) :] for name in wanted if name.startswith(_STATE)}
    if names != set(state):
        odd = sorted(names.symmetric_difference(state))
        raise ValueError(f"the state does not fit the exported step: {odd[:5]} in one of them only")
    arrays: Arrays = {}
    for name, item in wanted.items():
        dtype = _DTYPES[item.type]
        if name.startswith(_STATE):
            arrays[name] = np.array(state[name[len(_STATE) :]], dtype, order="C")
            if list(arrays[name].shape) != item.shape:
                raise ValueError(f"{name} has shape {arrays[name].shape}, the exported step {item.shape}")
        elif name.startswith(_VELOCITY):
            arrays[name] = np.zeros(item.shape, dtype)
    return arrays


def _dtype(session: onnxruntime.InferenceSession, name: str) -> Any:
    return next(_DTYPES[item.type] for item in session.get_inputs() if item.name == name)
