"""What a trace reader is given, what it must do, and how it says what it met.

A reader is a function ``read(source, options, report)`` that yields one `InteractionTrace` per user. It
streams: memory is bounded by one user (or by a documented index), never by the file. It guesses nothing:
what it cannot read is a bad row, what it decides is a note, and both end up in the manifest of the trace set.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from joulefleet.errors import ConfigError, DataQualityError
from traces.model import InteractionTrace, is_time_zone

KEPT_EXAMPLES = 20
COMMON_SETTINGS = ("encoding", "source", "licence")
"""Settings every reader knows: the text's encoding, and whom to cite under which terms."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a user may say about a source.

    Attributes:
        time_zone: IANA name of the users' zone, ``""`` if unknown. Sources with wall-clock stamps need it.
        column_map: Name of a field in our terms to its name in the source, e.g. ``{"level": "batt_pct"}``.
        settings: Further choices of one format, e.g. ``{"table": "battery"}``; a reader raises `ConfigError`
            for a name it does not know.
        max_bad_rows: How many unreadable rows an import survives.
    """

    time_zone: str = ""
    column_map: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    max_bad_rows: int = 100

    def check(self, *, settings: Collection[str] = (), fields: Collection[str] = ()) -> None:
        """Refuse settings and mapped fields that the reader would ignore.

        Args:
            settings: Names of settings beyond `COMMON_SETTINGS`.
            fields: Fields that may be mapped to columns.
        """
        _known("setting", self.settings, [*COMMON_SETTINGS, *settings])
        _known("mapped field", self.column_map, fields)
        if self.time_zone:
            self.zone("")

    def zone(self, why: str) -> ZoneInfo:
        """The users' time zone, which the source does not give.

        Raises:
            ConfigError: It was not given (``why`` says what needs it) or does not exist.
        """
        if not self.time_zone:
            raise ConfigError(
                f"{why}: the time zone must be given", hint="e.g. --time-zone Asia/Shanghai (an IANA name)"
            )
        if not is_time_zone(self.time_zone):
            raise ConfigError(f"time zone {self.time_zone!r} is not an IANA name")
        return ZoneInfo(self.time_zone)

    def one_of(self, name: str, default: str, allowed: Collection[str]) -> str:
        """The value of a setting with a closed set of values."""
        value = self.settings.get(name, default)
        if value not in allowed:
            raise ConfigError(f"{name}: {value!r} is not known", hint=f"one of {', '.join(allowed)}")
        return value

    def hold_ns(self, default_s: float | None = None) -> int | None:
        """How long a reading counts when no other follows (setting ``hold_s``), in nanoseconds."""
        text = self.settings.get("hold_s")
        try:
            hold_s = default_s if text is None else float(text)
        except ValueError:
            hold_s = 0.0
        if hold_s is not None and not 0 < hold_s < 1e9:
            raise ConfigError(f"hold_s: {text!r} is not a positive number of seconds")
        return None if hold_s is None else round(hold_s * 1e9)


def _known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"this format has no {what} {name!r}", hint=f"{hint}known: {', '.join(known) or 'none'}"
            )


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be used.

    Attributes:
        file: Name of the file.
        line: Line (or record) number, from 1.
        problem: What is wrong with it, one clause.
    """

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}"


@dataclass(slots=True)
class ImportReport:
    """Counts what a reader met. One per import.

    Attributes:
        max_bad_rows: The import fails at one bad row more than this.
        rows: Rows read, bad ones included.
        bad_rows: Rows that could not be used.
        examples: The first bad rows, with their line numbers.
        notes: What the reader decided and how often, e.g. ``{"rows out of time order, sorted": 3}``.
        bytes_read: Bytes consumed of the source as it lies on disk.
        on_progress: Called with ``bytes_read``.
    """

    max_bad_rows: int = 100
    rows: int = 0
    bad_rows: int = 0
    examples: list[BadRow] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    on_progress: Callable[[int], None] | None = None

    def bad(self, file: str | Path, line: int, problem: str) -> None:
        """Count a row that cannot be used.

        Raises:
            DataQualityError: There are now more than ``max_bad_rows``; names the first ones.
        """
        self.bad_rows += 1
        if len(self.examples) < KEPT_EXAMPLES:
            self.examples.append(BadRow(Path(file).name, line, problem))
        if self.bad_rows > self.max_bad_rows:
            first = "; ".join(str(row) for row in self.examples[:3])
            raise DataQualityError(
                f"{Path(file).name}: more than {self.max_bad_rows} rows cannot be read, the first: {first}",
                hint="check the format name and the file, or allow more with --max-bad-rows",
            )

    def note(self, what: str, count: int = 1) -> None:
        """Count a decision of the reader that the user should know about."""
        if count:
            self.notes[what] += count

    def progress(self, bytes_read: int) -> None:
        """Tell how many bytes of the source have been consumed so far."""
        self.bytes_read = bytes_read
        if self.on_progress is not None:
            self.on_progress(bytes_read)


class TraceReader(Protocol):
    """One format. Registered under its name in `traces.readers.READERS`, as ``module:read``."""

    def __call__(
        self, source: Path, options: ReaderOptions, report: ImportReport
    ) -> Iterator[InteractionTrace]:
        """Yield one trace per user.

        Raises:
            DataQualityError: Too many bad rows, or a file that is cut short or not of this format.
            ConfigError: The options do not fit the format.
        """
