"""StudentLife: the running tasks of Android phones every 20 minutes (Wang et al., UbiComp 2014).

Two forms: one table of all users (``user, timestamp, task_id, top_package, num_running``), and the published
``running_app_u00.csv`` with ``RUNNING_TASKS_topActivity_mPackage``, whose user is the end of the file name.
All rows of one snapshot have the same time; Android lists the most recent task first
(`ActivityManager.getRunningTasks`), so the first row is the app on top. Whether the screen was on is not
known: a phone that lies in a drawer has an app on top, too.

A snapshot counts until the next one, but at most 20 minutes and a few seconds (setting ``hold_s``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of, stem
from traces.readers.rows.assemble import assemble_all, source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.spool import NameIndex, RecordKind, UserSpool
from traces.readers.rows.timestamps import number_to_ns

SOURCE = "StudentLife (Wang et al., UbiComp 2014)"
LICENCE = "StudentLife terms of use; citation required"
HOLD_S = 1205.0

COLUMNS = {"user": "user", "time": "timestamp", "app": "top_package"}
_PUBLISHED_APP = "RUNNING_TASKS_topActivity_mPackage"


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user of a file, or of a folder of files."""
    options.check(settings=("hold_s",), fields=tuple(COLUMNS))
    rules = ChannelRules(hold_ns=options.hold_ns(HOLD_S))
    where_from = source_facts(options, report, SOURCE, LICENCE)
    apps = NameIndex("app")
    with UserSpool() as spool:
        for path in files_of(source, ".csv"):
            table = CsvTable(path, options, report)
            table.each(_row_handler(table, options, spool, apps, report))
        yield from assemble_all(spool, where_from, report, rules=rules, apps=apps.all())


def _row_handler(
    table: CsvTable, options: ReaderOptions, spool: UserSpool, apps: NameIndex, report: ImportReport
) -> Callable[[list[str]], None]:
    columns = renamed(options, COLUMNS)
    if _PUBLISHED_APP in table.header and "app" not in options.column_map:
        columns["app"] = _PUBLISHED_APP
    at = table.positions(columns, required=("time", "app"))
    name = stem(table.path).rpartition("_")[2]
    last: dict[str, int] = {}

    def handle(row: list[str]) -> None:
        user = row[at["user"]] if "user" in at else name
        t_ns = number_to_ns(row[at["time"]])
        if last.get(user) == t_ns:
            report.note("tasks below the one on top, not kept")
            return
        app = apps.index(row[at["app"]])
        spool.of(user).add(RecordKind.APP, t_ns, code=app)
        last[user] = t_ns

    return handle
