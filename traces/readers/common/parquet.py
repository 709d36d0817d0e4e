"""Parquet tables, batch by batch, as rows of texts like those of a CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from joulefleet.errors import ConfigError, DataQualityError
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.sources import require_file
from traces.readers.rows import options as choices
from traces.readers.rows.row_reader import WHEN, Row
from traces.readers.rows.timestamps import SHOWN_TWICE, number_to_ns
from traces.readers.rows.value_codec import ValueCodec

BATCH_ROWS = 1 << 16


class ParquetTable:
    """One Parquet file; its schema is read at once, its rows when asked for."""

    def __init__(self, path: Path, options: ReaderOptions, report: ImportReport) -> None:
        import pyarrow.parquet as pq

        require_file(path)
        self.path = path
        self._options = options
        self._report = report
        with self._readable():
            self._file = pq.ParquetFile(path)
        self._schema = self._file.schema_arrow
        self.header: list[str] = list(self._schema.names)

    def positions(self, columns: Mapping[str, str]) -> dict[str, int]:
        """Where each field stands in a row."""
        return {field: self.header.index(name) for field, name in columns.items() if name in self.header}

    def adapted(self, meanings: ValueCodec, columns: Mapping[str, int]) -> ValueCodec:
        """What the texts mean when the file has times of Parquet's own type, which know their unit."""
        import pyarrow as pa

        stamped = {
            name: pa.types.is_timestamp(self._schema.field(columns[name]).type)
            for name in WHEN
            if name in columns and name != "duration"
        }
        if len(set(stamped.values())) > 1:
            raise ConfigError(f"{self.path.name}: {', '.join(stamped)} are not of the same type")
        if any(stamped.values()):
            return replace(meanings, time_ns=partial(number_to_ns, unit_ns=1))
        return meanings

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
        batches = self._file.iter_batches(batch_size=BATCH_ROWS)
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
                zone = choices.zone(self._options, f"column {name} holds wall-clock times")
                # Of an hour that the clock showed twice or skipped, the two readings differ.
                first, last = (
                    pc.assume_timezone(column, zone.key, ambiguous=taken, nonexistent=taken)
                    for taken in ("earliest", "latest")
                )
                self._report.note(SHOWN_TWICE, pc.sum(pc.not_equal(first, last)).as_py() or 0)
                column = first
            column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        elif pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
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


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # repr of a float is exact, and 3.0 in a column of codes means 3.
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return str(value)
