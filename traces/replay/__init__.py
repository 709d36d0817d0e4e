"""What a phone is doing at time t, for one trace or a fleet of millions: pure functions of time."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "traces.replay.devices": ("DAY_NS", "DeviceMap", "FleetRecipe"),
        "traces.replay.flat": ("FlatTraces", "flatten"),
        "traces.replay.flat_store": ("FLAT_FILE", "FlatRecord", "open_flat", "write_flat"),
        "traces.replay.fleet": ("MeanIntensity", "NetworkRates", "TraceFleet", "TraceState"),
        "traces.replay.intensity": ("IntensityTable", "load_table"),
        "traces.replay.next_change": ("NEVER_NS",),
        "traces.replay.policy": ("Policy", "battery_terms"),
        "traces.replay.policy_parser": ("parse_policy", "policy_text"),
        "traces.replay.query": ("TraceQuery",),
        "traces.replay.segments": ("Segments",),
    },
)
