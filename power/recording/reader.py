"""Reading a recording batch by batch, without loading it whole.

The files hold what the instrument said. Here, and nowhere else, a calibration is applied to it: everything
that reads samples or sums of them (energy, CSV, reports, clocks) gets corrected ones. Whoever needs what is
stored asks for `Recording.as_stored`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from joulefleet.errors import StorageError
from joulefleet.files import storage_error
from joulefleet.provenance import Provenance
from joulefleet.records import read_record
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.folder import check_folder
from joulefleet.runstore.table import numbers, read_table, readable_batch, stream_schema
from power.calibration import MeterCalibration, require_fit
from power.correction import Correction, calibrated_info
from power.model import InstrumentInfo, SampleBlock
from power.recording.channels import RangeChannels, index_sums
from power.recording.records import (
    OPENING_FILE,
    RECORDING_FILE,
    SALVAGE_HINT,
    RecordingRecord,
    data_hashes,
)
from power.recording.tables import index_columns, samples_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

SAMPLE_BYTES, BATCH_HEAD_BYTES = 64, 1 << 16
"""At most, of a stored sample and of what stands around those of a batch."""


@dataclass(frozen=True)
class Recording:
    """A finished recording, opened for reading; samples are read batch by batch, as they are asked for."""

    folder: Path
    record: RecordingRecord
    calibration: MeterCalibration | None = None

    def as_stored(self) -> Self:
        """The same without correction."""
        return replace(self, calibration=None)

    def recalibrated(self, calibration: MeterCalibration) -> Self:
        """The same with another calibration than that of its record.

        Raises:
            ConfigError: It belongs to another unit, scaling, channel or range.
        """
        require_fit(calibration, self.record.info)
        return replace(self, calibration=calibration)

    @cached_property
    def info(self) -> InstrumentInfo:
        """The instrument, with the accuracy of its corrected readings."""
        return calibrated_info(self.record.info, self.calibration)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its numbers should know about their calibration."""
        return () if self.calibration is None else self.calibration.warnings(self.record.started_utc)

    def provenance(self, source_id: str) -> Provenance:
        """What may be claimed of numbers computed from it, with the calibration that is applied."""
        applied = None if self.calibration is None else self.calibration.sha256()
        stored = self.record.provenance(source_id)
        return stored.model_copy(update={"calibration_sha256": applied})

    @cached_property
    def index(self) -> dict[str, NDArray[Any]]:
        """The columns of ``blocks.parquet`` as arrays, unknown losses as -1; sums of corrected samples."""
        stored = self._stored_index
        if self.calibration is None:
            return stored
        channels = RangeChannels.of(self.info.accuracy)
        rows = [index_sums(channels, self._ticks(i), *self.values(i)) for i in range(len(stored["rows"]))]
        return stored | {name: np.array([row[name][0] for row in rows]) for name in (rows[0] if rows else {})}

    @cached_property
    def _stored_index(self) -> dict[str, NDArray[Any]]:
        table = read_table(self.folder, "blocks", index_columns(self.record.info))
        stored = {name: numbers(table[name]) for name in table.column_names}
        if int(stored["rows"].sum()) != self.record.n_samples:
            raise StorageError(
                f"{self.folder}: blocks.parquet has {stored['rows'].sum()} samples, the record says "
                f"{self.record.n_samples}: it was changed"
            )
        return stored

    @cached_property
    def _correction(self) -> Correction | None:
        return None if self.calibration is None else Correction(self.record.info.accuracy, self.calibration)

    @cached_property
    def _schema(self) -> pa.Schema:
        path = self.folder / "samples.arrows"
        try:
            schema = stream_schema(path)
        except OSError as error:
            raise storage_error(path, error) from error
        if schema is None:
            raise StorageError(f"{path}: not an Arrow stream")
        self._columns.check(path, schema.empty_table())
        return schema

    @cached_property
    def _columns(self) -> Columns:
        return samples_columns(self.record.info)

    def batch(self, i: int) -> pa.RecordBatch:
        """The stored columns of batch number ``i``, read from where the index says."""
        import pyarrow as pa

        schema, offsets = self._schema, self._stored_index["offset"]
        try:
            # Opened each time: a page of a thousand captures must not hold a thousand open files.
            with pa.OSFile(str(self.folder / "samples.arrows"), "rb") as file:
                end = int(offsets[i + 1]) if i + 1 < len(offsets) else file.size()
                if not 0 <= offsets[i] <= end <= file.size():
                    raise ValueError("not where the index says")
                data = file.read_at(end - int(offsets[i]), int(offsets[i]))
            batch = readable_batch(pa.py_buffer(data), schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StorageError(f"{self.folder}: samples of batch {i} are not readable ({error})") from error
        if batch.num_rows != self._stored_index["rows"][i]:
            raise StorageError(f"{self.folder}: batch {i} of the samples does not match the index")
        self._columns.check(self.folder / "samples.arrows", batch)
        return batch

    def values(self, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Currents and voltages of batch number ``i``, corrected."""
        batch = self.batch(i)
        current_a, voltage_v = numbers(batch.column("current_a")), numbers(batch.column("voltage_v"))
        return (
            (current_a, voltage_v)
            if self._correction is None
            else self._correction.apply(current_a, voltage_v)
        )

    def _ticks(self, i: int) -> NDArray[np.int64]:
        if not self.record.info.uniform_ticks:
            return numbers(self.batch(i).column("tick"))
        first_tick, rows = int(self._stored_index["first_tick"][i]), int(self._stored_index["rows"][i])
        step = round(self.record.info.tick_hz / self.record.info.rate_hz)
        return first_tick + step * np.arange(rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._stored_index["rows"])

    def block(self, i: int) -> SampleBlock:
        """Batch number ``i`` with its final times. Adjacent batches with nothing lost between continue."""
        ticks = self._ticks(i)
        current_a, voltage_v = self.values(i)
        dropped = int(self._stored_index["dropped_before"][i])
        return SampleBlock(
            t_ns=self.record.timebase.to_host_ns(ticks),
            ticks=ticks,
            current_a=current_a,
            voltage_v=voltage_v,
            first_index=int(self._stored_index["first_index"][i]),
            dropped_before=None if dropped < 0 else dropped,
        )

    def blocks(self) -> Iterator[SampleBlock]:
        """All batches in order, in bounded memory."""
        for i in range(len(self)):
            yield self.block(i)


def open_recording(folder: Path | str, *, calibration: MeterCalibration | None = None) -> Recording:
    """Open a finished recording.

    Examples:
        >>> recording = open_recording("first")
        >>> recording.record.findings

    Args:
        folder: Where it is.
        calibration: Applied to its samples instead of the one in its record.

    Raises:
        ConfigError: The calibration belongs to another unit, scaling, channel or range.
        StorageError: It was never finished (salvage it first), or its files do not belong together.
    """
    folder = Path(folder)
    if not (folder / RECORDING_FILE).exists():
        known = (folder / OPENING_FILE).exists()
        raise StorageError(
            f"{folder}: {'the recording was not finished' if known else 'no recording here'}",
            hint=SALVAGE_HINT if known else "",
        )
    check_folder(folder)
    record = read_record(folder / RECORDING_FILE, RecordingRecord)
    recording = Recording(folder, record, record.calibration)
    stored = int(recording.as_stored().index["rows"].sum())
    if stored != recording.record.n_samples:
        raise StorageError(
            f"{folder}: {stored} samples in the index, {recording.record.n_samples} in the record"
        )
    _check_size(recording)
    return recording if calibration is None else recording.recalibrated(calibration)


def _check_size(recording: Recording) -> None:
    """Refuse samples with more around them than they take: a file of terabytes takes no room on a disk."""
    path = recording.folder / "samples.arrows"
    try:
        held = path.stat().st_size
    except OSError as error:
        raise storage_error(path, error) from error
    if held > (len(recording) + 1) * BATCH_HEAD_BYTES + recording.record.n_samples * SAMPLE_BYTES:
        raise StorageError(f"{path}: {held:,} bytes, more than {recording.record.n_samples:,} samples take")


def verify_hashes(recording: Recording) -> list[str]:
    """Names of data files that are missing or no longer what was recorded."""
    found = data_hashes(recording.folder)
    return [name for name, sha in recording.record.file_sha256.items() if found.get(name) != sha]
