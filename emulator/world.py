"""`World`: the fleet, what happens to it, its batteries and its network; all that a round takes place in."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.cost.network import Network
from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import Conditions
from emulator.fleet.state import FleetState


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """One fleet on one virtual clock."""

    fleet: FleetState
    conditions: Conditions
    batteries: Batteries
    network: Network
