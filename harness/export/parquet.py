"""A run as Parquet files: every table, and every sample of the power of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet.records import canonical_json, new_folder

if TYPE_CHECKING:
    from collections.abc import Sequence


def export_parquet(run: StoredRun, out: Path) -> dict[str, int]:
    """Write every table of a run, and its samples, into a new folder; returns the rows of each file.

    Raises:
        StorageError: The folder exists already or cannot be written.
        DataQualityError: The run has nothing that could be written.
    """
    import pyarrow.parquet as pq

    run.check_has_tables()
    about = _about(run)
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
        for table in run.tables() if run.job_lines else ():
            file = f"{table.name}.parquet"
            pq.write_table(table.arrow().replace_schema_metadata(about), folder / file, compression="zstd")
            rows[file] = len(table.rows)
        if run.job_lines:
            rows["power.parquet"] = _write_power(run.captures, folder / "power.parquet", about)
    return rows


def _write_power(captures: Sequence[JobCapture], path: Path, about: dict[bytes, bytes]) -> int:
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


def _about(run: StoredRun) -> dict[bytes, bytes]:
    """What the numbers are, inside every file."""
    about = {
        "run": run.record.run_id,
        "name": run.record.name,
        "origin": run.origin.value if run.origin else None,
        "t_ns": "monotonic clock of the host, nanoseconds",
    }
    return {b"joulefleet": canonical_json(about)}
