"""Arithmetic of a training step, counted from the layers of a model as it runs.

One multiply-add is two operations. Convolutions, linear layers and LSTMs are counted, which is where the time
goes; normalisation, activations and the optimiser are not. Going backward, a layer computes the gradient of
its weights and that of its inputs, each as much work as going forward; the first layer needs no gradient of
its inputs, unless they come from an embedding.

torch's own counter is not used: it takes the weight gradients of grouped convolutions for dense ones (and
counts twice too much for ShuffleNet). Tests compare the two where it is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_agents.workloads import Task

if TYPE_CHECKING:
    from torch import Tensor, nn

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
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

    from device_agents.workloads import build

    batch = 2  # the fewest that batch normalisation takes
    model = build(task)
    counts: list[tuple[int, bool]] = []
    for module in model.modules():
        if not any(module.children()):
            module.register_forward_hook(lambda *call: _count(counts, *call))
    if task.vocabulary:
        inputs = torch.zeros((batch, *task.input_shape), dtype=torch.int64)
    else:
        inputs = torch.zeros((batch, *task.input_shape))
    model(inputs)
    forward = sum(flop for flop, _ in counts)
    training = sum(flop * (3 if passes_back else 2) for flop, passes_back in counts)
    # The counters of batches seen (`num_batches_tracked`) are integers, and not worth sending.
    state = [value for value in model.state_dict().values() if value.is_floating_point()]
    return Work(
        forward_flop=forward / batch,
        training_flop=training / batch,
        parameters=sum(p.numel() for p in model.parameters()),
        bytes=FLOAT_BYTES * sum(value.numel() for value in state),
    )


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
