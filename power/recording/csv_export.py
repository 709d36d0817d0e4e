"""The samples of a recording as CSV, for other programs; in bounded memory, however long it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.files import new_file
from joulefleet.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from power.model import SampleBlock
    from power.recording.reader import Recording


def write_samples_csv(recording: Recording, path: Path, start_ns: int, end_ns: int) -> int:
    """Write the samples from a time up to another, both included.

    Lines that begin with ``#`` say where the samples come from. ``time_s`` counts from the recording's first
    sample. ``lost_before`` is how many samples are missing right before a row, empty where the instrument
    cannot tell.

    Returns:
        How many rows were written.

    Raises:
        StorageError: The file exists already or cannot be written; nothing is left behind.
    """
    import pyarrow as pa
    from pyarrow import csv

    columns = [("time_s", pa.float64()), ("current_a", pa.float32()), ("voltage_v", pa.float32())]
    schema = pa.schema([*columns, ("power_w", pa.float32()), ("lost_before", pa.int64())])
    rows = 0
    with new_file(path) as file:
        file.write("".join(f"# {printable(line)}\n" for line in _about(recording)).encode())
        with csv.CSVWriter(file, schema) as writer:
            for batch in _batches(recording, start_ns, end_ns, schema):
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def _about(recording: Recording) -> Iterator[str]:
    record = recording.record
    provenance = recording.provenance(recording.folder.name)
    yield f"joulefleet recording {recording.folder.name!r}, sha256 {record.sha256()}"
    yield f"origin: {provenance.origin.value}"
    yield f"instrument: {record.info.kind} {record.info.serial}".rstrip()
    yield f"started: {record.started_utc.isoformat()}"
    yield "not calibrated" if recording.calibration is None else recording.calibration.describe()


def _batches(recording: Recording, start_ns: int, end_ns: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    first_ns = None
    for block in recording.blocks():
        first_ns = int(block.t_ns[0]) if first_ns is None else first_ns
        if block.t_ns[-1] < start_ns:
            continue
        if block.t_ns[0] > end_ns:
            return
        yield _batch(block, (start_ns, end_ns), first_ns, schema)


def _batch(block: SampleBlock, span_ns: tuple[int, int], first_ns: int, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    inside = (block.t_ns >= span_ns[0]) & (block.t_ns <= span_ns[1])
    lost = np.zeros(len(block), np.int64)
    lost[0] = block.dropped_before or 0
    is_unknown = np.zeros(len(block), bool)
    is_unknown[0] = block.dropped_before is None
    # A number of seconds that is rounded to nanoseconds is printed with nine decimals at most.
    time_s = np.round((block.t_ns - first_ns) * 1e-9, 9)
    columns = [time_s[inside], block.current_a[inside], block.voltage_v[inside], block.power_w[inside]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
    return pa.record_batch([*arrays, pa.array(lost[inside], mask=is_unknown[inside])], schema=schema)
