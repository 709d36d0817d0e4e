"""Receiving and sending a model: from the recorded throughput where there is one, else as measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Conditions, Ids, Times
from emulator.fleet.state import FleetState

Array = NDArray[np.float64]

NEVER_S = 1e9
"""Stands for a transfer that never ends: no round is that long, and its nanoseconds are still integers."""
PAUSES_S = tuple(2.0**i for i in range(26))
"""Before each further try of a transfer that stalls: doubled each time, over a year in all."""


class Link(StrEnum):
    """Where times of transfers come from."""

    PROFILE = "profile"
    """As measured with the device."""
    TRACE = "trace"
    """Size over the throughput recorded when it begins to move; as measured where that is unknown."""


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
        found = self._first_rate(t_ns, devices, rate) if self.link is Link.TRACE else None
        if found is None:
            return duration_s, energy_j
        bps, stalled_s = found
        known = bps > 0
        with np.errstate(all="ignore"):
            moving_s = np.where(known, np.minimum(self.model_bytes * 8 / bps, NEVER_S), duration_s)
            # The radio draws what it drew on the bench, for as long as it takes here.
            power_w = np.where(duration_s > 0, energy_j / duration_s, 0.0)
        moving_j = np.where(known, power_w * moving_s, energy_j)
        return stalled_s + moving_s, stalled_s * costs.wait_w[profile] + moving_j

    def _first_rate(self, t_ns: Times, devices: Ids, name: str) -> tuple[Array, Array] | None:
        """The rate at which each transfer moves, and how long it stalls before; ``None`` without a record.

        A recorded 0 moves nothing. The device tries again, as clients do: after ever longer pauses, awake.
        """

        def recorded(t_ns: Times, devices: Ids) -> Array | None:
            rates = self.conditions.rates(t_ns, devices)
            return None if rates is None else np.array(getattr(rates, name))

        bps = recorded(t_ns, devices)
        if bps is None:
            return None
        stalled_s = np.zeros(len(devices))
        for pause_s in PAUSES_S:
            still = np.flatnonzero(bps == 0)
            if not len(still):
                break
            stalled_s[still] += pause_s
            bps[still] = recorded(t_ns[still] + (stalled_s[still] * 1e9).astype(np.int64), devices[still])
        stalled_s[bps == 0] = NEVER_S
        return bps, stalled_s
