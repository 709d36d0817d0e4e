"""What a trace reader is given, what it must do, and how it says what it met.

A reader is a function ``read(source, options, report)`` that yields one `InteractionTrace` per user. It
streams: memory is bounded by one user (or by a documented index), never by the file. It guesses nothing:
what it cannot read is a bad row, what it decides is a note, and both end up in the manifest of the trace set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from joulefleet.errors import DataQualityError
from traces.model import InteractionTrace

KEPT_EXAMPLES = 20


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
