"""LSApp: app events of 292 Android users (Aliannejadi et al., ACM TOIS, 2021), tab-separated.

Columns ``user_id, session_id, timestamp, app_name, event_type``; stamps are wall-clock times without a zone,
so the zone must be given. An app is in the foreground from ``Opened`` to ``Closed``; ``User Interaction``
happens in between. What does not fit together is decided thus, and counted:

* an app that was never closed before another one opened ends there;
* after ``Broken`` the foreground is unknown until the next ``Opened``;
* an app that is closed or used without being in the foreground changes nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of
from traces.readers.rows.assemble import assemble, source_facts
from traces.readers.rows.spool import NO_APP, UNKNOWN, NameIndex, RecordKind, UserRecords, UserSpool
from traces.readers.rows.timestamps import SHOWN_TWICE, WallClock

SOURCE = "LSApp (Aliannejadi et al., ACM TOIS, 2021)"
LICENCE = "not stated; see the data set's repository"

COLUMNS = {"user": "user_id", "time": "timestamp", "app": "app_name", "event": "event_type"}
_OPENED, _CLOSED, _USED, _BROKEN = range(4)
_EVENTS = {"Opened": _OPENED, "Closed": _CLOSED, "User Interaction": _USED, "Broken": _BROKEN}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user."""
    options.check(fields=tuple(COLUMNS))
    clock = WallClock(options.zone("LSApp's times are wall-clock times"))
    where_from = source_facts(options, report, SOURCE, LICENCE)
    apps = NameIndex("app")
    with UserSpool() as spool:
        for path in files_of(source, ".tsv"):
            table = CsvTable(path, options, report, delimiter="\t", quoting=csv.QUOTE_NONE)
            table.each(_row_handler(table, options, spool, apps, clock))
        report.note(SHOWN_TWICE, clock.ambiguous)
        names = apps.all()
        for user, observed in spool.each():
            changes = _changes(observed.array(), report)
            trace = assemble(user, changes, where_from, report, apps=names)
            if trace is not None:
                yield trace


def _row_handler(
    table: CsvTable, options: ReaderOptions, spool: UserSpool, apps: NameIndex, clock: WallClock
) -> Callable[[list[str]], None]:
    at = table.positions(renamed(options, COLUMNS), required=tuple(COLUMNS))
    user_at, time_at, app_at, event_at = (at[field] for field in COLUMNS)

    def handle(row: list[str]) -> None:
        event = _EVENTS.get(row[event_at])
        if event is None:
            raise ValueError(f"event_type {row[event_at][:40]!r} is not known")
        t_ns, app = clock.ns(row[time_at]), apps.index(row[app_at])
        # The spool keeps one code per record: which app, and what happened to it.
        spool.of(row[user_at]).add(RecordKind.APP, t_ns, code=app * len(_EVENTS) + event)

    return handle


def _changes(events: NDArray[Any], report: ImportReport) -> UserRecords:
    """From events of apps to changes of the foreground app."""
    t_ns = events["t_ns"]
    report.note("events out of time order, sorted", int(np.count_nonzero(t_ns[1:] < t_ns[:-1])))
    events = events[np.argsort(t_ns, kind="stable")]
    changes = UserRecords()
    front = UNKNOWN
    for moment_ns, code in zip(events["t_ns"].tolist(), events["code"].tolist(), strict=True):
        app, event = divmod(code, len(_EVENTS))
        after = _foreground_after(front, app, event, report)
        changes.add(RecordKind.SEEN if after == front else RecordKind.APP, moment_ns, code=after)
        front = after
    return changes


def _foreground_after(front: int, app: int, event: int, report: ImportReport) -> int:
    if event == _OPENED:
        if front >= 0 and front != app:
            report.note("apps opened before another one was closed, which ends there")
        return app
    if event == _BROKEN:
        report.note("broken sessions, unknown until the next app is opened")
        return UNKNOWN
    if event == _USED:
        if front != app:
            report.note("interactions with an app that was not opened, not kept")
        return front
    if front != app:
        report.note("apps closed that were not in front, not kept")
        return front
    return NO_APP
