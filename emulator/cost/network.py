"""Receiving and sending a model: from the recorded throughput where there is one, else as measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Conditions, Ids, Times
from emulator.fleet.state import FleetState

Array = NDArray[np.float64]


class Link(StrEnum):
    """Where times of transfers come from."""

    PROFILE = "profile"
    """As measured with the device."""
    TRACE = "trace"
    """Size over the throughput recorded when the transfer begins; as measured where that is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Transfers of one model.

    Attributes:
        fleet: What was measured.
        conditions: What was recorded.
        link: Which of them counts.
        model_bytes: Size of the model in each direction.
    """

    fleet: FleetState
    conditions: Conditions
    link: Link
    model_bytes: int

    def download(self, t_ns: Times, devices: Ids) -> tuple[Array, Array]:
        """Seconds and joules of receiving the model from a time on."""
        return self._transfer(t_ns, devices, "download", "down_bps")

    def upload(self, t_ns: Times, devices: Ids) -> tuple[Array, Array]:
        """Seconds and joules of sending an update from a time on."""
        return self._transfer(t_ns, devices, "upload", "up_bps")

    def _transfer(self, t_ns: Times, devices: Ids, phase: str, rate: str) -> tuple[Array, Array]:
        costs, profile = self.fleet.costs, self.fleet.profile[devices]
        # What was not measured costs nothing; `ProfileCosts.gaps` says so.
        duration_s = np.nan_to_num(getattr(costs, f"{phase}_s")[profile])
        energy_j = np.nan_to_num(getattr(costs, f"{phase}_j")[profile])
        rates = self.conditions.rates(t_ns, devices) if self.link is Link.TRACE else None
        if rates is None:
            return duration_s, energy_j
        bps = getattr(rates, rate)
        known = bps > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            recorded_s = np.where(known, self.model_bytes * 8 / bps, duration_s)
            # The radio draws what it drew on the bench, for as long as it takes here.
            power_w = np.where(duration_s > 0, energy_j / duration_s, 0.0)
        return recorded_s, np.where(known, power_w * recorded_s, energy_j)
