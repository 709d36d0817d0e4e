"""What people do with their phones, in numbers: sessions, screen, charging and availability by hour.

Amounts of time are exact. A session is a stretch with the screen on or, in traces that have no screen
channel, a stretch with an app in the foreground. What was not recorded is left out of every share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np

from traces.intervals import time_between, total_ns, union
from traces.replay.fleet import TraceQuery
from traces.replay.policy import And, Not, Word, parse_policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.model import Fact, InteractionTrace, Intervals

__all__ = ["HourlyShare", "LocalHours", "TraceStats", "collect", "distribution"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DEFAULT_POLICY = "charging and wifi and idle"
DAY_S = 86_400.0
RECORDED = Word("recorded")
# Offsets from UTC are multiples of 15 minutes today (India is at 5:30, Nepal at 5:45): a quarter of an hour
# lies in one local hour, also across a change to summer time.
QUARTER_NS = 900 * 10**9
_QUARTERS_PER_DAY = 96


class LocalHours:
    """The quarters of an hour of one trace and the local hour of each; without a time zone, UTC."""

    def __init__(self, trace: InteractionTrace) -> None:
        first = trace.start_ns // QUARTER_NS
        quarters = np.arange(first, -(-trace.end_ns // QUARTER_NS), dtype=np.int64)
        self._start_ns = quarters * QUARTER_NS
        offset = _offsets(quarters, UTC if trace.zone is None or trace.relative_time else trace.zone)
        self._hour = (quarters + offset) % _QUARTERS_PER_DAY // 4

    def seconds(self, intervals: Intervals) -> NDArray[np.float64]:
        """Seconds of (clean) intervals in each of the 24 local hours."""
        spent_ns = time_between(intervals, self._start_ns, self._start_ns + QUARTER_NS)
        return np.asarray(np.bincount(self._hour, weights=spent_ns * 1e-9, minlength=24), np.float64)


def _offsets(quarters: NDArray[np.int64], zone: tzinfo) -> NDArray[np.int64]:
    """Offset from UTC at each quarter, in quarters."""
    days, day_of = np.unique(quarters // _QUARTERS_PER_DAY, return_inverse=True)
    begin = np.array([_offset(int(day) * _QUARTERS_PER_DAY, zone) for day in days], np.int64)
    end = np.array([_offset((int(day) + 1) * _QUARTERS_PER_DAY, zone) for day in days], np.int64)
    offset = begin[day_of]
    # Clocks change on few days; only those are looked at quarter by quarter.
    for i in np.flatnonzero((begin != end)[day_of]):
        offset[i] = _offset(int(quarters[i]), zone)
    return offset


def _offset(quarter: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(quarter * 900, UTC).astimezone(zone).utcoffset()
    return round(offset.total_seconds() / 900) if offset is not None else 0


@dataclass(slots=True)
class HourlyShare:
    """Seconds of yes and of yes-or-no, by hour of the local day."""

    yes_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(24))
    known_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(24))

    def add(self, hours: LocalHours, yes: Intervals, known: Intervals) -> None:
        """Count the intervals of one trace."""
        self.yes_s += hours.seconds(yes)
        self.known_s += hours.seconds(known)

    @property
    def by_hour(self) -> NDArray[np.float64]:
        """Share of the known time, 24 values, NaN where nothing is known."""
        return _share(self.yes_s, self.known_s)

    @property
    def overall(self) -> float:
        """Share of all known time, NaN if there is none."""
        return float(_share(np.array([self.yes_s.sum()]), np.array([self.known_s.sum()]))[0])


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


@dataclass(slots=True)
class TraceStats:
    """Statistics of a trace set.

    Attributes:
        policy: What "available" means in ``eligible``. Empty: the source's own verdict where a trace has one,
            else `DEFAULT_POLICY`.
        users: Number of traces.
        user_days: Covered time of all users together.
        users_in_utc: Traces without a time zone: their hours of the day are UTC.
        screen: Screen on.
        plugged: Charger connected.
        eligible: Allowed to train under the policy, of the time in which the recording decides it.
    """

    policy: str = ""
    users: int = 0
    user_days: float = 0.0
    users_in_utc: int = 0
    screen: HourlyShare = field(default_factory=HourlyShare)
    plugged: HourlyShare = field(default_factory=HourlyShare)
    eligible: HourlyShare = field(default_factory=HourlyShare)
    _session_s: list[NDArray[np.float64]] = field(default_factory=list)
    _per_day: list[float] = field(default_factory=list)

    def add(self, trace: InteractionTrace) -> None:
        """Count one trace.

        Raises:
            DataQualityError: The trace has errors.
        """
        query = TraceQuery(trace)
        hours = LocalHours(trace)
        self.users += 1
        self.user_days += total_ns(trace.covered) * 1e-9 / DAY_S
        self.users_in_utc += trace.relative_time or trace.zone is None
        for share, fact in ((self.screen, trace.screen), (self.plugged, trace.plugged)):
            if fact is not None:
                share.add(hours, fact.on, _known(trace, fact))
        policy = parse_policy(self.policy or (DEFAULT_POLICY if trace.available is None else "available"))
        yes = query.eligible_intervals(And((policy, RECORDED)))
        no = query.eligible_intervals(And((Not(policy), RECORDED)))
        self.eligible.add(hours, yes, union(yes, no))
        self._sessions(trace)

    def _sessions(self, trace: InteractionTrace) -> None:
        channel: Intervals | None = None
        if trace.screen is not None:
            channel, known = union(trace.screen.on), _known(trace, trace.screen)
        elif trace.apps is not None:
            channel = union(trace.apps.intervals)
            known = union(channel, trace.known(trace.apps))
        if channel is None:
            return
        self._session_s.append(np.asarray((channel.end_ns - channel.start_ns) * 1e-9, np.float64))
        days = total_ns(known) * 1e-9 / DAY_S
        if days >= 1.0:
            self._per_day.append(len(channel) / days)

    @property
    def policy_text(self) -> str:
        """What counts as available, in words."""
        return self.policy or f"the source's own verdict, else {DEFAULT_POLICY}"

    @property
    def decided(self) -> float:
        """Share of the covered time in which the recording decides the policy; the rest counts as no."""
        return float(self.eligible.known_s.sum()) / DAY_S / self.user_days if self.user_days else np.nan

    @property
    def session_s(self) -> NDArray[np.float64]:
        """Length of every session, seconds."""
        return np.concatenate([np.empty(0), *self._session_s])

    @property
    def sessions_per_day(self) -> NDArray[np.float64]:
        """Sessions per day of each user that has at least a day on record."""
        return np.array(self._per_day)

    def as_dict(self) -> dict[str, Any]:
        """Plain data; None where nothing is known."""
        return {
            "users": self.users,
            "user_days": self.user_days,
            "users_in_utc": self.users_in_utc,
            "sessions": len(self.session_s),
            "sessions_per_day": distribution(self.sessions_per_day),
            "session_s": distribution(self.session_s),
            "policy": self.policy_text,
            "screen_on": _hourly(self.screen),
            "charging": _hourly(self.plugged),
            "decided": _plain(self.decided),
            "available": _hourly(self.eligible),
        }


def _known(trace: InteractionTrace, fact: Fact) -> Intervals:
    """When there was an answer; a yes is one."""
    return union(fact.on, trace.known(fact))


def distribution(values: NDArray[np.float64]) -> dict[str, float] | None:
    """Mean and quantiles, None without values."""
    if not len(values):
        return None
    found = {"mean": float(values.mean())}
    for share, value in zip(QUANTILES, np.quantile(values, QUANTILES).tolist(), strict=True):
        found[f"p{share * 100:.0f}"] = value
    return found


def _hourly(share: HourlyShare) -> dict[str, Any]:
    return {"overall": _plain(share.overall), "by_hour": [_plain(v) for v in share.by_hour.tolist()]}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value


def collect(traces: Iterable[InteractionTrace], policy: str = "") -> TraceStats:
    """Statistics of many traces, read one at a time.

    Raises:
        ConfigError: The policy is none.
        DataQualityError: A trace has errors.
    """
    stats = TraceStats(policy)
    for trace in traces:
        stats.add(trace)
    return stats
