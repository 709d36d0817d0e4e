"""Sliding windows as slices, and their transpose: what convolutions and pooling are made of.

ONNX has no im2col. For each tap of the kernel, one strided slice gives the input values that the tap meets; a
kernel of k taps is k slices. The transpose puts each tap's gradient back where its slice came from and adds.
Pooling and its gradients follow; `decompositions` says why they are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """How a kernel slides along one axis.

    Attributes:
        size: Input length.
        out: Output length.
        kernel: Taps.
        stride: Step of the window.
        padding: Zeros on either side.
        dilation: Distance of neighbouring taps.
        every_tap: Keep also the taps that meet padding only.
    """

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    every_tap: bool = False

    def meets_input(self, tap: int) -> bool:
        """Whether any output reads a real value through this tap, not only padding."""
        first = tap * self.dilation - self.padding
        return any(0 <= first + step * self.stride < self.size for step in range(self.out))

    @property
    def taps(self) -> range:
        """The taps that matter: a 3x3 kernel padded by 1 on a 1x1 map is its centre."""
        useful = [tap for tap in range(self.kernel) if self.every_tap or self.meets_input(tap)]
        return range(useful[0], useful[-1] + 1) if useful else range(self.kernel)

    @property
    def span(self) -> int:
        """From the first to the last output's window start, in input positions."""
        return (self.out - 1) * self.stride + 1

    @property
    def before(self) -> int:
        """Zeros in front of the input that `taps` reach; negative if they skip some of it."""
        return self.padding - self.taps[0] * self.dilation

    @property
    def extent(self) -> int:
        """Length of the padded (or cropped) input that `taps` reach."""
        return self.span + (len(self.taps) - 1) * self.dilation

    @property
    def after(self) -> int:
        """Zeros behind the input, or negative."""
        return self.extent - self.size - self.before


def axes(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[WindowAxis, WindowAxis]:
    """Rows and columns of an image."""
    rows, columns = (
        WindowAxis(*values) for values in zip(size, out, kernel, stride, padding, dilation, strict=True)
    )
    return rows, columns


def unfold(x: Tensor, rows: WindowAxis, columns: WindowAxis) -> list[Tensor]:
    """The input values each tap meets, tap by tap in row-major order: (..., rows.out, columns.out) each."""
    x = _pad(x, (columns.before, columns.after, rows.before, rows.after))
    # Columns first: what is left for the rows is then contiguous, and a slice of rows is one large copy.
    strips = [x[..., _tap(columns, tap)] for tap in range(len(columns.taps))]
    return [strip[..., _tap(rows, tap), :] for tap in range(len(rows.taps)) for strip in strips]


def fold(parts: Sequence[Tensor], rows: WindowAxis, columns: WindowAxis) -> Tensor:
    """The transpose of `unfold`: every part added to where its values came from."""
    width = len(columns.taps)
    strips = []
    for i in range(len(rows.taps)):
        placed = [
            _pad(_spread(part, rows, columns), _around(columns, j))
            for j, part in enumerate(parts[i * width : (i + 1) * width])
        ]
        strips.append(_pad(reduce(add, placed), (0, 0, *_around(rows, i))))
    return _pad(reduce(add, strips), (-columns.before, -columns.after, -rows.before, -rows.after))


def _tap(axis: WindowAxis, tap: int) -> slice:
    start = tap * axis.dilation
    return slice(start, start + axis.span, axis.stride)


def _around(axis: WindowAxis, tap: int) -> tuple[int, int]:
    start = tap * axis.dilation
    return start, axis.extent - start - axis.span


def _spread(x: Tensor, rows: WindowAxis, columns: WindowAxis) -> Tensor:
    """Put ``stride - 1`` zeros between neighbours."""
    *leading, height, width = x.shape
    if (rows.span, columns.span) == (height, width):
        return x
    x = _pad(x.reshape(*leading, height, 1, width, 1), (0, columns.stride - 1, 0, 0, 0, rows.stride - 1))
    x = x.reshape(*leading, height * rows.stride, width * columns.stride)
    return x[..., : rows.span, : columns.span]


def _pad(x: Tensor, amounts: Sequence[int]) -> Tensor:
    """Zeros around the last dimensions, last one first; negative amounts crop."""
    from torch.nn.functional import pad

    return pad(x, list(amounts)) if any(amounts) else x


def unsupported(what: str) -> JoulefleetError:
    """The error for what has no form here."""
    return JoulefleetError(
        f"{what} cannot be exported", hint="write it in device_agents/onnx_export/decompositions.py"
    )


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
