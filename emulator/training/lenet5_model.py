"""LeNet-5's training step written out by hand: the same arithmetic as autograd's in a third of the time.

A convolution followed by 2x2 pooling is one matrix product: each pooled pixel sees a 6x6 patch of its input,
and the four windows inside it are four shifted copies of the 5x5 kernel in a 6x6 frame of zeros. The product
does 36/25 of the multiplications, but its right-hand side is 2.8 times smaller than that of the usual im2col,
the four values to be pooled come out in four contiguous blocks, and all of it runs at the speed of a large
matrix product. Bias and ReLU come after the pooling: the same values, on a quarter of the elements.

Memory order everywhere: features first, samples last, so that every copy moves whole runs. The 14x14 map
between the convolutions is kept as 2x2 interleaved maps of 7x7, which makes the second layer's patches, at a
stride of two, runs of five pixels times all samples.

All tensors of a batch size are made once; a step allocates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported when a trainer is opened, never before

from device_agents.workloads import Generators, build
from emulator.training.layout import Layout
from emulator.training.local import LocalModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from device_agents.workloads import Task
    from emulator.training.local import Draws

_INPUT_SHAPE = (1, 28, 28)
_PADDED = 32  # 28 pixels and two zeros on either side
_POOLED1, _POOLED2 = 14, 5
_CHANNELS1, _CHANNELS2 = 6, 16
_PATCH = 6  # rows and columns of its input that a pooled pixel sees
_TAPS1 = _PATCH * _PATCH
_TAPS2 = _CHANNELS1 * _TAPS1
_WINDOWS = 4


def fits(task: Task) -> bool:
    """Whether the task is the one this file computes."""
    return (
        task.code is None and task.model == "lenet5" and task.input_shape == _INPUT_SHAPE and not task.options
    )


class LeNet5Model(LocalModel):
    """See `LocalModel` and the text above.

    Args:
        task: One that `fits`.
        dtype: float64 is for checking the formulas.
    """

    scoring_batch = 100

    def __init__(self, task: Task, dtype: torch.dtype = torch.float32) -> None:
        self.task = task
        with Generators().kept():
            self.layout = Layout.of(build(task))
        with torch.inference_mode():
            self._weights = torch.zeros(self.layout.size, dtype=dtype)
            self._gradient = torch.zeros_like(self._weights)
            self._velocity = torch.zeros_like(self._weights)
            self._anchor = torch.zeros_like(self._weights)
            self._w = _views(self._weights, self.layout)
            self._dw = _views(self._gradient, self.layout)
            self._conv1 = _PooledConvolution(self._w, self._dw, "conv1", _TAPS1)
            self._conv2 = _PooledConvolution(self._w, self._dw, "conv2", _TAPS2)
        self._batches: dict[int, _Batch] = {}
        self._proximal_mu = 0.0

    def load(self, weights: NDArray[np.float32], velocity: NDArray[np.float32] | None) -> None:
        """See `LocalModel`."""
        with torch.inference_mode():
            self._weights.copy_(torch.from_numpy(weights))
            if velocity is None:
                self._velocity.zero_()
            else:
                self._velocity.copy_(torch.from_numpy(velocity))

    def store(self, weights: NDArray[np.float32], velocity: NDArray[np.float32]) -> None:
        """See `LocalModel`."""
        torch.from_numpy(weights).copy_(self._weights)
        torch.from_numpy(velocity).copy_(self._velocity)

    def anchor(self, weights: NDArray[np.float32], proximal_mu: float) -> None:
        """See `LocalModel`."""
        self._proximal_mu = proximal_mu
        with torch.inference_mode():
            self._anchor.copy_(torch.from_numpy(weights))

    def take(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """See `LocalModel`."""
        with torch.inference_mode():
            self._x, self._y = self._columns(x), torch.from_numpy(y)

    def epoch(self, order: NDArray[np.int64], sizes: list[int], draws: Draws) -> NDArray[np.float32]:
        """See `LocalModel`; nothing is drawn here."""
        with torch.inference_mode():
            indices = torch.from_numpy(order)
            x, y = self._x.index_select(1, indices), self._y[indices]
            losses = torch.empty(sum(sizes), dtype=self._weights.dtype)
            start = 0
            for size in sizes:
                batch = self._batch(size)
                labels = y[start : start + size].unsqueeze(0)
                logits = self._forward(batch, x, start)
                losses[start : start + size] = self._backward(batch, logits, labels)
                self._descend()
                start += size
            return losses.numpy()

    def score(
        self, x: NDArray[Any], y: NDArray[Any], entropy: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """See `LocalModel`."""
        with torch.inference_mode():
            labels = torch.from_numpy(y)
            # Always the same shape: tensors are kept for every batch size that occurs.
            columns = torch.nn.functional.pad(self._columns(x), (0, self.scoring_batch - len(y)))
            logits = self._forward(self._batch(self.scoring_batch), columns, 0)[:, : len(y)]
            right = (logits.argmax(0) == labels).sum().double().reshape(1)
            losses = -logits.log_softmax(0).gather(0, labels.unsqueeze(0)).squeeze(0)
            return losses.numpy(), right.numpy()

    def _columns(self, x: NDArray[Any]) -> Tensor:
        """Padded images, one column each."""
        images = torch.from_numpy(x).to(self._weights.dtype)
        padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
        return padded.view(len(x), _PADDED * _PADDED).t().contiguous()

    def _batch(self, size: int) -> _Batch:
        if size not in self._batches:
            self._batches[size] = _Batch(size, self.task.classes, self._weights.dtype)
        return self._batches[size]

    def _forward(self, batch: _Batch, x: Tensor, start: int) -> Tensor:
        """Logits (classes, samples) of the columns of ``x`` (pixels, samples) from ``start`` on."""
        w = self._w
        batch.take_images(x, start)
        self._conv1.forward(batch.layer1)
        batch.take_map()
        self._conv2.forward(batch.layer2)
        torch.addmm(w["fc1.bias"].unsqueeze(1), w["fc1.weight"], batch.features, out=batch.hidden1)
        batch.hidden1.clamp_min_(0)
        torch.addmm(w["fc2.bias"].unsqueeze(1), w["fc2.weight"], batch.hidden1, out=batch.hidden2)
        batch.hidden2.clamp_min_(0)
        return torch.addmm(w["fc3.bias"].unsqueeze(1), w["fc3.weight"], batch.hidden2, out=batch.logits)

    def _backward(self, batch: _Batch, logits: Tensor, labels: Tensor) -> Tensor:
        """The whole gradient of the mean loss; returns the samples' losses."""
        log_p = torch.log_softmax(logits, 0)
        losses = log_p.gather(0, labels).neg_().squeeze(0)
        error = log_p.exp_().scatter_add_(0, labels, batch.minus_one).mul_(1 / batch.size)
        self._linear_back("fc3", error, batch.hidden2, batch.hidden2_gradient)
        _mask(batch.hidden2_gradient, batch.hidden2)
        self._linear_back("fc2", batch.hidden2_gradient, batch.hidden1, batch.hidden1_gradient)
        _mask(batch.hidden1_gradient, batch.hidden1)
        self._linear_back("fc1", batch.hidden1_gradient, batch.features, batch.layer2.pooled_gradient)
        self._conv2.backward(batch.layer2)
        batch.return_map(self._conv2.matrix)
        self._conv1.backward(batch.layer1)
        return losses

    def _linear_back(self, name: str, output: Tensor, inputs: Tensor, input_gradient: Tensor) -> None:
        torch.mm(output, inputs.t(), out=self._dw[f"{name}.weight"])
        torch.sum(output, 1, out=self._dw[f"{name}.bias"])
        torch.mm(self._w[f"{name}.weight"].t(), output, out=input_gradient.view(inputs.shape))

    def _descend(self) -> None:
        if self._proximal_mu:
            self._gradient.add_(self._weights, alpha=self._proximal_mu)
            self._gradient.sub_(self._anchor, alpha=self._proximal_mu)
        self._velocity.mul_(self.task.momentum).add_(self._gradient)
        self._weights.add_(self._velocity, alpha=-self.task.learning_rate)


