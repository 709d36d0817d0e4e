"""LiveLab: SQL dumps of 34 iPhone users (Shepard et al., SIGMETRICS Performance Evaluation Review, 2010).

``appusage`` has one row per run of an app: ``id, uid, name, time, duration`` in POSIX seconds. A run ends
when the screen goes off, so the runs double as the screen's on-times unless a ``display`` table says better.
``SpringBoard``, the home screen, is an app like any other. The columns of all other tables are not known:
the user maps them, with ``TABLE.FIELD=COLUMN`` or with ``FIELD=COLUMN`` and the setting ``table``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from joulefleet.errors import ConfigError, DataQualityError
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.mysql_dump import InsertRow, insert_rows
from traces.readers.files.sources import files_of, text_chunks
from traces.readers.rows.assemble import CollectedRows, source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.row_reader import FIELDS, RowReader
from traces.readers.rows.spool import UserSpool
from traces.readers.rows.value_codec import SETTINGS, ValueCodec, value_codec

SOURCE = "LiveLab (Shepard et al., SIGMETRICS Performance Evaluation Review, 2010)"
LICENCE = "not stated in the dump; see the LiveLab traces page"

COLUMNS = {
    "appusage": {"user": "uid", "app": "name", "time": "time", "duration": "duration"},
    "display": {"user": "uid", "time": "time", "screen": "state"},
}
"""Known tables: field to column. Of ``display`` only the purpose is published: map what differs."""

APPUSAGE_ORDER = ("id", "uid", "name", "time", "duration")
"""Order of the values where the dump names no columns."""


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user of a dump, or of a folder of dumps."""
    tables = _table_columns(options)
    with UserSpool() as spool:
        collected = CollectedRows(spool)
        rows = _Rows(tables, value_codec(options, report), collected, report)
        for path in files_of(source, ".sql"):
            for row in insert_rows(text_chunks(path, options, report), tables):
                rows.take(path, row)
        if not len(spool.users):
            raise DataQualityError(
                f"{source.name}: there is no usable row of {', '.join(tables)}",
                hint="check the names of the tables in the dump; --set tables=... chooses them",
            )
        rules = ChannelRules(hold_ns=options.hold_ns(), screen_from_sessions="appusage" in tables)
        yield from collected.traces(source_facts(options, report, SOURCE, LICENCE), report, rules)


def _table_columns(options: ReaderOptions) -> dict[str, dict[str, str]]:
    """Which tables to read, and each one's columns by field."""
    replace(options, column_map={}).check(settings=("table", "tables", *SETTINGS))
    default = options.settings.get("table", "").lower()
    wanted = [name.strip().lower() for name in options.settings.get("tables", "").split(",") if name.strip()]
    if not wanted:
        wanted = [default] if default else list(COLUMNS)
    columns = {table: dict(COLUMNS.get(table, {})) for table in wanted}
    for key, column in options.column_map.items():
        table, _, field = key.rpartition(".")
        table = table.lower() or default
        if not table or field not in FIELDS:
            raise ConfigError(
                f"cannot map {key!r}",
                hint=f"write TABLE.FIELD=COLUMN with a field of {', '.join(FIELDS)}",
            )
        columns.setdefault(table, dict(COLUMNS.get(table, {})))[field] = column.lower()
    unmapped = [table for table, mapped in columns.items() if not mapped]
    if unmapped:
        raise ConfigError(
            f"the columns of table {unmapped[0]!r} are not known",
            hint=f"map them, e.g. --map {unmapped[0]}.user=uid --map {unmapped[0]}.time=time ...",
        )
    return columns


class _Rows:
    """Takes rows of several tables, whose columns may change from statement to statement."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, str]],
        codec: ValueCodec,
        collected: CollectedRows,
        report: ImportReport,
    ) -> None:
        self._tables = tables
        self._codec = codec
        self._collected = collected
        self._report = report
        self._readers: dict[tuple[str, tuple[str, ...] | None], tuple[RowReader, int]] = {}

    def take(self, path: Path, row: InsertRow) -> None:
        self._report.rows += 1
        if row.problem:
            self._report.bad(path, row.line, row.problem)
            return
        known = self._readers.get((row.table, row.columns))
        if known is None:
            known = self._readers[row.table, row.columns] = self._reader(path, row)
        reader, width = known
        try:
            if len(row.values) != width:
                raise ValueError(f"{len(row.values)} values instead of {width}")
            reader.read(row.values)
        except ValueError as error:
            self._report.bad(path, row.line, str(error))

    def _reader(self, path: Path, row: InsertRow) -> tuple[RowReader, int]:
        order = row.columns or (APPUSAGE_ORDER if row.table == "appusage" else None)
        wanted = self._tables[row.table]
        if order is None:
            raise ConfigError(
                f"{path.name}:{row.line}: the dump does not name the columns of {row.table}",
                hint="add its CREATE TABLE statement in front, or leave it out with --set tables=appusage",
            )
        missing = [column for column in wanted.values() if column not in order]
        if missing:
            raise ConfigError(
                f"{path.name}:{row.line}: {row.table} has no column {', '.join(missing)}; "
                f"it has {', '.join(order)}",
                hint=f"map the columns with --map {row.table}.FIELD=COLUMN",
            )
        if "user" not in wanted:
            raise ConfigError(
                f"{row.table}: no column is mapped to the user", hint=f"--map {row.table}.user=uid"
            )
        columns = {field: order.index(column) for field, column in wanted.items()}
        return RowReader(columns, "", self._collected, self._codec), len(order)
