"""What a reader saw, as fixed-size records: compact in memory, sorted by user, cheap to spill to disk.

Memory is bounded: what does not fit goes to one temporary file.
"""

from __future__ import annotations

import math
import struct
import tempfile
from array import array
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from joulefleet.errors import DataQualityError
from joulefleet.files import storage_error
from traces.readers.files.sources import is_text

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


MAX_BUFFERED_ROWS = 1_000_000
"""Rows kept in memory before they are spilled; a row is one to four records of 40 bytes."""

MAX_NAMES = 1_000_000
"""Distinct users, and distinct app names: the index of an import, the only part that grows with it."""


class NameIndex:
    """Gives each distinct name a number."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._index: dict[str, int] = {}

    def index(self, name: str) -> int:
        """The number of a name, new or known.

        Raises:
            ValueError: The name is empty or was not decodable text.
            DataQualityError: There are more than ``MAX_NAMES``.
        """
        known = self._index.get(name)
        if known is not None:
            return known
        if not name or not is_text(name):
            raise ValueError(f"{self._what} is empty" if not name else f"{self._what} is not valid text")
        if len(self._index) >= MAX_NAMES:
            raise DataQualityError(
                f"more than {MAX_NAMES} different values of {self._what}", hint="is it the right column?"
            )
        self._index[name] = len(self._index)
        return len(self._index) - 1

    def __len__(self) -> int:
        return len(self._index)

    def all(self) -> tuple[str, ...]:
        """The names, in the order of their numbers."""
        return tuple(self._index)


class UserSpool:
    """Collects records per user, in any order, and hands them back one user at a time.

    Memory is bounded by ``MAX_BUFFERED_ROWS``, the index of users, and the records of the largest user.
    """

    def __init__(self) -> None:
        self.users = NameIndex("user")
        self._buffers: dict[int, UserRecords] = {}
        self._segments: dict[int, array[int]] = {}  # per user: begin and size of each piece in the file
        self._buffered = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> UserSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def of(self, user: str) -> UserRecords:
        """Where to add a record of ``user``; good for one row only, a spill may follow.

        Raises:
            ValueError: The name cannot be a user's.
        """
        if self._buffered >= MAX_BUFFERED_ROWS:
            self._spill()
        self._buffered += 1
        number = self.users.index(user)
        buffer = self._buffers.get(number)
        if buffer is None:
            buffer = self._buffers[number] = UserRecords()
        return buffer

    def each(self) -> Iterator[tuple[str, UserRecords]]:
        """Users in the order in which they appeared, each with all its records in the order of the source.

        Raises:
            DataQualityError: There is none.
        """
        if not len(self.users):
            raise DataQualityError("there is no usable row", hint="check the file and the format name")
        for number, user in enumerate(self.users.all()):
            yield user, self._collected(number)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="joulefleet-import-")  # noqa: SIM115 - closed by __exit__
        try:
            for number, buffer in self._buffers.items():
                begin = self._file.tell()
                self._file.write(bytes(buffer))
                self._segments.setdefault(number, array("q")).extend((begin, len(buffer) * DTYPE.itemsize))
            self._file.flush()
        except OSError as error:
            raise storage_error(Path(tempfile.gettempdir()), error) from error
        self._buffers.clear()
        self._buffered = 0

    def _collected(self, number: int) -> UserRecords:
        parts = []
        if self._file is not None:
            places = self._segments.get(number, array("q"))
            for begin, size in zip(places[::2], places[1::2], strict=True):
                self._file.seek(begin)
                parts.append(self._file.read(size))
        buffer = self._buffers.get(number)
        return UserRecords(b"".join(parts) + (b"" if buffer is None else bytes(buffer)))