class _PooledConvolution:
    """A 5x5 convolution and its 2x2 max pooling and ReLU as one matrix product."""

    def __init__(self, w: dict[str, Tensor], dw: dict[str, Tensor], name: str, taps: int) -> None:
        self._weight, self._bias = w[f"{name}.weight"], w[f"{name}.bias"]
        self._weight_gradient, self._bias_gradient = dw[f"{name}.weight"], dw[f"{name}.bias"]
        outputs = len(self._bias)
        self.matrix = self._weight.new_zeros(_WINDOWS * outputs, taps)
        self._gradient = torch.zeros_like(self.matrix)
        self._kernels = _shifted(self.matrix, outputs)
        self._kernel_gradients = [piece for column in _shifted(self._gradient, outputs) for piece in column]

    def forward(self, layer: _Layer) -> None:
        """From the layer's patches to its pooled map."""
        self._kernels.copy_(self._weight.expand_as(self._kernels))
        torch.mm(self.matrix, layer.patches, out=layer.windows)
        left, right = layer.columns
        torch.maximum(left, right, out=layer.row_maxima)
        torch.sub(right, left, out=layer.right_wins)
        upper, lower = layer.row_maxima
        torch.maximum(upper, lower, out=layer.pooled)
        torch.sub(lower, upper, out=layer.lower_wins)
        layer.channels.add_(self._bias.unsqueeze(1)).clamp_min_(0)

    def backward(self, layer: _Layer) -> None:
        """From the gradient of the pooled map to those of kernel, bias and windows.

        Of equal values the first one wins, in the order in which torch looks at them.
        """
        _mask(layer.pooled_gradient, layer.pooled)
        upper, lower = layer.row_gradients
        torch.ops.aten.threshold_backward.grad_input(
            layer.pooled_gradient, layer.lower_wins, 0, grad_input=lower
        )
        torch.sub(layer.pooled_gradient, lower, out=upper)
        left, right = layer.column_gradients
        torch.ops.aten.threshold_backward.grad_input(
            layer.row_gradients, layer.right_wins, 0, grad_input=right
        )
        torch.sub(layer.row_gradients, right, out=left)
        torch.mm(layer.window_gradients, layer.patches.t(), out=self._gradient)
        first, second, third, fourth = self._kernel_gradients
        torch.add(first, second, out=self._weight_gradient).add_(third).add_(fourth)
        torch.sum(layer.channel_gradients, 1, out=self._bias_gradient)


