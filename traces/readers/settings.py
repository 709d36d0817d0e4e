"""Checks what a user chose for an import; a setting or column that a format does not know is an error."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from zoneinfo import ZoneInfo

from joulefleet.errors import ConfigError
from traces.model import is_time_zone
from traces.readers.base import ReaderOptions

COMMON_SETTINGS = ("encoding", "source", "licence")
"""Settings every reader knows: the text's encoding, and whom to cite under which terms."""


def check(options: ReaderOptions, *, settings: Collection[str] = (), fields: Collection[str] = ()) -> None:
    """Refuse settings and mapped fields that the reader would ignore.

    Args:
        options: What the user said.
        settings: Names of settings beyond `COMMON_SETTINGS`.
        fields: Fields that may be mapped to columns.
    """
    _known("setting", options.settings, [*COMMON_SETTINGS, *settings])
    _known("mapped field", options.column_map, fields)
    if options.time_zone:
        zone(options, "")


def _known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"this format has no {what} {name!r}", hint=f"{hint}known: {', '.join(known) or 'none'}"
            )


def zone(options: ReaderOptions, why: str) -> ZoneInfo:
    """The users' time zone, which the source does not give.

    Raises:
        ConfigError: It was not given (``why`` says what needs it) or does not exist.
    """
    if not options.time_zone:
        raise ConfigError(
            f"{why}: the time zone must be given", hint="e.g. --time-zone Asia/Shanghai (an IANA name)"
        )
    if not is_time_zone(options.time_zone):
        raise ConfigError(f"time zone {options.time_zone!r} is not an IANA name")
    return ZoneInfo(options.time_zone)


def one_of(options: ReaderOptions, name: str, default: str, allowed: Collection[str]) -> str:
    """The value of a setting with a closed set of values."""
    value = options.settings.get(name, default)
    if value not in allowed:
        raise ConfigError(f"{name}: {value!r} is not known", hint=f"one of {', '.join(allowed)}")
    return value


def hold_ns(options: ReaderOptions, default_s: float | None) -> int | None:
    """How long a reading counts when no other follows (setting ``hold_s``), in nanoseconds."""
    text = options.settings.get("hold_s")
    if text is None:
        return None if default_s is None else round(default_s * 1e9)
    try:
        hold_s = float(text)
    except ValueError:
        hold_s = 0.0
    if not 0 < hold_s < 1e9:
        raise ConfigError(f"hold_s: {text!r} is not a positive number of seconds")
    return round(hold_s * 1e9)
