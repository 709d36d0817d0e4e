"""A run as CSV files that any spreadsheet opens, or as Parquet files with every sample of its power."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.results.decimate import decimate
from harness.results.emulations import JoinedTable
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture, RunTable
from joulefleet.files import new_folder, storage_error
from joulefleet.printable import CsvWriter
from joulefleet.records import canonical_json

MAX_ROWS = 1_000_000
"""A worksheet of a spreadsheet holds 1,048,576 rows (Microsoft: Excel specifications and limits)."""

ABOUT_FILE = "about.json"
POWER_COLUMNS = ("job", "time_s", "t_ns", "current_a", "voltage_v", "power_w")


@dataclass(frozen=True, slots=True)
class Written:
    """One file of an export.

    Attributes:
        rows: In the file.
        rows_total: That there are.
        note: What was left out, and where all of it is.
    """

    file: str
    rows: int
    rows_total: int
    note: str = ""


def export_csv(
    run: StoredRun, out: Path, *, max_rows: int = MAX_ROWS, more: Sequence[RunTable] = ()
) -> tuple[Written, ...]:
    """Write every table of a run, and the power of its jobs, into a new folder.

    Args:
        run: The run.
        out: The folder; it must not exist.
        max_rows: Of each file.
        more: Tables beside those of the run: the parts of its page.

    Raises:
        StorageError: The folder exists already or cannot be written.
        DataQualityError: The run has nothing that could be written.
    """
    run.check_has_tables()
    written = []
    with new_folder(out) as folder:
        for joined in run.emulations:
            note = "the first rows; Parquet has all" if joined.rows > max_rows else ""
            lines = islice(_lines(joined), max_rows)
            count = _write(folder / _file(joined.name, note), joined.schema.names, lines)
            written.append(Written(_file(joined.name, note), count, joined.rows, note))
        for table in (*(run.tables() if run.job_lines else ()), *more):
            rows = ([row.get(name) for name in table.columns] for row in table.rows[:max_rows])
            note = "the first rows; Parquet has all" if len(table.rows) > max_rows else ""
            count = _write(folder / _file(table.name, note), list(table.columns), rows)
            written.append(Written(_file(table.name, note), count, len(table.rows), note))
        if run.job_lines:
            written.append(_write_power(run.captures, folder, max_rows))
        (folder / ABOUT_FILE).write_text(_about(run, written), encoding="utf-8")
    return tuple(written)


def _lines(table: JoinedTable) -> Iterator[Sequence[Any]]:
    for part in table.parts():
        for batch in part.to_batches(max_chunksize=10_000):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _file(name: str, note: str) -> str:
    return f"{name}.capped.csv" if note else f"{name}.csv"


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    count = 0
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = CsvWriter(file, columns)
            for row in rows:
                writer.write(row)
                count += 1
    except OSError as error:
        raise storage_error(path, error) from error
    return count


def _write_power(captures: Sequence[JobCapture], folder: Path, max_rows: int) -> Written:
    """Samples, all of them if they fit; otherwise those of lowest and highest power of equal stretches."""
    total = sum(job.capture.recording.record.n_samples for job in captures)
    each = max(4, max_rows // max(1, len(captures))) if total > max_rows else total
    note = ""
    if total > max_rows:
        note = "of equal stretches only the samples of lowest and highest power; Parquet has all"
    rows = islice((row for job in captures for row in _power_rows(job, each)), max_rows)
    count = _write(folder / _file("power", note), POWER_COLUMNS, rows)
    return Written(_file("power", note), count, total, note)


def _power_rows(job: JobCapture, max_samples: int) -> Iterator[tuple[Any, ...]]:
    found = decimate(job.capture.recording, max_samples)
    columns = (found.t_ns, found.current_a, found.voltage_v, found.power_w)
    for t_ns, *values in zip(*(column.tolist() for column in columns), strict=True):
        # Seven digits are all that the stored 32 bits hold.
        yield job.job, f"{job.seconds(t_ns):.6f}", t_ns, *(f"{value:.7g}" for value in values)


def _about(run: StoredRun, written: Sequence[Written]) -> str:
    time_s = "seconds after the recording of the job began"
    about = {**_identity(run), "time_s": time_s, "files": [asdict(file) for file in written]}
    return json.dumps(about, indent=2) + "\n"


def _identity(run: StoredRun) -> dict[str, str | None]:
    """What the numbers of an export are of."""
    return {
        "run": run.record.run_id,
        "name": run.record.name,
        "origin": run.origin.value if run.origin else None,
        "t_ns": "monotonic clock of the host, nanoseconds",
    }


def export_json(run: StoredRun, out: Path, *, more: Sequence[RunTable] = ()) -> dict[str, int]:
    """Write every table of a run as a JSON file of rows into a new folder; returns the rows of each file.

    Samples are not among them: Parquet has them, and of what the page draws ``more`` has the points.

    Raises:
        StorageError: The folder exists already or cannot be written.
        DataQualityError: The run has nothing that could be written.
    """
    run.check_has_tables()
    rows = {}
    with new_folder(out) as folder:
        for joined in run.emulations:
            found = [row for part in joined.parts() for row in part.to_pylist()]
            rows[_write_json(folder / f"{joined.name}.json", run, joined.schema.names, found)] = len(found)
        for table in (*(run.tables() if run.job_lines else ()), *more):
            file = _write_json(folder / f"{table.name}.json", run, list(table.columns), table.rows)
            rows[file] = len(table.rows)
    return rows


def _write_json(path: Path, run: StoredRun, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Rows with every column; what is not known, NaN included, is null."""
    plain = [{name: _plain(row.get(name)) for name in columns} for row in rows]
    text = json.dumps({**_identity(run), "rows": plain}, allow_nan=False, indent=1, default=str)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise storage_error(path, error) from error
    return path.name


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def export_parquet(run: StoredRun, out: Path, *, more: Sequence[RunTable] = ()) -> dict[str, int]:
    """Write every table of a run, and its samples, into a new folder; returns the rows of each file.

    ``more`` are tables beside those of the run: the parts of its page.

    Raises:
        StorageError: The folder exists already or cannot be written.
        DataQualityError: The run has nothing that could be written.
    """
    import pyarrow.parquet as pq

    run.check_has_tables()
    about = {b"joulefleet": canonical_json(_identity(run))}  # inside every file
    rows = {}
    with new_folder(out) as folder:
        for joined in run.emulations:
            file = f"{joined.name}.parquet"
            with pq.ParquetWriter(
                folder / file, joined.schema.with_metadata(about), compression="zstd"
            ) as writer:
                for part in joined.parts():
                    writer.write_table(part.replace_schema_metadata(about))
            rows[file] = joined.rows
        for table in (*(run.tables() if run.job_lines else ()), *more):
            file = f"{table.name}.parquet"
            pq.write_table(table.arrow().replace_schema_metadata(about), folder / file, compression="zstd")
            rows[file] = len(table.rows)
        if run.job_lines:
            rows["power.parquet"] = _write_samples(run.captures, folder / "power.parquet", about)
    return rows


def _write_samples(captures: Sequence[JobCapture], path: Path, about: dict[bytes, bytes]) -> int:
    """All samples, a batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("job", pa.dictionary(pa.int32(), pa.string())),
            ("t_ns", pa.int64()),
            ("current_a", pa.float32()),
            ("voltage_v", pa.float32()),
            ("power_w", pa.float32()),
        ],
        metadata=about,
    )
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for job in captures:
            for block in job.capture.recording.blocks():
                name = pa.DictionaryArray.from_arrays(np.zeros(len(block), np.int32), [job.job])
                columns = (block.current_a, block.voltage_v, block.power_w)
                values = [pa.array(column.astype(np.float32)) for column in columns]
                writer.write_table(pa.table([name, pa.array(block.t_ns), *values], schema=schema))
                count += len(block)
    return count
