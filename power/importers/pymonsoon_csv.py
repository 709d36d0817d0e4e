"""The CSV of the vendor's Python package.

Its header is ``Time(ms),Main(mA),USB(mA),Aux(mA),Main Voltage(V),USB Voltage(V),``, less the channels that
are off. Each line ends in a comma, and with numpy 2 a number is written as ``np.float64(1.5)``. The time is
when the host had read the packet, in seconds although the header says milliseconds; rows of one read share
it. So rows are placed by their number on the 5 kHz clock of the instrument, fitted to these arrivals as in a
live recording. Where the arrivals leap and never catch up, rows are missing: buffers in the instrument last
for 2.6 ms. What is lost by the row cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from joulefleet.errors import DataQualityError
from power.importers.csv_numbers import CsvChunk, CsvColumn, NumberFile, enough, required
from power.importers.source import Facts, ImportOptions, ReadingSteps, Source
from power.model import FindingLog, InstrumentInfo, Loss, SampleBlock, Severity
from power.recording.checks import SampleChecks
from power.timebase import Timebase, TimebaseFitter
from power.wire.hvpm_scaling import ADC_VOLT, REFERENCE_SHARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND = "import:pymonsoon-csv"
RATE_HZ = 5000
NS_PER_ROW = 10**9 // RATE_HZ
MAX_S = 2**63 // 10**9

LEAP_S = 0.05
"""Two rows that arrive so far apart may have others missing in between."""

LOST_S = 0.02
"""Less than this a busy host makes up for."""

CAUGHT_UP_ROWS = RATE_HZ
"""So many rows after a leap, a host that was only late has caught up: the package reads at some 8 kHz."""

FITTED_ROWS = 64
"""Of so many rows, the one with the smallest delay goes into the fit."""

_NUMPY_2 = re.compile(rb"np\.float64\(([^()]*)\)")
_COLUMNS = {
    "main": {"main(ma)": "current", "main voltage(v)": "voltage"},
    "usb": {"usb(ma)": "current", "usb voltage(v)": "voltage"},
    "aux": {"aux(ma)": "current"},
}
# Numbers are printed in full, so the converter's steps are left. The file does not tell the unit: the widest
# of an HVPM and a reflashed LVPM, with factory scales.
_COUNTS = REFERENCE_SHARE * 0x7FFF
_STEPS = ReadingSteps("the vendor's CSV", 36.5e-3 / _COUNTS, 4 * ADC_VOLT, 36.5e-3, 6.4 / _COUNTS)


def looks_like(head: bytes) -> bool:
    """Whether a file begins with the header of such a CSV."""
    return head.removeprefix(b"\xef\xbb\xbf").replace(b'"', b"").lower().startswith(b"time(ms),")


def read(path: Path, file: BinaryIO, options: ImportOptions, facts: Facts) -> Source:
    """Open a CSV file of the package."""
    rows = NumberFile(path, options.max_bad_rows, _plain)
    columns = _columns(path, rows.header(file), options.channel)
    chunks = rows.chunks(file)
    first = enough(path, chunks)
    whole_seconds = _whole_seconds(path, columns["time"].of(first))
    info = InstrumentInfo(
        kind=KIND,
        emulated=False,
        rate_hz=RATE_HZ,
        tick_hz=RATE_HZ,
        uniform_ticks=True,
        loss=Loss.UNKNOWN,
        accuracy=_STEPS.accuracy(options.accuracy),
        facts={**facts, "whole_seconds": whole_seconds},
    )
    placed = _Placed(path, leaps=not whole_seconds)

    def finish(log: FindingLog) -> Timebase:
        rows.note(log)
        placed.note(log)
        timebase = placed.fitter.fit()
        for finding in SampleChecks(info).finish(timebase):
            log.add(finding.code, finding.severity, finding.message)
        return timebase

    two = _with_next(chunk for chunk in chain([first], chunks) if len(chunk.line))
    blocks = (block for chunk, later in two for block in placed.of(chunk, later, columns))
    return Source(info, blocks, finish)


def _with_next(chunks: Iterator[CsvChunk]) -> Iterator[tuple[CsvChunk, CsvChunk | None]]:
    """Each chunk with the one after it: what follows a leap tells whether rows are missing."""
    chunk: CsvChunk | None = next(chunks, None)
    while chunk is not None:
        later = next(chunks, None)
        yield chunk, later
        chunk = later


def _plain(line: bytes) -> bytes:
    body = _NUMPY_2.sub(rb"\1", line).rstrip(b"\r\n")
    return body.removesuffix(b",") + line[len(line.rstrip(b"\r\n")) :]


def _columns(path: Path, header: list[str], channel: str) -> dict[str, CsvColumn]:
    found: dict[str, CsvColumn] = {}
    for position, name in enumerate(header):
        if name.lower() == "time(ms)":
            found["time"] = CsvColumn(position, 1.0)
        elif quantity := _COLUMNS[channel].get(name.lower()):
            found[quantity] = CsvColumn(position, 1e-3 if quantity == "current" else 1.0)
    hint = (
        "the package measures no voltage of the aux channel: take another"
        if channel == "aux"
        else "enable the time stamp, the current and the voltage of the channel in the sample engine"
    )
    return required(path, header, found, channel, hint)


def _whole_seconds(path: Path, t_s: NDArray[np.float64]) -> bool:
    """Whether times are whole seconds, an option of the package; refuses rows that do not come at 5 kHz."""
    steps_s = np.diff(t_s)
    took_s = float(steps_s.sum())
    whole = bool((t_s == np.rint(t_s)).all()) and len(t_s) > 2
    slack = 2.5 if whole else 1.25
    # Behind a leap rows are missing, or a late host catches up: so the rows come in time with it or without.
    spans_s = {took_s} if whole else {took_s, float(steps_s[steps_s <= LEAP_S].sum())}
    if not any(1 / slack <= len(steps_s) / (span_s * RATE_HZ) <= slack for span_s in spans_s if span_s > 0):
        raise DataQualityError(
            f"{path}: the first {len(t_s)} rows took {took_s:g} s, the instrument makes {RATE_HZ} a second",
            hint="record again with granularity 1: rows written with a higher one, or by a host that lost"
            " most of them, are not evenly spaced. Times must be seconds, as the package writes them",
        )
    return whole


class _Placed:
    """Puts rows on the instrument's clock."""

    def __init__(self, path: Path, *, leaps: bool) -> None:
        self._path = path
        self._leaps = leaps
        self._next = 0
        self._last_s: float | None = None
        self._delay_s = np.empty(0)
        self._unsure: int | None = None
        self.fitter = TimebaseFitter(RATE_HZ)

    def of(
        self, chunk: CsvChunk, later: CsvChunk | None, columns: Mapping[str, CsvColumn]
    ) -> Iterator[SampleBlock]:
        """The rows of a chunk, cut where some are missing."""
        t_s = columns["time"].of(chunk)
        self._check(t_s, chunk)
        lost = self._lost(t_s, columns["time"].of(later) if later else np.empty(0))
        ticks = self._next + np.arange(len(t_s)) + np.cumsum(lost)
        self._fit(ticks, t_s)
        starts = np.union1d([0], np.flatnonzero(lost)).tolist()
        current_a, voltage_v = columns["current"].of(chunk), columns["voltage"].of(chunk)
        for start, stop in pairwise([*starts, len(t_s)]):
            part = slice(start, stop)
            yield SampleBlock(
                t_ns=ticks[part] * NS_PER_ROW,
                ticks=ticks[part],
                current_a=current_a[part],
                voltage_v=voltage_v[part],
                first_index=int(ticks[start]),
                dropped_before=int(lost[start]),
            )
        self._next, self._last_s = int(ticks[-1]) + 1, float(t_s[-1])

    def _check(self, t_s: NDArray[np.float64], chunk: CsvChunk) -> None:
        steps = np.diff(t_s, prepend=t_s[0] if self._last_s is None else self._last_s)
        wrong = np.flatnonzero((steps < 0) | (t_s < 0) | (t_s >= MAX_S))
        if len(wrong):
            at = int(wrong[0])
            raise DataQualityError(
                f"{self._path}:{chunk.line[at]}: time {t_s[at]:g} s goes back, is negative or too large",
                hint="several recordings in one file are imported one by one: cut it before each header",
            )

    def note(self, log: FindingLog) -> None:
        """Say where it is not known whether rows are missing."""
        if self._unsure is not None:
            log.add(
                "late_end",
                Severity.WARNING,
                f"rows arrive more than {LEAP_S:g} s late and the file ends before they may have caught up:"
                " some may be missing",
                index=self._unsure,
            )

    def _lost(self, t_s: NDArray[np.float64], later_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many rows are missing before each: the delay that is never made up after a leap."""
        lost = np.zeros(len(t_s), np.int64)
        both_s = np.concatenate((t_s, later_s))
        delay_s = both_s - (self._next + np.arange(len(both_s))) / RATE_HZ
        steps = np.diff(t_s, prepend=t_s[0] if self._last_s is None else self._last_s)
        for at in np.flatnonzero(steps > LEAP_S).tolist() if self._leaps else []:
            before = np.concatenate((self._delay_s, delay_s[:at]))[-CAUGHT_UP_ROWS:]
            missing_s = float(delay_s[at:].min() - before.min())
            if missing_s > LOST_S and len(both_s) - at < CAUGHT_UP_ROWS:
                self._unsure = self._next + at + int(lost.sum())
            elif missing_s > LOST_S:
                lost[at] = round(missing_s * RATE_HZ)
                delay_s[at:] -= lost[at] / RATE_HZ
        self._delay_s = np.concatenate((self._delay_s, delay_s[: len(t_s)]))[-CAUGHT_UP_ROWS:]
        return lost

    def _fit(self, ticks: NDArray[np.int64], t_s: NDArray[np.float64]) -> None:
        delay_s = t_s - ticks / RATE_HZ
        for start in range(0, len(t_s), FITTED_ROWS):
            at = start + int(np.argmin(delay_s[start : start + FITTED_ROWS]))
            self.fitter.add(int(ticks[at]), round(float(t_s[at]) * 1e9))
