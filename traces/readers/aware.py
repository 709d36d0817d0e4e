"""AWARE: screen and battery events of Android phones (awareframework.com), as CSV.

Two kinds of file, recognised by their columns: ``screen_status`` (0 off, 1 on, 2 locked, 3 unlocked) and
``battery_level``, ``battery_status``, ``battery_adaptor``. Statuses are Android's (2 charging, 3 discharging,
4 not charging, 5 full) and AWARE's own (-1 shutdown, -3 reboot: the phone was off until its next row); the
adaptor is 0 for none, 1 mains, 2 USB, 4 wireless (`BatteryManager` in the Android documentation).

Times are POSIX: seconds in a column ``time`` (as niimpy writes it), milliseconds in a column ``timestamp``
(as AWARE itself does). A folder is one import: screen and battery of the same phone become one trace, named
``user/device``, or after the source where the files name neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from joulefleet.errors import DataQualityError
from joulefleet.printable import listed
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of, stem
from traces.readers.rows.assemble import assemble_all, source_facts
from traces.readers.rows.spool import RecordKind, UserRecords, UserSpool
from traces.readers.rows.timestamps import UNITS_NS, number_to_ns
from traces.readers.rows.value_codec import within

SOURCE = "AWARE"

COLUMNS = {
    "user": "user",
    "device": "device",
    "device_id": "device_id",
    "time": "time",
    "timestamp": "timestamp",
    "screen": "screen_status",
    "level": "battery_level",
    "status": "battery_status",
    "adaptor": "battery_adaptor",
}
_SCREEN = {"0": 0, "1": 1}
_LOCK = {"2": "locked", "3": "unlocked"}
_POWERED_OFF = {"-1": "shutdown", "-3": "reboot"}
_ADAPTORS = {"0": 0, "1": 1, "2": 1, "4": 1}
_STATUSES = {"1", "2", "3", "4", "5"}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per phone of a file, or of a folder of files."""
    options.check(settings=("user",), fields=tuple(COLUMNS))
    where_from = source_facts(options, report, SOURCE)
    fallback = options.settings.get("user", stem(source))
    with UserSpool() as spool:
        for path in files_of(source, ".csv"):
            table = CsvTable(path, options, report)
            rows = _Rows(table, renamed(options, COLUMNS), fallback, spool, report)
            table.each(rows.handler())
        yield from assemble_all(spool, where_from, report)


class _Rows:
    """Turns the rows of one file into records."""

    def __init__(
        self, table: CsvTable, columns: dict[str, str], fallback: str, spool: UserSpool, report: ImportReport
    ) -> None:
        self._table = table
        self._at = table.positions(columns)
        self._who = [self._at[field] for field in ("user", "device", "device_id") if field in self._at]
        self._fallback = fallback
        self._spool = spool
        self._report = report

    def handler(self) -> Callable[[list[str]], None]:
        """What to do with each row, by the columns of the file."""
        if "time" not in self._at and "timestamp" not in self._at:
            raise DataQualityError(f"{self._table.path.name}: has no column time (s) or timestamp (ms)")
        if "screen" in self._at:
            return self._screen
        if {"level", "status", "adaptor"} <= set(self._at):
            return self._battery
        raise DataQualityError(
            f"{self._table.path.name}: is neither AWARE's screen nor its battery table",
            hint=f"it has {listed(self._table.header)}; map columns with --map FIELD=COLUMN",
        )

    def _t_ns(self, row: list[str]) -> int:
        if "time" in self._at:
            return number_to_ns(row[self._at["time"]], UNITS_NS["s"])
        return number_to_ns(row[self._at["timestamp"]], UNITS_NS["ms"])

    def _of(self, row: list[str]) -> UserRecords:
        user = "/".join(row[position] for position in self._who) if self._who else self._fallback
        return self._spool.of(user)

    def _screen(self, row: list[str]) -> None:
        t_ns = self._t_ns(row)
        status = row[self._at["screen"]]
        if status in _SCREEN:
            self._of(row).add(RecordKind.SCREEN, t_ns, code=_SCREEN[status])
        elif status in _LOCK:
            self._of(row).add(RecordKind.SEEN, t_ns)
            self._report.note(f"{_LOCK[status]} events, not kept")
        else:
            raise ValueError(f"screen_status {status[:40]!r} is not known")

    def _battery(self, row: list[str]) -> None:
        t_ns = self._t_ns(row)
        status, adaptor = row[self._at["status"]], row[self._at["adaptor"]]
        if status not in _STATUSES and status not in _POWERED_OFF:
            raise ValueError(f"battery_status {status[:40]!r} is not known")
        if adaptor not in _ADAPTORS:
            raise ValueError(f"battery_adaptor {adaptor[:40]!r} is not known")
        level = within("battery_level", row[self._at["level"]], 100.0) / 100.0
        observed = self._of(row)
        observed.add(RecordKind.LEVEL, t_ns, x=level)
        if status in _POWERED_OFF:
            observed.add(RecordKind.STOPPED, t_ns)
            self._report.note(f"{_POWERED_OFF[status]} events, unknown until the next row")
        else:
            observed.add(RecordKind.PLUGGED, t_ns, code=_ADAPTORS[adaptor])
