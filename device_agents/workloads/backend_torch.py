"""Training with torch. The shard stays in memory as tensors; no loader, no workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - this module is torch's side of a choice; import it when that is made

from device_agents.workloads.losses import loss_of
from device_agents.workloads.models import build, load_state, state_arrays
from device_agents.workloads.random_operations import SEEDED, Generators
from device_agents.workloads.trainer import LocalTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from device_agents.workloads.tasks import Task


class TorchTrainer(LocalTrainer):
    """Plain SGD steps. How many threads torch uses is the process's choice (``torch.set_num_threads``).

    Args:
        task: What is trained, and how.
        state: The weights and buffers to start from; the momentum starts at zero.
        x: The shard's samples.
        y: Their labels.
        dtype: ``float32`` or ``float64``.
        seed: See `LocalTrainer`; torch's generator, numpy's and Python's are seeded for every step.
    """

    def __init__(
        self,
        task: Task,
        state: Mapping[str, NDArray[Any]],
        x: NDArray[Any],
        y: NDArray[Any],
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__(task, x, y, seed)
        number = {"float32": torch.float32, "float64": torch.float64}[dtype]
        self._model = build(task).to(number)
        self._generators = Generators(self._model)
        self._first = True
        load_state(self._model, state)
        self._x = torch.from_numpy(x)
        if not task.vocabulary:
            self._x = self._x.to(number)
        self._y = torch.from_numpy(y)
        if self._y.is_floating_point():
            self._y = self._y.to(number)
        self._loss = loss_of(task)
        self._parameters = tuple(self._model.parameters())
        self._velocity = [torch.zeros_like(parameter) for parameter in self._parameters]

    def draw(self, entropy: int) -> None:
        """See `LocalTrainer`."""
        self._generators.seed(entropy)

    def step(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """See `LocalTrainer`."""
        if self._first:
            self._first = False
            drawn = self._generators.drawn_by(lambda: self._take(indices))
            self.random_operations = f"{', '.join(drawn)}: {SEEDED}" if drawn else ""
        else:
            self._take(indices)
        return self._losses

    def _take(self, indices: NDArray[np.int64]) -> None:
        batch = torch.from_numpy(indices)
        losses = self._loss(self._model(self._x[batch]), self._y[batch])
        gradients = torch.autograd.grad(losses.mean(), self._parameters)
        self._descend(gradients)
        self._losses: NDArray[Any] = losses.detach().numpy()

    def _descend(self, gradients: tuple[torch.Tensor, ...]) -> None:
        """What ``torch.optim.SGD`` does, to the bit; importing that would load torch's compiler (seconds)."""
        with torch.no_grad():
            torch._foreach_mul_(self._velocity, self.task.momentum)
            torch._foreach_add_(self._velocity, gradients)
            torch._foreach_add_(self._parameters, self._velocity, alpha=-self.task.learning_rate)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `LocalTrainer`."""
        return state_arrays(self._model)

    def velocity(self) -> dict[str, NDArray[Any]]:
        """See `LocalTrainer`."""
        names = (name for name, _ in self._model.named_parameters())
        return {name: buffer.numpy().copy() for name, buffer in zip(names, self._velocity)}
