"""Receiving and sending a model: from the recorded throughput where there is one, else as measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a scenario names `TransferSource`, and needs neither traces nor profiles for that
    from emulator.fleet.conditions import Conditions, Ids, Times
    from emulator.fleet.state import FleetState

Array = NDArray[np.float64]

NEVER_S = 1e9
"""Stands for a transfer that never ends: no round is that long, and its nanoseconds are still integers."""
LONGEST_PAUSE_S = 2.0**25
"""Before the last try of a transfer that stalls: a second at first, doubled each time, over a year in all."""


class TransferSource(StrEnum):
    """Where times of transfers come from."""

    PROFILE = "profile"
    """As measured with the device."""
    TRACE = "trace"
    """Size over the throughput recorded when it begins to move; as measured where that is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """What transfers take, one entry per device.

    Attributes:
        stalled_s: Before it moves.
        stalled_j: Energy of that, awake.
        moving_s: From then on.
        moving_j: Energy of that.
    """

    stalled_s: Array
    stalled_j: Array
    moving_s: Array
    moving_j: Array

    @property
    def duration_s(self) -> Array:
        """In all."""
        return self.stalled_s + self.moving_s

    @property
    def energy_j(self) -> Array:
        """In all."""
        return self.stalled_j + self.moving_j


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Transfers of one model.

    Attributes:
        fleet: What was measured.
        conditions: What was recorded.
        link: Which of them counts.
        model_bytes: Size of the model in each direction; only the recorded throughput asks for it.
    """

    fleet: FleetState
    conditions: Conditions
    link: TransferSource
    model_bytes: int

    def download(self, t_ns: Times, devices: Ids) -> Transfer:
        """Receiving the model from a time on."""
        return self._transfer(t_ns, devices, "download", "down_bps")

    def upload(self, t_ns: Times, devices: Ids) -> Transfer:
        """Sending an update from a time on."""
        return self._transfer(t_ns, devices, "upload", "up_bps")

    def speed_test(self, t_ns: Times, devices: Ids) -> tuple[Transfer, Transfer]:
        """Download and upload at the throughput of that moment.

        Where nothing moves just then they are as measured with the device: a test knows nothing of later.
        """
        rates = self.conditions.rates(t_ns, devices) if self.link is TransferSource.TRACE else None
        down_bps, up_bps = (None, None) if rates is None else (rates.down_bps, rates.up_bps)
        at_once = np.zeros(len(devices))
        return (
            self._made(devices, "download", down_bps, at_once),
            self._made(devices, "upload", up_bps, at_once),
        )

    def _transfer(self, t_ns: Times, devices: Ids, phase: str, rate: str) -> Transfer:
        found = self._first_rate(t_ns, devices, rate) if self.link is TransferSource.TRACE else None
        bps, stalled_s = (None, np.zeros(len(devices))) if found is None else found
        return self._made(devices, phase, bps, stalled_s)

    def _made(self, devices: Ids, phase: str, bps: Array | None, stalled_s: Array) -> Transfer:
        """At a rate, after a stall; as measured where the rate is 0 or unknown."""
        costs, profile = self.fleet.costs, self.fleet.profile[devices]
        duration_s: Array = getattr(costs, f"{phase}_s")[profile]
        energy_j: Array = getattr(costs, f"{phase}_j")[profile]
        stalled_j = stalled_s * costs.wait_w[profile]
        if bps is None:
            return Transfer(stalled_s, stalled_j, duration_s, energy_j)
        known = bps > 0
        with np.errstate(all="ignore"):
            moving_s = np.where(known, np.minimum(self.model_bytes * 8 / bps, NEVER_S), duration_s)
            # The radio draws what it drew on the bench, for as long as it takes here.
            power_w = np.where(duration_s > 0, energy_j / duration_s, 0.0)
        return Transfer(stalled_s, stalled_j, moving_s, np.where(known, power_w * moving_s, energy_j))

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
        stalled_s, pause_s = np.zeros(len(devices)), 1.0
        while pause_s <= LONGEST_PAUSE_S and (still := np.flatnonzero(bps == 0)).size:
            stalled_s[still] += pause_s
            pause_s *= 2
            bps[still] = recorded(t_ns[still] + (stalled_s[still] * 1e9).astype(np.int64), devices[still])
        stalled_s[bps == 0] = NEVER_S
        return bps, stalled_s
