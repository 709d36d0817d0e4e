"""Local training of any model by torch's autograd. No loader; the shard is in memory as one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported when a trainer is opened, never before
from torch import nn  # noqa: TID253

from device_agents.workloads import build, loss_of, metric_sums
from emulator.training.layout import Layout
from emulator.training.local import LocalModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from device_agents.workloads import Task


class AutogradModel(LocalModel):
    """SGD with momentum on the modules as they are."""

    def __init__(self, task: Task) -> None:
        self.task = task
        with torch.random.fork_rng(devices=[]):
            self._model = build(task)
        self.layout = Layout.of(self._model)
        self._loss = loss_of(task)
        # Where it wins: a step of ShuffleNet v2, which has grouped convolutions, takes 1/1.3 of the CPU time;
        # one of ResNet-18 or VGG-16 takes 1.1 times as much.
        self._channels_last = any(isinstance(m, nn.Conv2d) and m.groups > 1 for m in self._model.modules())
        if self._channels_last:
            self._model = self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parameters = list(self._model.parameters())
        self._values = [parameter.detach() for parameter in self._parameters]
        buffers = dict(self._model.named_buffers())
        self._buffers = [buffers[place.name] for place in self.layout.buffers]
        self._velocity = [torch.zeros_like(value) for value in self._values]
        self._anchor: list[Tensor] = []
        self._proximal_mu = 0.0

    def load(self, weights: NDArray[np.float32], velocity: NDArray[np.float32] | None) -> None:
        """See `LocalModel`."""
        _copy_in(weights, (*self._values, *self._buffers))
        if velocity is None:
            torch._foreach_zero_(self._velocity)
        else:
            _copy_in(velocity, self._velocity)

    def store(self, weights: NDArray[np.float32], velocity: NDArray[np.float32]) -> None:
        """See `LocalModel`."""
        _copy_out((*self._values, *self._buffers), weights)
        _copy_out(self._velocity, velocity)

    def anchor(self, weights: NDArray[np.float32], proximal_mu: float) -> None:
        """See `LocalModel`."""
        self._proximal_mu = proximal_mu
        if proximal_mu:
            self._anchor = [torch.empty_like(value) for value in self._values]
            _copy_in(weights, self._anchor)

    def take(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """See `LocalModel`."""
        self._x, self._y = self._tensor(x), torch.from_numpy(y)

    def epoch(self, order: NDArray[np.int64], sizes: list[int]) -> NDArray[np.float32]:
        """See `LocalModel`."""
        self._model.train()
        indices = torch.from_numpy(order)
        losses = torch.empty(sum(sizes))
        start = 0
        for size in sizes:
            batch = indices[start : start + size]
            losses[start : start + size] = self._step(self._x[batch], self._y[batch])
            start += size
        return losses.numpy()

    def score(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """See `LocalModel`."""
        self._model.eval()
        labels = torch.from_numpy(y)
        with torch.inference_mode():
            output = self._model(self._tensor(x))
            losses = self._loss(output, labels)
            return losses.numpy(), metric_sums(self.task, output, labels, losses).numpy()

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        losses = self._loss(self._model(x), y)
        gradients = torch.autograd.grad(losses.mean(), self._parameters)
        with torch.no_grad():
            if self._proximal_mu:
                torch._foreach_add_(gradients, self._values, alpha=self._proximal_mu)
                torch._foreach_add_(gradients, self._anchor, alpha=-self._proximal_mu)
            torch._foreach_mul_(self._velocity, self.task.momentum)
            torch._foreach_add_(self._velocity, gradients)
            torch._foreach_add_(self._values, self._velocity, alpha=-self.task.learning_rate)
        return losses.detach()

    def _tensor(self, x: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(x)
        return tensor.contiguous(memory_format=torch.channels_last) if self._channels_last else tensor


def _copy_in(row: NDArray[np.float32], tensors: list[Tensor] | tuple[Tensor, ...]) -> None:
    source = torch.from_numpy(row)
    start = 0
    for tensor in tensors:
        piece = source[start : start + tensor.numel()].view(tensor.shape)
        # A count that was averaged is off by rounding, and a cast to int would cut it.
        tensor.copy_(piece if tensor.is_floating_point() else piece.round())
        start += tensor.numel()


def _copy_out(tensors: list[Tensor] | tuple[Tensor, ...], row: NDArray[np.float32]) -> None:
    target = torch.from_numpy(row)
    start = 0
    for tensor in tensors:
        target[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
        start += tensor.numel()
