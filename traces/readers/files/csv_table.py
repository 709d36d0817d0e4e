"""Delimited tables with a header: which column holds which field, and every row with its line number."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from joulefleet.budgets import COLUMNS
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.printable import listed
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.sources import is_text, lines, text_chunks


class CsvTable:
    """One delimited file; its header is read at once, its rows when asked for."""

    def __init__(
        self,
        path: Path,
        options: ReaderOptions,
        report: ImportReport,
        *,
        delimiter: str = ",",
        quoting: int = csv.QUOTE_MINIMAL,
    ) -> None:
        self.path = path
        self._report = report
        text = lines(text_chunks(path, options, report), path.name)
        self._rows = self._numbered(csv.reader(text, delimiter=delimiter, quoting=quoting))  # type: ignore[arg-type]
        first = next(self._rows, None)
        if first is None:
            raise DataQualityError(f"{path.name}: is empty")
        self.header = [name.strip() for name in first[1]]
        if len(self.header) > COLUMNS:
            raise DataQualityError(f"{path.name}: has {len(self.header)} columns, more than {COLUMNS}")
        if not all(map(is_text, self.header)):
            raise DataQualityError(
                f"{path.name}: the header is not valid text",
                hint="say which it is, e.g. --set encoding=latin-1",
            )

    def positions(self, columns: Mapping[str, str], *, required: tuple[str, ...] = ()) -> dict[str, int]:
        """Where each field stands in a row.

        Args:
            columns: Field to column name; fields whose column is not there are left out.
            required: Fields that must be there.

        Raises:
            DataQualityError: A required column is missing, or a wanted one is there twice.
        """
        missing = [columns[field] for field in required if columns[field] not in self.header]
        if missing:
            raise DataQualityError(
                f"{self.path.name}: has no column {', '.join(missing)}; it has {listed(self.header)}",
                hint="check the format name, or map the columns with --map FIELD=COLUMN",
            )
        twice = [name for name in columns.values() if self.header.count(name) > 1]
        if twice:
            raise DataQualityError(f"{self.path.name}: has the column {twice[0]} twice")
        return {field: self.header.index(name) for field, name in columns.items() if name in self.header}

    def each(self, handle: Callable[[list[str]], None]) -> None:
        """Give every row to ``handle``; a row for which it raises `ValueError` is a bad one."""
        width = len(self.header)
        for line, row in self._rows:
            self._report.rows += 1
            try:
                if len(row) != width:
                    raise ValueError(f"{len(row)} fields instead of {width}")
                handle(row)
            except ValueError as error:
                self._report.bad(self.path, line, str(error))

    def _numbered(self, reader: Any) -> Iterator[tuple[int, list[str]]]:
        """Line number and fields of each row, empty lines left out."""
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise DataQualityError(
                f"{self.path.name}:{reader.line_num}: {error}",
                hint="look for a quote that is not closed near that line",
            ) from error


def renamed(options: ReaderOptions, columns: Mapping[str, str]) -> dict[str, str]:
    """A format's columns, with those the user maps put in their place.

    Raises:
        ConfigError: A mapped column is empty.
    """
    if not all(options.column_map.values()):
        raise ConfigError("a field is mapped to a column without a name")
    return {**columns, **options.column_map}
