"""FedScale: availability and capacity of simulated clients (Lai et al., ICML 2022), read from its pickles.

``client_behave_trace`` holds ``{id: {"duration", "inactive": [s], "finish_time", "active": [s], "model"}}``;
a client is available when ``active[i] <= t % finish_time < inactive[i]``. ``client_device_capacity`` holds
``{id: {"computation": ms per sample, "communication": kbps}}``. The time has no calendar: it counts from 0.

The pickles are never unpickled (`traces.readers.files.plain_pickle`). Given a folder with both files, each
client of the first gets the capacity of the same id as facts; given the capacity alone, traces without any
channel carry the facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from joulefleet.errors import DataQualityError, StorageError
from traces.model import InteractionTrace, Intervals
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.plain_pickle import dict_items
from traces.readers.files.sources import byte_chunks, is_text, require_file, text_or_nothing
from traces.readers.rows.assemble import SourceFacts, assemble, source_facts
from traces.readers.rows.spool import RecordKind, UserRecords
from traces.readers.rows.timestamps import NS_PER_S

SOURCE = "FedScale (Lai et al., ICML 2022)"
LICENCE = "Apache-2.0 (repository)"
BEHAVIOUR = "client_behave_trace"
CAPACITY = "client_device_capacity"

MAX_CAPACITIES = 10_000_000
"""Most clients whose capacity is kept to be joined with their behaviour; FedScale's file has 500,000."""

_MAX_S = 1e9


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per client."""
    options.check()
    where_from = source_facts(options, report, SOURCE, LICENCE, relative_time=True)
    if not source.is_dir():
        yield from _traces(source, where_from, report, {})
        return
    behaviour, capacity = _one_named(source, BEHAVIOUR), _one_named(source, CAPACITY)
    if behaviour is None:
        raise StorageError(f"{source}: has no {BEHAVIOUR}")
    capacities = {} if capacity is None else _capacities(capacity, report)
    yield from _traces(behaviour, where_from, report, capacities)


def _one_named(folder: Path, name: str) -> Path | None:
    return next((path for path in sorted(folder.iterdir()) if path.name.startswith(name)), None)


def _clients(path: Path, report: ImportReport) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Number, name and entry of each client; an entry that is not one is a bad row."""
    require_file(path)
    seen: set[str] = set()
    items = dict_items(lambda: byte_chunks(path, report, share=0.5))
    for number, (key, entry) in enumerate(items, 1):
        report.rows += 1
        try:
            name = _name(key)
        except ValueError as error:
            report.bad(path, number, str(error))
            continue
        if not isinstance(entry, dict):
            report.bad(path, number, f"client {name[:40]} is not a dict")
        elif name in seen:
            report.bad(path, number, f"user {name[:40]!r} is there twice, the first one counts")
        else:
            seen.add(name)
            yield number, name, entry


def _name(key: object) -> str:
    name = str(key)
    if not name or not is_text(name):
        raise ValueError("a client's name is empty" if not name else "a client's name is not valid text")
    return name


def _capacities(path: Path, report: ImportReport) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, name, entry in _clients(path, report):
        try:
            found[name] = _capacity(entry)
        except ValueError as error:
            report.bad(path, number, f"client {name[:40]}: {error}")
        if len(found) > MAX_CAPACITIES:
            raise DataQualityError(f"{path.name}: more than {MAX_CAPACITIES} clients")
    return found


def _traces(
    path: Path, where_from: SourceFacts, report: ImportReport, capacities: Mapping[str, Mapping[str, float]]
) -> Iterator[InteractionTrace]:
    for number, name, entry in _clients(path, report):
        try:
            if "computation" in entry:
                yield _without_channels(name, _capacity(entry), where_from)
                continue
            trace = _behaviour(name, entry, where_from, report, capacities.get(name, {}))
        except ValueError as error:
            report.bad(path, number, f"client {name[:40]}: {error}")
            continue
        if trace is not None:
            yield trace
    if not report.rows:
        raise DataQualityError(f"{path.name}: there is no client")


def _behaviour(
    name: str,
    entry: Mapping[str, Any],
    where_from: SourceFacts,
    report: ImportReport,
    facts: Mapping[str, float],
) -> InteractionTrace | None:
    active, inactive = _seconds(entry, "active"), _seconds(entry, "inactive")
    if len(active) != len(inactive):
        raise ValueError(f"{len(active)} times in 'active', {len(inactive)} in 'inactive'")
    finish_s = _number("finish_time", entry.get("finish_time"), _MAX_S)
    observed = UserRecords()
    for begin_ns, end_ns in zip(active, inactive, strict=True):
        observed.add(RecordKind.AVAILABLE_SPAN, begin_ns, end_ns=end_ns, code=1)
    if not active:
        observed.add(RecordKind.AVAILABLE, 0, code=0)
    duration = {"duration_s": _number("duration", entry["duration"], _MAX_S)} if "duration" in entry else {}
    return assemble(
        name,
        observed,
        where_from,
        report,
        device=text_or_nothing(entry.get("model")),
        facts={**duration, **facts},
        limits_ns=(0, round(finish_s * NS_PER_S)),
    )


def _without_channels(name: str, facts: Mapping[str, float], where_from: SourceFacts) -> InteractionTrace:
    return InteractionTrace(
        user=name,
        start_ns=0,
        end_ns=1,
        coverage=Intervals.none(),
        relative_time=True,
        facts=facts,
        source=where_from.source,
        licence=where_from.licence,
    )


def _capacity(entry: Mapping[str, Any]) -> dict[str, float]:
    return {
        "compute_ms_per_sample": _number("computation", entry.get("computation"), 1e12),
        "network_kbps": _number("communication", entry.get("communication"), 1e12),
    }


def _seconds(entry: Mapping[str, Any], name: str) -> list[int]:
    values = entry.get(name)
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name!r} is not a list")  # noqa: TRY004 - every unusable row is a ValueError
    return [round(_number(name, value, _MAX_S) * NS_PER_S) for value in values]


def _number(name: str, value: object, most: float) -> float:
    # Never the text of a foreign value: lists that share their parts are endless when they are written out.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name!r} is a {type(value).__name__}, not a number")  # noqa: TRY004
    if not 0 <= value <= most:
        raise ValueError(f"{name!r} {value} is not a number from 0 to {most:g}")
    return value
