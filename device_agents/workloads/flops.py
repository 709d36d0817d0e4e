"""Arithmetic of a training step, counted from the layers of a model as it runs.

One multiply-add is two operations. Convolutions, linear layers and LSTMs are counted, which is where the time
goes; normalisation, activations and the optimiser are not. Going backward, a layer computes the gradient of
its weights and that of its inputs, each as much work as going forward; the first layer needs no gradient of
its inputs, unless they come from an embedding.

torch's own counter takes the weight gradients of grouped convolutions for dense ones (and counts twice too
much for ShuffleNet), so it is used for models of the user's own alone, which may compute in any way, and for
their forward pass alone where they have such convolutions. Tests compare the two where it is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_agents.workloads.losses import loss_of
from device_agents.workloads.models import build, state_tensors

if TYPE_CHECKING:
    from torch import Tensor, nn

    from device_agents.workloads.tasks import Task

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Work:
    """What one training sample of a model costs, and how large the model is.

    Attributes:
        forward_flop: Operations of a forward pass, per sample.
        training_flop: Forward and backward.
        parameters: Trained numbers.
        bytes: The model on the wire as float32, running statistics included.
    """

    forward_flop: float
    training_flop: float
    parameters: int
    bytes: int


def count_task(task: Task) -> Work:
    """Count one of the tasks by running its model on two samples."""
    import torch

    batch = 2  # the fewest that batch normalisation takes
    with torch.random.fork_rng(devices=[]):
        model = build(task)
    if task.vocabulary:
        inputs = torch.zeros((batch, *task.input_shape), dtype=torch.int64)
    else:
        inputs = torch.zeros((batch, *task.input_shape))
    forward, training = (_counted_by_torch if task.code else _counted)(task, model, inputs)
    # The counters of batches seen (`num_batches_tracked`) are integers, and not worth sending.
    state = [value for value in state_tensors(model).values() if value.is_floating_point()]
    return Work(
        forward_flop=forward / batch,
        training_flop=training / batch,
        parameters=sum(p.numel() for p in model.parameters()),
        bytes=FLOAT_BYTES * sum(value.numel() for value in state),
    )


def _counted(task: Task, model: nn.Module, inputs: Tensor) -> tuple[float, float]:
    """Forward alone and in all, from the layers."""
    counts: list[tuple[int, bool]] = []
    for module in model.modules():
        if not any(module.children()):
            module.register_forward_hook(lambda *call: _count(counts, *call))
    model(inputs)
    forward = sum(flop for flop, _ in counts)
    return forward, sum(flop * (3 if passes_back else 2) for flop, passes_back in counts)


def _counted_by_torch(task: Task, model: nn.Module, inputs: Tensor) -> tuple[float, float]:
    """The same from the products that torch computes, whatever they belong to."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    y = torch.zeros((len(inputs), *task.target_shape), dtype=getattr(torch, task.target_dtype))
    mkldnn: Any = torch.backends.mkldnn
    enabled, mkldnn.enabled = mkldnn.enabled, False  # its fused LSTM is one operator, which nobody counts
    try:
        with FlopCounterMode(display=False) as counter:
            output = model(inputs)
            forward = counter.get_total_flops()
            torch.autograd.grad(loss_of(task)(output, y).mean(), list(model.parameters()))
            training = counter.get_total_flops()
    finally:
        mkldnn.enabled = enabled
    grouped = any(getattr(m, "groups", 1) > 1 for m in model.modules() if isinstance(m, nn.Module))
    return forward, 3.0 * forward if grouped else training


def _count(
    counts: list[tuple[int, bool]], module: nn.Module, inputs: tuple[Tensor, ...], output: Any
) -> None:
    flop = _layer_flop(module, inputs[0], output)
    if flop:
        counts.append((flop, inputs[0].requires_grad))


def _layer_flop(module: nn.Module, x: Tensor, output: Any) -> int:
    from torch import nn

    if isinstance(module, nn.Conv2d):
        inputs = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
        return 2 * int(output.numel()) * inputs
    if isinstance(module, nn.Linear):
        return 2 * int(output.numel()) * module.in_features
    if isinstance(module, nn.LSTM):
        steps = x.shape[0] * x.shape[1]
        sizes = [module.input_size] + [module.hidden_size] * (module.num_layers - 1)
        return sum(2 * steps * 4 * module.hidden_size * (size + module.hidden_size) for size in sizes)
    return 0
