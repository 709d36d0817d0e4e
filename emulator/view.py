"""`ServerView`: what devices have reported to the server so far, and all that a selector may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ServerView:
    """One entry per registered device; NaN where nothing has been reported yet.

    Attributes:
        round: Number of the round that is about to start, from 1 on.
        eligible: Devices that have checked in for this round.
        data_size: Training samples, known from registration.
        epoch_s: Last reported duration of one local epoch, seconds.
        epoch_j: Last reported energy of one local epoch, joules.
        comm_s: Last measured duration of download and upload, seconds.
        comm_j: Last measured energy of download and upload, joules.
        loss: Last reported mean training loss.
    """

    round: int
    eligible: NDArray[np.bool_]
    data_size: NDArray[np.int64]
    epoch_s: NDArray[np.float64]
    epoch_j: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    comm_j: NDArray[np.float64]
    loss: NDArray[np.float64]

    @classmethod
    def registered(cls, data_size: NDArray[np.int64]) -> Self:
        """What the server knows before the first round: who is there and how much data each has."""
        unknown = [np.full(len(data_size), np.nan) for _ in range(5)]
        return cls(1, np.ones(len(data_size), bool), data_size, *unknown)

    @property
    def eligible_ids(self) -> NDArray[np.int64]:
        """Devices that can be chosen now, ascending."""
        return np.flatnonzero(self.eligible)
