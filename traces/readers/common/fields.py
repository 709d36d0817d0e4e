"""The fields that a row of a table can have in our terms, and how each becomes a record.

Shared by the generic format and by LiveLab's tables; `docs/traces-format.md` is the reference for users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from fedjoule.errors import ConfigError
from traces.model import NetworkKind
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.common import choices
from traces.readers.common.clocks import SHOWN_TWICE, UNITS_NS, datetime_to_ns, is_shown_twice, number_to_ns
from traces.readers.common.observed import NO_APP, UNKNOWN, Kind, Record
from traces.readers.common.sources import is_text
from traces.readers.common.told import About, Told

WHEN = ("time", "start", "end", "duration")
STATES = ("screen", "plugged", "available", "network")
ABOUT = ("device", "time_zone", "relative_time")
OBSERVED = ("recorded", "app_known")
FIELDS = (
    *("user", *ABOUT, *WHEN, "app", "category", *STATES, *OBSERVED),
    *("level", "down_bps", "up_bps", "cpu", "memory"),
)
SETTINGS = (
    *("time_unit", "time_format", "hold_s", "level_scale"),
    *(f"{state}_values" for state in STATES),
    *(f"{state}_above" for state in STATES if state != "network"),
)

_ON_OFF = {"1": 1, "true": 1, "on": 1, "yes": 1, "0": 0, "false": 0, "off": 0, "no": 0, "unknown": UNKNOWN}
_NETWORKS = {
    **{kind.name.lower().removeprefix("cellular_"): int(kind) for kind in NetworkKind},
    "unknown": UNKNOWN,
}
_MOMENTS = {
    "screen": Kind.SCREEN,
    "plugged": Kind.PLUGGED,
    "available": Kind.AVAILABLE,
    "network": Kind.NETWORK,
}
_SPANS = {
    "screen": Kind.SCREEN_SPAN,
    "plugged": Kind.PLUGGED_SPAN,
    "available": Kind.AVAILABLE_SPAN,
    "network": Kind.NETWORK_SPAN,
    "recorded": Kind.RECORDED_SPAN,
    "app_known": Kind.APP_KNOWN_SPAN,
}
_OF_MOMENTS = {"level", "down_bps", "up_bps"}
_OF_SPANS = {"cpu", "memory", *OBSERVED}
Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Meanings:
    """What the texts of a table mean.

    Attributes:
        time_ns: A moment as POSIX nanoseconds.
        unit_ns: What the numbers in ``duration`` count.
        codes: Per state, the code of each text (lower case).
        level_scale: What a full battery reads.
        above: States told by a number, with the number above which they are on.
    """

    time_ns: Callable[[str], int] = number_to_ns
    unit_ns: int = UNITS_NS["s"]
    codes: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: _all_codes({}))
    level_scale: float = 1.0
    above: Mapping[str, float] = field(default_factory=dict)

    def code(self, state: str, text: str) -> int:
        """The code of a state's text.

        Raises:
            ValueError: The text has no meaning.
        """
        if state in self.above:
            return int(_finite(state, text) > self.above[state])
        codes = self.codes[state]
        code = codes.get(text)
        if code is None and (code := codes.get(text.strip().lower())) is None:
            raise ValueError(f"{state} {text[:40]!r} is not known")
        return code


def meanings(options: ReaderOptions, report: ImportReport) -> Meanings:
    """What the user's settings say about a table; ``report`` counts stamps that have two meanings.

    Raises:
        ConfigError: A setting has no sense.
    """
    unit_ns = UNITS_NS[choices.one_of(options, "time_unit", "s", tuple(UNITS_NS))]
    scale = choices.one_of(options, "level_scale", "1", ("1", "100"))
    pattern = options.settings.get("time_format")
    return Meanings(
        time_ns=_stamps(pattern, options, report) if pattern else partial(number_to_ns, unit_ns=unit_ns),
        unit_ns=unit_ns,
        codes=_all_codes(options.settings),
        level_scale=float(scale),
        above={state: _threshold(options, state) for state in STATES if f"{state}_above" in options.settings},
    )


def _threshold(options: ReaderOptions, state: str) -> float:
    text = options.settings[f"{state}_above"]
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{state}_above: {text!r} is not a number") from None


def _stamps(pattern: str, options: ReaderOptions, report: ImportReport) -> Callable[[str], int]:
    has_offset = pattern == "iso" or "%z" in pattern
    zone: ZoneInfo | None = None
    if options.time_zone or not has_offset:
        zone = choices.zone(options, f"stamps like {pattern!r} have no offset")

    def time_ns(text: str) -> int:
        try:
            moment = datetime.fromisoformat(text) if pattern == "iso" else datetime.strptime(text, pattern)  # noqa: DTZ007
        except ValueError:
            raise ValueError(f"time {text[:40]!r} is not of the form {pattern!r}") from None
        if moment.tzinfo is None:
            if zone is None:
                raise ConfigError(f"time {text!r} has no offset from UTC", hint="give --time-zone")
            moment = moment.replace(tzinfo=zone)
            report.note(SHOWN_TWICE, is_shown_twice(moment))
        return datetime_to_ns(moment)

    return time_ns


def _all_codes(settings: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Codes of the states' texts; ``screen_values=2=off,3=on`` adds to the built-in ones."""
    on_off = (*STATES, *OBSERVED, "relative_time")
    codes = {name: dict(_NETWORKS if name == "network" else _ON_OFF) for name in on_off}
    for state, known in codes.items():
        built_in = dict(known)
        for pair in filter(None, settings.get(f"{state}_values", "").split(",")):
            text, equals, meaning = pair.rpartition("=")
            if not equals or meaning.strip().lower() not in built_in:
                raise ConfigError(
                    f"{state}_values: {pair!r} does not say what a value means",
                    hint=f"write VALUE=MEANING with a meaning of {', '.join(built_in)}",
                )
            known[text.strip().lower()] = built_in[meaning.strip().lower()]
    return codes


