"""Softmax regression in numpy: the smallest real training there is, for demos and tests.

Parameters are one flat float64 vector, so that a server can average clients without knowing the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Softmax:
    """The model and its optimiser settings.

    Attributes:
        features: Inputs per sample.
        classes: Number of classes.
        learning_rate: Of plain SGD.
        batch_size: Samples per step.
    """

    features: int = 64
    classes: int = 10
    learning_rate: float = 0.1
    batch_size: int = 32

    def initial(self) -> NDArray[np.float64]:
        """All zeros: the loss is convex, no symmetry has to be broken."""
        return np.zeros((self.features + 1) * self.classes)

    def epoch(
        self,
        parameters: NDArray[np.float64],
        x: NDArray[np.float64],
        y: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.float64], float]:
        """One pass over the data in random order: new parameters and the mean loss seen on the way."""
        weights = parameters.reshape(self.features + 1, self.classes).copy()
        order = rng.permutation(len(y))
        loss_sum = 0.0
        for start in range(0, len(y), self.batch_size):
            batch = order[start : start + self.batch_size]
            inputs = np.column_stack([x[batch], np.ones(len(batch))])
            log_p = _log_softmax(inputs @ weights)
            loss_sum -= float(log_p[np.arange(len(batch)), y[batch]].sum())
            error = np.exp(log_p)
            error[np.arange(len(batch)), y[batch]] -= 1.0
            weights -= self.learning_rate / len(batch) * (inputs.T @ error)
        return weights.ravel(), loss_sum / max(1, len(y))

    def accuracy(
        self, parameters: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64]
    ) -> float:
        """Share of samples whose most likely class is the right one."""
        weights = parameters.reshape(self.features + 1, self.classes)
        return float(np.mean((x @ weights[:-1] + weights[-1]).argmax(1) == y))


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result


def synthetic_shard(
    samples: int, model: Softmax, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Random data of the right shape: costs the same work as real data, teaches nothing."""
    return rng.random((samples, model.features)), rng.integers(0, model.classes, samples)
