from traces.replay.devices import DAY_NS, NEVER_NS, DeviceMap, FleetRecipe
from traces.replay.flat import FlatTraces, flatten
from traces.replay.flat_store import FLAT_FILE, RecordedFacts, open_flat, open_recorded, write_flat
from traces.replay.fleet import MeanIntensity, NetworkRates, TraceFleet, TraceQuery, TraceState
from traces.replay.intensity import IntensityTable, load_table
from traces.replay.paired import LinkKind, NetworkPools, PairedNetwork, kinds_of_users, pair
from traces.replay.policy import Policy, battery_terms, parse_policy, policy_text
from traces.replay.segments import Segments

__all__ = [
    "DAY_NS", "FLAT_FILE", "NEVER_NS", "DeviceMap", "FlatTraces", "FleetRecipe", "IntensityTable", "LinkKind",
    "MeanIntensity", "NetworkPools", "NetworkRates", "PairedNetwork", "Policy", "RecordedFacts", "Segments",
    "TraceFleet", "TraceQuery", "TraceState", "battery_terms", "flatten", "kinds_of_users", "load_table",
    "open_flat", "open_recorded", "pair", "parse_policy", "policy_text", "write_flat",
]  # fmt: skip
