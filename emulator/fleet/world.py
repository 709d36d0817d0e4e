"""`World`: the fleet, what happens to it, its batteries and its network; all that a round takes place in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import Conditions, Ids
from emulator.fleet.interference import OwnCurves, Slowing
from emulator.fleet.network import Network
from emulator.fleet.state import FleetState
from emulator.fleet.variation import Registration, Variation
from joulefleet.errors import NobodyLeft

Array = NDArray[np.float64]

LONGEST_WAIT_NS = 366 * 86_400 * 10**9
"""A year without anybody is taken for never: traces that wrap repeat themselves sooner."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """One fleet on one virtual clock.

    Attributes:
        apps: How apps slow training; by the profiles' own curves by default.
        variation: What no trace explains; ``None`` for nothing.
        registration: How wrong the server is about speeds at registration; ``None`` for not at all.
    """

    fleet: FleetState
    conditions: Conditions
    batteries: Batteries
    network: Network
    apps: Slowing | None = None
    variation: Variation | None = None
    registration: Registration | None = None

    def some(self, devices: Ids) -> World:
        """These devices as a world of their own, numbered from 0 on; what happens there stays there.

        What is drawn by a device's number (`emulator.fleet.hashed`) is that of the new one.
        """
        fleet, conditions = self.fleet.some(devices), self.conditions.some(devices)
        variation, registration = self.variation, self.registration
        return replace(
            self,
            fleet=fleet,
            conditions=conditions,
            batteries=self.batteries.some(devices, fleet, conditions),
            network=replace(self.network, fleet=fleet, conditions=conditions),
            variation=None if variation is None else replace(variation, fleet=fleet),
            registration=None if registration is None else replace(registration, fleet=fleet),
        )

    @property
    def slowing(self) -> Slowing:
        """How apps slow training."""
        return OwnCurves(self.fleet.costs.curves) if self.apps is None else self.apps

    def computing(self, t_ns: int, devices: Ids) -> tuple[Array, Array]:
        """Factors on time and on power of computing that have nothing to do with apps, for a round."""
        if self.variation is None:
            return (np.ones(len(devices)),) * 2
        return self.variation.factors(t_ns, devices)

    def check_in(self, start_ns: int) -> tuple[int, NDArray[np.bool_]]:
        """The first moment from ``start_ns`` on at which somebody may train, and who may.

        Raises:
            NobodyLeft: There is no such moment.
        """
        now_ns = start_ns
        while True:
            eligible, barred = self._eligible(now_ns)
            if eligible.any():
                return now_ns, eligible
            next_ns = min(self.conditions.next_arrival(now_ns), self.batteries.recovers_at(now_ns, barred))
            if next_ns - start_ns > LONGEST_WAIT_NS:
                raise NobodyLeft(
                    f"after {now_ns * 1e-9:.0f} s of virtual time no device is eligible, nor will be",
                    hint="check the policy against the traces (`joulefleet traces stats`), or wrap them",
                )
            if next_ns <= now_ns:  # or it would wait here for ever
                raise RuntimeError(f"the clock would go from {now_ns} ns to {next_ns} ns")
            now_ns = next_ns

    def _eligible(self, now_ns: int) -> tuple[NDArray[np.bool_], Ids]:
        """Who may train now, and who may not only because training has drained the battery."""
        eligible = self.conditions.eligible(now_ns)
        eligible[self.batteries.switched_off(now_ns, eligible)] = False
        if not self.conditions.asks_level:
            return eligible, np.empty(0, np.int64)
        drained = self.batteries.indebted(eligible)
        level = self.batteries.level(now_ns, drained)
        barred = drained[~self.conditions.eligible_at_level(now_ns, drained, level)]
        eligible[barred] = False
        return eligible, barred