class RowReader:
    """Turns the rows of one table into records.

    Args:
        columns: Position of each field in a row.
        user: Whose rows they are when the table has no user field.
        told: Takes what they tell.
        meanings: What the texts mean.

    Raises:
        ConfigError: The fields do not make a table.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        user: str,
        told: Told,
        meanings: Meanings,
    ) -> None:
        self._told = told
        self._means = meanings
        self._user = user
        self._at = dict(columns)
        self._user_at = columns.get("user")
        self._app_at = columns.get("app")
        self._category_at = columns.get("category")
        self._tells_about = bool(set(columns) & set(ABOUT))
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
                hint="a table with an end or a duration tells of spans, any other of moments; split it",
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
        records = self._read(row, self._means.time_ns(begin))
        about = self._read_about(row)
        self._told.spool.of(user).extend(records)
        if about is not None:
            self._told.learn(user, about)

    def _read_about(self, row: Row) -> About | None:
        if not self._tells_about:
            return None
        device, zone, relative = self._text(row, "device"), self._text(row, "time_zone"), None
        if not is_text(device):
            raise ValueError("device is not valid text")
        if zone and not choices.is_zone(zone):
            raise ValueError(f"time_zone {zone[:40]!r} is not an IANA name")
        if text := self._text(row, "relative_time"):
            relative = self._means.code("relative_time", text) == 1
        return About(device, zone, relative)

    def _text(self, row: Row, name: str) -> str:
        at = self._at.get(name)
        return (row[at] or "") if at is not None else ""

    def _span(self, row: Row, begin_ns: int) -> list[Record]:
        end_ns = self._end(row, begin_ns)
        records: list[Record] = []
        if self._app_at is not None and (app := row[self._app_at]):
            code = self._app(row, app)
            if end_ns is None:
                return [(Kind.UNENDED, code, begin_ns, 0, math.nan, math.nan)]
            cpu = memory = math.nan
            if self._is_measured:
                cpu, memory = self._share(row, "cpu"), self._share(row, "memory")
            records.append((Kind.SESSION, code, begin_ns, end_ns, cpu, memory))
        if end_ns is None:
            raise ValueError("the end is empty")
        for name, at in self._states:
            if text := row[at]:
                records.append((_SPANS[name], self._means.code(name, text), begin_ns, end_ns, 0.0, 0.0))
        if not records:
            raise ValueError("no field tells anything")
        return records

    def _end(self, row: Row, begin_ns: int) -> int | None:
        if self._end_at is not None:
            text = row[self._end_at]
            end_ns = self._means.time_ns(text) if text else None
        else:
            text = row[self._duration_at or 0]
            end_ns = begin_ns + number_to_ns(text, self._means.unit_ns) if text else None
        if end_ns is not None and end_ns < begin_ns:
            raise ValueError(f"it ends {(begin_ns - end_ns) / 1e9:g} s before it begins")
        return end_ns

    def _moment(self, row: Row, t_ns: int) -> list[Record]:
        records: list[Record] = []
        for name, at in self._states:
            if text := row[at]:
                records.append((_MOMENTS[name], self._means.code(name, text), t_ns, 0, 0.0, 0.0))
        if self._app_at is not None and (app := row[self._app_at]):
            code = NO_APP if app.lower() == "none" else self._app(row, app)
            records.append((Kind.APP, code, t_ns, 0, 0.0, 0.0))
        if self._level_at is not None and (level := row[self._level_at]):
            share = within("level", level, self._means.level_scale) / self._means.level_scale
            records.append((Kind.LEVEL, 0, t_ns, 0, share, 0.0))
        if self._has_rates and (rates := self._rates(row)) is not None:
            records.append((Kind.RATE, 0, t_ns, 0, *rates))
        return records or [(Kind.SEEN, 0, t_ns, 0, 0.0, 0.0)]

    def _app(self, row: Row, name: str) -> int:
        code = self._told.apps.index(name)
        category = None if self._category_at is None else row[self._category_at]
        if category and not is_text(category):
            raise ValueError("category is not valid text")
        if category:
            self._told.categories.setdefault(code, category)
        return code

    def _rates(self, row: Row) -> tuple[float, float] | None:
        down, up = self._text(row, "down_bps"), self._text(row, "up_bps")
        return (_rate("down_bps", down), _rate("up_bps", up)) if down or up else None

    def _share(self, row: Row, name: str) -> float:
        text = self._text(row, name)
        return within(name, text, 1.0) if text else math.nan


def _rate(name: str, text: str) -> float:
    return within(name, text, math.inf) if text else math.nan


def within(name: str, text: str, most: float) -> float:
    """A finite number from 0 to ``most``.

    Raises:
        ValueError: It is not; says so.
    """
    value = _finite(name, text)
    if not 0 <= value <= most:
        raise ValueError(f"{name} {text[:40]} is not between 0 and {most:g}")
    return value


def _finite(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} {text[:40]!r} is not a number")
    return value
