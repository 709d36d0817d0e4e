"""Converters of what goes number by number, of sums and of matrix products; see `ops` for what one is.

Of aten's operators, and of the primitives (``prims``) that torch's own decompositions end in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from device_agents.onnx_export.graph import OnnxGraph, Value

Converter = Callable[..., str | tuple[str, ...]]
Operand = Value | float


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy type of a torch type."""
    return np.dtype(str(dtype).removeprefix("torch."))


def same_rank(graph: OnnxGraph, *operands: Operand) -> list[str]:
    """The operands as tensors of one rank.

    ONNX would broadcast by itself, but onnxruntime then goes value by value through a tensor whose last
    dimensions are 1 (every 1x1 convolution's weight): 1331 against 16 us on (512, 256, 1, 1) times a scalar.
    """
    tensors = [operand for operand in operands if isinstance(operand, Value)]
    numbers = [tensor.dtype for tensor in tensors if tensor.dtype != np.bool_] or [tensors[0].dtype]
    rank = max(len(tensor.shape) for tensor in tensors)
    names = []
    for operand in operands:
        if not isinstance(operand, Value):
            names.append(graph.constant(np.full((1,) * rank, operand), numbers[0]))
        elif len(operand.shape) == rank:
            names.append(operand.name)
        else:
            shape = (1,) * (rank - len(operand.shape)) + operand.shape
            names.append(graph.op("Reshape", operand, graph.ints(shape)))
    return names


def cast(graph: OnnxGraph, x: Value, dtype: Any) -> str:
    """In another type of number."""
    from onnx import helper

    wanted = numpy_dtype(dtype)
    if wanted == x.dtype:
        return x.name
    return graph.op("Cast", x, to=int(helper.np_dtype_to_tensor_dtype(wanted)))


def _elementwise(operator: str) -> Converter:
    return lambda graph, x: graph.op(operator, x)


def _arithmetic(operator: str) -> Converter:
    return lambda graph, a, b: graph.op(operator, *same_rank(graph, a, b))


def _of_numbers(operator: str) -> Converter:
    """Arithmetic of two types, which torch has and ONNX has not: truth values, whole numbers, numbers."""

    def convert(graph: OnnxGraph, a: Operand, b: Operand) -> str:
        types = [operand.dtype for operand in (a, b) if isinstance(operand, Value)]
        widest = max(types, key=lambda dtype: ("biuf".index(dtype.kind), dtype.itemsize))
        return graph.op(operator, *same_rank(graph, *(_number(graph, operand, widest) for operand in (a, b))))

    return convert


def _number(graph: OnnxGraph, operand: Operand, dtype: np.dtype[Any]) -> Operand:
    if not isinstance(operand, Value):
        return operand
    return Value(cast(graph, operand, dtype), operand.shape, dtype)


def _unequal(graph: OnnxGraph, a: Operand, b: Operand) -> str:
    return graph.op("Not", graph.op("Equal", *same_rank(graph, a, b)))


def _expm1(graph: OnnxGraph, x: Value) -> str:
    """``exp(x) - 1`` as tanh(x / 2) (exp(x) + 1), which loses nothing near zero."""
    half, one = (graph.constant(value, x.dtype) for value in (0.5, 1.0))
    return graph.op(
        "Mul", graph.op("Tanh", graph.op("Mul", x, half)), graph.op("Add", graph.op("Exp", x), one)
    )


def _log1p(graph: OnnxGraph, x: Value) -> str:
    """``log(1 + x)`` with what the sum lost to rounding put back, in first order."""
    one = graph.constant(1.0, x.dtype)
    total = graph.op("Add", x, one)
    lost = graph.op("Sub", graph.op("Sub", total, one), x)
    return graph.op("Sub", graph.op("Log", total), graph.op("Div", lost, total))


