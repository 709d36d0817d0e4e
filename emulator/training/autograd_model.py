"""Local training of any model by torch's autograd. No loader; the shard is in memory as one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported when a trainer is opened, never before
from torch import nn  # noqa: TID253

from device_agents.workloads import MODELS, Generators, build, each_tensor, loss_of, metric_sums
from emulator.training.layout import Layout
from emulator.training.local import UNREPEATED, LocalModel
from emulator.training.single_pixel import Part, replace_single_pixels
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from device_agents.workloads import Task
    from emulator.training.local import Draws


_BLOCK = 2**16
"""Elements of a parameter that are updated at once: with gradient and momentum they fit a cache."""


class AutogradModel(LocalModel):
    """SGD with momentum on the modules as they are, but for convolutions of our own that are a product.

    Args:
        task: What is trained, and how.
        bfloat16: Products of a training step in this precision (torch's autocast), about three digits;
            weights, momentum, losses and scoring stay in float32.
    """

    def __init__(self, task: Task, *, bfloat16: bool = False) -> None:
        self.task = task
        self._bfloat16 = bfloat16
        with Generators().kept():
            self._model = build(task)
        self.layout = Layout.of(self._model)
        self._generators = Generators(self._model)
        self._known = task.code is None and task.model in MODELS  # ours draw from nothing that has no seed
        self._loss = loss_of(task)
        # Where it wins: a step of ShuffleNet v2, which has grouped convolutions, takes 1/1.3 of the CPU time;
        # one of ResNet-18 or VGG-16 takes 1.1 times as much.
        self._channels_last = any(isinstance(m, nn.Conv2d) and m.groups > 1 for m in self._model.modules())
        parts: dict[str, Part] = {}
        if self._channels_last:
            self._model = self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        elif self._known and not task.vocabulary:  # somebody else's may change its sizes, or read its weights
            parts = replace_single_pixels(self._model, torch.zeros(1, *task.input_shape))
        self._parts = [parts.get(place.name) for place in self.layout.parameters]
        self._parameters = list(self._model.parameters())
        self._values = [parameter.detach() for parameter in self._parameters]
        buffers = dict(self._model.named_buffers())
        self._buffers = [buffers[place.name] for place in self.layout.buffers]
        self._velocity = [torch.zeros_like(value) for value in self._values]
        self._anchor: list[Tensor] = []
        self._proximal_mu = 0.0
        self._loaded = torch.zeros(self.layout.trainable if parts else 0)

    def load(self, weights: NDArray[np.float32], velocity: NDArray[np.float32] | None) -> None:
        """See `LocalModel`."""
        self._loaded.copy_(torch.from_numpy(weights[: len(self._loaded)]))
        self._copy_in(weights, self._values)
        _copy_in_buffers(weights[self.layout.trainable :], self._buffers)
        if velocity is None:
            for piece in self._velocity:
                piece.zero_()
        else:
            self._copy_in(velocity, self._velocity)

    def store(self, weights: NDArray[np.float32], velocity: NDArray[np.float32]) -> None:
        """See `LocalModel`."""
        weights[: len(self._loaded)] = self._loaded.numpy()  # also what is not trained
        if len(self._loaded):
            velocity[:] = 0
        for row, tensors in ((weights, self._values), (velocity, self._velocity)):
            for piece, tensor in zip(self._pieces(row), tensors, strict=True):
                piece.copy_(tensor)
        _copy_out(self._buffers, weights[self.layout.trainable :])

    def anchor(self, weights: NDArray[np.float32], proximal_mu: float) -> None:
        """See `LocalModel`."""
        self._proximal_mu = proximal_mu
        if proximal_mu:
            self._anchor = [torch.empty_like(value) for value in self._values]
            self._copy_in(weights, self._anchor)

    def _copy_in(self, row: NDArray[np.float32], tensors: list[Tensor]) -> None:
        for piece, tensor in zip(self._pieces(row), tensors, strict=True):
            tensor.copy_(piece)

    def _pieces(self, row: NDArray[np.float32]) -> Iterator[Tensor]:
        """What is trained of each parameter, inside a row."""
        whole = torch.from_numpy(row)
        for place, part in zip(self.layout.parameters, self._parts, strict=True):
            piece = whole[place.span].view(place.shape)
            yield piece if part is None else piece[part]

    def take(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """See `LocalModel`."""
        self._x, self._y = self._tensor(x), torch.from_numpy(y)

    def epoch(self, order: NDArray[np.int64], sizes: list[int], draws: Draws) -> NDArray[np.float32]:
        """See `LocalModel`."""
        self._model.train()
        indices = torch.from_numpy(order)
        losses = torch.empty(sum(sizes))
        start = 0
        if not self._known:
            first = indices[: sizes[0]]
            self._check_repeats(self._x[first], self._y[first], draws(0))
        for number, size in enumerate(sizes):
            self._generators.seed(draws(number))
            batch = indices[start : start + size]
            losses[start : start + size] = self._step(self._x[batch], self._y[batch])
            start += size
        return losses.numpy()

    def score(
        self, x: NDArray[Any], y: NDArray[Any], entropy: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """See `LocalModel`."""
        self._model.eval()
        self._generators.seed(entropy)  # some draw in this mode, too
        labels = torch.from_numpy(y)
        with torch.inference_mode():
            output = self._model(self._tensor(x))
            losses = self._loss(output, labels)
            return losses.numpy(), metric_sums(self.task, output, labels, losses).numpy()

    def _check_repeats(self, x: Tensor, y: Tensor, entropy: int) -> None:
        """Once in the life of a process: the same step gives the same numbers, or nothing here could.

        Raises:
            ConfigError: The model draws from what no seed reaches.
        """
        buffers = [buffer.clone() for buffer in self._buffers]
        found = []
        for _ in range(2):
            self._generators.seed(entropy)
            with torch.no_grad():
                found.append(self._loss(self._model(x), y).nan_to_num())
                for buffer, before in zip(self._buffers, buffers, strict=True):
                    buffer.copy_(before)
        if not torch.equal(*found):
            raise ConfigError(
                f"task {self.task.name!r}: its model gives other numbers for the same batch and seeds",
                hint=UNREPEATED,
            )
        self._known = True

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            output = self._model(x)
        if self._bfloat16:
            output = each_tensor(output, _in_float32)
        losses = self._loss(output, y)
        gradients = torch.autograd.grad(losses.mean(), self._parameters)
        with torch.no_grad():
            for number, gradient in enumerate(gradients):
                self._descend(number, gradient)
        return losses.detach()

    def _descend(self, number: int, gradient: Tensor) -> None:
        """One parameter, block by block: what ``torch.optim.SGD`` computes, to the bit, in one pass."""
        tensors = [self._values[number], self._velocity[number], gradient]
        if self._proximal_mu:
            tensors.append(self._anchor[number])
        blocks: Iterable[Sequence[Tensor]] = [tensors]
        if gradient.numel() > _BLOCK and all(tensor.is_contiguous() for tensor in tensors):
            blocks = zip(*(torch.split(tensor.view(-1), _BLOCK) for tensor in tensors), strict=True)
        for value, velocity, slope, *anchor in blocks:
            for centre in anchor:
                slope.add_(value, alpha=self._proximal_mu).add_(centre, alpha=-self._proximal_mu)
            velocity.mul_(self.task.momentum).add_(slope)
            value.add_(velocity, alpha=-self.task.learning_rate)

    def _tensor(self, x: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(x)
        return tensor.contiguous(memory_format=torch.channels_last) if self._channels_last else tensor


def _in_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _copy_in_buffers(row: NDArray[np.float32], tensors: list[Tensor]) -> None:
    source = torch.from_numpy(row)
    start = 0
    for tensor in tensors:
        piece = source[start : start + tensor.numel()].view(tensor.shape)
        # A count that was averaged is off by rounding, and a cast to int would cut it.
        tensor.copy_(piece if tensor.is_floating_point() else piece.round())
        start += tensor.numel()


def _copy_out(tensors: list[Tensor], row: NDArray[np.float32]) -> None:
    target = torch.from_numpy(row)
    start = 0
    for tensor in tensors:
        target[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
        start += tensor.numel()
