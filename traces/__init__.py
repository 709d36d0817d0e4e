"""Interaction traces: what the user of a phone is doing, and what that allows.

The usual names are here. More is one door further: `traces.readers` (formats), `traces.quality` (findings and
repairs), `traces.replay` (a fleet at time t), `traces.stats` (what people do, in numbers), `traces.synth`
(generated people).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "traces.importer": ("import_traces", "source_bytes"),
        "traces.model": (
            "AppSessions",
            "BatteryPoints",
            "Fact",
            "InteractionTrace",
            "Intervals",
            "NetworkKind",
            "NetworkSpans",
            "Throughput",
        ),
        "traces.quality.checks": ("validate",),
        "traces.quality.sets": ("repair_set", "validate_set"),
        "traces.readers": ("READERS", "ReaderOptions"),
        "traces.replay.devices": ("FleetRecipe",),
        "traces.replay.flat_store": ("open_flat", "write_flat"),
        "traces.replay.fleet": ("TraceFleet",),
        "traces.replay.query": ("TraceQuery",),
        "traces.stats": ("TraceStats",),
        "traces.storage.csv_export": ("export_csv", "safe_cell"),
        "traces.storage.trace_set": ("TraceSet",),
        "traces.synth.write": ("synthesise",),
    },
)
