"""Trace sets as CSV for other tools: two tables in the generic format that ``traces import csv`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from pathlib import Path

import numpy as np

from joulefleet.files import new_folder, storage_error
from joulefleet.printable import CsvWriter
from joulefleet.provenance import Provenance
from joulefleet.records import write_record
from traces.intervals import difference, union
from traces.model import FACTS, Fact, InteractionTrace, Intervals, NetworkKind
from traces.storage.trace_set import ORIGIN_FILE, OriginRecord

ABOUT_COLUMNS = ("user", "device", "time_zone", "relative_time")
SPAN_COLUMNS = (
    *(*ABOUT_COLUMNS, "start", "end", "recorded", *FACTS, "network"),
    *("app_known", "app", "category", "cpu", "memory"),
)
READING_COLUMNS = (*ABOUT_COLUMNS, "time", "level", "down_bps", "up_bps")
Row = dict[str, str]


def export_csv(
    traces: Iterable[InteractionTrace], out: Path, provenance: Provenance | None = None
) -> dict[str, int]:
    """Write ``spans.csv`` and ``readings.csv`` into a new folder; returns the rows of each.

    With their ``provenance`` beside them, what was generated still says so when it is imported again.

    Raises:
        StorageError: The folder exists already or cannot be written.
    """
    counts = {"spans.csv": 0, "readings.csv": 0}
    with (
        new_folder(out) as folder,
        (folder / "spans.csv").open("x", encoding="utf-8", newline="") as span_file,
        (folder / "readings.csv").open("x", encoding="utf-8", newline="") as reading_file,
    ):
        if provenance is not None:
            write_record(folder / ORIGIN_FILE, OriginRecord(provenance=provenance))
        try:
            spans = CsvWriter(span_file, SPAN_COLUMNS)
            readings = CsvWriter(reading_file, READING_COLUMNS)
            for trace in traces:
                about = _about(trace)
                for row in _spans(trace):
                    spans.write_named(about | row)
                    counts["spans.csv"] += 1
                for row in _readings(trace):
                    readings.write_named(about | row)
                    counts["readings.csv"] += 1
        except OSError as error:
            raise storage_error(out, error) from error
    return counts


def _about(trace: InteractionTrace) -> Row:
    return {
        "user": trace.user,
        "device": trace.device,
        "time_zone": trace.time_zone,
        "relative_time": "1" if trace.relative_time else "",
    }


def _spans(trace: InteractionTrace) -> Iterator[Row]:
    whole = Intervals.one(trace.start_ns, trace.end_ns)
    yield from _answers("recorded", {"1": trace.covered, "0": difference(whole, trace.covered)})
    for name in FACTS:
        fact: Fact | None = getattr(trace, name)
        if fact is None:
            continue
        known = trace.known(fact)
        # Without "unknown" a reader could take what was not observed for off.
        unknown = difference(whole, union(known, fact.on))
        yield from _answers(name, {"1": fact.on, "0": difference(known, fact.on), "unknown": unknown})
    if trace.network is not None:
        network = trace.network
        for start, end, kind in zip(
            network.start_ns.tolist(), network.end_ns.tolist(), network.kind.tolist(), strict=True
        ):
            name = NetworkKind(kind).name.lower().removeprefix("cellular_")
            yield {**_span(start, end), "network": name}
    yield from _sessions(trace)


def _answers(column: str, answers: Mapping[str, Intervals]) -> Iterator[Row]:
    """The spans of every answer in the order of time; a channel that is out of order stays so."""
    each = [
        [
            (start, end, answer)
            for start, end in zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True)
        ]
        for answer, spans in answers.items()
    ]
    for start, end, answer in merge(*each, key=itemgetter(0)):
        yield {**_span(start, end), column: answer}


def _sessions(trace: InteractionTrace) -> Iterator[Row]:
    apps = trace.apps
    if apps is None:
        return
    known, whole = trace.known(apps), Intervals.one(trace.start_ns, trace.end_ns)
    yield from _answers("app_known", {"1": known, "0": difference(whole, known)})
    categories = apps.categories or ("",) * len(apps.names)
    shares = [np.full(len(apps), np.nan) if share is None else share for share in (apps.cpu, apps.memory)]
    for i, (start, end) in enumerate(zip(apps.start_ns.tolist(), apps.end_ns.tolist(), strict=True)):
        yield {
            **_span(start, end),
            "app": apps.names[apps.app[i]],
            "category": categories[apps.app[i]],
            "cpu": _number(shares[0][i]),
            "memory": _number(shares[1][i]),
        }


def _readings(trace: InteractionTrace) -> Iterator[Row]:
    if trace.battery is not None:
        for t_ns, level in zip(trace.battery.t_ns.tolist(), trace.battery.level.tolist(), strict=True):
            yield {"time": _seconds(t_ns), "level": _number(level)}
    if trace.throughput is not None:
        rates = trace.throughput
        for t_ns, down, up in zip(
            rates.t_ns.tolist(), rates.down_bps.tolist(), rates.up_bps.tolist(), strict=True
        ):
            # An empty row would tell nothing, and the reading before it would hold on.
            known = not (np.isnan(down) and np.isnan(up))
            yield {
                "time": _seconds(t_ns),
                "down_bps": _number(down) if known else "unknown",
                "up_bps": _number(up),
            }


def _span(start_ns: int, end_ns: int) -> Row:
    return {"start": _seconds(start_ns), "end": _seconds(end_ns)}


def _seconds(t_ns: int) -> str:
    """Seconds with all nine digits: exact, where a float would not be."""
    sign = "-" if t_ns < 0 else ""
    whole, rest = divmod(abs(t_ns), 10**9)
    return f"{sign}{whole}.{rest:09d}"


def _number(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))
