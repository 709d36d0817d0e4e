"""Sliding windows as slices, and their transpose: what convolutions and pooling are made of.

ONNX has no im2col. For each tap of the kernel, one strided slice gives the input values that the tap meets; a
kernel of k taps is k slices. The transpose puts each tap's gradient back where its slice came from and adds.
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
