"""`Uploads`: the emulator's `Trainer` seam where devices do the training. The server scores and adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator import Trainer
from emulator.training import LocalResults, Score, weighted_sum
from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Uploads:
    """A `Trainer` whose results come in from elsewhere.

    Args:
        server: Makes the first model and scores all others.
        backend: What trains on the devices.
    """

    def __init__(self, server: Trainer, backend: str) -> None:
        self.implementation = f"devices ({backend})"
        self._server = server
        self._weights = server.initial()
        self._rows: dict[int, NDArray[np.float32]] = {}

    def put(self, client: int, row: NDArray[np.float32]) -> None:
        """A device's update came in."""
        self._rows[client] = row

    def initial(self) -> NDArray[np.float32]:
        """See `Trainer`."""
        return self._server.initial()

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """See `Trainer`."""
        self._weights, self._rows = weights, {}

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        """Never asked: the bench does it."""
        raise NotImplementedError("devices train")

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        """See `Trainer`; the same sum as the emulator's."""
        order = np.argsort(clients, kind="stable")
        rows = (self._rows[client] for client in clients[order].tolist())
        return weighted_sum(rows, shares[order], len(self._weights))

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Trainer`."""
        return np.stack([self._rows[client] for client in clients.tolist()])

    def end(self) -> None:
        """See `Trainer`."""
        self._rows = {}

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not run a forward pass over their data")

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not run a forward pass over their data")

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not score models")

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        """See `Trainer`."""
        return self._server.evaluate(weights, split)

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Trainer`."""
        return self._server.bias_of(weights)

    def close(self) -> None:
        """See `Trainer`."""
        self._server.close()
