"""Times as sources write them, as POSIX nanoseconds; through integers, never through floats."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

NS_PER_S = 1_000_000_000
LIMIT_NS = 2**62
"""Times up to 2116; the sum of two still fits 64 bits."""

UNITS_NS = {"s": NS_PER_S, "ms": 1_000_000, "us": 1_000, "ns": 1}

SHOWN_TWICE = "stamps in an hour the clock showed twice, taken as the first"
"""What to note about `WallClock.ambiguous`."""

_PLAIN = re.compile(r"([+-]?)(\d+)(?:\.(\d*))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CACHED_MINUTES = 100_000
_SECONDS_NS = {f"{second:02d}": second * NS_PER_S for second in range(61)}  # 60 is a leap second


def number_to_ns(text: str, unit_ns: int = NS_PER_S) -> int:
    """A decimal number of seconds (or of another unit) as nanoseconds, exactly; further digits are cut.

    Raises:
        ValueError: It is no finite number, or out of range.
    """
    if text.isdecimal():  # by far the most common
        value = int(text) * unit_ns
    elif (plain := _PLAIN.fullmatch(text.strip())) is None:
        value = _exponent_to_ns(text, unit_ns)
    else:
        sign, whole, fraction = plain.groups()
        value = int(whole) * unit_ns
        if fraction:
            value += int((fraction + "0" * 9)[:9]) * unit_ns // NS_PER_S
        value = -value if sign == "-" else value
    if abs(value) >= LIMIT_NS:
        raise ValueError(f"time {text[:40]!r} is out of range (milliseconds taken for seconds?)")
    return value


def _exponent_to_ns(text: str, unit_ns: int) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"time {text[:40]!r} is not a number") from None
    # The exponent is checked first: int(Decimal("1e999999999")) would try to write all the digits.
    if not number.is_finite() or number.adjusted() > 30:
        raise ValueError(f"time {text[:40]!r} is out of range")
    return int(number * unit_ns)


class WallClock:
    """Turns wall-clock stamps of one time zone into POSIX nanoseconds.

    Args:
        zone: Where the clock hung.
        pattern: A `strptime` pattern of date, hours and minutes.
        minute_chars: How many leading characters the pattern covers; what follows is ``:SS`` or ``.SS``.

    Attributes:
        ambiguous: Stamps met so far that the clock showed twice or skipped (change of summer time);
            they are taken as the first of the two.
    """

    def __init__(self, zone: ZoneInfo, pattern: str = "%Y-%m-%d %H:%M", minute_chars: int = 16) -> None:
        self._zone = zone
        self._pattern = pattern
        self._minute_chars = minute_chars
        self._minutes: dict[str, tuple[int, bool]] = {}
        self.ambiguous = 0

    def ns(self, text: str) -> int:
        """POSIX nanoseconds of a stamp with whole seconds.

        Raises:
            ValueError: The stamp is not of the pattern.
        """
        seconds_ns = _SECONDS_NS.get(text[self._minute_chars + 1 :])
        if seconds_ns is None:
            raise ValueError(f"time {text[:40]!r} is not a date with seconds")
        key = text[: self._minute_chars]
        known = self._minutes.get(key)
        if known is None:
            if len(self._minutes) >= _CACHED_MINUTES:
                self._minutes.clear()
            known = self._minutes[key] = self._minute(key)
        begin_ns, twice = known
        self.ambiguous += twice
        return begin_ns + seconds_ns

    def _minute(self, text: str) -> tuple[int, bool]:
        try:
            naive = datetime.strptime(text, self._pattern)  # noqa: DTZ007 - the zone follows
        except ValueError:
            raise ValueError(f"time {text[:40]!r} is not a date") from None
        return self._localised(naive)

    def _localised(self, naive: datetime) -> tuple[int, bool]:
        local = naive.replace(tzinfo=self._zone)
        return datetime_to_ns(local), is_shown_twice(local)

    def ns_after(self, reference: datetime, seconds_ns: int) -> int:
        """POSIX nanoseconds of when a clock that is never put forward or back has gone so far from a stamp.

        Args:
            reference: The stamp, without a zone.
            seconds_ns: How far, as the clock on the wall shows it: a day is 24 hours.
        """
        whole_s, rest_ns = divmod(seconds_ns, NS_PER_S)
        begin_ns, twice = self._localised(reference + timedelta(seconds=whole_s))
        self.ambiguous += twice
        return begin_ns + rest_ns


def is_shown_twice(moment: datetime) -> bool:
    """Whether a clock showed this time twice, or skipped it."""
    return moment.utcoffset() != moment.replace(fold=1).utcoffset()


def datetime_to_ns(moment: datetime) -> int:
    """POSIX nanoseconds of an aware datetime, exactly.

    Raises:
        ValueError: It is out of range.
    """
    since = moment - _EPOCH
    value = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000
    if abs(value) >= LIMIT_NS:
        raise ValueError(f"time {moment} is out of range")
    return value
