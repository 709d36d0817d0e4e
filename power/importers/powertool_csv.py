"""Monsoon PowerTool CSV exports as recordings.

PowerTool writes a header and rows of averages: ``Time (s),Main Avg Current (A),Main Avg Power (W),Main Avg
Voltage (V)``, or with ``(mA)`` and ``(mW)``, in any order and with further columns such as ``Main Max
Current (mA)``. Current and voltage of one channel are taken; the power column, if there is one, is only
compared with their product.

A row is the average from its time to that of the next, and is integrated so: 39 rows of 0.2 s are 7.8 s.
Times are the file's own. A step in time of about k periods means that k - 1 rows are missing, and they are
recorded as lost. Whether the instrument lost samples inside the averages a CSV cannot tell, so the loss of
the recording is ``unknown``: what is counted is a lower bound. Nor does a CSV say which instrument made it.
Unless the caller knows its accuracy, only the printed resolution is accounted for, and a finding says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from joulefleet.errors import DataQualityError
from power.importers.csv_numbers import CsvChunk, CsvColumn, NumberFile, enough, required
from power.importers.source import Channel, Facts, ImportOptions, ReadingSteps, Source
from power.model import (
    AVERAGES_FACT,
    FindingLog,
    InstrumentInfo,
    Loss,
    SampleBlock,
    SampleClock,
    Severity,
)
from power.timebase import Timebase

KIND = "import:powertool-csv"
TICK_HZ = 1_000_000
NS_PER_TICK = 10**9 // TICK_HZ

MAX_S = 2**63 // 10**9
"""Times are integers of 64 bits that count nanoseconds: 292 years."""

_COLUMN = re.compile(r"(main|usb|aux) avg (current|power|voltage) \((m?)(a|w|v)\)")
_UNITS = {"current": "a", "power": "w", "voltage": "v"}


def looks_like(head: bytes) -> bool:
    """Whether a file begins with the header of such a CSV."""
    first = head.partition(b"\n")[0].lower()
    return b"time (s)" in first and b" avg " in first


def read(path: Path, file: BinaryIO, options: ImportOptions, facts: Facts) -> Source:
    """Open a PowerTool CSV file."""
    rows = NumberFile(path, options.max_bad_rows)
    columns = _columns(path, rows.header(file), options.channel)
    chunks = _checked(path, rows.chunks(file), columns["time"])
    first = enough(path, chunks)
    period_s = float(np.median(np.diff(columns["time"].of(first))))
    step = {name: 10.0 ** -rows.decimals[c.position] * c.scale for name, c in columns.items()}
    steps = ReadingSteps("a PowerTool CSV", step["current"], step["voltage"])
    info = InstrumentInfo(
        kind=KIND,
        emulated=False,
        rate_hz=1 / period_s,
        tick_hz=TICK_HZ,
        uniform_ticks=False,
        timing=SampleClock.INSTRUMENT,
        loss=Loss.UNKNOWN,
        accuracy=steps.accuracy(options.accuracy),
        facts={**facts, AVERAGES_FACT: True},
    )
    blocks = _Blocks(period_s)
    power = _PowerCheck({name: value / 2 for name, value in step.items()})

    def samples() -> Iterator[SampleBlock]:
        for chunk in chain([first], chunks):
            power.add(chunk, columns)
            yield from blocks.of(chunk, columns)

    def finish(log: FindingLog) -> Timebase:
        rows.note(log)
        power.note(log)
        ticks = (blocks.first_tick, blocks.last_tick + round(period_s * TICK_HZ))
        return Timebase(ticks=ticks, host_ns=(ticks[0] * NS_PER_TICK, ticks[1] * NS_PER_TICK))

    return Source(info, samples(), finish)


def _columns(path: Path, header: list[str], channel: Channel) -> dict[str, CsvColumn]:
    """Where time, current, voltage and perhaps power are, and their units."""
    found: dict[str, CsvColumn] = {}
    for position, name in enumerate(header):
        match = _COLUMN.fullmatch(name.lower())
        if name.lower() == "time (s)":
            found["time"] = CsvColumn(position, 1.0)
        elif match and match[1] == channel and match[4] == _UNITS[match[2]]:
            found[match[2]] = CsvColumn(position, 1e-3 if match[3] else 1.0)
    hint = 'a PowerTool export has "Time (s)", "Main Avg Current (mA)" and "Main Avg Voltage (V)"'
    return required(path, header, found, channel, hint)


def _checked(path: Path, chunks: Iterator[CsvChunk], time: CsvColumn) -> Iterator[CsvChunk]:
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


class _Blocks:
    """Cuts rows into blocks where rows are missing."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._index = 0
        self._last_s: float | None = None
        self.first_tick = 0
        self.last_tick = 0

    def of(self, chunk: CsvChunk, columns: Mapping[str, CsvColumn]) -> Iterator[SampleBlock]:
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
            self._index += lost
            part = slice(start, stop)
            yield SampleBlock(
                t_ns=ticks[part] * NS_PER_TICK,
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

    def add(self, chunk: CsvChunk, columns: Mapping[str, CsvColumn]) -> None:
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
