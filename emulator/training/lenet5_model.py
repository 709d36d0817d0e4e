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
_COLUMNS = 6  # of its input that a pooled pixel sees


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
            w, dw = _views(self._weights, self.layout), _views(self._gradient, self.layout)
            self._conv1, self._conv2 = (_PooledConvolution(w, dw, name) for name in ("conv1", "conv2"))
            self._fc1, self._fc2, self._fc3 = (_Linear(w, dw, name) for name in ("fc1", "fc2", "fc3"))
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
            self._x, self._y = torch.from_numpy(x).to(self._weights.dtype), torch.from_numpy(y)

    def epoch(self, order: NDArray[np.int64], sizes: list[int], draws: Draws) -> NDArray[np.float32]:
        """See `LocalModel`; nothing is drawn here."""
        with torch.inference_mode():
            indices = torch.from_numpy(order)
            y = self._y[indices]
            losses = torch.empty(sum(sizes), dtype=self._weights.dtype)
            start = 0
            for size in sizes:
                batch = self._batch(size)
                labels = y[start : start + size].unsqueeze(0)
                logits = self._forward(batch, self._x.index_select(0, indices[start : start + size]))
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
            images = torch.zeros(self.scoring_batch, *_INPUT_SHAPE, dtype=self._weights.dtype)
            images[: len(y)] = torch.from_numpy(x)
            logits = self._forward(self._batch(self.scoring_batch), images)[:, : len(y)]
            right = (logits.argmax(0) == labels).sum().double().reshape(1)
            losses = -logits.log_softmax(0).gather(0, labels.unsqueeze(0)).squeeze(0)
            return losses.numpy(), right.numpy()

    def _batch(self, size: int) -> _Batch:
        if size not in self._batches:
            self._batches[size] = _Batch(size, self.task.classes, self._weights.dtype)
        return self._batches[size]

    def _forward(self, batch: _Batch, images: Tensor) -> Tensor:
        """Logits (classes, samples)."""
        batch.take_images(images)
        self._conv1.forward(batch.layer1)
        batch.take_map()
        self._conv2.forward(batch.layer2)
        self._fc1.forward(batch.features, batch.hidden1).clamp_min_(0)
        self._fc2.forward(batch.hidden1, batch.hidden2).clamp_min_(0)
        return self._fc3.forward(batch.hidden2, batch.logits)

    def _backward(self, batch: _Batch, logits: Tensor, labels: Tensor) -> Tensor:
        """The whole gradient of the mean loss; returns the samples' losses."""
        log_p = torch.log_softmax(logits, 0)
        losses = log_p.gather(0, labels).neg_().squeeze(0)
        error = log_p.exp_().scatter_add_(0, labels, batch.minus_one).mul_(1 / batch.size)
        self._fc3.backward(error, batch.hidden2, batch.hidden2_gradient)
        _mask(batch.hidden2_gradient, batch.hidden2)
        self._fc2.backward(batch.hidden2_gradient, batch.hidden1, batch.hidden1_gradient)
        _mask(batch.hidden1_gradient, batch.hidden1)
        self._fc1.backward(batch.hidden1_gradient, batch.features, batch.features_gradient)
        self._conv2.backward(batch.layer2)
        batch.return_map(self._conv2.transposed)
        self._conv1.backward(batch.layer1)
        return losses

    def _descend(self) -> None:
        if self._proximal_mu:
            self._gradient.add_(self._weights, alpha=self._proximal_mu)
            self._gradient.sub_(self._anchor, alpha=self._proximal_mu)
        torch.add(self._gradient, self._velocity, alpha=self.task.momentum, out=self._velocity)
        self._weights.add_(self._velocity, alpha=-self.task.learning_rate)


