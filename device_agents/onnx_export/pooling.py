"""Pooling and its gradients, in operations that an ONNX graph has; `decompositions` says why."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from device_agents.onnx_export.windows import WindowAxis, axes, fold, unfold, unsupported

if TYPE_CHECKING:
    from torch import Tensor


def max_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each output's gradient goes to the input that was the largest."""
    planes = x.shape[0] * x.shape[1]
    zeros = grad.new_zeros((planes, x.shape[2] * x.shape[3]))
    return zeros.scatter_add(1, indices.reshape(planes, -1), grad.reshape(planes, -1)).reshape(x.shape)


def average_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, padding counted."""
    rows, columns = _pooling_axes(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return reduce(add, unfold(x, rows, columns)) * (1 / (rows.kernel * columns.kernel))


def average_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Each output's gradient goes in equal parts to its window."""
    rows, columns = _pooling_axes(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    share = grad * (1 / (rows.kernel * columns.kernel))
    return fold([share] * (len(rows.taps) * len(columns.taps)), rows, columns)


def _pooling_axes(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> tuple[WindowAxis, WindowAxis]:
    if ceil_mode or divisor_override is not None or (any(padding) and not count_include_pad):
        raise unsupported("average pooling that counts other than the whole window")
    kernel, padding = _pair(kernel), _pair(padding)
    stride = _pair(stride) if stride else kernel
    out = [
        (size + 2 * p - k) // s + 1
        for size, k, s, p in zip(x.shape[2:], kernel, stride, padding, strict=True)
    ]
    return axes(x.shape[2:], out, kernel, stride, padding, (1, 1))


def adaptive_average_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean of as many windows as there are outputs; they overlap where the sizes do not divide."""
    import torch

    for dim, out in zip((2, 3), output_size, strict=True):
        windows = _adaptive_windows(x.shape[dim], out)
        x = torch.cat([x.narrow(dim, a, b - a).mean(dim, keepdim=True) for a, b in windows], dim)
    return x


def adaptive_average_pool_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Each output's gradient goes in equal parts to its window."""
    from torch.nn.functional import pad

    for dim in (3, 2):
        size = x.shape[dim]
        parts = []
        for i, (a, b) in enumerate(_adaptive_windows(size, grad.shape[dim])):
            shape = list(grad.shape)
            shape[dim] = b - a
            share = (grad.narrow(dim, i, 1) * (1 / (b - a))).expand(shape)
            parts.append(pad(share, [0, 0] * (3 - dim) + [a, size - b]))
        grad = reduce(add, parts)
    return grad


def _adaptive_windows(size: int, out: int) -> list[tuple[int, int]]:
    return [(i * size // out, -((-(i + 1) * size) // out)) for i in range(out)]


def _pair(values: Sequence[int]) -> Sequence[int]:
    return values if len(values) == 2 else [values[0], values[0]]
