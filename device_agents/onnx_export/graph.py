"""An ONNX graph under construction.

Nodes are pure, so asking twice for the same one gives the first; what no output needs is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Old enough for what devices have: Python 3.9 gets onnxruntime 1.19 at most. Tried from 1.16 on.
OPSET = 18
IR_VERSION = 8


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in the graph."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Node:
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class OnnxGraph:
    """Collects nodes; `serialise` gives the bytes of a model file, the same for the same calls."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._inputs: list[Value] = []
        self._outputs: list[tuple[str, Value]] = []

    def add(
        self, operator: str, *inputs: Value | str, outputs: int = 1, **attributes: Any
    ) -> tuple[str, ...]:
        """The outputs of a node with these inputs and attributes."""
        names = tuple(item.name if isinstance(item, Value) else item for item in inputs)
        key = json.dumps([operator, names, attributes], sort_keys=True)
        if key not in self._nodes:
            number = len(self._nodes)
            results = tuple(f"n{number}_{i}" for i in range(outputs))
            self._nodes[key] = _Node(operator, names, results, attributes)
        return self._nodes[key].outputs

    def op(self, operator: str, *inputs: Value | str, **attributes: Any) -> str:
        """The only output of a node."""
        return self.add(operator, *inputs, **attributes)[0]

    def constant(self, value: ArrayLike, dtype: Any) -> str:
        """A constant; for large ones of one value use `full`."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        return self._constants.setdefault(key, f"c{len(self._constants)}")

    def ints(self, values: Iterable[int]) -> str:
        """A list of integers: a shape, axes, pads."""
        return self.constant(list(values), np.int64)

    def full(self, shape: Sequence[int], value: float, dtype: Any) -> str:
        """A tensor of one value."""
        return self.op("Expand", self.constant(value, dtype), self.ints(shape))

    def input(self, value: Value) -> None:
        """Declare an input."""
        self._inputs.append(value)

    def draw(self, kind: str, shape: Sequence[int], dtype: Any) -> str:
        """Fresh random numbers, ``uniform`` from 0 to 1 or ``normal``: an input that the device fills."""
        number = sum(value.name.startswith("draw/") for value in self._inputs)
        self.input(Value(f"draw/{kind}/{number}", tuple(shape), np.dtype(dtype)))
        return self._inputs[-1].name

    def output(self, name: str, value: Value) -> None:
        """Declare an output."""
        self._outputs.append((name, value))

    def serialise(self) -> bytes:
        """The model file."""
        from onnx import helper

        names, copies = self._name_outputs()
        nodes = [
            helper.make_node(
                node.operator,
                [names.get(name, name) for name in node.inputs],
                [names.get(name, name) for name in node.outputs],
                # onnxruntime 1.19 and 1.20 name fused nodes after the first; without names all are alike.
                name=node.outputs[0],
                **node.attributes,
            )
            for node in [*self._needed(), *copies]
        ]
        graph = helper.make_graph(
            nodes,
            "training_step",
            [_value_info(value.name, value) for value in self._inputs],
            [_value_info(name, value) for name, value in self._outputs],
            self._initializers({name for node in nodes for name in node.input}),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="joulefleet",
        )
        data: bytes = model.SerializeToString(deterministic=True)
        return data

    def _name_outputs(self) -> tuple[dict[str, str], list[_Node]]:
        """New names for what nodes compute, and copies for outputs that are something else's name already."""
        taken = {value.name for value in self._inputs} | set(self._constants.values())
        names: dict[str, str] = {}
        copies = []
        for name, value in self._outputs:
            if value.name in taken:
                copies.append(_Node("Identity", (value.name,), (name,), {}))
            else:
                names[value.name] = name
                taken.add(value.name)
        return names, copies

    def _needed(self) -> list[_Node]:
        """The nodes that some output depends on; every node stands behind those it reads."""
        needed = {value.name for _, value in self._outputs}
        kept = []
        for node in reversed(self._nodes.values()):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        return kept[::-1]

    def _initializers(self, used: set[str]) -> list[Any]:
        from onnx import numpy_helper

        return [
            numpy_helper.from_array(np.frombuffer(data, dtype).reshape(shape), name)
            for (dtype, shape, data), name in self._constants.items()
            if name in used
        ]


def _value_info(name: str, value: Value) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
