"""From a traced step to the bytes of an ONNX file."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from device_agents.onnx_export.graph import OnnxGraph, Value
from device_agents.onnx_export.ops import CONVERTERS, numpy_dtype
from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from torch.fx import Graph, Node


def write_onnx(traced: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Convert a functional aten graph of static shapes.

    Args:
        traced: What `make_fx` gave; its nodes carry ``meta["val"]``.
        inputs: Names for its placeholders, in order.
        outputs: Names for its results, in order.

    Raises:
        JoulefleetError: It has an operator that has no ONNX form here.
    """
    from torch.fx.node import map_arg

    graph = OnnxGraph()
    known: dict[Node, Any] = {}
    names = iter(inputs)
    for node in traced.nodes:
        if node.op == "placeholder":
            known[node] = _values(node, next(names))
            graph.input(known[node])
        elif node.op == "output":
            for name, result in zip(outputs, node.args[0], strict=True):
                graph.output(name, known[result])
        elif node.target is operator.getitem:
            known[node] = known[node.args[0]][node.args[1]]
        elif node.users:  # an operator without readers may be one that ONNX does not need
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = _values(node, _converter(node)(graph, *args, **kwargs))
    return graph.serialise()


def _converter(node: Node) -> Any:
    try:
        return CONVERTERS[str(node.target)]
    except KeyError:
        raise JoulefleetError(
            f"the training step uses {node.target}, which has no ONNX form here",
            hint="add a converter in device_agents/onnx_export/ops.py, or a decomposition",
        ) from None


def _values(node: Node, names: str | tuple[str, ...]) -> Any:
    """The node's result with the shapes and types that the tracer saw."""
    seen = node.meta["val"]
    if isinstance(names, str):
        return Value(names, tuple(seen.shape), numpy_dtype(seen.dtype))
    return tuple(
        Value(name, tuple(part.shape), numpy_dtype(part.dtype))
        for name, part in zip(names, seen, strict=True)
    )
