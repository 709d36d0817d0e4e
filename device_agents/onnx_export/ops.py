"""How each aten operator that is left after `decompositions` is written in ONNX.

A converter gets the graph and the operator's own arguments, tensors as `Value`, and returns the name of the
result (a tuple of names if there are several). Operators that only rename or copy return their argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from device_agents.onnx_export.arithmetic import ARITHMETIC, Converter, numpy_dtype
from device_agents.onnx_export.graph import OnnxGraph, Value
from device_agents.onnx_export.windows import unsupported

CONVERTERS: dict[str, Converter] = dict(ARITHMETIC)


def converts(*operators: str) -> Callable[[Converter], Converter]:
    """Register a converter for aten operators."""

    def register(converter: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(operators, converter))
        return converter

    return register


def _same(graph: OnnxGraph, x: Value, **_: Any) -> str:
    return x.name


CONVERTERS.update(
    {
        # Copies and shapes
        "aten.clone.default": _same,
        "aten.alias.default": _same,
        "aten.detach.default": _same,
        "prims.transpose.default": lambda graph, x, order: graph.op("Transpose", x, perm=list(order)),
        "prims.squeeze.default": lambda graph, x, dims: graph.op("Squeeze", x, graph.ints(dims)),
        "aten.t.default": lambda graph, x: graph.op("Transpose", x, perm=[1, 0]),
        "aten.unsqueeze.default": lambda graph, x, dim: graph.op("Unsqueeze", x, graph.ints([dim])),
        "aten.squeeze.dim": lambda graph, x, dim: graph.op("Squeeze", x, graph.ints([dim])),
        "aten.cat.default": lambda graph, parts, dim=0: graph.op("Concat", *parts, axis=dim),
        # Look-ups
        "aten.gather.default": lambda graph, x, dim, at: graph.op("GatherElements", x, at, axis=dim),
        "aten.scatter_add.default": lambda graph, x, dim, at, source: graph.op(
            "ScatterElements", x, at, source, axis=dim, reduction="add"
        ),
        "aten.embedding.default": lambda graph, table, at, *_: graph.op("Gather", table, at, axis=0),
        # Constants
        "aten.zeros.default": lambda graph, shape, dtype=None, **_: graph.full(shape, 0, numpy_dtype(dtype)),
        "aten.new_zeros.default": lambda graph, like, shape, **_: graph.full(shape, 0, like.dtype),
        "aten.new_ones.default": lambda graph, like, shape, **_: graph.full(shape, 1, like.dtype),
        "aten.ones_like.default": lambda graph, like, **_: graph.full(like.shape, 1, like.dtype),
        "aten.full_like.default": lambda graph, like, value, dtype=None, **_: graph.full(
            like.shape, value, like.dtype if dtype is None else numpy_dtype(dtype)
        ),
        "prims.empty_strided.default": lambda graph, shape, strides, dtype=None, **_: graph.full(
            shape, 0, numpy_dtype(dtype)
        ),
        "prims.iota.default": lambda graph, length, start=0, step=1, dtype=None, **_: graph.constant(
            start + step * np.arange(length), numpy_dtype(dtype)
        ),
        "aten.scalar_tensor.default": lambda graph, value, dtype=None, **_: graph.constant(
            value, numpy_dtype(dtype)
        ),
    }
)


@converts("aten.copy_.default")
def _overwrite(graph: OnnxGraph, old: Value, new: Value) -> str:
    """Readers of the overwritten tensor that come later were given this result by the tracer."""
    return new.name


# Random numbers, which are inputs of the graph


def _below(graph: OnnxGraph, like: Value, probability: Value | float) -> str:
    """1 with this probability, else 0."""
    limit = probability if isinstance(probability, Value) else graph.constant(probability, like.dtype)
    drawn = graph.op("Less", graph.draw("uniform", like.shape, like.dtype), limit)
    return graph.op("Where", drawn, graph.constant(1, like.dtype), graph.constant(0, like.dtype))


def _scaled(kind: str) -> Converter:
    """Draws ``offset + scale * draw`` of a tensor's shape: uniform(low, high) or normal(mean, deviation)."""

    def convert(graph: OnnxGraph, like: Value, first: float = 0.0, second: float = 1.0, **_: Any) -> str:
        scale = second - first if kind == "uniform" else second
        drawn = graph.draw(kind, like.shape, like.dtype)
        drawn = graph.op("Mul", drawn, graph.constant(scale, like.dtype))
        return graph.op("Add", drawn, graph.constant(first, like.dtype))

    return convert


