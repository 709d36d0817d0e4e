"""What torch's fused training kernels do, in operations that an ONNX graph has.

`torch.func.grad_and_value` leaves fused kernels in a trace: the backward of convolutions and pooling, batch
normalisation with its running statistics. Each is written out here as arithmetic, matrix products, slices and
convolutions; `table` hands them to ``make_fx``. The signatures are those of the aten operators.

Shapes: ``x`` (batch, channels, rows, columns), ``weight`` (outputs, inputs / groups, rows, columns).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from device_agents.onnx_export import windows
from device_agents.onnx_export.ops import CONVERTERS
from device_agents.onnx_export.windows import WindowAxis, axes, fold, unfold, unsupported

if TYPE_CHECKING:
    from torch import Tensor

# onnxruntime convolves image by image: with few outputs per image the weights are read again for hardly any
# work. One matrix product over the whole batch is faster for up to 2x2 outputs and slower from 4x4 on
# (measured on 3x3 kernels with 128 to 512 channels, batch 32).
_FEW_OUTPUTS = 4


def table() -> dict[Any, Callable[..., Any]]:
    """The replacements by operator, for ``make_fx(decomposition_table=...)``."""
    import torch
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    return {
        # torch's own, of whatever has no form here: GELU, layer normalisation, attention. Not of `where`: its
        # forms with scalars come down to the one that has one.
        **{
            operator: by
            for operator, by in decomposition_table.items()
            if str(operator) not in CONVERTERS and not str(operator).startswith("aten.where.")
        },
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten.native_batch_norm.default: batch_norm,
        aten.native_batch_norm_backward.default: batch_norm_backward,
        aten.max_pool2d_with_indices_backward.default: windows.max_pool_backward,
        aten.avg_pool2d.default: windows.average_pool,
        aten.avg_pool2d_backward.default: windows.average_pool_backward,
        aten._adaptive_avg_pool2d.default: windows.adaptive_average_pool,
        aten._adaptive_avg_pool2d_backward.default: windows.adaptive_average_pool_backward,
        aten._log_softmax_backward_data.default: log_softmax_backward,
        aten.threshold_backward.default: threshold_backward,
        aten.sigmoid_backward.default: sigmoid_backward,
        aten.tanh_backward.default: tanh_backward,
        aten.embedding_dense_backward.default: embedding_backward,
    }


# Convolutions


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """One matrix product over the whole batch, or ``NotImplemented`` where ONNX's own operator is better."""
    if x.dim() == 3:  # of a sequence: an image of one row
        wide = ([1, *stride], [0, *padding], [1, *dilation])
        x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        return _convolution(x, weight, bias, *wide, transposed, [0, *output_padding], groups).squeeze(2)
    if transposed or x.dim() != 4:
        return NotImplemented
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    if not _as_products(x, out, groups):
        return NotImplemented
    rows, columns = axes(x.shape[2:], out, weight.shape[2:], stride, padding, dilation)
    product = _useful(weight, rows, columns, groups).bmm(_columns(x, rows, columns, groups))
    y = product.reshape(weight.shape[0], x.shape[0], *out).transpose(0, 1)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the input, the weight and the bias.

    The weight's gradient is one product of the output's gradient with the unfolded input, over batch and
    positions at once; as a convolution it took 0.9 to 3.6 times as long in the layers that were timed.
    """
    if x.dim() == 3:
        wide = ([1, *stride], [0, *padding], [1, *dilation])
        grad, x, weight = grad.unsqueeze(2), x.unsqueeze(2), weight.unsqueeze(2)
        grad_x, grad_weight, grad_bias = convolution_backward(
            grad, x, weight, bias_sizes, *wide, transposed, [0, *output_padding], groups, output_mask
        )
        return _squeezed(grad_x), _squeezed(grad_weight), grad_bias
    if x.dim() != 4:
        raise unsupported("a convolution of more than two dimensions")
    if transposed:  # forward and backward have changed places
        rows, columns = axes(grad.shape[2:], x.shape[2:], weight.shape[2:], stride, padding, dilation)
        return (
            _convolution(grad, weight, None, stride, padding, dilation, False, [0, 0], groups)  # noqa: FBT003
            if output_mask[0]
            else None,
            _weight_gradient(x, grad, weight, rows, columns, groups) if output_mask[1] else None,
            grad.sum((0, 2, 3)) if output_mask[2] else None,
        )
    rows, columns = axes(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0] and _as_products(x, grad.shape[2:], groups):
        grad_x = _input_gradient_as_products(grad, x, weight, rows, columns, groups)
    elif output_mask[0]:
        grad_x = _input_gradient_as_convolution(grad, weight, rows, columns, groups)
    if output_mask[1]:
        grad_weight = _weight_gradient(grad, x, weight, rows, columns, groups)
    if output_mask[2]:
        grad_bias = grad.sum((0, 2, 3))
    return grad_x, grad_weight, grad_bias


def _squeezed(images: Tensor | None) -> Tensor | None:
    return None if images is None else images.squeeze(2)


def _as_products(x: Tensor, out: Sequence[int], groups: int) -> bool:
    """Whether a convolution becomes a product: for speed, or because ONNX's has no float64 in onnxruntime."""
    import torch

    return x.dtype == torch.float64 or (groups == 1 and out[0] * out[1] <= _FEW_OUTPUTS)


def _input_gradient_as_convolution(
    grad: Tensor, weight: Tensor, rows: WindowAxis, columns: WindowAxis, groups: int
) -> Tensor:
    pair = (rows, columns)
    # A strided window may leave some of the input's end unread; those positions get zeros.
    unread = [a.size + 2 * a.padding - a.span - a.dilation * (a.kernel - 1) for a in pair]
    stride, padding, dilation = (
        [getattr(a, name) for a in pair] for name in ("stride", "padding", "dilation")
    )
    return _convolution(grad, weight, None, stride, padding, dilation, True, unread, groups)  # noqa: FBT003


