"""What Oort knows of every registered device, as arrays; an "arm" in the language of bandits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids


@dataclass(slots=True)
class Arms:
    """One array entry per device.

    Attributes:
        utility: Statistical utility: the placeholder of registration, then as last fed back.
        duration_s: Duration of a round: the profile of registration, then as last measured.
        stamp: Round of the last feedback.
        count: How often there was feedback; 0 is what Oort calls unexplored.
        succeeded: Whether there was feedback since the last decision.
    """

    utility: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    stamp: NDArray[np.int64]
    count: NDArray[np.int64]
    succeeded: NDArray[np.bool_]

    @classmethod
    def registered(cls, utility: NDArray[np.float64], duration_s: NDArray[np.float64]) -> Self:
        """Devices nobody has tried yet."""
        n = len(utility)
        return cls(
            np.array(utility, dtype=np.float64),
            np.array(duration_s, dtype=np.float64),
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=bool),
        )

    def feed_back(
        self,
        ids: Ids,
        utility: NDArray[np.float64],
        duration_s: NDArray[np.float64],
        stamp: int,
    ) -> None:
        """What devices reported in round ``stamp``, which counts from 1."""
        self.utility[ids] = utility
        self.duration_s[ids] = duration_s
        self.stamp[ids] = stamp
        self.count[ids] += 1
        self.succeeded[ids] = True

    def mean_utility(self, ids: Ids) -> float:
        """Of those that fed back since the last decision; 0 if none did."""
        utility = self.utility[ids[self.succeeded[ids]]]
        return float(utility.sum() / (len(utility) + 1e-4))

    def state_dict(self) -> dict[str, Any]:
        """All arrays, copied."""
        return {field.name: getattr(self, field.name).copy() for field in fields(self)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """From `state_dict`."""
        return cls(**{name: np.array(values) for name, values in state.items()})