def _reduction(operator: str) -> Converter:
    def convert(graph: OnnxGraph, x: Value, dims: Sequence[int], keep: bool = False, **_: Any) -> str:
        counted = cast(graph, x, np.dtype(np.int64)) if x.dtype == np.bool_ else x.name
        return graph.op(operator, counted, graph.ints(dims), keepdims=int(keep))

    return convert


def _maximum(graph: OnnxGraph, x: Value, dims: Sequence[int] = (), keep: bool = False) -> str:
    return graph.op("ReduceMax", x, graph.ints(dims or range(len(x.shape))), keepdims=int(keep))


def _variance(graph: OnnxGraph, x: Value, dims: Sequence[int], correction: float = 1.0, **_: Any) -> str:
    axes = graph.ints(dims)
    centred = graph.op("Sub", x, graph.op("ReduceMean", x, axes, keepdims=1))
    mean = graph.op("ReduceMean", graph.op("Mul", centred, centred), axes, keepdims=0)
    count = prod(x.shape[dim] for dim in dims)
    return graph.op("Mul", mean, graph.constant(count / (count - correction), x.dtype))


_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
_COMPARISONS = {"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"}
_UNARY = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
    "abs": "Abs",
    "sgn": "Sign",
    "sign": "Sign",
}
_PRIMITIVES: dict[str, Converter] = {
    **{name: _of_numbers(operator) for name, operator in _BINARY.items()},
    **{name: _arithmetic(operator) for name, operator in _COMPARISONS.items()},
    **{name: _elementwise(operator) for name, operator in _UNARY.items()},
    "ne": _unequal,
    "minimum": _arithmetic("Min"),
    "maximum": _arithmetic("Max"),
    "pow": _arithmetic("Pow"),
    "erf": _elementwise("Erf"),
    "sin": _elementwise("Sin"),
    "cos": _elementwise("Cos"),
    "floor": _elementwise("Floor"),
    "rsqrt": lambda graph, x: graph.op("Reciprocal", graph.op("Sqrt", x)),
    "expm1": _expm1,
    "log1p": _log1p,
    # Of truth values; torch has one name for these and for bits of whole numbers, which no model trains on.
    "bitwise_and": _arithmetic("And"),
    "bitwise_or": _arithmetic("Or"),
    "bitwise_not": _elementwise("Not"),
    "where": lambda graph, *operands: graph.op("Where", *same_rank(graph, *operands)),
    "sum": _reduction("ReduceSum"),
    "amax": _maximum,
    "var": _variance,
    "convert_element_type": cast,
}


ARITHMETIC: dict[str, Converter] = {
    **{f"prims.{name}.default": converter for name, converter in _PRIMITIVES.items()},
    **{f"aten.{name}.default": _elementwise(operator) for name, operator in _UNARY.items()},
    **{f"aten.{name}.Tensor": _of_numbers(operator) for name, operator in _BINARY.items()},
    **{f"aten.{name}.Scalar": _arithmetic(operator) for name, operator in (("mul", "Mul"), ("div", "Div"))},
    "aten.gt.Scalar": _arithmetic("Greater"),
    "aten.pow.Tensor_Scalar": _arithmetic("Pow"),
    "aten.rsub.Scalar": lambda graph, a, b: graph.op("Sub", *same_rank(graph, b, a)),
    "aten.where.self": _PRIMITIVES["where"],
    "aten.sum.dim_IntList": _reduction("ReduceSum"),
    "aten.mean.dim": _reduction("ReduceMean"),
    "aten.mean.default": lambda graph, x: graph.op("ReduceMean", x, keepdims=0),
    "aten._log_softmax.default": lambda graph, x, dim, _: graph.op("LogSoftmax", x, axis=dim),
    # Matrix products
    "aten.mm.default": _arithmetic("MatMul"),
    "aten.bmm.default": _arithmetic("MatMul"),
    "aten.addmm.default": lambda graph, bias, a, b: graph.op("Gemm", a, b, bias),
}
"""By the name of the operator."""