def _fresh(kind: str) -> Converter:
    def convert(graph: OnnxGraph, like: Value | Sequence[int], dtype: Any = None, **_: Any) -> str:
        if isinstance(like, Value):
            return graph.draw(kind, like.shape, like.dtype if dtype is None else numpy_dtype(dtype))
        return graph.draw(kind, like, np.float32 if dtype is None else numpy_dtype(dtype))

    return convert


def _unset(graph: OnnxGraph, like: Value | Sequence[int], *_: Any, dtype: Any = None, **__: Any) -> str:
    """Memory that a draw is about to fill."""
    if isinstance(like, Value):
        return graph.full(like.shape, 0, like.dtype if dtype is None else numpy_dtype(dtype))
    return graph.full(like, 0, np.float32 if dtype is None else numpy_dtype(dtype))


CONVERTERS.update(
    {
        "aten.bernoulli.p": lambda graph, like, p=0.5, **_: _below(graph, like, p),
        "aten.bernoulli.default": lambda graph, p, **_: _below(graph, p, p),
        "aten.uniform.default": _scaled("uniform"),
        "aten.normal_functional.default": _scaled("normal"),
        "aten.rand.default": _fresh("uniform"),
        "aten.rand_like.default": _fresh("uniform"),
        "aten.randn.default": _fresh("normal"),
        "aten.randn_like.default": _fresh("normal"),
        "aten.empty.memory_format": _unset,
        "aten.empty_like.default": _unset,
        "aten.new_empty.default": lambda graph, like, shape, **_: graph.full(shape, 0, like.dtype),
    }
)


# Shapes


