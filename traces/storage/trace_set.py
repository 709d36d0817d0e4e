"""Trace sets on disk: a folder with a manifest and one Parquet table per kind of data.

Both ways stream: writing holds some ten thousand rows, reading one user and a batch of rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

import joulefleet
from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError, JoulefleetError, StorageError
from joulefleet.files import file_sha256, new_folder
from joulefleet.provenance import Provenance, Sha256
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.folder import InsidePath, check_folder
from joulefleet.runstore.table import PARQUET_SUFFIX, TableWriter, iter_batches, table_rows
from traces.storage.tables import (
    BULK_TABLES,
    INTERVAL_CHANNELS,
    readable_columns,
    rows_of,
    schemas,
    trace_from,
    user_row,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from traces.model import InteractionTrace


MANIFEST_FILE = "manifest.json"
ORIGIN_FILE = "trace-origin.json"


class TableRecord(ClosedModel):
    """One table of a set."""

    rows: int = Field(ge=0)
    sha256: Sha256


class ImportRecord(ClosedModel):
    """How a set was read from its source.

    Attributes:
        format: Name of the reader.
        source: Name of the file or folder it came from.
        rows: Rows read, bad ones included.
        bad_rows: Rows that could not be used.
        bad_examples: The first of them, with file and line.
        notes: What the reader decided, and how often.
    """

    format: str
    source: str
    rows: int = 0
    bad_rows: int = 0
    bad_examples: tuple[str, ...] = ()
    notes: dict[str, int] = Field(default_factory=dict)


class OriginRecord(StoredRecord):
    """``trace-origin.json``, beside exported tables, which cannot say it: where the traces came from."""

    provenance: Provenance


class RepairRecord(ClosedModel):
    """One change that was made to one trace of a set."""

    user: str
    channel: str
    action: str
    count: int


class TraceSetRecord(StoredRecord):
    """The manifest.

    Attributes:
        writer_version: Version of this program that wrote it.
        users: Number of traces.
        provenance: Where the traces came from; synthetic ones are ``emulated``.
        tables: Rows and hash of every table.
        imported: How they were read, for imported sets.
        repaired_from: Hash of the manifest of the set this one is a repaired copy of.
        repairs: Every change of that repair.
    """

    created_utc: datetime
    writer_version: str
    users: int = Field(ge=0)
    provenance: Provenance
    tables: dict[InsidePath, TableRecord]
    imported: ImportRecord | None = None
    repaired_from: Sha256 | None = None
    repairs: tuple[RepairRecord, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_sets(cls, data: Any) -> Any:
        """Sets of before hold the writer's version under a product's name."""
        if isinstance(data, dict) and "writer_version" not in data:
            named = [key for key in data if key.endswith("_version") and key != "schema_version"]
            if len(named) == 1:
                data["writer_version"] = data.pop(named[0])
        return data


_FLUSH_ROWS = 65_536


class TraceSet:
    """A stored set of traces; iterate to get them one at a time.

    Examples:
        >>> people = TraceSet("people")
        >>> len(people), [trace.user for trace in people]
    """

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        if not (path / MANIFEST_FILE).is_file():
            raise StorageError(
                f"{path}: not a trace set (no {MANIFEST_FILE})",
                hint="`joulefleet traces import FORMAT SRC --out DIR` makes one",
            )
        check_folder(path)
        self.path = path
        self.record = read_record(path / MANIFEST_FILE, TraceSetRecord)

    def __len__(self) -> int:
        return self.record.users

    def __iter__(self) -> Iterator[InteractionTrace]:
        try:
            cursors = {name: _Cursor(self._table(name), readable_columns(name)) for name in BULK_TABLES}
            for batch in iter_batches(self._table("users"), readable_columns("users")):
                for row in batch.to_pylist():
                    yield trace_from(row, {n: c.take(_rows(row, n)) for n, c in cursors.items()})
        except JoulefleetError:
            raise
        except Exception as error:  # whatever another table in its place makes of its reader
            raise StorageError(
                f"{self.path}: a table cannot be read back ({error})", hint="import the traces again"
            ) from error

    def verify(self) -> list[str]:
        """Tables that are not what the manifest says; empty if all are."""
        return [
            name
            for name, table in self.record.tables.items()
            if not self._table(name).is_file() or file_sha256(self._table(name)) != table.sha256
        ]

    def _table(self, name: str) -> Path:
        return self.path / (name + PARQUET_SUFFIX)


def _rows(row: dict[str, Any], table: str) -> int:
    channels = INTERVAL_CHANNELS if table == "intervals" else (table,)
    return sum(max(row[f"n_{name}"], 0) for name in channels)


class _Cursor:
    """Takes rows off the front of a table."""

    def __init__(self, path: Path, columns: Columns) -> None:
        import pyarrow.parquet as pq

        self._batches = iter_batches(path, columns)
        self._left: pa.Table = pq.read_schema(path).empty_table()

    def take(self, n: int) -> pa.Table:
        import pyarrow as pa

        parts = [self._left]
        have = self._left.num_rows
        while have < n:
            batch = next(self._batches, None)
            if batch is None:
                raise ValueError("fewer rows than the users table says")
            parts.append(pa.Table.from_batches([batch]))
            have += batch.num_rows
        table = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
        self._left = table.slice(n)
        return table.slice(0, n)


@contextlib.contextmanager
def new_trace_set(out: Path) -> Iterator[TraceSetWriter]:
    """Store traces as a new set: `TraceSetWriter.add` each, then `TraceSetWriter.describe`.

    The folder appears when the block ends without an error.

    Raises:
        StorageError: The folder exists already or cannot be written.
    """
    with new_folder(out) as folder:
        writer = TraceSetWriter(folder)
        try:
            yield writer
            writer.finish()
        finally:
            writer.abandon()


class TraceSetWriter:
    """Appends traces to the tables of a set that is being made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables = {name: _Rows(folder, name, schema) for name, schema in schemas().items()}
        self._users: set[str] = set()
        self._description: dict[str, Any] | None = None

    def add(self, trace: InteractionTrace) -> None:
        """Append one trace.

        Raises:
            DataQualityError: There is a trace of this user already.
        """
        if trace.user in self._users:
            raise DataQualityError(
                f"user {trace.user!r} comes twice",
                hint="a trace set has one trace per user: import the parts separately or rename one",
            )
        number = len(self._users)
        self._users.add(trace.user)
        self._tables["users"].add({name: [value] for name, value in user_row(trace).items()}, 1)
        for name, columns in rows_of(trace).items():
            n = len(next(iter(columns.values())))
            self._tables[name].add({"user": np.full(n, number, np.int32), **columns}, n)

    def describe(
        self,
        provenance: Provenance,
        *,
        imported: ImportRecord | None = None,
        repaired_from: str | None = None,
        repairs: Iterable[RepairRecord] = (),
    ) -> None:
        """Say where the traces came from; required before the end."""
        self._description = {
            "provenance": provenance,
            "imported": imported,
            "repaired_from": repaired_from,
            "repairs": tuple(repairs),
        }

    def finish(self) -> None:
        """Close the tables and write the manifest."""
        if self._description is None:
            raise ValueError("a trace set must be described before it is finished")
        if not self._users:
            raise DataQualityError("there is not a single trace", hint="check the source and the format")
        for rows in self._tables.values():
            rows.close()
        record = TraceSetRecord(
            created_utc=datetime.now(UTC),
            writer_version=joulefleet.__version__,
            users=len(self._users),
            tables={name: table_record(self._folder, name) for name in self._tables},
            **self._description,
        )
        write_record(self._folder / MANIFEST_FILE, record)

    def abandon(self) -> None:
        """Let go of the files."""
        for rows in self._tables.values():
            rows.abandon()


class _Rows:
    """Collects the small rows of many users into batches worth writing."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._writer = TableWriter(folder, name, schema)
        self._parts: list[dict[str, Any]] = []
        self._rows = 0

    def add(self, columns: dict[str, Any], rows: int) -> None:
        self._parts.append(columns)
        self._rows += rows
        if self._rows >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.append({name: self._joined(name) for name in self._writer.schema.names})
        self._parts, self._rows = [], 0

    def _joined(self, name: str) -> Any:
        parts = [columns[name] for columns in self._parts]
        # numpy's own strings would cut trailing NULs off a name; lists stay lists.
        return list(chain.from_iterable(parts)) if isinstance(parts[0], list) else np.concatenate(parts)

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.abandon()


def table_record(folder: Path, name: str) -> TableRecord:
    """Rows and hash of a table."""
    path = folder / (name + PARQUET_SUFFIX)
    return TableRecord(rows=table_rows(path), sha256=file_sha256(path))
