"""Numbers out of a CSV file: in bounded memory, strictly, and with line numbers for what is wrong."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from joulefleet.errors import DataQualityError
from joulefleet.files import storage_error
from joulefleet.printable import listed
from power.model import FindingLog, Severity

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_ROWS = 8192
LONGEST_LINE = 4096  # bytes; a line of numbers is a hundredth of that, a file without lines is all of it
LISTED = 5

PLAIN_CSV = (
    "take the file as it was exported: commas between columns, decimal points, UTF-8. A spreadsheet may have "
    "saved it with semicolons or decimal commas"
)

# float() would also take nan, inf and 1_000. A cell that a spreadsheet would run as a formula is no number.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LARGEST = 1e38  # samples are stored as 32-bit floats, where more is infinite
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class CsvChunk:
    """Some rows that are all numbers, and the line of the file that each came from."""

    values: NDArray[np.float64]
    line: NDArray[np.int64]


@dataclass(slots=True)
class NumberFile:
    """A CSV file of one header line and rows of numbers. Use `header` first, then `chunks`.

    Attributes:
        path: The file.
        max_bad_rows: With more rows than this that are no numbers, reading fails.
        clean: Turns a line, also the first, into plain CSV.
        bad_rows: How many there were.
        bad_examples: The first few, as text for a message.
        torn: Whether the last line has no end: it may have been cut inside a number, and is left out.
        decimals: Most decimals printed in each column of the first chunk.
    """

    path: Path
    max_bad_rows: int
    clean: Callable[[bytes], bytes] = bytes
    bad_rows: int = 0
    bad_examples: list[str] = field(default_factory=list)
    torn: bool = False
    decimals: list[int] = field(default_factory=list)
    _width: int = 0

    def header(self, file: BinaryIO) -> list[str]:
        """The names in the first line."""
        line = file.readline(LONGEST_LINE)
        if line.startswith(_UTF_16_MARKS):
            raise DataQualityError(f"{self.path}: UTF-16 text", hint="save the file as UTF-8")
        try:
            names = next(csv.reader([self.clean(line).decode("utf-8-sig").strip()], strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataQualityError(
                f"{self.path}: the first line is no CSV text ({error})", hint="save the file as UTF-8 CSV"
            ) from error
        if len(names) == 1:
            raise DataQualityError(f"{self.path}: one column only: {names[0]!r:.80}", hint=PLAIN_CSV)
        self._width = len(names)
        return [name.strip() for name in names]

    def chunks(self, file: BinaryIO) -> Iterator[CsvChunk]:
        """The rows, some thousands at a time."""
        lines: list[bytes] = []
        first = 2
        while line := self._next_line(file, first + len(lines)):
            lines.append(line)
            if len(lines) == CHUNK_ROWS:
                yield self._parse(lines, first)
                first += len(lines)
                lines = []
        if lines:
            yield self._parse(lines, first)

    def _next_line(self, file: BinaryIO, number: int) -> bytes:
        try:
            line = file.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise storage_error(self.path, error) from error
        if len(line) > LONGEST_LINE:
            raise DataQualityError(f"{self.path}:{number}: a line of more than {LONGEST_LINE} bytes")
        if line and not line.endswith(b"\n"):
            self.torn = True
            return b""
        return self.clean(line)

    def _parse(self, lines: list[bytes], first: int) -> CsvChunk:
        if not self.decimals:
            self.decimals = self._count_decimals(lines)
        values = self._parse_fast(lines)
        if values is not None:
            return CsvChunk(values, np.arange(first, first + len(lines)))
        rows, numbers = [], []
        for number, line in enumerate(lines, start=first):
            row = self._parse_line(line, number)
            if row is not None:
                rows.append(row)
                numbers.append(number)
        return CsvChunk(np.array(rows, np.float64).reshape(-1, self._width), np.array(numbers, np.int64))

    def _parse_fast(self, lines: list[bytes]) -> NDArray[np.float64] | None:
        """All lines at once; None if anything about them is unusual."""
        if not all(line.strip() for line in lines):
            return None
        try:
            text = [line.decode("ascii") for line in lines]
            values = np.loadtxt(text, delimiter=",", comments=None, ndmin=2)
        except (UnicodeDecodeError, ValueError):
            return None
        whole = values.shape == (len(lines), self._width) and (np.abs(values) < _LARGEST).all()
        return values if whole else None

    def _parse_line(self, line: bytes, number: int) -> list[float] | None:
        try:
            cells = next(csv.reader([line.decode("utf-8").rstrip("\r\n")], strict=True), [])
        except (UnicodeDecodeError, csv.Error):
            cells = []
        if not cells and not line.strip():
            return None  # an empty line says nothing
        if len(cells) == self._width and all(_NUMBER.fullmatch(cell.strip()) for cell in cells):
            numbers = [float(cell) for cell in cells]
            if all(abs(number) < _LARGEST for number in numbers):
                return numbers
        self._bad(line, number)
        return None

    def _bad(self, line: bytes, number: int) -> None:
        self.bad_rows += 1
        if len(self.bad_examples) < LISTED:
            # repr, because a message may end up in a terminal or a spreadsheet
            text = line[:60].rstrip(b"\r\n").decode(errors="replace")
            self.bad_examples.append(f"line {number}: {text!r}")
        if self.bad_rows > self.max_bad_rows:
            raise DataQualityError(
                f"{self.path}: more than {self.max_bad_rows} rows are not {self._width} numbers: "
                + "; ".join(self.bad_examples),
                hint=PLAIN_CSV,
            )

    def _count_decimals(self, lines: list[bytes]) -> list[int]:
        most = [0] * self._width
        for line in lines:
            cells = line.strip().split(b",")
            if len(cells) == self._width:
                most = [
                    max(old, len(cell.partition(b".")[2].rstrip(b'"')))
                    for old, cell in zip(most, cells, strict=True)
                ]
        return most

    def note(self, log: FindingLog) -> None:
        """Say what was left out."""
        if self.bad_rows:
            log.add(
                "bad_rows",
                Severity.WARNING,
                "rows that are no numbers were left out: " + "; ".join(self.bad_examples),
                count=self.bad_rows,
            )
        if self.torn:
            log.add("truncated", Severity.WARNING, "the last line has no end and was left out")


@dataclass(frozen=True, slots=True)
class CsvColumn:
    """Where a quantity stands in a row, and its unit in SI units."""

    position: int
    scale: float

    def of(self, chunk: CsvChunk) -> NDArray[np.float64]:
        """Its values in SI units."""
        values: NDArray[np.float64] = chunk.values[:, self.position] * self.scale
        return values


def required(
    path: Path, header: list[str], found: dict[str, CsvColumn], channel: str, hint: str
) -> dict[str, CsvColumn]:
    """The columns, if time, current and voltage are among them."""
    missing = [name for name in ("time", "current", "voltage") if name not in found]
    if missing:
        raise DataQualityError(
            f"{path}: no {' and no '.join(missing)} column for channel {channel!r}; it has {listed(header)}",
            hint=hint,
        )
    return found


def enough(path: Path, chunks: Iterator[CsvChunk]) -> CsvChunk:
    """The first chunk, if it holds more than one row."""
    first = next(chunks, None)
    if first is None or len(first.line) < 2:
        raise DataQualityError(f"{path}: fewer than two rows of numbers", hint="is it cut short?")
    return first
