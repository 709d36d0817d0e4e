"""`InteractionTrace`: what one phone was doing, as its source recorded it.

The shape, for whoever produces or consumes traces:

* All times are POSIX nanoseconds in ``int64``, never floats; intervals are half-open, ``[start, end)``.
  A source without a calendar counts from 0 and sets ``relative_time``.
* A channel that the source never recorded is ``None``. Inside a channel, what was not observed is *unknown*,
  and unknown is not "off":

  - ``coverage`` says when the recorder ran (``None``: all of ``[start_ns, end_ns)``);
  - a `Fact` (screen, plugged, available) is on inside ``on``, off inside ``known`` but outside ``on``, and
    unknown elsewhere; ``known=None`` means the trace's coverage;
  - `AppSessions` hold at most one foreground app at a time; inside ``known`` and outside every session there
    is none; ``known=None`` means the trace's coverage;
  - `NetworkSpans` say which network; being offline is a span of its own kind, a gap between spans is unknown;
  - `BatteryPoints` are readings; between two of them the level is linear if the coverage has no gap between;
  - `Throughput` holds each reading until the next one or the end of the coverage around it.

* A trace holds what the source says, defects included. Construction checks only what makes the arrays
  readable (types, equal lengths). Readers do not repair: arrays that are unsorted, overlapping, reversed or
  outside the trace are kept, `traces.quality.checks` finds and (when asked) repairs them, and every query
  and the flat store refuse a trace with such errors.
* Arrays are read-only. Traces are compared by identity. `traces.intervals` turns readings and change events
  into intervals; `traces.storage.trace_set` writes and reads traces; `traces.replay.timeline` answers
  questions about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

FACTS = ("screen", "plugged", "available")
"""The yes-or-no channels of a trace."""


class NetworkKind(IntEnum):
    """Which network a phone is on.

    ``NOT_WIFI`` is for sources that know Wi-Fi from everything else and no more (offline or cellular);
    ``CELLULAR`` for those that do not give the generation.
    """

    OFFLINE = 0
    WIFI = 1
    ETHERNET = 2
    CELLULAR = 3
    CELLULAR_2G = 4
    CELLULAR_3G = 5
    CELLULAR_4G = 6
    CELLULAR_5G = 7
    NOT_WIFI = 8


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Half-open intervals ``[start, end)``, in POSIX nanoseconds; meant to be sorted and disjoint.

    Attributes:
        start_ns: Where each interval begins.
        end_ns: Where each interval ends.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        _freeze(self, start_ns="int64", end_ns="int64")

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def none(cls) -> Intervals:
        """No interval at all."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def one(cls, start_ns: int, end_ns: int) -> Intervals:
        """A single interval."""
        return cls(np.array([start_ns], np.int64), np.array([end_ns], np.int64))

    @property
    def is_clean(self) -> bool:
        """Sorted, disjoint, none empty or reversed. Touching intervals are clean."""
        return bool(
            np.all(self.end_ns > self.start_ns) and np.all(self.start_ns[1:] >= self.end_ns[:-1])
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """A yes-or-no channel: on, off or unknown at each time.

    Attributes:
        on: When the answer was yes.
        known: When there was an answer; ``None`` means whenever the trace is covered.
    """

    on: Intervals
    known: Intervals | None = None


class _Spans:
    """What has a begin and an end each."""

    __slots__ = ()
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def intervals(self) -> Intervals:
        """From when to when, and no more."""
        return Intervals(self.start_ns, self.end_ns)


@dataclass(frozen=True, slots=True, eq=False)
class AppSessions(_Spans):
    """Foreground apps, one at a time.

    Attributes:
        start_ns: When the app came to the foreground.
        end_ns: When it left it.
        app: Index into ``names``, one per session.
        names: App names exactly as in the source (package, bundle or title).
        categories: The source's own category per name, ``""`` where it has none; empty if it has none at all.
            `traces.replay.intensity` maps names to categories where the source does not.
        cpu: Measured share of all cores in use, 0 to 1, per session; NaN where not measured. ``None``: never.
        memory: Measured share of RAM in use, 0 to 1, likewise.
        known: When the foreground app was observed; ``None`` means whenever the trace is covered.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    app: NDArray[np.int32]
    names: tuple[str, ...]
    categories: tuple[str, ...] = ()
    cpu: NDArray[np.float64] | None = None
    memory: NDArray[np.float64] | None = None
    known: Intervals | None = None

    def __post_init__(self) -> None:
        _freeze(self, start_ns="int64", end_ns="int64", app="int32", cpu="float64", memory="float64")
        if len(self.app) and not (self.app.min() >= 0 and self.app.max() < len(self.names)):
            raise ValueError(f"app: an index is outside the {len(self.names)} names")
        if self.categories and len(self.categories) != len(self.names):
            raise ValueError(f"categories: {len(self.categories)} for {len(self.names)} names")


@dataclass(frozen=True, slots=True, eq=False)
class NetworkSpans(_Spans):
    """Which network the phone was on; a gap is unknown.

    Attributes:
        start_ns: Where each span begins.
        end_ns: Where each span ends.
        kind: A `NetworkKind` per span.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]

    def __post_init__(self) -> None:
        _freeze(self, start_ns="int64", end_ns="int64", kind="int8")
        if len(self.kind) and not (self.kind.min() >= 0 and self.kind.max() <= max(NetworkKind)):
            raise ValueError("kind: a value is no NetworkKind")


