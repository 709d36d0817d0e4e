"""The models, one file each; found by name so that torch is imported only when one is built."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.workloads.own_code import module_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from device_agents.workloads.tasks import Task

MODELS = {
    "lenet5": "device_agents.workloads.models.lenet5:LeNet5",
    "resnet18": "device_agents.workloads.models.resnet18:ResNet18",
    "vgg16": "device_agents.workloads.models.vgg16:VGG16",
    "shufflenetv2": "device_agents.workloads.models.shufflenetv2:ShuffleNetV2",
    "lstm": "device_agents.workloads.models.lstm:CharacterLSTM",
    "mlp": "device_agents.workloads.models.mlp:MLP",
}


def build(task: Task) -> nn.Module:
    """The task's model with fresh random weights (torch's default generator), in training mode.

    A model of one's own is what ``model()`` of the task's file gives, or named by where it is, as
    ``module:Class``.

    Raises:
        ValueError: The task names a model that does not exist.
    """
    if task.code is not None:
        own: nn.Module = module_of(task.code).model()
        return own.train()
    module, colon, name = MODELS.get(task.model, task.model).partition(":")
    if not colon:
        raise ValueError("no model called {!r}; known: {}".format(task.model, ", ".join(MODELS)))
    model: nn.Module = getattr(import_module(module), name)(task.classes, **task.options)
    return model.train()


def initial_state(task: Task, seed: int) -> dict[str, NDArray[Any]]:
    """Weights and buffers of a fresh model as arrays: what a server hands out in the first round."""
    from device_agents.workloads.random_operations import Generators

    generators = Generators()
    with generators.kept():
        generators.seed(seed)  # numpy's too: a model may draw its weights from anywhere
        return state_arrays(build(task))


def state_arrays(model: nn.Module) -> dict[str, NDArray[Any]]:
    """A copy of the model's state, in the order of its ``state_dict``; tied weights once."""
    return {name: np.array(value.numpy(force=True)) for name, value in state_tensors(model).items()}


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights and buffers, by the first name of each: tied weights have several."""
    every, first = model.state_dict(keep_vars=True), _first_names(model)
    return {name: value for name, value in every.items() if first[name] == name}


def load_state(model: nn.Module, state: Mapping[str, NDArray[Any]]) -> None:
    """Put arrays into a model; every entry has to be there.

    Raises:
        RuntimeError: A name or a shape does not fit (torch says which).
    """
    import torch

    tensors = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
    for name, first in _first_names(model).items():
        if first in tensors:
            tensors.setdefault(name, tensors[first])
    model.load_state_dict(tensors)


def _first_names(model: nn.Module) -> dict[str, str]:
    """Each name of the state, to the first name of the same tensor."""
    first: dict[int, str] = {}
    every = model.state_dict(keep_vars=True)  # otherwise each is another object
    return {name: first.setdefault(id(value), name) for name, value in every.items()}
