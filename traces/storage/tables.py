"""How a trace becomes rows of Parquet tables, and rows a trace again.

::

    users       one row per trace: what it says about itself, and how many rows each channel has (-1: none)
    intervals   user, channel, start_ns, end_ns     coverage, facts and what was known of them
    apps        user, start_ns, end_ns, app, category, cpu, memory
    network     user, start_ns, end_ns, kind
    battery     user, t_ns, level
    throughput  user, t_ns, down_bps, up_bps

``user`` is the row number in ``users``; all tables are in the order of the users.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.budgets import parse_json
from joulefleet.runstore.columns import Columns
from traces.model import (
    FACTS,
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
    Throughput,
    interval_channels,
    point_channels,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

INTERVAL_CHANNELS = (
    "coverage",
    *(channel for name in FACTS for channel in (name, f"{name}.known")),
    "apps.known",
)
BULK_TABLES = ("intervals", "apps", "network", "battery", "throughput")
COUNTED = (*INTERVAL_CHANNELS, "apps", "network", "battery", "throughput")
_ABOUT = ("user", "start_ns", "end_ns", "time_zone", "relative_time", "device", "source", "licence")


def schemas() -> dict[str, pa.Schema]:
    """The columns of every table."""
    import pyarrow as pa

    user = ("user", pa.int32())
    span = [("start_ns", pa.int64()), ("end_ns", pa.int64())]
    share = [("cpu", pa.float64()), ("memory", pa.float64())]
    kinds = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
    about = [(name, kinds[_about_kind(name)]) for name in _ABOUT]
    return {
        "users": pa.schema(
            [*about, ("facts", pa.string()), *((f"n_{name}", pa.int32()) for name in COUNTED)]
        ),
        "intervals": pa.schema([user, ("channel", pa.string()), *span]),
        "apps": pa.schema([user, *span, ("app", pa.string()), ("category", pa.string()), *share]),
        "network": pa.schema([user, *span, ("kind", pa.string())]),
        "battery": pa.schema([user, ("t_ns", pa.int64()), ("level", pa.float64())]),
        "throughput": pa.schema(
            [user, ("t_ns", pa.int64()), ("down_bps", pa.float64()), ("up_bps", pa.float64())]
        ),
    }


def readable_columns(table: str) -> Columns:
    """What a reader of a stored table relies on."""
    unknown = {
        "users": ("time_zone", "device", "source", "licence", "facts"),
        "apps": ("category", "cpu", "memory"),
    }
    texts = {"kind": [kind.name.lower() for kind in NetworkKind], "channel": INTERVAL_CHANNELS}
    return Columns(schemas()[table], nulls=unknown.get(table, ()), texts=texts)


def _about_kind(name: str) -> type:
    return int if name.endswith("_ns") else bool if name == "relative_time" else str


Rows = dict[str, Any]


def rows_of(trace: InteractionTrace) -> dict[str, Rows]:
    """The rows of one trace in every table, without the user's number."""
    rows: dict[str, Rows] = {"intervals": _interval_rows(trace)}
    if trace.apps is not None:
        rows["apps"] = _app_rows(trace.apps)
    if trace.network is not None:
        spans = trace.network
        names = np.array([kind.name.lower() for kind in NetworkKind], object)
        rows["network"] = {"start_ns": spans.start_ns, "end_ns": spans.end_ns, "kind": names[spans.kind]}
    for table, points in point_channels(trace):
        rows[table] = {column.name: getattr(points, column.name) for column in fields(points)}
    return rows


def user_row(trace: InteractionTrace) -> dict[str, Any]:
    """What a trace says about itself, and the length of every channel."""
    row: dict[str, Any] = {name: getattr(trace, name) for name in _ABOUT}
    row["facts"] = json.dumps(dict(trace.facts), ensure_ascii=False, allow_nan=False) if trace.facts else ""
    lengths = {name: len(part) for name, part in (*interval_channels(trace), *point_channels(trace))}
    return row | {f"n_{name}": lengths.get(name, -1) for name in COUNTED}


