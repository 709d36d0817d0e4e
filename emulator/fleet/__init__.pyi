from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import AlwaysThere, Conditions, Replayed
from emulator.fleet.network import Network, TransferSource
from emulator.fleet.state import FleetState, fleet_from_profiles
from emulator.fleet.world import World

__all__ = [
    "AlwaysThere", "Batteries", "Conditions", "FleetState", "Network", "Replayed", "TransferSource",
    "World", "fleet_from_profiles",
]  # fmt: skip