class _Linear:
    """A linear layer of features by samples."""

    def __init__(self, w: dict[str, Tensor], dw: dict[str, Tensor], name: str) -> None:
        self._weight, self._bias = w[f"{name}.weight"], w[f"{name}.bias"].unsqueeze(1)
        self._transposed = self._weight.t()
        self._weight_gradient, self._bias_gradient = dw[f"{name}.weight"], dw[f"{name}.bias"]

    def forward(self, inputs: Tensor, output: Tensor) -> Tensor:
        return torch.addmm(self._bias, self._weight, inputs, out=output)

    def backward(self, gradient: Tensor, inputs: Tensor, input_gradient: Tensor) -> None:
        torch.mm(gradient, inputs.t(), out=self._weight_gradient)
        torch.sum(gradient, 1, out=self._bias_gradient)
        torch.mm(self._transposed, gradient, out=input_gradient)


class _PooledConvolution:
    """A 5x5 convolution and its 2x2 max pooling and ReLU, a matrix product for each row of windows."""

    def __init__(self, w: dict[str, Tensor], dw: dict[str, Tensor], name: str) -> None:
        self._weight, self._bias = w[f"{name}.weight"], w[f"{name}.bias"].unsqueeze(1)
        self._weight_gradient, self._bias_gradient = dw[f"{name}.weight"], dw[f"{name}.bias"]
        outputs, inputs, _, _ = self._weight.shape
        row = inputs * _COLUMNS
        taps = 6 * row
        matrix = self._weight.new_zeros(4 * outputs, taps)
        self.transposed = matrix.t()
        self._kernel = matrix[: 2 * outputs, : 5 * row]
        # (window row, window column, output, input, 5, 5)
        strides = (2 * outputs * taps + row, outputs * taps + 1, taps, _COLUMNS, row, 1)
        self._kernels = matrix.as_strided((2, 2, outputs, inputs, 5, 5), strides)
        # The product is faster whose rows are whole vectors of sixteen.
        shape = (5 * row, 2 * outputs)
        whole = 2 * outputs % 16 == 0
        self._gradient = self._weight.new_zeros(shape) if whole else self._weight.new_zeros(shape[::-1]).t()
        pieces = self._gradient.view(5, inputs, _COLUMNS, 2, outputs)
        self._left, self._right = (pieces[:, :, b : b + 5, b].permute(3, 1, 0, 2) for b in (0, 1))

    def forward(self, layer: _Layer) -> None:
        """From the layer's patches to its pooled map."""
        self._kernels.copy_(self._weight.expand_as(self._kernels))
        torch.bmm(self._kernel.expand(len(layer.seen), -1, -1), layer.seen, out=layer.windows)
        torch.maximum(layer.left, layer.right, out=layer.rows)
        layer.right.sub_(layer.left)
        torch.maximum(layer.upper, layer.lower, out=layer.pooled)
        layer.lower.sub_(layer.upper)
        layer.pooled.add_(self._bias).clamp_min_(0)

    def backward(self, layer: _Layer) -> None:
        """From the gradient of the pooled map to those of kernel, bias and windows.

        Of equal values the first one wins, in the order in which torch looks at them.
        """
        _mask(layer.gradient, layer.pooled)
        torch.sum(layer.gradient, (0, 2), out=self._bias_gradient)
        _divide(layer.gradient, layer.upper, layer.lower)
        _divide(layer.rows, layer.left, layer.right)
        torch.addbmm(self._gradient, layer.seen, layer.windows_t, beta=0, out=self._gradient)
        torch.add(self._left, self._right, out=self._weight_gradient)


class _Layer:
    """The tensors of one pooled convolution for one batch size.

    Gradients take the places of values that nobody needs any more, so that most of a step stays in the cache.

    Args:
        inputs: Channels.
        outputs: Channels.
        height: Rows of pooled pixels that share a patch.
        pixels: Patches, of all samples.
        dtype: Of the numbers.
    """

    def __init__(self, inputs: int, outputs: int, height: int, pixels: int, dtype: torch.dtype) -> None:
        row, channels = inputs * _COLUMNS, (outputs, pixels)
        self.patches = torch.empty((2 * height + 4) * row, pixels, dtype=dtype)
        # What each row of windows sees: five rows of the patch, which overlap.
        self.seen = self.patches.as_strided((2 * height, 5 * row, pixels), (row * pixels, pixels, 1))
        self.windows = torch.empty(2 * height, 2 * outputs, pixels, dtype=dtype)
        self.windows_t = self.windows.transpose(1, 2)
        self.left, self.right = self.windows.view(2 * height, 2, *channels).unbind(1)
        self.rows = torch.empty(2 * height, *channels, dtype=dtype)
        self.upper, self.lower = self.rows.view(height, 2, *channels).unbind(1)
        self.pooled = torch.empty(height, *channels, dtype=dtype)
        self.gradient = self.upper  # of the pooled map


