"""ExtraSensory: phone state of 60 users, one row a minute (Vaizman et al., IEEE Pervasive Computing, 2017).

Two forms: one table of all users with columns such as ``battery_state``, and the published
``UUID.features_labels.csv.gz`` with one column per value (``discrete:battery_state:is_charging``), whose user
is the file name. Of what the rows hold, the battery level, the charger and the network are read. There is no
screen: the brightness is a setting that stays when the screen goes off, and the app state is that of the
recorder.

A reading counts until the next one, but at most 90 s (setting ``hold_s``): rows come every 60 s, give or
take a few, and longer pauses are gaps of the recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from traces.model import InteractionTrace, NetworkKind
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable, renamed
from traces.readers.files.sources import files_of, stem
from traces.readers.rows.assemble import assemble_all, source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.spool import UNKNOWN, RecordKind, UserSpool
from traces.readers.rows.timestamps import number_to_ns
from traces.readers.rows.value_codec import within

SOURCE = "ExtraSensory (Vaizman et al., IEEE Pervasive Computing, 2017)"
LICENCE = "research use, citation required; see the data set's page"
HOLD_S = 90.0

COLUMNS = {
    "user": "user",
    "time": "timestamp",
    "level": "battery_level",
    "plugged": "battery_plugged",
    "state": "battery_state",
    "wifi": "wifi_status",
}
_ONE_PER_VALUE = {
    "level": "lf_measurements:battery_level",
    "plugged": "discrete:battery_plugged:is_",
    "state": "discrete:battery_state:is_",
    "wifi": "discrete:wifi_status:is_",
}
_CHARGERS = {"ac", "usb", "wireless"}
_PLUGGED = {"charging": 1, "full": 1, "unplugged": 0, "discharging": 0}
_UNDECIDED = {"not_charging", "unknown"}
_NETWORKS = {
    "reachable_via_wifi": NetworkKind.WIFI,
    "reachable_via_wwan": NetworkKind.CELLULAR,
    "not_reachable": NetworkKind.NOT_WIFI,  # from phones that only watch Wi-Fi
}

Value = Callable[[list[str]], str]


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per user of a file, or of a folder of files."""
    options.check(settings=("hold_s",), fields=tuple(COLUMNS))
    rules = ChannelRules(hold_ns=options.hold_ns(HOLD_S))
    where_from = source_facts(options, report, SOURCE, LICENCE)
    with UserSpool() as spool:
        for path in files_of(source, ".csv"):
            table = CsvTable(path, options, report)
            table.each(_row_handler(table, options, spool, report))
        yield from assemble_all(spool, where_from, report, rules=rules)


def _row_handler(
    table: CsvTable, options: ReaderOptions, spool: UserSpool, report: ImportReport
) -> Callable[[list[str]], None]:
    columns = renamed(options, COLUMNS)
    at = table.positions(columns, required=("time",))
    name = stem(table.path).removesuffix(".features_labels")
    if "user" not in at and "level" not in at:
        values = {field: _from_indicators(table, prefix) for field, prefix in _ONE_PER_VALUE.items()}
    else:
        table.positions(columns, required=("user", "level", "state"))
        values = {field: _from_column(at.get(field)) for field in _ONE_PER_VALUE}

    def handle(row: list[str]) -> None:
        t_ns = number_to_ns(row[at["time"]])
        level, network = values["level"](row), values["wifi"](row)
        share = within("battery_level", level, 1.0) if level else None
        plugged = _plugged(values["plugged"](row), values["state"](row), report)
        if network and network not in _NETWORKS:
            raise ValueError(f"wifi_status {network[:40]!r} is not known")
        observed = spool.of(row[at["user"]] if "user" in at else name)
        if share is not None:
            observed.add(RecordKind.LEVEL, t_ns, x=share)
        observed.add(RecordKind.PLUGGED, t_ns, code=plugged)
        observed.add(RecordKind.NETWORK, t_ns, code=_NETWORKS[network] if network else UNKNOWN)

    return handle


def _plugged(charger: str, state: str, report: ImportReport) -> int:
    """Whether a charger is connected, from the charger if one is named, else from the battery's state."""
    if charger:
        if charger not in _CHARGERS:
            raise ValueError(f"battery_plugged {charger[:40]!r} is not known")
        return 1
    if state in _PLUGGED:
        return _PLUGGED[state]
    if state in _UNDECIDED:
        report.note(f"battery_state {state} without a charger named: charger unknown")
    elif state:
        raise ValueError(f"battery_state {state[:40]!r} is not known")
    return UNKNOWN


def _from_column(position: int | None) -> Value:
    return (lambda row: row[position]) if position is not None else (lambda row: "")


def _from_indicators(table: CsvTable, prefix: str) -> Value:
    """The value whose indicator is 1; a column without indicators is itself the value."""
    if prefix in table.header:
        position = table.header.index(prefix)
        return lambda row: "" if row[position] == "nan" else row[position]
    named = [
        (position, column.removeprefix(prefix))
        for position, column in enumerate(table.header)
        if column.startswith(prefix)
    ]

    def value(row: list[str]) -> str:
        return next((name for position, name in named if row[position] in ("1", "1.0")), "")

    return value
