"""`RoundOutcome`: who took part in a round, and what it cost each of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Fate(StrEnum):
    """How a round ended for a device."""

    FINISHED = "finished"
    REJECTED = "rejected"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ClientCost:
    """Time and energy of each participant, in the order of `RoundOutcome.clients`.

    Attributes:
        probe_s: First local epoch, seconds; 0 for methods that do not probe.
        train_s: The other local epochs, seconds.
        comm_s: Download and upload, seconds.
        probe_j: Energy of the first local epoch, joules.
        wait_j: Energy while waiting for the decision, joules.
        train_j: Energy of the other local epochs, joules.
        comm_j: Energy of download and upload, joules.
    """

    probe_s: NDArray[np.float64]
    train_s: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    probe_j: NDArray[np.float64]
    wait_j: NDArray[np.float64]
    train_j: NDArray[np.float64]
    comm_j: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """One federated round.

    Attributes:
        round: From 1 on.
        start_ns: Virtual time at which it began.
        duration_ns: Virtual time it took.
        clients: Devices that took part in any way.
        fates: How it ended for each of them.
        cost: What it cost each of them.
        losses: Mean training loss each reported.
        accuracy: Of the new global model on the server's validation split.
        reward: Of the round, for selectors that learn.
    """

    round: int
    start_ns: int
    duration_ns: int
    clients: NDArray[np.int64]
    fates: tuple[Fate, ...]
    cost: ClientCost
    losses: NDArray[np.float64]
    accuracy: float
    reward: float

    @property
    def energy_j(self) -> float:
        """Everything every participant spent, rejected work and waiting included (``honest``)."""
        cost = self.cost
        return float((cost.probe_j + cost.wait_j + cost.train_j + cost.comm_j).sum())
