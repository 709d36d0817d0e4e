"""Availability matrices: per device and step of time yes, no or unknown.

* ``.npz`` with ``available`` (steps x devices, integers or booleans: 1 yes, 0 no, 255 or -1 unknown),
  ``start`` (ISO 8601) and ``step_minutes``; optionally ``devices`` with their names. Read without pickle.
* ``.csv`` with a column ``time`` (POSIX seconds) and one column per device; cells 1, 0 or empty (unknown).
  Each row holds until the next one, at most ``hold_s`` seconds, which must be given.

A start without an offset from UTC is a wall-clock time, so the zone must be given.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedjoule.errors import ConfigError, DataQualityError
from traces.model import InteractionTrace
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.common import choices
from traces.readers.common.assemble import Origin, assemble, origin
from traces.readers.common.channels import Rules
from traces.readers.common.clocks import LIMIT_NS, NS_PER_S, datetime_to_ns, number_to_ns
from traces.readers.common.observed import UNKNOWN, Kind, Observed
from traces.readers.common.sources import files_of, stem
from traces.readers.common.spool import UserSpool
from traces.readers.common.tables import Table

MAX_BYTES = 1 << 30
"""Largest array that is read into memory: one-byte cells of 20,000 devices for three years of half-hours."""

_CELLS = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "": UNKNOWN, "255": UNKNOWN}


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per device."""
    choices.check(options, settings=("hold_s",))
    where_from = origin(options, stem(source), "")
    if not where_from.licence:
        report.note("the licence is not stated (setting: licence)")
    for path in files_of(source, ".npz", ".csv"):
        if path.suffix == ".npz":
            yield from _from_npz(path, options, where_from, report)
        else:
            yield from _from_csv(path, options, where_from, report)


def _from_npz(
    path: Path, options: ReaderOptions, where_from: Origin, report: ImportReport
) -> Iterator[InteractionTrace]:
    members = _members(path)
    matrix, step_ns = _matrix(path, members["available"]), _step_ns(path, members["step_minutes"])
    start_ns = _start_ns(path, str(members["start"][()]), options)
    steps, count = matrix.shape
    if start_ns + steps * step_ns >= LIMIT_NS:
        raise DataQualityError(f"{path.name}: {steps} steps of that length do not end in this century")
    names = members.get("devices", np.array([f"{stem(path)}-{number:05d}" for number in range(count)]))
    if names.shape != (count,) or len(set(names.tolist())) != count:
        raise DataQualityError(f"{path.name}: devices are not {count} different names")
    for name, column in zip(names.tolist(), matrix.T, strict=True):
        report.rows += steps
        codes = _codes(path, column)
        if np.all(codes == UNKNOWN):
            report.note("devices that are unknown all the time, left out")
            continue
        observed = Observed()
        changes = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        for step in changes.tolist():
            observed.add(Kind.AVAILABLE, start_ns + step * step_ns, code=int(codes[step]))
        trace = assemble(
            str(name), observed, where_from, report, limits_ns=(start_ns, start_ns + steps * step_ns)
        )
        if trace is not None:
            yield trace
    report.progress(report.bytes_read + path.stat().st_size)


def _members(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz, whose sizes are looked at before anything is unpacked."""
    try:
        # numpy leaves a file open that it opened itself and could not read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in ("available", "start", "step_minutes"):
                if name not in archive.files:
                    raise DataQualityError(f"{path.name}: has no array {name!r}")
            for info in archive.zip.infolist():
                if info.file_size > MAX_BYTES + 4096:
                    raise DataQualityError(f"{path.name}: {info.filename} has more than {MAX_BYTES} bytes")
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise DataQualityError(
            f"{path.name}: is not a whole npz archive of plain arrays ({error})", hint="copy it again"
        ) from error


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
            moment = moment.replace(tzinfo=choices.zone(options, f"{path.name} starts at a wall-clock time"))
        return datetime_to_ns(moment)
    except ValueError as error:
        raise DataQualityError(f"{path.name}: 'start' {text[:40]!r} is not an ISO 8601 time") from error


def _from_csv(
    path: Path, options: ReaderOptions, where_from: Origin, report: ImportReport
) -> Iterator[InteractionTrace]:
    hold_ns = choices.hold_ns(options, None)
    if hold_ns is None:
        raise ConfigError(f"{path.name}: how long a row holds must be given", hint="e.g. --set hold_s=1800")
    table = Table(path, options, report)
    time_at = table.positions({"time": "time"}, required=("time",))["time"]
    devices = [(position, name) for position, name in enumerate(table.header) if position != time_at]
    if len({name for _, name in devices}) != len(devices):
        raise DataQualityError(f"{path.name}: a device is there twice")
    with UserSpool() as spool:

        def handle(row: list[str]) -> None:
            t_ns = number_to_ns(row[time_at])
            unknown = next((row[position] for position, _ in devices if row[position] not in _CELLS), None)
            if unknown is not None:
                raise ValueError(f"{unknown[:40]!r} is not 1, 0 or empty")
            for position, name in devices:
                spool.of(name).add(Kind.AVAILABLE, t_ns, code=_CELLS[row[position]])

        table.each(handle)
        for name, observed in spool.each():
            trace = assemble(name, observed, where_from, report, rules=Rules(hold_ns=hold_ns))
            if trace is not None:
                yield trace
