"""`Trainer`: local training of many clients, whatever computes it and on however many workers.

A round goes ``begin``, any number of ``train`` (each continues every named client from where it is in this
round: its weights, its optimiser's state, its place in the data order), ``aggregate``, ``end``. A client's
result is a pure function of (seed, round, client, global weights, epochs): it does not depend on who else is
in the job, on the number of workers, or on whether its epochs came in one call or in two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.training.client_data import ClientData


@dataclass(frozen=True, slots=True)
class LocalResults:
    """What training reported, one entry per client in the order asked for; NaN where there is no data.

    Attributes:
        loss: Mean loss over the samples of the first epoch of this call.
        loss_rms: Root mean square of the samples' losses over the first epoch of this call.
        last_loss: Mean loss over the last epoch of this call.
        finite: Whether losses and weights are all finite.
    """

    loss: NDArray[np.float64]
    loss_rms: NDArray[np.float64]
    last_loss: NDArray[np.float64]
    finite: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Score:
    """A model on a split: mean loss and the task's metric, which is the accuracy where it tells classes."""

    loss: float
    accuracy: float


class Trainer(Protocol):
    """Many clients' local work. Weights are one flat float32 row: parameters, then buffers."""

    implementation: str
    """Which one ``auto`` resolved to; written to the manifest, since bits are promised per implementation."""

    def initial(self) -> NDArray[np.float32]:
        """The global weights before round 1, from the seed."""

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """Start a round: every client is at ``weights`` with a fresh optimiser."""

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        """Run so many further local epochs on each client. A client without data stays where it is."""

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        """Sum of the clients' weights times their shares, which add up to 1, in the order of their ids."""

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """The clients' present weights, one row each."""

    def end(self) -> None:
        """Forget the clients' states of this round."""

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Mean loss of ``weights`` on each client's own data, without training."""

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Mean loss of ``weights`` on the first batch of the epoch that each client would train next."""

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Metric of ``weights`` on each client's own held-out samples (on all of them, where none are)."""

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        """Score of ``weights`` on the server's ``validation`` split (rewards) or ``test`` (reports only)."""

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """The output layer's bias in flat weights (last axis), one entry per class."""

    def close(self) -> None:
        """End the workers."""


class OpenTrainer(Protocol):
    """What gives a `Trainer` its workers: `emulator.training.choose.open_trainer` those of this machine."""

    def __call__(
        self, task: Task, clients: ClientData, *, implementation: str = "auto", workers: int | None = None
    ) -> Trainer:
        """A trainer for a task on the clients' data."""


def weighted_sum(
    rows: Iterable[NDArray[np.float32]], shares: Iterable[float], size: int
) -> NDArray[np.float32]:
    """Rows of weights times their shares, added in double precision in the order given."""
    total = np.zeros(size)
    for share, row in zip(shares, rows, strict=True):
        total += share * row
    return total.astype(np.float32)
