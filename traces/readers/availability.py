"""Availability matrices: per device and step of time yes, no or unknown.

* ``.npz`` with ``available`` (steps x devices, integers or booleans: 1 yes, 0 no, 255 or -1 unknown),
  ``start`` (ISO 8601) and ``step_minutes``; optionally ``devices`` with their names. Read without pickle, and
  no array before its size is known: ``numpy.load`` believes a header that asks for any amount of memory,
  whatever the archive's index says.
* ``.csv`` with a column ``time`` (POSIX seconds) and one column per device; cells 1, 0 or empty (unknown).
  Each row holds until the next one, at most ``hold_s`` seconds, which must be given.

A start without an offset from UTC is a wall-clock time, so the zone must be given.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulefleet.budgets import npz_arrays
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable
from traces.readers.files.sources import files_of, is_text, require_file, stem
from traces.readers.rows.assemble import assemble_all, source_facts
from traces.readers.rows.channels import ChannelRules
from traces.readers.rows.spool import UNKNOWN, RecordKind, UserSpool
from traces.readers.rows.timestamps import LIMIT_NS, NS_PER_S, datetime_to_ns, number_to_ns

MAX_BYTES = 1 << 30
"""Most memory for the arrays of one file: one-byte cells of 20,000 devices for three years of half-hours."""

_CELLS = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "": UNKNOWN, "255": UNKNOWN}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per device."""
    options.check(settings=("hold_s",))
    where_from = source_facts(options, report, stem(source))
    hold_ns = options.hold_ns()
    with UserSpool() as spool:
        for path in files_of(source, ".npz", ".csv"):
            if path.suffix == ".npz":
                _from_npz(path, options, report, spool)
            elif hold_ns is None:
                raise ConfigError(
                    f"{path.name}: how long a row holds must be given", hint="e.g. --set hold_s=1800"
                )
            else:
                _from_csv(path, options, report, spool)
        yield from assemble_all(spool, where_from, report, rules=ChannelRules(hold_ns=hold_ns))


def _from_npz(path: Path, options: ReaderOptions, report: ImportReport, spool: UserSpool) -> None:
    require_file(path)
    members = _arrays(path)
    matrix, step_ns = _matrix(path, members["available"]), _step_ns(path, members["step_minutes"])
    start_ns = _start_ns(path, str(members["start"][()]), options)
    steps, count = matrix.shape
    end_ns = start_ns + steps * step_ns
    if end_ns >= LIMIT_NS:
        raise DataQualityError(f"{path.name}: {steps} steps of that length do not end in this century")
    names = _names(path, members.get("devices"), count)
    for name, column in zip(names, matrix.T, strict=True):
        report.rows += steps
        codes = _codes(path, column)
        if np.all(codes == UNKNOWN):
            report.note("devices that are unknown all the time, left out")
            continue
        spool.of(name).add(RecordKind.RECORDED_SPAN, start_ns, end_ns=end_ns, code=1)
        changes = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        for first, last in pairwise([*changes.tolist(), steps]):
            spool.of(name).add(
                RecordKind.AVAILABLE_SPAN,
                start_ns + first * step_ns,
                end_ns=start_ns + last * step_ns,
                code=int(codes[first]),
            )
    report.progress(report.bytes_read + path.stat().st_size)


def _names(path: Path, given: NDArray[Any] | None, count: int) -> list[str]:
    if given is None:
        return [f"{stem(path)}-{number:05d}" for number in range(count)]
    names = [str(name) for name in given.tolist()] if given.dtype.kind in "Uiu" and given.ndim == 1 else []
    if len(names) != count or len(set(names)) != count or not all(name and is_text(name) for name in names):
        raise DataQualityError(f"{path.name}: devices are not {count} different names")
    return names


def _matrix(path: Path, matrix: NDArray[Any]) -> NDArray[Any]:
    if matrix.ndim != 2 or matrix.dtype.kind not in "biu" or not matrix.size:
        raise DataQualityError(f"{path.name}: 'available' is not a matrix of integers or booleans")
    return matrix


def _codes(path: Path, column: NDArray[Any]) -> NDArray[np.int8]:
    """What the cells of one device say; a device at a time, since a copy of the whole might not fit."""
    yes, no = column == 1, column == 0
    strange = column[~(yes | no | (column == 255) | (column == -1))]
    if len(strange):
        raise DataQualityError(f"{path.name}: 'available' holds {strange[0]}, which is not 0, 1, 255 or -1")
    codes = np.full(len(column), UNKNOWN, np.int8)
    codes[no], codes[yes] = 0, 1
    return codes


def _step_ns(path: Path, step: NDArray[Any]) -> int:
    if step.shape != () or step.dtype.kind not in "iuf" or not 0 < float(step) < 1e6:
        raise DataQualityError(f"{path.name}: 'step_minutes' is not a positive number")
    return round(float(step) * 60 * NS_PER_S)


def _start_ns(path: Path, text: str, options: ReaderOptions) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=options.zone(f"{path.name} starts at a wall-clock time"))
        return datetime_to_ns(moment)
    except ValueError as error:
        raise DataQualityError(f"{path.name}: 'start' {text[:40]!r} is not an ISO 8601 time") from error


def _from_csv(path: Path, options: ReaderOptions, report: ImportReport, spool: UserSpool) -> None:
    table = CsvTable(path, options, report)
    time_at = table.positions({"time": "time"}, required=("time",))["time"]
    devices = [(position, name) for position, name in enumerate(table.header) if position != time_at]
    if len({name for _, name in devices}) != len(devices):
        raise DataQualityError(f"{path.name}: a device is there twice")

    def handle(row: list[str]) -> None:
        t_ns = number_to_ns(row[time_at])
        unknown = next((row[position] for position, _ in devices if row[position] not in _CELLS), None)
        if unknown is not None:
            raise ValueError(f"{unknown[:40]!r} is not 1, 0 or empty")
        for position, name in devices:
            spool.of(name).add(RecordKind.AVAILABLE, t_ns, code=_CELLS[row[position]])

    table.each(handle)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an archive.

    Raises:
        DataQualityError: It is no archive of plain arrays, lacks a required one, or they are too large
            together.
    """
    required = ("available", "start", "step_minutes")
    try:
        arrays = npz_arrays(path, (*required, "devices"), limit=MAX_BYTES)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataQualityError(f"{path.name}: {error}", hint="copy it again") from error
    missing = [name for name in required if name not in arrays]
    if missing:
        raise DataQualityError(f"{path.name}: has no array {missing[0]!r}")
    return arrays
