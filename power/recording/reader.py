"""Reading a recording batch by batch, without loading it whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.errors import StorageError
from joulefleet.records import read_record, storage_error
from joulefleet.runstore.table import numbers, read_table, stream_schema
from power.model import SampleBlock
from power.recording.records import (
    OPENING_FILE,
    RECORDING_FILE,
    SALVAGE_HINT,
    RecordingRecord,
    data_hashes,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Recording:
    """A finished recording, opened for reading; samples are read batch by batch, as they are asked for."""

    folder: Path
    record: RecordingRecord

    @cached_property
    def index(self) -> dict[str, NDArray[Any]]:
        """The columns of ``blocks.parquet`` as arrays, with unknown losses as -1."""
        table = read_table(self.folder, "blocks")
        return {name: numbers(table[name]) for name in table.column_names}

    @cached_property
    def _samples(self) -> tuple[pa.NativeFile, pa.Schema]:
        import pyarrow as pa

        path = self.folder / "samples.arrows"
        try:
            schema, file = stream_schema(path), pa.OSFile(str(path), "rb")
        except OSError as error:
            raise storage_error(path, error) from error
        if schema is None:
            raise StorageError(f"{path}: not an Arrow stream")
        return file, schema

    def batch(self, i: int) -> pa.RecordBatch:
        """The stored columns of batch number ``i``, read from where the index says."""
        import pyarrow as pa

        file, schema = self._samples
        offsets = self.index["offset"]
        end = int(offsets[i + 1]) if i + 1 < len(offsets) else file.size()
        try:
            data = file.read_at(end - int(offsets[i]), int(offsets[i]))
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise StorageError(f"{self.folder}: samples of batch {i} are not readable ({error})") from error
        if batch.num_rows != self.index["rows"][i]:
            raise StorageError(f"{self.folder}: batch {i} of the samples does not match the index")
        return batch

    def __len__(self) -> int:
        return len(self.index["rows"])

    def block(self, i: int) -> SampleBlock:
        """Batch number ``i`` with its final times. Adjacent batches with nothing lost between continue."""
        batch = self.batch(i)
        first_tick, rows = int(self.index["first_tick"][i]), int(self.index["rows"][i])
        if self.record.info.uniform_ticks:
            step = round(self.record.info.tick_hz / self.record.info.rate_hz)
            ticks = first_tick + step * np.arange(rows, dtype=np.int64)
        else:
            ticks = numbers(batch.column("tick"))
        dropped = int(self.index["dropped_before"][i])
        return SampleBlock(
            t_ns=self.record.timebase.to_host_ns(ticks),
            ticks=ticks,
            current_a=numbers(batch.column("current_a")),
            voltage_v=numbers(batch.column("voltage_v")),
            first_index=int(self.index["first_index"][i]),
            dropped_before=None if dropped < 0 else dropped,
        )

    def blocks(self) -> Iterator[SampleBlock]:
        """All batches in order, in bounded memory."""
        for i in range(len(self)):
            yield self.block(i)


def open_recording(folder: Path | str) -> Recording:
    """Open a finished recording.

    Example:
        >>> recording = open_recording("first")
        >>> recording.record.findings

    Raises:
        StorageError: It was never finished (salvage it first), or its files do not belong together.
    """
    folder = Path(folder)
    if not (folder / RECORDING_FILE).exists():
        known = (folder / OPENING_FILE).exists()
        raise StorageError(
            f"{folder}: {'the recording was not finished' if known else 'no recording here'}",
            hint=SALVAGE_HINT if known else "",
        )
    recording = Recording(folder, read_record(folder / RECORDING_FILE, RecordingRecord))
    stored = int(recording.index["rows"].sum())
    if stored != recording.record.n_samples:
        raise StorageError(
            f"{folder}: {stored} samples in the index, {recording.record.n_samples} in the record"
        )
    return recording


def verify_hashes(recording: Recording) -> list[str]:
    """Names of data files that are missing or no longer what was recorded."""
    found = data_hashes(recording.folder)
    return [name for name, sha in recording.record.file_sha256.items() if found.get(name) != sha]