class _Batch:
    """All tensors of one batch size, and the copies between the layers."""

    def __init__(self, size: int, classes: int, dtype: torch.dtype) -> None:
        self.size = size
        self.layer1 = _Layer(1, 6, 2, 7 * 14 * size, dtype)
        self.layer2 = _Layer(6, 16, 1, 5 * 5 * size, dtype)
        self.features, self.features_gradient = (
            t.view(-1, size) for t in (self.layer2.pooled, self.layer2.gradient)
        )
        self.hidden1, self.hidden2, self.logits = (
            torch.empty(width, size, dtype=dtype) for width in (120, 84, classes)
        )
        self.hidden1_gradient, self.hidden2_gradient = (
            torch.empty_like(self.hidden1),
            torch.empty_like(self.hidden2),
        )
        self.minus_one = torch.full((1, size), -1.0, dtype=dtype)
        self._images = torch.zeros(_PADDED, _PADDED, size, dtype=dtype)
        row = _PADDED * size
        # Rows 4y + i, columns 4x + 2 parity + j: (i, j, parity, y, x, sample)
        self._patches1 = self.layer1.patches.view(8, 6, 2, 7, 7, size)
        strides = (row, size, 2 * size, 4 * row, 4 * size, 1)
        self._image_patches = self._images.as_strided(self._patches1.shape, strides)
        # The pooled map is (row parity, channel, column parity, 7, 7, sample); rows 2 (a + y) + parity.
        self._patches2 = self.layer2.patches.view(3, 2, 6, 3, 2, 5, 5, size)
        self._map_patches = _map(self.layer1.pooled, size).unfold(3, 5, 1).unfold(4, 5, 1)
        self._map_patches = self._map_patches.permute(3, 0, 1, 4, 2, 6, 7, 5)
        self._map_gradient = _map(self.layer1.gradient, size)
        self._returns = [
            (self._map_gradient[:, :, :, a : a + 5, b : b + 5], self._patches2[a, :, :, b])
            for a in range(3)
            for b in range(3)
        ]

    def take_images(self, images: Tensor) -> None:
        """Patches of the first layer from images (sample, 1, 28, 28)."""
        self._images[2:30, 2:30].copy_(images[:, 0].permute(1, 2, 0))
        self._patches1.copy_(self._image_patches)

    def take_map(self) -> None:
        """Patches of the second layer from the first one's pooled map."""
        self._patches2.copy_(self._map_patches)

    def return_map(self, transposed: Tensor) -> None:
        """The gradient of the first layer's pooled map from that of the second one's windows."""
        torch.mm(transposed, self.layer2.windows.flatten(0, 1), out=self.layer2.patches)
        self._map_gradient.zero_()
        for target, piece in self._returns:
            target.add_(piece)


def _views(row: Tensor, layout: Layout) -> dict[str, Tensor]:
    return {place.name: row[place.span].view(place.shape) for place in layout.parameters}


def _map(pooled: Tensor, size: int) -> Tensor:
    """(row parity, channel, column parity, 7, 7, sample)."""
    return pooled.view(2, 6, 2, 7, 7, size)


def _mask(gradient: Tensor, activation: Tensor) -> None:
    """The gradient of a ReLU, in place."""
    torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)


def _divide(gradient: Tensor, first: Tensor, second: Tensor) -> None:
    """The gradient of a maximum: to ``second``, which says by how much it was more, or else to ``first``."""
    torch.ops.aten.threshold_backward.grad_input(gradient, second, 0, grad_input=second)
    torch.sub(gradient, second, out=first)
