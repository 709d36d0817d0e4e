from traces.importer import import_traces, source_bytes
from traces.model import (
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
    Throughput,
)
from traces.quality.checks import validate
from traces.quality.sets import repair_set, validate_set
from traces.readers import READERS, ReaderOptions
from traces.replay.devices import FleetRecipe
from traces.replay.flat_store import open_flat, write_flat
from traces.replay.fleet import TraceFleet, TraceQuery
from traces.stats import TraceStats
from traces.storage.csv_export import export_csv
from traces.storage.trace_set import TraceSet
from traces.synth.write import synthesise

__all__ = [
    "READERS", "AppSessions", "BatteryPoints", "Fact", "FleetRecipe", "InteractionTrace", "Intervals",
    "NetworkKind", "NetworkSpans", "ReaderOptions", "Throughput", "TraceFleet", "TraceQuery", "TraceSet",
    "TraceStats", "export_csv", "import_traces", "open_flat", "repair_set", "source_bytes",
    "synthesise", "validate", "validate_set", "write_flat",
]  # fmt: skip
