"""Monsoon PowerTool CSV exports as recordings.

PowerTool writes a header and rows of averages: ``Time (s),Main Avg Current (A),Main Avg Power (W),Main Avg
Voltage (V)``, or with ``(mA)`` and ``(mW)``, in any order and with further columns such as ``Main Max
Current (mA)``. Current and voltage of one channel are taken; the power column, if there is one, is only
compared with their product.

Times are the file's own. A step in time of about k periods means that k - 1 rows are missing, and they are
recorded as lost. Whether the instrument lost samples inside the averages a CSV cannot tell, so the loss of
the recording is ``unknown``: what is counted is a lower bound. Nor does a CSV say which instrument made it.
Unless the caller knows its accuracy, only the printed resolution is accounted for, and a finding says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from joulefleet.errors import DataQualityError, StorageError
from joulefleet.records import file_sha256, new_folder
from power.importers.csv_numbers import CsvChunk, NumberFile
from power.model import (
    Accuracy,
    FindingLog,
    InstrumentInfo,
    Loss,
    RangeAccuracy,
    SampleBlock,
    SampleClock,
    Severity,
)
from power.recording.records import RecordingRecord
from power.recording.writer import RecordingWriter
from power.timebase import Timebase

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND = "import:powertool-csv"
TICK_HZ = 1_000_000
MAX_BAD_ROWS = 10

MAX_S = 2**63 // 10**9
"""Times are integers of 64 bits that count nanoseconds: 292 years."""

Channel = Literal["main", "usb", "aux"]
Facts = dict[str, str | int | float | bool]

_COLUMN = re.compile(r"(main|usb|aux) avg (current|power|voltage) \((m?)(a|w|v)\)")
_UNITS = {"current": "a", "power": "w", "voltage": "v"}


@dataclass(frozen=True, slots=True)
class _Column:
    position: int
    scale: float

    def of(self, chunk: CsvChunk) -> NDArray[np.float64]:
        values: NDArray[np.float64] = chunk.values[:, self.position] * self.scale
        return values


def import_powertool_csv(
    path: Path,
    folder: Path,
    *,
    channel: Channel = "main",
    accuracy: Accuracy | None = None,
    max_bad_rows: int = MAX_BAD_ROWS,
) -> RecordingRecord:
    """Turn a PowerTool CSV file into a recording. Nothing is left behind if that fails.

    Args:
        path: The CSV file.
        folder: Where the recording goes; must not exist.
        channel: Which channel to take.
        accuracy: Of the instrument that made the file, if it is known.
        max_bad_rows: Rows that are no numbers are left out; with more of them, the import fails.

    Raises:
        DataQualityError: The file is not such a CSV, or its times or numbers make no sense.
        StorageError: It cannot be read, or the folder cannot be written.
    """
    try:
        sha256 = file_sha256(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}", hint="check the path") from error
    about: Facts = {
        "source_file": path.name,
        "source_sha256": sha256,
        "channel": channel,
        "rows_are_averages": True,
    }
    with new_folder(folder) as hidden, path.open("rb") as file:
        rows = NumberFile(path, max_bad_rows)
        columns = _columns(path, rows.header(file), channel)
        chunks = _checked(path, rows.chunks(file), columns["time"])
        return _import(rows, chunks, columns, hidden, accuracy, about)


def _columns(path: Path, header: list[str], channel: Channel) -> dict[str, _Column]:
    """Where time, current, voltage and perhaps power are, and their units."""
    found: dict[str, _Column] = {}
    for position, name in enumerate(header):
        match = _COLUMN.fullmatch(name.lower())
        if name.lower() == "time (s)":
            found["time"] = _Column(position, 1.0)
        elif match and match[1] == channel and match[4] == _UNITS[match[2]]:
            found[match[2]] = _Column(position, 1e-3 if match[3] else 1.0)
    missing = [name for name in ("time", "current", "voltage") if name not in found]
    if missing:
        raise DataQualityError(
            f"{path}: no {' and no '.join(missing)} column for channel {channel!r} in {header[:8]!r:.200}",
            hint='a PowerTool export has "Time (s)", "Main Avg Current (mA)" and "Main Avg Voltage (V)"',
        )
    return found


def _checked(path: Path, chunks: Iterator[CsvChunk], time: _Column) -> Iterator[CsvChunk]:
    """The chunks, as long as a recording can hold their times: from zero on, and increasing."""
    last_s = -np.inf
    for chunk in chunks:
        t_s = time.of(chunk)
        if not len(t_s):
            continue
        steps = np.diff(t_s, prepend=last_s)
        wrong = np.flatnonzero((steps * TICK_HZ < 1) | (t_s < 0) | (t_s >= MAX_S))
        if len(wrong):
            at = int(wrong[0])
            raise _wrong_time(f"{path}:{chunk.line[at]}", float(t_s[at]), float(steps[at]))
        last_s = float(t_s[-1])
        yield chunk


def _wrong_time(where: str, t_s: float, step_s: float) -> DataQualityError:
    if t_s >= MAX_S:
        return DataQualityError(
            f"{where}: time {t_s:g} s is more than {MAX_S} s, which no recording holds",
            hint="milliseconds taken for seconds, or a date? PowerTool writes seconds from the start",
        )
    if t_s >= 0 and step_s > 0:
        return DataQualityError(
            f"{where}: {step_s:g} s is less than 1 us after the row before",
            hint="is the column really in seconds? No PowerTool samples that fast",
        )
    what = "is negative" if t_s < 0 else "does not increase"
    return DataQualityError(
        f"{where}: time {what} ({t_s:g} s)",
        hint="export the file again; two exports in one file must be imported one by one",
    )


def _import(
    rows: NumberFile,
    chunks: Iterator[CsvChunk],
    columns: Mapping[str, _Column],
    folder: Path,
    accuracy: Accuracy | None,
    facts: Facts,
) -> RecordingRecord:
    first = next(chunks, None)
    if first is None or len(first.line) < 2:
        raise DataQualityError(f"{rows.path}: fewer than two rows of numbers", hint="is it cut short?")
    period_s = float(np.median(np.diff(columns["time"].of(first))))
    half_step = {name: 0.5 * 10.0 ** -rows.decimals[c.position] * c.scale for name, c in columns.items()}
    info = InstrumentInfo(
        kind=KIND,
        emulated=False,
        rate_hz=1 / period_s,
        tick_hz=TICK_HZ,
        uniform_ticks=False,
        timing=SampleClock.INSTRUMENT,
        loss=Loss.UNKNOWN,
        accuracy=accuracy or _resolution_only(half_step),
        facts=facts,
    )
    writer = RecordingWriter(folder, info, None, started_ns=0)
    blocks = _Blocks(period_s)
    power = _PowerCheck(half_step)
    try:
        for chunk in chain([first], chunks):
            power.add(chunk, columns)
            for block in blocks.of(chunk, columns):
                writer.append(block)
    except BaseException:
        writer.abandon()
        raise
    log = FindingLog()
    _note(log, rows, blocks, known_accuracy=accuracy is not None)
    power.note(log)
    timebase = Timebase(
        ticks=(blocks.first_tick, blocks.last_tick),
        host_ns=(blocks.first_tick * (10**9 // TICK_HZ), blocks.last_tick * (10**9 // TICK_HZ)),
    )
    return writer.close(timebase, log.as_tuple())


def _resolution_only(half_step: Mapping[str, float]) -> Accuracy:
    return Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0.0, offset_a=half_step["current"]),),
        voltage_gain_rel=0.0,
        voltage_offset_v=half_step["voltage"],
        source="printed resolution of a PowerTool CSV; the accuracy of the instrument is not known",
    )


class _Blocks:
    """Cuts rows into blocks where rows are missing."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._index = 0
        self._last_s: float | None = None
        self.first_tick = 0
        self.last_tick = 0
        self.missing = 0

    def of(self, chunk: CsvChunk, columns: Mapping[str, _Column]) -> Iterator[SampleBlock]:
        t_s = columns["time"].of(chunk)
        current_a, voltage_v = columns["current"].of(chunk), columns["voltage"].of(chunk)
        ticks = np.rint(t_s * TICK_HZ).astype(np.int64)
        if self._last_s is None:
            self.first_tick = int(ticks[0])
        before_s = t_s[0] - self._period_s if self._last_s is None else self._last_s
        missing = np.maximum(np.rint(np.diff(t_s, prepend=before_s) / self._period_s).astype(np.int64) - 1, 0)
        starts = np.union1d([0], np.flatnonzero(missing)).tolist()
        for start, stop in zip(starts, [*starts[1:], len(t_s)], strict=True):
            lost = int(missing[start])
            self.missing += lost
            self._index += lost
            part = slice(start, stop)
            yield SampleBlock(
                t_ns=ticks[part] * (10**9 // TICK_HZ),
                ticks=ticks[part],
                current_a=current_a[part],
                voltage_v=voltage_v[part],
                first_index=self._index,
                dropped_before=lost,
            )
            self._index += stop - start
        self._last_s, self.last_tick = float(t_s[-1]), int(ticks[-1])


class _PowerCheck:
    """Compares the mean of volts times amperes with the mean of the file's own power column.

    They may differ by the rounding of what is printed: half a step of power, and half a step of current
    and of voltage times the other. The bound on the mean is the mean of these.
    """

    def __init__(self, half_step: Mapping[str, float]) -> None:
        self._half_step = half_step
        self._n = 0
        self._product_w = self._column_w = self._bound_w = 0.0

    def add(self, chunk: CsvChunk, columns: Mapping[str, _Column]) -> None:
        if "power" not in columns:
            return
        current_a, voltage_v = columns["current"].of(chunk), columns["voltage"].of(chunk)
        half = self._half_step
        bound_w = half["power"] + half["current"] * np.abs(voltage_v) + half["voltage"] * np.abs(current_a)
        self._n += len(current_a)
        self._product_w += float(current_a @ voltage_v)
        self._column_w += float(columns["power"].of(chunk).sum())
        self._bound_w += float(bound_w.sum())

    def note(self, log: FindingLog) -> None:
        if abs(self._product_w - self._column_w) > self._bound_w:
            log.add(
                "power_disagrees",
                Severity.WARNING,
                f"mean of volts times amperes is {self._product_w / self._n:.6g} W, "
                f"mean of the file's power column {self._column_w / self._n:.6g} W",
            )


def _note(log: FindingLog, rows: NumberFile, blocks: _Blocks, *, known_accuracy: bool) -> None:
    if rows.bad_rows:
        log.add(
            "bad_rows",
            Severity.WARNING,
            "rows that are no numbers were left out: " + "; ".join(rows.bad_examples),
            count=rows.bad_rows,
        )
    if rows.torn:
        log.add("truncated", Severity.WARNING, "the last line has no end and was left out")
    if blocks.missing:
        log.add("gap", Severity.WARNING, "rows are missing, as the times show", count=blocks.missing)
    if not known_accuracy:
        log.add("accuracy_unknown", Severity.WARNING, "the file does not say how accurate its instrument is")