@dataclass(frozen=True, slots=True, eq=False)
class BatteryPoints:
    """Readings of the battery level.

    Attributes:
        t_ns: When it was read; meant to increase.
        level: 0 (empty) to 1 (full).
    """

    t_ns: NDArray[np.int64]
    level: NDArray[np.float64]

    def __post_init__(self) -> None:
        _freeze(self, t_ns="int64", level="float64")

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Throughput:
    """Readings of what the network gave, in bits per second; NaN where one direction was not measured.

    Attributes:
        t_ns: When it was read; meant to increase.
        down_bps: Towards the phone.
        up_bps: From the phone.
    """

    t_ns: NDArray[np.int64]
    down_bps: NDArray[np.float64]
    up_bps: NDArray[np.float64]

    def __post_init__(self) -> None:
        _freeze(self, t_ns="int64", down_bps="float64", up_bps="float64")

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(frozen=True, slots=True, eq=False)
class InteractionTrace:
    """One phone over ``[start_ns, end_ns)``; see the module for what each channel means.

    Attributes:
        user: Name of the phone or user in the source; one trace per user in a trace set.
        start_ns: Begin of the recording.
        end_ns: End of the recording.
        coverage: When the recorder ran; ``None`` means all the time.
        screen: The screen is on.
        plugged: A charger is connected.
        available: The source's own verdict that the phone may train, where it says no more than that.
        apps: Foreground app sessions.
        network: Which network.
        battery: Battery level.
        throughput: Network throughput.
        time_zone: IANA name of the user's zone; ``""`` if the source does not say.
        relative_time: Times count from the start of the recording, not from 1970.
        device: Phone model as in the source, ``""`` if unknown.
        facts: Anything else the source says about the phone, units in the names
            (``{"compute_ms_per_sample": 12.5}``).
        source: Where the trace comes from, for citation.
        licence: Under which terms it may be used.
    """

    user: str
    start_ns: int
    end_ns: int
    coverage: Intervals | None = None
    screen: Fact | None = None
    plugged: Fact | None = None
    available: Fact | None = None
    apps: AppSessions | None = None
    network: NetworkSpans | None = None
    battery: BatteryPoints | None = None
    throughput: Throughput | None = None
    time_zone: str = ""
    relative_time: bool = False
    device: str = ""
    facts: Mapping[str, str | float] = field(default_factory=dict)
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        if not self.user:
            raise ValueError("user: a trace needs a name")
        if self.end_ns <= self.start_ns:
            raise ValueError(f"end_ns {self.end_ns} is not after start_ns {self.start_ns}")
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    @property
    def span_ns(self) -> int:
        """Length of the recording, gaps included."""
        return self.end_ns - self.start_ns

    @property
    def covered(self) -> Intervals:
        """When the recorder ran."""
        return Intervals.one(self.start_ns, self.end_ns) if self.coverage is None else self.coverage

    @property
    def zone(self) -> tzinfo | None:
        """The user's time zone, ``None`` if the source does not say."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    def known(self, fact: Fact | AppSessions) -> Intervals:
        """When a channel was observed."""
        return self.covered if fact.known is None else fact.known


def interval_channels(trace: InteractionTrace) -> Iterator[tuple[str, Intervals]]:
    """Every set of intervals in a trace, by name."""
    if trace.coverage is not None:
        yield "coverage", trace.coverage
    for name in (*FACTS, "apps"):
        channel: Fact | AppSessions | None = getattr(trace, name)
        if channel is not None:
            yield name, channel.on if isinstance(channel, Fact) else channel.intervals
            if channel.known is not None:
                yield f"{name}.known", channel.known
    if trace.network is not None:
        yield "network", trace.network.intervals


def point_channels(trace: InteractionTrace) -> Iterator[tuple[str, BatteryPoints | Throughput]]:
    """Every set of readings in a trace, by name."""
    if trace.battery is not None:
        yield "battery", trace.battery
    if trace.throughput is not None:
        yield "throughput", trace.throughput


@lru_cache(maxsize=1024)
def is_time_zone(name: str) -> bool:
    """Whether there is a time zone of this IANA name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a name such as "Europe" is a folder
        return False
    return True


def _freeze(value: object, **dtypes: str) -> None:
    """Replace the array fields by read-only views of the right type, all of one length."""
    lengths = {}
    for name, dtype in dtypes.items():
        given = getattr(value, name)
        if given is None:
            continue
        array = _read_only(given, np.dtype(dtype), name)
        object.__setattr__(value, name, array)
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"arrays of unequal length: {lengths}")


def _read_only(given: Any, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    array = np.asarray(given)
    if array.ndim != 1:
        raise ValueError(f"{name}: must have one dimension, has {array.ndim}")
    # Times as floats would be off by up to 128 ns today, so they are refused rather than cast.
    if dtype.kind == "i" and array.dtype.kind not in "iu" and len(array):
        raise ValueError(f"{name}: must be integers, got {array.dtype}")
    array = array.astype(dtype, copy=False).view()
    array.flags.writeable = False
    return array
