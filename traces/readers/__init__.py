"""Readers of trace formats, one file each, found by name; nothing is imported before it is used."""

from __future__ import annotations

from joulefleet.registry import Registry
from traces.readers.base import BadRow, ImportReport, ReaderOptions, TraceReader

__all__ = ["READERS", "BadRow", "ImportReport", "ReaderOptions", "TraceReader"]

READERS: Registry[TraceReader] = Registry(
    what="trace format",
    group="joulefleet.trace_readers",
    builtin={
        "availability": ("traces.readers.availability:read", "Matrix of yes/no/unknown per device and step."),
        "aware": ("traces.readers.aware:read", "AWARE screen and battery CSV."),
        "csv": ("traces.readers.generic:read", "The documented generic CSV or Parquet."),
        "extrasensory": ("traces.readers.extrasensory:read", "ExtraSensory phone state, one row a minute."),
        "fedscale": ("traces.readers.fedscale:read", "FedScale client_behave_trace (pickle, restricted)."),
        "flash": ("traces.readers.flash:read", "FLASH state_traces.json or cached_timers.json."),
        "livelab": ("traces.readers.livelab:read", "LiveLab SQL dumps."),
        "lsapp": ("traces.readers.lsapp:read", "LSApp TSV of app events."),
        "studentlife": ("traces.readers.studentlife:read", "StudentLife running tasks."),
        "throughput": ("traces.readers.throughput:read", "Network throughput: 5G and HSDPA sets."),
    },
)


def __dir__() -> list[str]:
    return __all__
