"""Recordings: what an instrument said, on disk, re-decodable, readable in bounded memory.

A recording is a folder::

    recording.json     instrument, limits, timebase, findings, hashes (written last, on a clean close)
    opening.json       what was known when it began, so that a killed recording can be salvaged
    samples.arrows     current_a, voltage_v (and tick, where ticks are not uniform); memory-mappable
    blocks.parquet     one row per batch of samples: index, ticks, gap before it, energy inside it
    raw.bin            the instrument's bytes, exactly as they came
    arrivals.parquet   host time at which the bytes up to an offset had arrived

Samples stay an Arrow stream so that a window of a day-long recording is read without the day (ADR-0004).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedjoule.errors import StorageError
from fedjoule.provenance import Origin, Provenance, Sha256, SourceRef
from fedjoule.records import StoredRecord, file_sha256, publish, read_record, storage_error, write_record
from fedjoule.runstore.run import RunLock
from fedjoule.runstore.table import (
    TableWriter,
    iter_batches,
    numbers,
    read_table,
    rewrite_stream,
    stream_schema,
    stream_to_parquet,
)
from power.batch_index import index_schema, index_sums
from power.channels import Channels
from power.meter import MeterConfig
from power.model import Finding, InstrumentInfo, SampleBlock, Severity
from power.timebase import Timebase, TimebaseFitter

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

RECORDING_FILE = "recording.json"
OPENING_FILE = "opening.json"
RAW_FILE = "raw.bin"
BATCH_SAMPLES = 16_384
SALVAGE_HINT = "`fedjoule meter salvage` recovers it, or `fedjoule runs salvage` inside a run"
FLUSH_S = 1.0

SECOND_HAND = ("import:", "replay:")
"""How the kind of a recording begins that no instrument made here and now: it is `imported` at most."""


class RecordingOpening(StoredRecord):
    """What was known when the recording began.

    Attributes:
        started_utc: Wall-clock time at the start.
        started_ns: Host-monotonic time at the same moment, which ties sample times to the wall clock.
    """

    info: InstrumentInfo
    config: MeterConfig | None = None
    started_utc: datetime
    started_ns: int


class RecordingRecord(RecordingOpening):
    """``recording.json``.

    Attributes:
        dropped: Samples known to be lost; None where the instrument cannot tell.
        file_sha256: Hash of each data file, which makes a copy or an edit visible.
    """

    timebase: Timebase
    n_samples: int
    dropped: int | None
    findings: tuple[Finding, ...] = ()
    file_sha256: dict[str, Sha256] = Field(default_factory=dict)

    def provenance(self, source_id: str) -> Provenance:
        """What may be claimed of numbers computed from this recording."""
        seen = self.n_samples + (self.dropped or 0)
        imported = self.info.kind.startswith(SECOND_HAND)
        origin = Origin.EMULATED if self.info.emulated else Origin.IMPORTED if imported else Origin.MEASURED
        return Provenance(
            origin=origin,
            sources=(SourceRef(id=source_id, sha256=self.sha256()),),
            instrument=self.info.instrument(),
            loss_fraction=None if self.dropped is None else self.dropped / max(1, seen),
        )


def _samples_schema(uniform: bool) -> pa.Schema:
    import pyarrow as pa

    fields = [pa.field("current_a", pa.float32()), pa.field("voltage_v", pa.float32())]
    if not uniform:
        fields.insert(0, pa.field("tick", pa.int64()))
    return pa.schema(fields)


class RecordingWriter:
    """Writes one recording. Feed it blocks; `close` with the final timebase and findings.

    It is also the `power.meter.RawSink` of the meter it records.
    """

    def __init__(
        self, folder: Path, info: InstrumentInfo, config: MeterConfig | None, *, started_ns: int
    ) -> None:
        self.folder = folder
        self.info = info
        self.opening = RecordingOpening(
            info=info, config=config, started_utc=datetime.now(UTC), started_ns=started_ns
        )
        write_record(folder / OPENING_FILE, self.opening)
        self._samples = TableWriter(folder, "samples", _samples_schema(info.uniform_ticks), keep_stream=True)
        self._channels = Channels.of(info.accuracy)
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
        import pyarrow as pa

        self.path = folder / RAW_FILE
        try:
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise storage_error(self.path, error) from error
        schema = pa.schema([("end_offset", pa.int64()), ("arrival_ns", pa.int64())])
        self._arrivals = TableWriter(folder, "arrivals", schema)
        self._pending: list[tuple[int, int]] = []
        self._flushed_s = time.monotonic()
        self._offset = 0

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


def data_hashes(folder: Path) -> dict[str, str]:
    """The hash of every data file of a recording."""
    names = ("samples.arrows", "blocks.parquet", "arrivals.parquet", RAW_FILE)
    return {name: file_sha256(folder / name) for name in names if (folder / name).exists()}


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


def open_recording(folder: Path) -> Recording:
    """Open a finished recording.

    Raises:
        StorageError: It was never finished (salvage it first), or its files do not belong together.
    """
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


def salvage_recording(folder: Path) -> RecordingRecord | None:
    """Finish a recording whose writer was killed.

    Returns:
        The record, or None if there was nothing to do or not a single sample.

    Raises:
        StorageError: A living process is writing it.
    """
    if (folder / RECORDING_FILE).exists() or not (folder / OPENING_FILE).exists():
        return None
    lock = RunLock(folder)
    try:
        return _salvage(folder, read_record(folder / OPENING_FILE, RecordingOpening))
    finally:
        lock.release()


def _salvage(folder: Path, opening: RecordingOpening) -> RecordingRecord | None:
    for name in ("blocks", "arrivals"):
        stream, parquet = folder / f"{name}.arrows", folder / f"{name}.parquet"
        if parquet.exists():  # whole: it gets its name last
            stream.unlink(missing_ok=True)
        elif stream.exists():
            stream_to_parquet(stream, parquet)
    samples = folder / "samples.arrows"
    schema = stream_schema(samples) if samples.exists() else None
    if schema is None or not (folder / "blocks.parquet").exists():
        return None
    blocks = read_table(folder, "blocks")
    whole = min(len(blocks), sum(1 for _ in iter_batches(samples)))
    if not whole:
        return None
    if whole < len(blocks):  # a power cut may keep the row of a batch and lose the batch
        blocks = blocks.slice(0, whole)
        _replace_blocks(folder, blocks)
    rewrite_stream(samples, samples, schema, limit=whole)
    # Provisional times were late, never early, and got better: their lower envelope is the best of them.
    fitter = TimebaseFitter(opening.info.tick_hz)
    for tick, t_ns in zip(blocks["last_tick"].to_pylist(), blocks["last_ns"].to_pylist(), strict=True):
        fitter.add(tick, t_ns)
    losses = blocks["dropped_before"]
    finding = Finding(
        code="salvaged",
        severity=Severity.WARNING,
        message="the recording was cut short; times come from the provisional fit",
    )
    record = RecordingRecord(
        **opening.model_dump(),
        timebase=fitter.fit(),
        n_samples=int(numbers(blocks["rows"]).sum()),
        dropped=None if losses.null_count else int(numbers(losses).sum()),
        findings=(finding,),
        file_sha256=data_hashes(folder),
    )
    write_record(folder / RECORDING_FILE, record)
    return record


def _replace_blocks(folder: Path, blocks: pa.Table) -> None:
    import pyarrow.parquet as pq

    temporary = folder / ".blocks.parquet.tmp"
    pq.write_table(blocks, temporary, compression="zstd")
    publish(temporary, folder / "blocks.parquet", replace=True)