def _interval_rows(trace: InteractionTrace) -> Rows:
    parts = [(name, part) for name, part in interval_channels(trace) if name in INTERVAL_CHANNELS]
    names = np.array([name for name, _ in parts], object)
    none = [np.empty(0, np.int64)]
    return {
        "channel": np.repeat(names, [len(part) for _, part in parts]),
        "start_ns": np.concatenate(none + [part.start_ns for _, part in parts]),
        "end_ns": np.concatenate(none + [part.end_ns for _, part in parts]),
    }


def _app_rows(apps: AppSessions) -> Rows:
    unknown = np.full(len(apps), np.nan)
    names = np.array(apps.names, object)
    categories = np.array(apps.categories or ("",) * len(apps.names), object)
    return {
        "start_ns": apps.start_ns,
        "end_ns": apps.end_ns,
        "app": names[apps.app],
        "category": categories[apps.app],
        "cpu": unknown if apps.cpu is None else apps.cpu,
        "memory": unknown if apps.memory is None else apps.memory,
    }


def trace_from(row: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> InteractionTrace:
    """A trace from its row in ``users`` and its rows in the other tables."""
    channels = _cut(row, tables["intervals"])
    facts = {name: Fact(channels[name], channels.get(f"{name}.known")) for name in FACTS if name in channels}
    return InteractionTrace(
        **{name: row[name] for name in _ABOUT},
        facts=_facts(row["facts"]),
        coverage=channels.get("coverage"),
        **facts,  # type: ignore[arg-type]
        apps=_apps(tables["apps"], channels.get("apps.known")) if row["n_apps"] >= 0 else None,
        network=_network(tables["network"]) if row["n_network"] >= 0 else None,
        battery=_points(BatteryPoints, tables["battery"]) if row["n_battery"] >= 0 else None,
        throughput=_points(Throughput, tables["throughput"]) if row["n_throughput"] >= 0 else None,
    )


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = parse_json(text) if text else {}
    except ValueError as error:
        raise ValueError(f"users.parquet: column 'facts': {error}") from error
    if not isinstance(facts, dict):
        raise ValueError("users.parquet: column 'facts': no table")  # noqa: TRY004 - the file is wrong
    return facts


def _cut(row: Mapping[str, Any], table: pa.Table) -> dict[str, Intervals]:
    start, end = _array(table, "start_ns"), _array(table, "end_ns")
    channels, begin = {}, 0
    for name in INTERVAL_CHANNELS:
        n = row[f"n_{name}"]
        if n >= 0:
            channels[name] = Intervals(start[begin : begin + n], end[begin : begin + n])
            begin += n
    return channels


def _apps(table: pa.Table, known: Intervals | None) -> AppSessions:
    pairs = list(zip(table["app"].to_pylist(), table["category"].to_pylist(), strict=True))
    numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    categories = tuple(category for _, category in numbers)
    measured = {
        name: share
        for name in ("cpu", "memory")
        if not np.all(np.isnan(share := _array(table, name))) and len(share)
    }
    return AppSessions(
        start_ns=_array(table, "start_ns"),
        end_ns=_array(table, "end_ns"),
        app=np.array([numbers[pair] for pair in pairs], np.int32),
        names=tuple(name for name, _ in numbers),
        categories=categories if any(categories) else (),
        known=known,
        **measured,
    )


def _network(table: pa.Table) -> NetworkSpans:
    kinds = [NetworkKind[name.upper()] for name in table["kind"].to_pylist()]
    return NetworkSpans(_array(table, "start_ns"), _array(table, "end_ns"), np.array(kinds, np.int8))


def _points(kind: type[Any], table: pa.Table) -> Any:
    return kind(*(_array(table, name) for name in table.column_names if name != "user"))


def _array(table: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(table[name].to_numpy())
