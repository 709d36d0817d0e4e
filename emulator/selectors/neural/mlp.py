"""A multi-layer perceptron with its gradients written out, in numpy.

The selectors' networks have a few thousand parameters and see a few hundred rows at a time. At that size the
arithmetic takes microseconds and a framework's overhead milliseconds, results are the same bits on every run,
and a server that only replays needs no torch. The tests hold the gradients against torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from itertools import pairwise
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from joulefleet.errors import ConfigError

Array = NDArray[np.float32]

P = ParamSpec("P")
R = TypeVar("R")

# Rows of 64 float32 activations of two layers: a block this size stays in a core's second-level cache.
_BLOCK_ROWS = 2048


@dataclass(slots=True)
class Mlp:
    """Linear layers with ReLU between them.

    Attributes:
        weights: One matrix per layer, inputs by outputs.
        biases: One row per layer.
    """

    weights: list[Array]
    biases: list[Array]

    @classmethod
    def made(cls, sizes: Sequence[int], rng: np.random.Generator) -> Self:
        """Random weights: uniform within 1/sqrt(inputs), as torch initialises linear layers."""
        weights, biases = [], []
        for inputs, outputs in pairwise(sizes):
            bound = 1.0 / np.sqrt(inputs)
            weights.append(rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32))
            biases.append(rng.uniform(-bound, bound, outputs).astype(np.float32))
        return cls(weights, biases)

    def __call__(self, x: Array) -> Array:
        """Outputs for many rows, block by block so that the activations stay in the cache."""
        out = np.empty((len(x), self.weights[-1].shape[1]), np.float32)
        rows = min(_BLOCK_ROWS, len(x))
        hidden = [np.empty((rows, w.shape[1]), np.float32) for w in self.weights[:-1]]
        for start in range(0, len(x), _BLOCK_ROWS):
            block = x[start : start + _BLOCK_ROWS]
            for layer, buffer in enumerate(hidden):
                part = buffer[: len(block)]
                np.matmul(block, self.weights[layer], out=part)
                part += self.biases[layer]
                np.maximum(part, 0.0, out=part)
                block = part
            target = out[start : start + len(block)]
            np.matmul(block, self.weights[-1], out=target)
            target += self.biases[-1]
        return out

    def activations(self, x: Array) -> list[Array]:
        """Inputs of every layer, then the outputs; what `gradients` needs."""
        found = [np.asarray(x, np.float32)]
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = found[-1] @ weight + bias
            found.append(value if layer == last else np.maximum(value, 0.0))
        return found

    def gradients(self, activations: list[Array], slope: Array) -> list[Array]:
        """Gradients in the order of `parameters`, given the loss's slope at every output."""
        weights: list[Array] = []
        biases: list[Array] = []
        for layer in range(len(self.weights) - 1, -1, -1):
            inputs = activations[layer]
            weights.append(inputs.T @ slope)
            biases.append(slope.sum(axis=0))
            if layer:
                slope = (slope @ self.weights[layer].T) * (inputs > 0)
        return [*reversed(weights), *reversed(biases)]

    def parameters(self) -> list[Array]:
        """The arrays themselves, not copies."""
        return [*self.weights, *self.biases]

    def copy(self) -> Self:
        """A network with the same weights that learns apart."""
        return type(self)([w.copy() for w in self.weights], [b.copy() for b in self.biases])

    def state_dict(self) -> dict[str, Array]:
        """Copies of the arrays by name."""
        named = {f"weight{i}": w.copy() for i, w in enumerate(self.weights)}
        return named | {f"bias{i}": b.copy() for i, b in enumerate(self.biases)}

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Take up arrays of the same shapes.

        Raises:
            ConfigError: They are other ones.
        """
        own = self.state_dict()
        wrong = [n for n in own if n not in state or state[n].shape != own[n].shape]
        if wrong or len(state) != len(own):
            raise ConfigError(
                f"these weights do not fit the network: {', '.join(wrong) or 'more layers than it has'}",
                hint="train a policy with these options: `joulefleet policy train`",
            )
        layers = range(len(self.weights))
        self.weights = [np.array(state[f"weight{i}"], np.float32) for i in layers]
        self.biases = [np.array(state[f"bias{i}"], np.float32) for i in layers]


@cache
def _controller() -> Any:
    # Looking for the loaded libraries takes a millisecond; numpy's is there by now.
    return ThreadpoolController()


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: numpy's products run on one thread inside this function.

    The products of small networks are too small to share out, and the threads spin while they wait for each
    other: beside other work on the same cores, learning from one round took ten times as long with two
    threads as with one.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
