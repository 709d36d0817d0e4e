"""Generated people as a trace set: blocks go straight into the columns of its tables, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import joulefleet
from joulefleet.errors import ConfigError
from joulefleet.files import new_folder, storage_error
from joulefleet.provenance import Origin, Provenance, SourceRef
from joulefleet.records import write_record
from joulefleet.runstore.table import PARQUET_SUFFIX
from traces.model import FACTS, NetworkKind
from traces.storage.tables import COUNTED, schemas
from traces.storage.trace_set import MANIFEST_FILE, TraceSet, TraceSetRecord, table_record
from traces.synth.draw.people import ChannelStretches, PeopleBlock, draw_people
from traces.synth.model import UsageModel, load_model

if TYPE_CHECKING:
    import pyarrow as pa

START_NS = 1_704_067_200 * 10**9
"""Monday, 1 January 2024, 0:00 UTC: where generated traces begin."""
TIME_ZONE = "UTC"
LICENCE = "generated; describes no real person"
MS_NS = 1_000_000
MAX_DAYS = 3650
Tables = dict[str, "pa.Table"]


def synthesise(
    model: UsageModel | str,
    out: Path | str,
    *,
    users: int,
    days: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> TraceSet:
    """Generate a trace set in a new folder.

    The tables are the same bytes for the same model, users, days and seed, and the rows of a user are the
    same for any number of users.

    Examples:
        >>> people = synthesise_traces("default", "people", users=100, days=7, seed=0)

    Args:
        model: A usage model, the name of a bundled one, or its file.
        out: The new folder.
        users: How many people.
        days: For how long.
        seed: The same seed gives the same people, however many.
        on_progress: Called with the number of people so far.

    Raises:
        ConfigError: No users or no days.
        StorageError: The folder exists already or cannot be written.
    """
    if users < 1 or not 1 <= days <= MAX_DAYS or seed < 0:
        raise ConfigError(
            f"{users} users, {days} days, seed {seed}: cannot be generated",
            hint=f"at least one user, 1 to {MAX_DAYS} days, a seed that is not negative",
        )
    if isinstance(model, str):
        model = load_model(model)
    out = Path(out)
    with new_folder(out) as folder:
        try:
            with _Tables(folder) as tables:
                columns = _Columns(model)
                for block in draw_people(model, users, days, seed):
                    tables.append(columns.of(block))
                    if on_progress is not None:
                        on_progress(block.first + block.people)
        except OSError as error:
            raise storage_error(out, error) from error
        record = TraceSetRecord(
            created_utc=datetime.now(UTC),
            writer_version=joulefleet.__version__,
            users=users,
            provenance=Provenance(
                origin=Origin.EMULATED,
                sources=(SourceRef(id=f"usage model {model.name}", sha256=model.sha256()),),
                basis=f"synthetic: {users} users x {days} days, seed {seed}, usage model {model.name}",
            ),
            tables={name: table_record(folder, name) for name in schemas()},
        )
        write_record(folder / MANIFEST_FILE, record)
    return TraceSet(out)


class _Tables:
    """The Parquet files of a set; they are written by a thread of their own while the next block is drawn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schemas = _written_schemas()
        self._stack = ExitStack()
        self._pending: Future[None] | None = None

    def __enter__(self) -> _Tables:
        import pyarrow.parquet as pq

        self._writers = {
            name: self._stack.enter_context(
                # Without the Arrow schema, columns written from dictionaries are read as plain strings.
                pq.ParquetWriter(
                    self._folder / (name + PARQUET_SUFFIX), schema, store_schema=False, **_encoding(schema)
                )
            )
            for name, schema in self._schemas.items()
        }
        self._pool = self._stack.enter_context(ThreadPoolExecutor(1))
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._wait()

    def append(self, tables: Tables) -> None:
        """Take a block; returns as soon as the block before is on disk."""
        self._wait()
        self._pending = self._pool.submit(self._write, tables)

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, tables: Tables) -> None:
        for name, table in tables.items():
            self._writers[name].write_table(table)


