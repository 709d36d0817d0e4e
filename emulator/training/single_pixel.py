"""Convolutions whose output is a single pixel, as the linear layers that they are.

A 3x3 kernel on a 1x1 map, as in the last stage of ResNet-18 on 32x32 images, meets its one input with its
centre; the other eight taps meet padding. Their gradient is zero, so that they stay as they are. Leaving them
out saves 8/9 of what such a layer reads and writes: its weights, their gradient and its momentum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: TID253 - imported when a trainer is opened, never before
from torch import nn  # noqa: TID253

if TYPE_CHECKING:
    from torch import Tensor

Part = tuple[slice, slice, slice, slice]
"""Of a convolution's weights: all outputs and inputs, the rows and columns of the kernel that meet input."""


class SinglePixel(nn.Module):
    """A convolution with one output pixel for inputs of one size.

    Args:
        convolution: What it replaces; its bias is shared, its weights are copied.
        part: The taps that meet input.
        window: The input that they meet.
    """

    def __init__(self, convolution: nn.Conv2d, part: Part, window: tuple[slice, slice]) -> None:
        super().__init__()
        self.weight = nn.Parameter(convolution.weight.detach()[part].clone())
        self.bias = convolution.bias
        self._window = window

    def forward(self, x: Tensor) -> Tensor:
        """(batch, outputs, 1, 1)."""
        rows, columns = self._window
        inputs = x[:, :, rows, columns].flatten(1)
        return nn.functional.linear(inputs, self.weight.flatten(1), self.bias)[:, :, None, None]


def replace_single_pixels(model: nn.Module, x: Tensor) -> dict[str, Part]:
    """Replace those that an example batch meets; returns which part of each weight is left, by name."""
    sizes: dict[nn.Module, torch.Size] = {}
    convolutions = {name: m for name, m in model.named_modules() if type(m) is nn.Conv2d}
    hooks = [
        module.register_forward_pre_hook(lambda seen, inputs: sizes.update({seen: inputs[0].shape[2:]}))
        for module in convolutions.values()
    ]
    model.eval()  # no statistics, no draws
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    model.train()
    parts: dict[str, Part] = {}
    for name, module in convolutions.items():
        if module in sizes and module.groups == 1 and module.padding_mode == "zeros":
            found = [_axis(module, axis, sizes[module][axis]) for axis in (0, 1)]
            if found[0] and found[1]:
                (rows, window_rows), (columns, window_columns) = found[0], found[1]
                part = (slice(None), slice(None), rows, columns)
                parts[f"{name}.weight"] = part
                parent, _, child = name.rpartition(".")
                new = SinglePixel(module, part, (window_rows, window_columns))
                setattr(model.get_submodule(parent), child, new)
    return parts


def _axis(module: nn.Conv2d, axis: int, size: int) -> tuple[slice, slice] | None:
    """The taps that meet input along one axis, and the input they meet; None if there are more outputs."""
    padding = module.padding
    if isinstance(padding, str) or module.dilation[axis] != 1:
        return None
    kernel, before = module.kernel_size[axis], int(padding[axis])
    if (size + 2 * before - kernel) // module.stride[axis] != 0:
        return None
    first, last = max(0, before), min(kernel, size + before)
    return slice(first, last), slice(first - before, last - before)
