"""`InteractionTrace`: sorted intervals of what a phone is doing; queries are pure functions of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHANNELS = ("screen", "plugged", "wifi")
"""Yes-or-no facts, each kept as sorted, disjoint intervals."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half-open intervals ``[start, end)`` in nanoseconds, sorted and disjoint.

    Attributes:
        start_ns: Where each interval begins.
        end_ns: Where each interval ends.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.start_ns) != len(self.end_ns):
            raise ValueError(f"start_ns has {len(self.start_ns)} entries, end_ns {len(self.end_ns)}")
        if np.any(self.end_ns <= self.start_ns):
            raise ValueError(
                f"end_ns: interval {int(np.argmax(self.end_ns <= self.start_ns))} is empty or reversed"
            )
        if np.any(self.start_ns[1:] < self.end_ns[:-1]):
            raise ValueError("start_ns: intervals overlap or are not sorted")

    def contains(self, t_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each time lies in an interval."""
        i = np.searchsorted(self.start_ns, t_ns, side="right") - 1
        inside = np.zeros(np.shape(t_ns), bool)
        known = i >= 0
        inside[known] = np.asarray(t_ns)[known] < self.end_ns[i[known]]
        return inside


NOTHING = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class InteractionTrace:
    """One phone over ``[start_ns, end_ns)``, in POSIX nanoseconds.

    Attributes:
        user: Name of the phone or user in the source.
        screen: The screen is on.
        plugged: A charger is connected.
        wifi: The phone is on an unmetered network.
        battery_t_ns: Times at which the battery level is known, increasing.
        battery_level: Level at those times, 0 to 1.
        time_zone: IANA name; hours of the day mean nothing without it.
        source: Where the trace comes from.
        licence: Under which terms it may be used.
    """

    user: str
    start_ns: int
    end_ns: int
    screen: Intervals = NOTHING
    plugged: Intervals = NOTHING
    wifi: Intervals = NOTHING
    battery_t_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    battery_level: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    time_zone: str = "UTC"
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        if self.end_ns <= self.start_ns:
            raise ValueError(f"end_ns {self.end_ns} is not after start_ns {self.start_ns}")
        for name in CHANNELS:
            intervals: Intervals = getattr(self, name)
            if len(intervals.start_ns) and (
                intervals.start_ns[0] < self.start_ns or intervals.end_ns[-1] > self.end_ns
            ):
                raise ValueError(f"{name}: intervals lie outside the trace")
        if len(self.battery_t_ns) != len(self.battery_level):
            raise ValueError("battery_level: not one level per battery_t_ns")
        if np.any(np.diff(self.battery_t_ns) <= 0):
            raise ValueError("battery_t_ns: times do not increase")
        if np.any((self.battery_level < 0) | (self.battery_level > 1)):
            raise ValueError("battery_level: outside 0 to 1")
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"time_zone: {self.time_zone!r} is not an IANA name") from error

    @property
    def zone(self) -> tzinfo:
        """The time zone of the user."""
        return ZoneInfo(self.time_zone)

    def state_at(self, t_ns: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Every yes-or-no fact at each time. Asking twice gives the same answer."""
        return {name: getattr(self, name).contains(t_ns) for name in CHANNELS}

    def battery_at(self, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Battery level at each time, linear between known points, NaN before the first or without any."""
        if not len(self.battery_t_ns):
            return np.full(np.shape(t_ns), np.nan)
        return np.interp(t_ns, self.battery_t_ns, self.battery_level, left=np.nan)