def _written_schemas() -> dict[str, pa.Schema]:
    """The tables of a set, with the few different words of the long ones as dictionaries."""
    import pyarrow as pa

    found = schemas()
    for name, words in (("intervals", ("channel",)), ("apps", ("app", "category")), ("network", ("kind",))):
        schema = found[name]
        for word in words:
            place = schema.get_field_index(word)
            schema = schema.set(place, pa.field(word, pa.dictionary(pa.int8(), pa.string())))
        found[name] = schema
    return found


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Times increase, so their differences are small; words and unknown shares repeat."""
    import pyarrow as pa

    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    return {
        "compression": "zstd",
        "use_dictionary": [field.name for field in schema if field.name not in (*numbers, "level")],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "write_statistics": False,
    }


class _Columns:
    """Turns blocks into rows of the tables."""

    def __init__(self, model: UsageModel) -> None:
        import pyarrow as pa

        self._schemas = _written_schemas()
        self._source = f"synthetic: usage model {model.name} {model.sha256()[:12]}"
        categories = model.apps.categories if model.apps is not None else ()
        self._categories = pa.array(categories, pa.string())
        self._kinds = pa.array([kind.name.lower() for kind in (NetworkKind.NOT_WIFI, NetworkKind.WIFI)])

    def of(self, block: PeopleBlock) -> Tables:
        """The rows of a block."""
        import pyarrow as pa

        facts = {name: block.channels[name] for name in FACTS if name in block.channels}
        on = {name: stretches.where(stretches.on) for name, stretches in facts.items()}
        lengths = {name: _lengths(part.person, block) for name, part in on.items()}
        found = {"intervals": self._intervals(on, block)}
        if block.app is not None:
            found["apps"] = self._apps(on["screen"], block)
            lengths["apps"] = lengths["screen"]
        if "wifi" in block.channels:
            wifi = block.channels["wifi"]
            kind = pa.DictionaryArray.from_arrays(wifi.on.astype(np.int8), self._kinds)
            found["network"] = {**_times(wifi, block), "kind": kind}
            lengths["network"] = _lengths(wifi.person, block)
        if block.battery is not None:
            readings = block.battery
            found["battery"] = {
                "user": _users(readings.person, block),
                "t_ns": START_NS + readings.t_ms * MS_NS,
                "level": readings.level,
            }
            lengths["battery"] = _lengths(readings.person, block)
        found["users"] = self._users(lengths, block)
        return {name: pa.table(columns, self._schemas[name]) for name, columns in found.items()}

    def _users(self, lengths: dict[str, Any], block: PeopleBlock) -> dict[str, Any]:
        n = block.people
        missing = np.full(n, -1, np.int32)
        return {
            "user": [f"synthetic-{number:07d}" for number in range(block.first, block.first + n)],
            "start_ns": np.full(n, START_NS),
            "end_ns": np.full(n, START_NS + block.span_ms * MS_NS),
            "time_zone": [TIME_ZONE] * n,
            "relative_time": [False] * n,
            "device": [""] * n,
            "source": [self._source] * n,
            "licence": [LICENCE] * n,
            "facts": [""] * n,
            **{f"n_{name}": lengths.get(name, missing) for name in COUNTED},
        }

    def _intervals(self, on: dict[str, ChannelStretches], block: PeopleBlock) -> dict[str, Any]:
        import pyarrow as pa

        channel = np.repeat(np.arange(len(on), dtype=np.int8), [len(part.person) for part in on.values()])
        person = np.concatenate([part.person for part in on.values()] or [np.empty(0, np.int64)])
        # By user; the channels of a user stay in the order of the facts.
        order = np.argsort(person.astype(np.int16), kind="stable")
        none = [np.empty(0, np.int64)]
        return {
            "user": _users(person[order], block),
            "channel": pa.DictionaryArray.from_arrays(channel[order], pa.array(list(on), pa.string())),
            "start_ns": START_NS + np.concatenate([p.start_ms for p in on.values()] or none)[order] * MS_NS,
            "end_ns": START_NS + np.concatenate([p.end_ms for p in on.values()] or none)[order] * MS_NS,
        }

    def _apps(self, screen: ChannelStretches, block: PeopleBlock) -> dict[str, Any]:
        import pyarrow as pa

        category = pa.DictionaryArray.from_arrays(block.app, self._categories)
        unknown = np.full(len(screen.person), np.nan)
        return {
            **_times(screen, block),
            "app": category,
            "category": category,
            "cpu": unknown,
            "memory": unknown,
        }


def _times(stretches: ChannelStretches, block: PeopleBlock) -> dict[str, Any]:
    return {
        "user": _users(stretches.person, block),
        "start_ns": START_NS + stretches.start_ms * MS_NS,
        "end_ns": START_NS + stretches.end_ms * MS_NS,
    }


def _users(person: Any, block: PeopleBlock) -> Any:
    return (person + block.first).astype(np.int32)


def _lengths(person: Any, block: PeopleBlock) -> Any:
    return np.bincount(person, minlength=block.people).astype(np.int32)
