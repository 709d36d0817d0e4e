"""Where each tensor of a model sits in a flat row of weights: parameters first, then buffers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import nn

    from device_agents.workloads import Task


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor's piece of the row."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """One past its last element."""
        return self.start + prod(self.shape)

    @property
    def span(self) -> slice:
        """Its elements."""
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of a model's tensors in a row. Integer buffers (batch counts) are there as float32."""

    parameters: tuple[Place, ...]
    buffers: tuple[Place, ...]

    @property
    def trainable(self) -> int:
        """Elements that have a gradient; they come first."""
        return self.parameters[-1].stop if self.parameters else 0

    @property
    def size(self) -> int:
        """Elements of a row."""
        return self.buffers[-1].stop if self.buffers else self.trainable

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """The layout of a model's state."""
        named = [(name, tuple(value.shape)) for name, value in model.named_parameters()]
        places = _consecutive(named, 0)
        kept = set(model.state_dict())
        buffers = [(name, tuple(value.shape)) for name, value in model.named_buffers() if name in kept]
        return cls(places, _consecutive(buffers, places[-1].stop if places else 0))

    def row(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """A state by names as one row."""
        pieces = [np.ravel(state[place.name]) for place in (*self.parameters, *self.buffers)]
        return np.concatenate(pieces, dtype=np.float32, casting="unsafe")

    def output_bias(self, classes: int) -> slice:
        """Where the last layer's bias is.

        Raises:
            ConfigError: The model has no vector of that length.
        """
        for place in reversed(self.parameters):
            if place.shape == (classes,):
                return place.span
        raise ConfigError(f"the model has no output bias of {classes} entries")


def model_bytes(task: Task) -> int:
    """Size of the task's model on the wire: a row of float32."""
    from device_agents.workloads import Generators, build

    with Generators().kept():
        return Layout.of(build(task)).size * np.dtype(np.float32).itemsize


def _consecutive(named: list[tuple[str, tuple[int, ...]]], start: int) -> tuple[Place, ...]:
    places = []
    for name, shape in named:
        places.append(Place(name, shape, start))
        start = places[-1].stop
    return tuple(places)
