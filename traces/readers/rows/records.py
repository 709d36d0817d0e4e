"""What a reader saw of one user, as fixed-size records: compact in memory, cheap to spill to disk."""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_RECORD = struct.Struct("<iiqqdd")
DTYPE = np.dtype(
    [("kind", "<i4"), ("code", "<i4"), ("t_ns", "<i8"), ("end_ns", "<i8"), ("x", "<f8"), ("y", "<f8")]
)
UNKNOWN = -1
"""Code of a reading that says: from here on it is not known."""


class RecordKind(IntEnum):
    """What a record is about. ``t_ns`` is when (or from when); the other fields depend on the kind."""

    SESSION = 0
    """A foreground session until ``end_ns``; ``code`` is the app, ``x`` and ``y`` measured CPU and memory."""
    UNENDED = 1
    """A foreground session whose end the source does not say; ``code`` is the app."""
    APP = 2
    """The foreground app is now ``code``, or none (`NO_APP`)."""
    SCREEN = 3
    """The screen is now on (1), off (0) or `UNKNOWN`."""
    PLUGGED = 4
    """A charger is now connected (1), not (0) or `UNKNOWN`."""
    AVAILABLE = 5
    """The phone may train now (1), may not (0) or `UNKNOWN`."""
    NETWORK = 6
    """The network is now of `NetworkKind` ``code``, or `UNKNOWN`."""
    SCREEN_SPAN = 7
    """The screen is on (1), off (0) or `UNKNOWN` until ``end_ns``."""
    PLUGGED_SPAN = 8
    """A charger is connected (1), not (0) or `UNKNOWN` until ``end_ns``."""
    AVAILABLE_SPAN = 9
    """The phone may train (1), may not (0) or `UNKNOWN` until ``end_ns``."""
    NETWORK_SPAN = 10
    """The network is of `NetworkKind` ``code``, or `UNKNOWN`, until ``end_ns``."""
    LEVEL = 11
    """The battery level is ``x``, 0 to 1."""
    RATE = 12
    """The network gives ``x`` bits per second down and ``y`` up; NaN where not measured."""
    STOPPED = 13
    """The recorder stops here; it runs again from the next later record on."""
    SEEN = 14
    """The recorder ran; nothing else is known."""
    RECORDED_SPAN = 15
    """The recorder ran (1) or not until ``end_ns``; where there are such spans, they list all of it."""
    APP_KNOWN_SPAN = 16
    """The foreground app was observed (1) or not until ``end_ns``; likewise."""


Record = tuple[RecordKind, int, int, int, float, float]
"""Kind, code, ``t_ns``, ``end_ns``, ``x`` and ``y``."""

NO_APP = -2
"""Code of an `APP` record: no app is in the foreground."""


class UserRecords:
    """The records of one user, in the order of the source."""

    __slots__ = ("_bytes",)

    def __init__(self, records: bytes | bytearray = b"") -> None:
        self._bytes = bytearray(records)

    def add(
        self,
        kind: RecordKind,
        t_ns: int,
        *,
        end_ns: int = 0,
        code: int = 0,
        x: float = math.nan,
        y: float = math.nan,
    ) -> None:
        """Append one record."""
        self._bytes += _RECORD.pack(kind, code, t_ns, end_ns, x, y)

    def extend(self, records: Iterable[Record]) -> None:
        """Append several."""
        for record in records:
            self._bytes += _RECORD.pack(*record)

    def __len__(self) -> int:
        return len(self._bytes) // _RECORD.size

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def array(self) -> NDArray[Any]:
        """All records as a structured array."""
        return np.frombuffer(self._bytes, DTYPE)
