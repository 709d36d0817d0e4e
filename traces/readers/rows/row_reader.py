"""The fields that a row of a table can have in our terms, and how each becomes a record.

Shared by the generic format and by LiveLab's tables; `docs/traces-format.md` is the reference for users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from joulefleet.errors import ConfigError
from traces.model import is_time_zone
from traces.readers.files.sources import is_text
from traces.readers.rows.assemble import CollectedRows, UserFacts
from traces.readers.rows.spool import NO_APP, Record, RecordKind
from traces.readers.rows.timestamps import number_to_ns
from traces.readers.rows.value_codec import OBSERVED, STATES, ValueCodec, within

WHEN = ("time", "start", "end", "duration")
ABOUT = ("device", "time_zone", "relative_time")
FIELDS = (
    *("user", *ABOUT, *WHEN, "app", "category", *STATES, *OBSERVED),
    *("level", "down_bps", "up_bps", "cpu", "memory"),
)
_MOMENTS = {name: RecordKind[name.upper()] for name in STATES}
_SPANS = {name: RecordKind[f"{name.upper()}_SPAN"] for name in (*STATES, *OBSERVED)}
_OF_MOMENTS = {"level", "down_bps", "up_bps"}
_OF_SPANS = {"cpu", "memory", *OBSERVED}
Row = Sequence[str | None]


class RowReader:
    """Turns the rows of one table into records.

    Args:
        columns: Position of each field in a row.
        user: Whose rows they are when the table has no user field.
        collected: Takes the records.
        codec: Reads the texts.

    Raises:
        ConfigError: The fields do not make a table.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        user: str,
        collected: CollectedRows,
        codec: ValueCodec,
    ) -> None:
        self._collected = collected
        self._codec = codec
        self._user = user
        self._at = dict(columns)
        self._user_at = columns.get("user")
        self._app_at = columns.get("app")
        self._category_at = columns.get("category")
        self._has_user_facts = bool(set(columns) & set(ABOUT))
        self._level_at = columns.get("level")
        self._has_rates = "down_bps" in columns or "up_bps" in columns
        self._is_measured = "cpu" in columns or "memory" in columns
        self._begin_at = columns.get("start", columns.get("time", -1))
        self._end_at = columns.get("end")
        self._duration_at = columns.get("duration")
        self._states = [(name, columns[name]) for name in (*STATES, *OBSERVED) if name in columns]
        self._read = self._span if "end" in columns or "duration" in columns else self._moment
        if self._begin_at < 0:
            raise ConfigError("the table has no field 'time' or 'start'", hint="map one: --map time=COLUMN")
        is_span = self._read == self._span
        misplaced = set(columns) & (_OF_MOMENTS if is_span else _OF_SPANS)
        if misplaced:
            raise ConfigError(
                f"{', '.join(sorted(misplaced))}: not in a table of {'spans' if is_span else 'moments'}",
                hint="a table with an end or a duration holds spans, any other moments; split it",
            )
        if not set(columns) - set(WHEN) - {"user", "category", *ABOUT}:
            raise ConfigError(
                "the table has no field that tells anything", hint=f"map one of: {', '.join(FIELDS)}"
            )

    def read(self, row: Row) -> None:
        """Add the records of one row.

        Raises:
            ValueError: The row cannot be used; says why. Nothing of it was added.
        """
        user = self._user if self._user_at is None else row[self._user_at] or ""
        begin = row[self._begin_at]
        if not begin:
            raise ValueError("time is empty")
        records = self._read(row, self._codec.time_ns(begin))
        about = self._user_facts(row)
        self._collected.spool.of(user).extend(records)
        if about is not None:
            self._collected.learn(user, about)

    def _user_facts(self, row: Row) -> UserFacts | None:
        if not self._has_user_facts:
            return None
        device, zone, relative = self._text(row, "device"), self._text(row, "time_zone"), None
        if not is_text(device):
            raise ValueError("device is not valid text")
        if zone and not is_time_zone(zone):
            raise ValueError(f"time_zone {zone[:40]!r} is not an IANA name")
        if text := self._text(row, "relative_time"):
            relative = self._codec.code("relative_time", text) == 1
        return UserFacts(device, zone, relative)

    def _text(self, row: Row, name: str) -> str:
        at = self._at.get(name)
        return (row[at] or "") if at is not None else ""

    def _span(self, row: Row, begin_ns: int) -> list[Record]:
        end_ns = self._end(row, begin_ns)
        records: list[Record] = []
        if self._app_at is not None and (app := row[self._app_at]):
            code = self._app(row, app)
            if end_ns is None:
                return [(RecordKind.UNENDED, code, begin_ns, 0, math.nan, math.nan)]
            cpu = memory = math.nan
            if self._is_measured:
                cpu, memory = self._share(row, "cpu"), self._share(row, "memory")
            records.append((RecordKind.SESSION, code, begin_ns, end_ns, cpu, memory))
        if end_ns is None:
            raise ValueError("the end is empty")
        for name, at in self._states:
            if text := row[at]:
                records.append((_SPANS[name], self._codec.code(name, text), begin_ns, end_ns, 0.0, 0.0))
        if not records:
            raise ValueError("no field tells anything")
        return records

    def _end(self, row: Row, begin_ns: int) -> int | None:
        if self._end_at is not None:
            text = row[self._end_at]
            end_ns = self._codec.time_ns(text) if text else None
        else:
            text = row[self._duration_at or 0]
            end_ns = begin_ns + number_to_ns(text, self._codec.unit_ns) if text else None
        if end_ns is not None and end_ns < begin_ns:
            raise ValueError(f"it ends {(begin_ns - end_ns) / 1e9:g} s before it begins")
        return end_ns

    def _moment(self, row: Row, t_ns: int) -> list[Record]:
        records: list[Record] = []
        for name, at in self._states:
            if text := row[at]:
                records.append((_MOMENTS[name], self._codec.code(name, text), t_ns, 0, 0.0, 0.0))
        if self._app_at is not None and (app := row[self._app_at]):
            code = NO_APP if app.lower() == "none" else self._app(row, app)
            records.append((RecordKind.APP, code, t_ns, 0, 0.0, 0.0))
        if self._level_at is not None and (level := row[self._level_at]):
            share = within("level", level, self._codec.level_scale) / self._codec.level_scale
            records.append((RecordKind.LEVEL, 0, t_ns, 0, share, 0.0))
        if self._has_rates and (rates := self._rates(row)) is not None:
            records.append((RecordKind.RATE, 0, t_ns, 0, *rates))
        return records or [(RecordKind.SEEN, 0, t_ns, 0, 0.0, 0.0)]

    def _app(self, row: Row, name: str) -> int:
        code = self._collected.apps.index(name)
        category = None if self._category_at is None else row[self._category_at]
        if category and not is_text(category):
            raise ValueError("category is not valid text")
        if category:
            self._collected.categories.setdefault(code, category)
        return code

    def _rates(self, row: Row) -> tuple[float, float] | None:
        down, up = self._text(row, "down_bps"), self._text(row, "up_bps")
        return (_rate("down_bps", down), _rate("up_bps", up)) if down or up else None

    def _share(self, row: Row, name: str) -> float:
        text = self._text(row, name)
        return within(name, text, 1.0) if text else math.nan


def _rate(name: str, text: str) -> float:
    return math.nan if text in ("", "unknown") else within(name, text, math.inf)
