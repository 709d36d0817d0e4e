"""Writing a recording: whatever happens, every sample that was appended stays readable."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from joulefleet.errors import StorageError
from joulefleet.files import storage_error
from joulefleet.records import write_record
from joulefleet.runstore.table import TableWriter
from power.calibration import MeterCalibration
from power.meter import MeterConfig
from power.model import Finding, InstrumentInfo, SampleBlock
from power.recording.channels import RangeChannels, index_schema, index_sums
from power.recording.records import (
    BATCH_SAMPLES,
    FLUSH_S,
    OPENING_FILE,
    RAW_FILE,
    RECORDING_FILE,
    SALVAGE_HINT,
    RecordingOpening,
    RecordingRecord,
    data_hashes,
)
from power.recording.tables import arrivals_schema, samples_schema
from power.timebase import Timebase


class RecordingWriter:
    """Writes one recording. Feed it blocks; `close` with the final timebase and findings.

    It is also the `power.meter.RawSink` of the meter it records.
    """

    def __init__(
        self,
        folder: Path,
        info: InstrumentInfo,
        config: MeterConfig | None,
        *,
        started_ns: int,
        calibration: MeterCalibration | None = None,
    ) -> None:
        self.folder = folder
        self.info = info
        self.opening = RecordingOpening(
            info=info,
            config=None if config is None else config.model_copy(update={"calibration": None}),
            calibration=calibration,
            started_utc=datetime.now(UTC),
            started_ns=started_ns,
        )
        write_record(folder / OPENING_FILE, self.opening)
        self._samples = TableWriter(folder, "samples", samples_schema(info.uniform_ticks), keep_stream=True)
        self._channels = RangeChannels.of(info.accuracy)
        self._blocks = TableWriter(folder, "blocks", index_schema(self._channels))
        self._raw: _RawWriter | None = None
        self._pending: list[SampleBlock] = []
        self._pending_rows = 0
        self._flushed_ns = started_ns
        self._broken = False
        self._next_index = 0
        self.n_samples = 0
        self.dropped: int | None = 0

    def write(self, data: bytes, arrival_ns: int) -> None:
        """Keep raw bytes; see `power.meter.RawSink`."""
        if self._raw is None:
            self._raw = _RawWriter(self.folder)
        self._raw.write(data, arrival_ns)

    def append(self, block: SampleBlock) -> None:
        """Add a block; it is on disk at the latest a second later."""
        if not len(block):
            return
        # Ticks of a batch are stored as a first one and a step: a hole (a loss, a calibration) ends it.
        continues = block.dropped_before == 0 and block.first_index == self._next_index
        self._next_index = block.first_index + len(block)
        if not continues or self._pending_rows + len(block) > BATCH_SAMPLES:
            self.flush()
        if block.dropped_before is None:
            self.dropped = None
        elif self.dropped is not None:
            self.dropped += block.dropped_before
        for start in range(0, len(block), BATCH_SAMPLES):
            self._pending.append(block_part(block, start, start + BATCH_SAMPLES))
            self._pending_rows += len(self._pending[-1])
            if self._pending_rows >= BATCH_SAMPLES:
                self.flush()
        self.n_samples += len(block)
        if self._pending and int(block.t_ns[-1]) - self._flushed_ns > FLUSH_S * 1e9:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as one batch."""
        if not self._pending or self._broken:
            return
        # Half a batch may be on disk after a failure: writing it again would store samples twice.
        self._broken = True
        first, last = self._pending[0], self._pending[-1]
        ticks = np.concatenate([b.ticks for b in self._pending])
        current = np.concatenate([b.current_a for b in self._pending]).astype(np.float32)
        voltage = np.concatenate([b.voltage_v for b in self._pending]).astype(np.float32)
        columns: dict[str, Any] = {"current_a": current, "voltage_v": voltage}
        if not self.info.uniform_ticks:
            columns["tick"] = ticks
        offset = self._samples.stream_path.stat().st_size
        self._samples.append(columns)
        self._blocks.append(
            {
                "first_index": [first.first_index],
                "first_tick": [int(ticks[0])],
                "last_tick": [int(ticks[-1])],
                "rows": [len(ticks)],
                "dropped_before": [first.dropped_before],
                "first_ns": [int(first.t_ns[0])],
                "last_ns": [int(last.t_ns[-1])],
                "offset": [offset],
                **index_sums(self._channels, ticks, current, voltage),
            }
        )
        self._broken = False
        self._flushed_ns = int(last.t_ns[-1])
        self._pending.clear()
        self._pending_rows = 0

    def close(self, timebase: Timebase, findings: tuple[Finding, ...]) -> RecordingRecord:
        """Finish: everything on disk, hashed, and described by ``recording.json``."""
        if self._broken:
            raise StorageError(f"{self.folder}: a batch of samples could not be written", hint=SALVAGE_HINT)
        self.flush()
        self._samples.close()
        self._blocks.close()
        if self._raw is not None:
            self._raw.close()
        record = RecordingRecord(
            **self.opening.model_dump(),
            timebase=timebase,
            n_samples=self.n_samples,
            dropped=self.dropped,
            findings=findings,
            file_sha256=data_hashes(self.folder),
        )
        write_record(self.folder / RECORDING_FILE, record)
        return record

    @property
    def raw_bytes(self) -> int:
        """Bytes of the instrument that were kept."""
        return self._raw.size if self._raw is not None else 0

    def discard(self) -> None:
        """Leave nothing behind of a recording that never began, so that the folder can be used again."""
        self.abandon()
        files = (OPENING_FILE, self._samples.stream_path.name, self._blocks.stream_path.name)
        for name in files:
            (self.folder / name).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Stop writing after a failure; `salvage_recording` finishes it. Raises nothing."""
        with contextlib.suppress(StorageError):
            self.flush()
        self._samples.abandon()
        self._blocks.abandon()
        if self._raw is not None:
            self._raw.abandon()


class _RawWriter:
    """``raw.bin`` and its arrival times."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RAW_FILE
        try:
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise storage_error(self.path, error) from error
        self._arrivals = TableWriter(folder, "arrivals", arrivals_schema())
        self._pending: list[tuple[int, int]] = []
        self._flushed_s = time.monotonic()
        self._offset = 0

    @property
    def size(self) -> int:
        return self._offset

    def write(self, data: bytes, arrival_ns: int) -> None:
        try:
            if self._file.write(data) != len(data):
                raise OSError(28, "short write")  # ENOSPC
        except OSError as error:
            raise storage_error(self.path, error) from error
        self._offset += len(data)
        self._pending.append((self._offset, arrival_ns))
        if len(self._pending) >= 256 or time.monotonic() - self._flushed_s > FLUSH_S:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            ends, arrivals = zip(*self._pending, strict=True)
            self._arrivals.append({"end_offset": list(ends), "arrival_ns": list(arrivals)})
            self._pending.clear()
            self._flushed_s = time.monotonic()

    def close(self) -> None:
        self._flush()
        self._arrivals.close()
        self._file.close()

    def abandon(self) -> None:
        with contextlib.suppress(StorageError):
            self._flush()
        self._arrivals.abandon()
        self._file.close()


def block_part(block: SampleBlock, start: int, stop: int) -> SampleBlock:
    """Samples ``start`` to ``stop`` of a block; only its beginning follows the loss before it."""
    if start == 0 and stop >= len(block):
        return block
    return SampleBlock(
        t_ns=block.t_ns[start:stop],
        ticks=block.ticks[start:stop],
        current_a=block.current_a[start:stop],
        voltage_v=block.voltage_v[start:stop],
        first_index=block.first_index + start,
        dropped_before=block.dropped_before if start == 0 else 0,
    )
