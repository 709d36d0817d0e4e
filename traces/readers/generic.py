"""The generic table, as CSV, TSV or Parquet: for everything that has no reader of its own.

`docs/traces-format.md` is the reference. In short: a row tells about one user, at one moment (``time``) or
over a span (``start`` with ``end`` or ``duration``); each further column is one of
`traces.readers.rows.row_reader.FIELDS` or is mapped to one; an empty cell tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from joulefleet.errors import DataQualityError
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.common.parquet import ParquetTable
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of, stem
from traces.readers.rows import options as choices
from traces.readers.rows import row_reader as fields
from traces.readers.rows import value_codec as meanings
from traces.readers.rows.assemble import source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.collected import CollectedRows
from traces.readers.rows.spool import UserSpool

SUFFIXES = (".csv", ".tsv", ".parquet")
_DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";"}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user of a table, or of a folder of tables."""
    choices.check(options, settings=("user", "delimiter", *meanings.SETTINGS), fields=fields.FIELDS)
    where_from = source_facts(options, stem(source), "")
    if not where_from.licence:
        report.note("the licence is not stated (setting: licence)")
    with UserSpool() as spool:
        told = CollectedRows(spool)
        for path in files_of(source, *SUFFIXES):
            table = _opened(path, options, report)
            columns = _columns(table, options, report)
            user = options.settings.get("user", stem(path))
            means = meanings.value_codec(options, report)
            if isinstance(table, ParquetTable):
                means = table.adapted(means, columns)
            table.each(fields.RowReader(columns, user, told, means).read)
        yield from told.traces(where_from, report, ChannelRules(hold_ns=choices.hold_ns(options, None)))


def _opened(path: Path, options: ReaderOptions, report: ImportReport) -> CsvTable | ParquetTable:
    if path.suffix.lower() == ".parquet":
        return ParquetTable(path, options, report)
    default = "tab" if ".tsv" in path.name.lower() else "comma"
    delimiter = _DELIMITERS[choices.one_of(options, "delimiter", default, tuple(_DELIMITERS))]
    return CsvTable(path, options, report, delimiter=delimiter)


def _columns(table: CsvTable | ParquetTable, options: ReaderOptions, report: ImportReport) -> dict[str, int]:
    columns = renamed(options, {field: field for field in fields.FIELDS})
    absent = [name for name in options.column_map.values() if name not in table.header]
    if absent:
        raise DataQualityError(
            f"{table.path.name}: has no column {', '.join(absent)}; it has {', '.join(table.header[:20])}",
            hint="check the names given with --map",
        )
    at = table.positions(columns)
    unused = [name for position, name in enumerate(table.header) if position not in at.values()]
    if unused:
        report.note(f"columns not kept: {', '.join(unused[:20])}")
    return at
