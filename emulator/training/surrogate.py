"""A stand-in for training, for replays where only time and energy matter: nothing is learned.

"Accuracy" is a formula of how much data has been aggregated; losses fall with it and differ between devices
by a fixed draw. Every log says ``surrogate`` beside such numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.training.base import LocalResults, Score
from joulefleet.seeds import generator

SURROGATE = "surrogate"
"""As `trainer.kind` of a scenario, and beside every number of its runs."""
SPREAD = 0.3
"""Standard deviation of the devices' losses on a logarithmic scale."""


class SurrogateTrainer:
    """See `emulator.training.base.Trainer`; weights are one number, the passes over all data so far.

    Args:
        data_size: Training samples of each device.
        classes: Number of classes; guessing among them is where it starts.
        seed: Root of the devices' losses.
    """

    implementation = SURROGATE

    def __init__(self, data_size: NDArray[np.int64], classes: int, seed: int) -> None:
        self._size, self._total = data_size, max(1, int(data_size.sum()))
        self._classes = max(2, classes)  # a task that predicts numbers has none to guess among
        self._factor = np.exp(generator(seed, "surrogate loss").normal(0.0, SPREAD, len(data_size)))
        self._weights = self.initial()

    def initial(self) -> NDArray[np.float32]:
        """No pass yet."""
        return np.zeros(1, np.float32)

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """Start from so many passes."""
        self._weights = weights

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        """Nothing happens; losses are those of the formula."""
        loss = self.loss_of(self._weights, clients)
        return LocalResults(loss, loss, loss, np.ones(len(clients), bool))

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        """One more pass over the data of these clients."""
        return self._weights + np.float32((self._size[clients] / self._total).sum())

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """The same for everybody."""
        return np.repeat(self._weights[None], len(clients), axis=0)

    def end(self) -> None:
        """Nothing to forget."""

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Falls with the passes; NaN without data."""
        loss = np.log(self._classes) * np.exp(-float(weights[0])) * self._factor[clients]
        return np.where(self._size[clients] > 0, loss, np.nan)

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """That of all data."""
        return self.loss_of(weights, clients)

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same for everybody."""
        return np.full(len(clients), self.evaluate(weights, "validation").accuracy)

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        """Rises from guessing towards 1."""
        left = float(np.exp(-float(weights[0])))
        return Score(float(np.log(self._classes)) * left, 1.0 - (1.0 - 1.0 / self._classes) * left)

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Nothing is known of classes."""
        return np.zeros((*weights.shape[:-1], self._classes), np.float32)

    def close(self) -> None:
        """Nothing to end."""
