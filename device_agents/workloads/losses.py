"""Losses and metrics of tasks: one number per sample, so that selectors can ask for more than a mean.

A loss or metric of the user's own is a function of (output, y) in the file that the task comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from device_agents.workloads.own_code import module_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from device_agents.workloads.tasks import Task

    Loss = Callable[[Tensor, Tensor], Tensor]

OWN = "own"
"""As a task's ``loss``: the function of that name in its file."""


@dataclass(frozen=True)
class Metric:
    """How good a model is, in one number.

    Attributes:
        name: For tables and columns.
        higher_is_better: Otherwise less is better.
        share: Whether it is a share from 0 to 1, which is shown in percent.
        relative: Whether a change of it means something only beside what it was: it has the data's unit.
    """

    name: str = "accuracy"
    higher_is_better: bool = True
    share: bool = False
    relative: bool = False

    def gain(self, before: float, after: float) -> float:
        """How much better a model became, positive if it did: a difference, or a share of what was before."""
        change = after - before if self.higher_is_better else before - after
        return change / abs(before) if self.relative and before else change


ACCURACY = Metric("accuracy", share=True)
METRICS = {
    metric.name: metric
    for metric in (
        ACCURACY,
        Metric("perplexity", higher_is_better=False, relative=True),
        Metric("mae", higher_is_better=False, relative=True),
        Metric("rmse", higher_is_better=False, relative=True),
        Metric("r2"),
    )
}
"""Those that a task can name."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Per sample: (batch,) from logits (batch, ..., classes) and labels (batch, ...).

    Over the tokens of a sequence it is the mean. Selectors need more than the mean over samples (Oort ranks
    by the root mean square), so the caller takes that.
    """
    last = logits.dim() - 1
    picked = -logits.log_softmax(last).gather(last, labels.unsqueeze(last)).squeeze(last)
    return picked if picked.dim() == 1 else picked.flatten(1).mean(1)


def mse(output: Tensor, y: Tensor) -> Tensor:
    """Squared error, per sample the mean over its numbers."""
    found: Tensor = _errors(output, y).square().mean(1)
    return found


def mae(output: Tensor, y: Tensor) -> Tensor:
    """Absolute error, likewise."""
    found: Tensor = _errors(output, y).abs().mean(1)
    return found


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse, "mae": mae}
"""Those that a task can name."""


def loss_of(task: Task) -> Loss:
    """The task's loss: (batch,) of the model's output and the targets."""
    if task.loss != OWN:
        return LOSSES[task.loss]
    if task.code is None:
        raise ValueError(f"task {task.name!r} has no code to take its loss from")
    own: Loss = module_of(task.code).loss
    return own if task.per_sample_loss else lambda output, y: own(output, y).expand(len(y))


def metric_sums(task: Task, output: Tensor, y: Tensor, losses: Tensor) -> Tensor:
    """What a batch adds to the task's metric: sums that can be added over batches, in double precision."""
    import torch

    name = task.metric.name
    if task.own_metric:
        if task.code is None:
            raise ValueError(f"task {task.name!r} has no code to take its metric from")
        own: Tensor = module_of(task.code).metric(output, y).double().sum().reshape(1)
        return own
    if name == "accuracy":
        hits = output.argmax(output.dim() - 1) == y
        return (hits if hits.dim() == 1 else hits.flatten(1).double().mean(1)).sum().double().reshape(1)
    if name == "perplexity":
        return losses.double().sum().reshape(1)
    errors: Tensor = _errors(output, y).double()
    if name == "mae":
        return errors.abs().mean(1).sum().reshape(1)
    if name == "rmse":
        return errors.square().mean(1).sum().reshape(1)
    targets = y.double()
    count = torch.tensor(float(targets.numel()), dtype=torch.float64)
    return torch.stack([errors.square().sum(), targets.sum(), targets.square().sum(), count])


def metric_value(task: Task, samples: int, sums: Sequence[float]) -> float:
    """The metric of so many samples; NaN of none."""
    if not samples:
        return math.nan
    name = task.metric.name
    if task.own_metric or name in ("accuracy", "mae"):
        return sums[0] / samples
    if name == "perplexity":
        mean = sums[0] / samples
        return math.exp(mean) if mean < 700 else math.inf
    if name == "rmse":
        return math.sqrt(sums[0] / samples)
    squared_errors, total, squares, count = sums
    spread = squares - total * total / count
    return 1.0 - squared_errors / spread if spread > 0 else math.nan


def each_tensor(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """What a model gives (a tensor, or a tuple, list or dictionary of such), with every tensor changed."""
    from torch.utils._pytree import tree_map

    return tree_map(change, output)


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors that a model gives; none if there is anything else among them."""
    import torch
    from torch.utils._pytree import tree_flatten

    found = tree_flatten(output)[0]
    return found if all(isinstance(one, torch.Tensor) for one in found) else []


def _errors(output: Any, y: Any) -> Any:
    """(batch, numbers). In the targets' shape: (batch, 1) against (batch,) would become (batch, batch)."""
    return (output.reshape(y.shape) - y).reshape(len(y), -1)
