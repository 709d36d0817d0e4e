"""The generic table, as CSV, TSV or Parquet: for everything that has no reader of its own.

`docs/traces-format.md` is the reference. In short: a row is about one user, at one moment (``time``) or
over a span (``start`` with ``end`` or ``duration``); each further column is one of
`traces.readers.rows.row_reader.FIELDS` or is mapped to one; an empty cell says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from joulefleet.budgets import COLUMNS
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.printable import listed
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of, require_file, stem
from traces.readers.rows.assemble import CollectedRows, source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.row_reader import FIELDS, WHEN, Row, RowReader
from traces.readers.rows.spool import UserSpool
from traces.readers.rows.timestamps import SHOWN_TWICE, number_to_ns
from traces.readers.rows.value_codec import SETTINGS, ValueCodec, value_codec

SUFFIXES = (".csv", ".tsv", ".parquet")
_DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";"}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user of a table, or of a folder of tables."""
    options.check(settings=("user", "delimiter", *SETTINGS), fields=FIELDS)
    where_from = source_facts(options, report, stem(source))
    with UserSpool() as spool:
        rows = CollectedRows(spool)
        for path in files_of(source, *SUFFIXES):
            table = _opened(path, options, report)
            columns = _columns(table, options, report)
            user = options.settings.get("user", stem(path))
            codec = value_codec(options, report)
            if isinstance(table, ParquetTable):
                codec = table.adapted(codec, columns)
            table.each(RowReader(columns, user, rows, codec).read)
        yield from rows.traces(where_from, report, ChannelRules(hold_ns=options.hold_ns()))


def _opened(path: Path, options: ReaderOptions, report: ImportReport) -> CsvTable | ParquetTable:
    if path.suffix.lower() == ".parquet":
        return ParquetTable(path, options, report)
    default = "tab" if ".tsv" in path.name.lower() else "comma"
    delimiter = _DELIMITERS[options.one_of("delimiter", default, tuple(_DELIMITERS))]
    return CsvTable(path, options, report, delimiter=delimiter)


def _columns(table: CsvTable | ParquetTable, options: ReaderOptions, report: ImportReport) -> dict[str, int]:
    columns = renamed(options, {field: field for field in FIELDS})
    absent = [name for name in options.column_map.values() if name not in table.header]
    if absent:
        raise DataQualityError(
            f"{table.path.name}: has no column {', '.join(absent)}; it has {listed(table.header)}",
            hint="check the names given with --map",
        )
    at = table.positions(columns)
    unused = [name for position, name in enumerate(table.header) if position not in at.values()]
    if unused:
        report.note(f"columns not kept: {', '.join(unused[:20])}")
    return at


BATCH_ROWS = 1 << 16
BATCH_CELLS = 1 << 21
"""Of a batch: fewer rows at once of a file with many columns."""


class ParquetTable:
    """One Parquet file, batch by batch, as rows of texts like those of a CSV."""

    def __init__(self, path: Path, options: ReaderOptions, report: ImportReport) -> None:
        import pyarrow.parquet as pq

        require_file(path)
        self.path = path
        self._options = options
        self._report = report
        with self._readable():
            self._schema = pq.read_schema(path)
            self.header: list[str] = list(self._schema.names)
            if len(self.header) > COLUMNS:
                raise DataQualityError(f"{path.name}: has {len(self.header)} columns, more than {COLUMNS}")
            # A text that is stored once and repeated a billion times stays stored once.
            self._file = pq.ParquetFile(path, read_dictionary=_text_columns(self._schema))

    def positions(self, columns: Mapping[str, str]) -> dict[str, int]:
        """Where each field stands in a row."""
        return {field: self.header.index(name) for field, name in columns.items() if name in self.header}

    def adapted(self, codec: ValueCodec, columns: Mapping[str, int]) -> ValueCodec:
        """The codec for a file that may have times of Parquet's own type, which know their unit."""
        import pyarrow as pa

        stamped = {
            name: pa.types.is_timestamp(self._schema.field(columns[name]).type)
            for name in WHEN
            if name in columns and name != "duration"
        }
        if len(set(stamped.values())) > 1:
            raise ConfigError(f"{self.path.name}: {', '.join(stamped)} are not of the same type")
        if any(stamped.values()):
            return replace(codec, time_ns=partial(number_to_ns, unit_ns=1))
        return codec

    def each(self, handle: Callable[[Row], None]) -> None:
        """Give every row to ``handle``; a row for which it raises `ValueError` is a bad one."""
        begin, size = self._report.bytes_read, self.path.stat().st_size
        total = max(self._file.metadata.num_rows, 1)
        number = 0
        for batch in self._batches():
            with self._readable():
                columns = [self._texts(*named) for named in zip(batch.columns, self.header, strict=True)]
            for row in zip(*columns, strict=True):
                number += 1
                self._report.rows += 1
                try:
                    handle(row)
                except ValueError as error:
                    self._report.bad(self.path, number, str(error))
            self._report.progress(begin + size * number // total)

    def _batches(self) -> Iterator[Any]:
        rows = max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, len(self.header))))
        batches = self._file.iter_batches(batch_size=rows)
        while True:
            with self._readable():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _texts(self, column: Any, name: str) -> list[str | None]:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type
        if pa.types.is_timestamp(kind):
            if kind.tz is None:
                zone = self._options.zone(f"column {name} holds wall-clock times")
                # Of an hour that the clock showed twice or skipped, the two readings differ.
                first, last = (
                    pc.assume_timezone(column, zone.key, ambiguous=taken, nonexistent=taken)
                    for taken in ("earliest", "latest")
                )
                self._report.note(SHOWN_TWICE, pc.sum(pc.not_equal(first, last)).as_py() or 0)
                column = first
            column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        elif pa.types.is_dictionary(kind):
            values = self._texts(column.dictionary, name)
            return [None if at is None else values[at] for at in column.indices.to_pylist()]
        if pa.types.is_nested(column.type):
            return [None] * len(column)
        # pandas writes what is missing as null or as NaN; a value is equal to itself.
        return [
            _text(value) if value is not None and value == value else None for value in column.to_pylist()
        ]

    @contextmanager
    def _readable(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DataQualityError(
                f"{self.path.name}: cannot be read as Parquet ({str(error).splitlines()[0]})",
                hint="is it whole? copy or download it again",
            ) from error


def _text_columns(schema: Any) -> list[str]:
    import pyarrow as pa

    return [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_binary(one.type)]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # repr of a float is exact, and 3.0 in a column of codes means 3.
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return str(value)