class _Layer:
    """The tensors of one pooled convolution for one batch size; ``pixels`` counts pooled pixels."""

    def __init__(self, taps: int, outputs: int, pixels: int, dtype: torch.dtype) -> None:
        self.patches = torch.empty(taps, pixels, dtype=dtype)
        self.windows = torch.empty(_WINDOWS * outputs, pixels, dtype=dtype)
        self.columns = self.windows.view(2, 2, outputs * pixels)
        self.row_maxima = torch.empty(2, outputs * pixels, dtype=dtype)
        self.right_wins = torch.empty_like(self.row_maxima)
        self.lower_wins = torch.empty(outputs * pixels, dtype=dtype)
        self.pooled = torch.empty_like(self.lower_wins)
        self.channels = self.pooled.view(outputs, pixels)
        self.pooled_gradient = torch.empty_like(self.lower_wins)
        self.channel_gradients = self.pooled_gradient.view(outputs, pixels)
        self.row_gradients = torch.empty_like(self.row_maxima)
        self.window_gradients = torch.empty_like(self.windows)
        self.column_gradients = self.window_gradients.view(2, 2, outputs * pixels)


class _Batch:
    """All tensors of one batch size, and the copies between the layers."""

    def __init__(self, size: int, classes: int, dtype: torch.dtype) -> None:
        self.size = size
        self.layer1 = _Layer(_TAPS1, _CHANNELS1, _POOLED1**2 * size, dtype)
        self.layer2 = _Layer(_TAPS2, _CHANNELS2, _POOLED2**2 * size, dtype)
        self.features = self.layer2.pooled.view(-1, size)
        self.hidden1, self.hidden2, self.logits = (
            torch.empty(width, size, dtype=dtype) for width in (120, 84, classes)
        )
        self.hidden1_gradient, self.hidden2_gradient = (
            torch.empty_like(self.hidden1),
            torch.empty_like(self.hidden2),
        )
        self.minus_one = torch.full((1, size), -1.0, dtype=dtype)
        self._patches1 = self.layer1.patches.view(6, 6, 2, 2, 7, 7, size)
        self._patches2 = self.layer2.patches.view(6, 3, 2, 3, 2, 5, 5, size)
        # The pooled map (channel, row parity, column parity, 7, 7, sample) as patches: row 2a + parity + 2y.
        channel, parity = 4 * 49 * size, 49 * size
        strides = (channel, 7 * size, 2 * parity, size, parity, 7 * size, size, 1)
        self._map_patches = self.layer1.pooled.as_strided(self._patches2.shape, strides)
        self._map_gradient = self.layer1.pooled_gradient.view(6, 2, 2, 7, 7, size)
        self._patch_gradients = torch.empty(_TAPS2, 25 * size, dtype=dtype)
        pieces = self._patch_gradients.view(6, 3, 2, 3, 2, 5, 5, size)
        self._returns = [
            (self._map_gradient[:, :, :, a : a + 5, b : b + 5], pieces[:, a, :, b])
            for a in range(3)
            for b in range(3)
        ]

    def take_images(self, x: Tensor, start: int) -> None:
        """Patches of the first layer from images (pixels, samples): row 4u + 2 parity + i, columns alike."""
        n = x.shape[1]
        row = _PADDED * n
        strides = (row, n, 2 * row, 2 * n, 4 * row, 4 * n, 1)
        self._patches1.copy_(x.as_strided(self._patches1.shape, strides, start))

    def take_map(self) -> None:
        """Patches of the second layer from the first one's pooled map."""
        self._patches2.copy_(self._map_patches)

    def return_map(self, matrix: Tensor) -> None:
        """The gradient of the first layer's pooled map from that of the second one's windows."""
        torch.mm(matrix.t(), self.layer2.window_gradients, out=self._patch_gradients)
        self._map_gradient.zero_()
        for target, piece in self._returns:
            target.add_(piece)


def _views(row: Tensor, layout: Layout) -> dict[str, Tensor]:
    return {place.name: row[place.span].view(place.shape) for place in layout.parameters}


def _shifted(matrix: Tensor, outputs: int) -> Tensor:
    """The kernels inside the matrix: (window column, window row, output, input, 5, 5)."""
    width = matrix.shape[1]
    inputs = width // _TAPS1
    strides = (2 * outputs * width + 1, outputs * width + _PATCH, width, _TAPS1, _PATCH, 1)
    return matrix.as_strided((2, 2, outputs, inputs, 5, 5), strides)


def _mask(gradient: Tensor, activation: Tensor) -> None:
    """The gradient of a ReLU, in place."""
    torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)