@converts("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def _reshape(graph: OnnxGraph, x: Value, shape: Sequence[int]) -> str:
    return x.name if tuple(shape) == x.shape else graph.op("Reshape", x, graph.ints(shape))


@converts("aten.expand.default")
def _expand(graph: OnnxGraph, x: Value, shape: Sequence[int]) -> str:
    if tuple(shape) == x.shape:
        return x.name
    # ONNX broadcasts both ways: 1 keeps a dimension, as -1 does in torch.
    return graph.op("Expand", x, graph.ints(1 if size == -1 else size for size in shape))


@converts("prims.broadcast_in_dim.default")
def _broadcast(graph: OnnxGraph, x: Value, shape: Sequence[int], places: Sequence[int]) -> str:
    """``places`` says which of the new dimensions each of the old ones is."""
    wide = [1] * len(shape)
    for place, size in zip(places, x.shape, strict=True):
        wide[place] = size
    return graph.op("Expand", graph.op("Reshape", x, graph.ints(wide)), graph.ints(shape))


@converts("aten.as_strided.default")
def _as_strided(
    graph: OnnxGraph, x: Value, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> str:
    dense = [prod(shape[place + 1 :]) for place in range(len(shape))]
    if offset or list(strides) != dense or prod(shape) != prod(x.shape):
        raise unsupported("a view by strides that leaves elements out or takes them twice")
    return graph.op("Reshape", x, graph.ints(shape))


@converts("aten.transpose.int")
def _transpose(graph: OnnxGraph, x: Value, a: int, b: int) -> str:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return graph.op("Transpose", x, perm=order)


# Parts and wholes


@converts("prims.rev.default")
def _reverse(graph: OnnxGraph, x: Value, dims: Sequence[int]) -> str:
    backwards, beyond = [-1] * len(dims), [-(2**31)] * len(dims)
    return graph.op("Slice", x, *(graph.ints(values) for values in (backwards, beyond, dims, backwards)))


@converts("aten.slice.Tensor")
def _slice(
    graph: OnnxGraph, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> str:
    start, end, _ = slice(start, end).indices(x.shape[dim])
    if (start, end, step) == (0, x.shape[dim], 1):
        return x.name
    return graph.op("Slice", x, *(graph.ints([value]) for value in (start, end, dim, step)))


@converts("aten.select.int")
def _select(graph: OnnxGraph, x: Value, dim: int, index: int) -> str:
    return graph.op("Gather", x, graph.constant(index % x.shape[dim], np.int64), axis=dim)


@converts("aten.select_backward.default")
def _select_backward(graph: OnnxGraph, grad: Value, shape: Sequence[int], dim: int, index: int) -> str:
    before, after = [0] * len(shape), [0] * len(shape)
    before[dim] = index % shape[dim]
    after[dim] = shape[dim] - 1 - before[dim]
    return graph.op("Pad", graph.op("Unsqueeze", grad, graph.ints([dim])), graph.ints(before + after))


@converts("aten.constant_pad_nd.default")
def _pad(graph: OnnxGraph, x: Value, pad: Sequence[int], value: float = 0.0) -> str:
    """Torch counts from the last dimension and interleaves; ONNX lists all starts, then all ends."""
    unpadded = [0] * (len(x.shape) - len(pad) // 2)
    before, after = unpadded + list(pad[-2::-2]), unpadded + list(pad[::-2])
    return graph.op("Pad", x, graph.ints(before + after), graph.constant(value, x.dtype))


@converts("aten.stack.default")
def _stack(graph: OnnxGraph, parts: Sequence[Value], dim: int = 0) -> str:
    return graph.op("Concat", *(graph.op("Unsqueeze", part, graph.ints([dim])) for part in parts), axis=dim)


@converts("aten.split.Tensor", "aten.unsafe_split.Tensor")
def _split(graph: OnnxGraph, x: Value, size: int, dim: int = 0) -> tuple[str, ...]:
    sizes = [min(size, x.shape[dim] - start) for start in range(0, x.shape[dim], size)]
    return graph.add("Split", x, graph.ints(sizes), outputs=len(sizes), axis=dim)


@converts("aten.unbind.int")
def _unbind(graph: OnnxGraph, x: Value, dim: int = 0) -> tuple[str, ...]:
    return tuple(graph.op("Squeeze", part, graph.ints([dim])) for part in _split(graph, x, 1, dim))


@converts("aten.index_add.default")
def _index_add(graph: OnnxGraph, x: Value, dim: int, indices: Value, source: Value) -> str:
    if dim != 0:
        raise ValueError("index_add is written for the first dimension only")
    return graph.op("ScatterND", x, graph.op("Unsqueeze", indices, graph.ints([1])), source, reduction="add")


# Convolution and pooling


@converts("aten.convolution.default")
def _convolution(
    graph: OnnxGraph,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> str:
    attributes: dict[str, Any] = {
        "kernel_shape": list(weight.shape[2:]),
        "strides": list(stride),
        "pads": [*padding, *padding],
        "dilations": list(dilation),
        "group": groups,
    }
    if transposed:
        attributes["output_padding"] = list(output_padding)
    operator = "ConvTranspose" if transposed else "Conv"
    return graph.op(operator, x, weight, *([] if bias is None else [bias]), **attributes)


@converts("aten.max_pool2d_with_indices.default")
def _max_pool(
    graph: OnnxGraph,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> tuple[str, ...]:
    y, flat = graph.add(
        "MaxPool",
        x,
        outputs=2,
        kernel_shape=list(kernel),
        strides=list(stride or kernel),
        pads=[*padding, *padding],
        dilations=list(dilation),
        ceil_mode=int(ceil_mode),
    )
    # ONNX counts positions through the whole tensor, torch within each plane.
    batch, channels, rows, columns = x.shape
    starts = np.arange(batch * channels).reshape(batch, channels, 1, 1) * (rows * columns)
    return y, graph.op("Sub", flat, graph.constant(starts, np.int64))


@converts("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(
    graph: OnnxGraph,
    x: Value,
    weight: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> tuple[str, str, str]:
    """At inference: a scale and a shift per channel; nobody reads torch's two further results."""
    y = graph.op("BatchNormalization", x, weight, bias, mean, variance, epsilon=eps)
    return y, y, y
