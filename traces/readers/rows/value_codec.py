"""From the texts in a table to times, states and numbers, by the user's settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from joulefleet.errors import ConfigError
from traces.model import NetworkKind
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.rows.spool import UNKNOWN
from traces.readers.rows.timestamps import SHOWN_TWICE, UNITS_NS, datetime_to_ns, is_shown_twice, number_to_ns

STATES = ("screen", "plugged", "available", "network")
OBSERVED = ("recorded", "app_known")
SETTINGS = (
    *("time_unit", "time_format", "hold_s", "level_scale"),
    *(f"{state}_values" for state in STATES),
    *(f"{state}_above" for state in STATES if state != "network"),
)

_ON_OFF = {"1": 1, "true": 1, "on": 1, "yes": 1, "0": 0, "false": 0, "off": 0, "no": 0, "unknown": UNKNOWN}
NETWORKS = {
    **{kind.name.lower().removeprefix("cellular_"): int(kind) for kind in NetworkKind},
    "unknown": UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """Reads the texts of a table.

    Attributes:
        time_ns: A moment as POSIX nanoseconds.
        unit_ns: What the numbers in ``duration`` count.
        codes: Per state, the code of each text (lower case).
        level_scale: What a full battery reads.
        above: States given by a number, with the number above which they are on.
    """

    time_ns: Callable[[str], int] = number_to_ns
    unit_ns: int = UNITS_NS["s"]
    codes: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: _all_codes({}))
    level_scale: float = 1.0
    above: Mapping[str, float] = field(default_factory=dict)

    def code(self, state: str, text: str) -> int:
        """The code of a state's text.

        Raises:
            ValueError: The text is not known.
        """
        if state in self.above:
            return int(_finite(state, text) > self.above[state])
        codes = self.codes[state]
        code = codes.get(text)
        if code is None and (code := codes.get(text.strip().lower())) is None:
            raise ValueError(f"{state} {text[:40]!r} is not known")
        return code


def value_codec(options: ReaderOptions, report: ImportReport) -> ValueCodec:
    """The codec that the user's settings ask for; ``report`` counts stamps that the clock showed twice.

    Raises:
        ConfigError: A setting is not valid.
    """
    unit_ns = UNITS_NS[options.one_of("time_unit", "s", tuple(UNITS_NS))]
    scale = options.one_of("level_scale", "1", ("1", "100"))
    pattern = options.settings.get("time_format")
    return ValueCodec(
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
        zone = options.zone(f"stamps like {pattern!r} have no offset")

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
    codes = {name: dict(NETWORKS if name == "network" else _ON_OFF) for name in on_off}
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