def _convolution(*arguments: Any) -> Tensor:
    """The operator itself, with the arguments of `convolution`; it may be decomposed in turn."""
    import torch

    found: Tensor = torch.ops.aten.convolution(*arguments)
    return found


def _input_gradient_as_products(
    grad: Tensor, x: Tensor, weight: Tensor, rows: WindowAxis, columns: WindowAxis, groups: int
) -> Tensor:
    batch, channels = x.shape[:2]
    product = _useful(weight, rows, columns, groups).transpose(1, 2).bmm(_by_group(grad, groups))
    parts = product.reshape(channels, -1, batch, rows.out, columns.out).unbind(1)
    return fold(parts, rows, columns).transpose(0, 1)


def _weight_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, rows: WindowAxis, columns: WindowAxis, groups: int
) -> Tensor:
    # With every tap the product has the weight's shape; padding a smaller one afterwards costs more.
    rows, columns = replace(rows, every_tap=True), replace(columns, every_tap=True)
    product = _by_group(grad, groups).bmm(_columns(x, rows, columns, groups).transpose(1, 2))
    return product.reshape(weight.shape)


def _columns(x: Tensor, rows: WindowAxis, columns: WindowAxis, groups: int) -> Tensor:
    """im2col: (groups, inputs / groups * taps, batch * outputs)."""
    import torch

    channels = x.shape[1]
    parts = [part.reshape(channels, -1) for part in unfold(x.transpose(0, 1), rows, columns)]
    return torch.stack(parts, 1).reshape(groups, channels // groups * len(parts), -1)


def _by_group(grad: Tensor, groups: int) -> Tensor:
    """The output's gradient as (groups, outputs / groups, batch * outputs)."""
    return grad.transpose(0, 1).reshape(groups, grad.shape[1] // groups, -1)


def _useful(weight: Tensor, rows: WindowAxis, columns: WindowAxis, groups: int) -> Tensor:
    """The taps that meet input, as (groups, outputs / groups, inputs / groups * taps)."""
    taps = weight[:, :, rows.taps.start : rows.taps.stop, columns.taps.start : columns.taps.stop]
    return taps.reshape(groups, weight.shape[0] // groups, -1)


# Batch normalisation, always with the statistics of the batch


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the batch's mean and inverse standard deviation; updates the running statistics.

    The batch is normalised with the plain variance, but the running variance takes the unbiased one (n - 1).
    """
    if not training:
        raise unsupported("batch normalisation without batch statistics")
    count = x.numel() // x.shape[1]
    mean = x.mean(_all_but_channels(x))
    centred = _per_channel(x, mean.new_ones(mean.shape), -mean)
    variance = (centred * centred).mean(_all_but_channels(x))
    inverse_std = (variance + eps).sqrt().reciprocal()
    scale = inverse_std if weight is None else inverse_std * weight
    y = _per_channel(centred, scale, mean.new_zeros(mean.shape) if bias is None else bias)
    # In place, as torch's kernel does it; the tracer gives later readers the new value.
    if running_mean is not None:
        running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
    if running_var is not None:
        running_var.copy_(running_var * (1 - momentum) + variance * (momentum * count / (count - 1)))
    return y, mean, inverse_std


def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    inverse_std: Tensor,
    training: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the input, the weight and the bias (Ioffe and Szegedy 2015, section 3)."""
    count = x.numel() // x.shape[1]
    normalised = _per_channel(x, inverse_std, -mean * inverse_std)
    grad_bias = grad.sum(_all_but_channels(x))
    grad_weight = (grad * normalised).sum(_all_but_channels(x))
    # The gradient without its mean and without its projection on the normalised input, scaled.
    scale = inverse_std if weight is None else inverse_std * weight
    share = -scale * (1 / count)
    grad_x = _per_channel(grad, scale, share * grad_bias) + _per_channel(
        normalised, share * grad_weight, grad_bias.new_zeros(grad_bias.shape)
    )
    return grad_x, grad_weight, grad_bias


def _per_channel(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``x * scale + shift`` with one number per channel, as one operator.

    It is batch normalisation with mean 0 and variance 1. As two broadcast operations it would visit the maps
    of deep layers, four values each, one at a time: 84 against 24 us on (32, 256, 2, 2).
    """
    import torch

    zeros, ones = scale.new_zeros(scale.shape), scale.new_ones(scale.shape)
    operator = torch.ops.aten._native_batch_norm_legit_no_training.default
    y: Tensor = operator(x, scale, shift, zeros, ones, 0.0, 0.0)[0]
    return y


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


# Activations, loss, embedding


def log_softmax_backward(grad: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """Of ``y = log_softmax(x)``."""
    return grad - y.exp() * grad.sum(dim, keepdim=True)


def threshold_backward(grad: Tensor, y: Tensor, threshold: float) -> Tensor:
    """Of ReLU; ``y`` is its output."""
    return grad.where(y > threshold, 0.0)


def sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    """Of ``y = sigmoid(x)``."""
    return grad * (y * (1 - y))


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    """Of ``y = tanh(x)``."""
    return grad * (1 - y * y)


def embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding_index: int, scale_grad_by_freq: bool
) -> Tensor:
    """Each occurrence adds to its row of the table."""
    if scale_grad_by_freq:
        raise unsupported("an embedding with frequency scaling")
    if padding_index >= 0:
        grad = grad.where((indices != padding_index).unsqueeze(-1), 0.0)
    width = grad.shape[-1]
    return grad.new_zeros((rows, width)).index_add(0, indices.reshape(-1), grad.reshape(-1, width))
