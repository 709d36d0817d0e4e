"""Finishing a recording whose writer was killed."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from joulefleet.errors import ConfigError, JoulefleetError, StorageError
from joulefleet.files import new_file
from joulefleet.records import read_record, write_record
from joulefleet.runstore.folder import check_folder
from joulefleet.runstore.run import RunLock
from joulefleet.runstore.table import (
    iter_batches,
    numbers,
    read_table,
    rewrite_stream,
    stream_schema,
    stream_to_parquet,
)
from power.model import Finding, Severity
from power.recording.checks import SampleChecks, merge_findings
from power.recording.reader import Recording
from power.recording.records import (
    OPENING_FILE,
    RECORDING_FILE,
    RecordingOpening,
    RecordingRecord,
    data_hashes,
)
from power.recording.tables import index_columns
from power.timebase import TimebaseFitter, clock_tolerance_ppm

if TYPE_CHECKING:
    import pyarrow as pa


def salvage_recording(folder: Path) -> RecordingRecord | None:
    """Finish a recording whose writer was killed.

    Returns:
        The record, or None if there was nothing to do or not a single sample.

    Raises:
        StorageError: A living process is writing it.
    """
    if (folder / RECORDING_FILE).exists() or not (folder / OPENING_FILE).exists():
        return None
    check_folder(folder)
    with contextlib.closing(RunLock(folder)):
        return _salvage(folder, read_record(folder / OPENING_FILE, RecordingOpening))


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
    blocks = read_table(folder, "blocks", index_columns(opening.info))
    whole = min(len(blocks), sum(1 for _ in iter_batches(samples)))
    if not whole:
        return None
    if whole < len(blocks):  # a power cut may keep the row of a batch and lose the batch
        blocks = blocks.slice(0, whole)
        _replace_blocks(folder, blocks)
    rewrite_stream(samples, samples, schema, limit=whole)
    # Provisional times were late, never early, and got better: their lower envelope is the best of them.
    fitter = TimebaseFitter(opening.info.tick_hz, tolerance_ppm=clock_tolerance_ppm(opening.info))
    for tick, t_ns in zip(blocks["last_tick"].to_pylist(), blocks["last_ns"].to_pylist(), strict=True):
        fitter.add(tick, t_ns)
    losses = blocks["dropped_before"]
    record = RecordingRecord(
        **opening.model_dump(),
        timebase=fitter.fit(),
        n_samples=int(numbers(blocks["rows"]).sum()),
        dropped=None if losses.null_count else int(numbers(losses).sum()),
        file_sha256=data_hashes(folder),
    )
    record = record.model_copy(update={"findings": _findings(Recording(folder, record))})
    write_record(folder / RECORDING_FILE, record)
    return record


def _findings(recording: Recording) -> tuple[Finding, ...]:
    """What the killed recorder would have said, as far as samples and bytes still show it."""
    salvaged = Finding(
        code="salvaged",
        severity=Severity.WARNING,
        message="the recording was cut short; times come from the provisional fit",
    )
    checks = SampleChecks(recording.record.info, recording.record.config)
    for block in recording.blocks():
        checks.add(block)
    return (salvaged, *merge_findings(_of_bytes(recording), checks.finish(recording.record.timebase)))


def _of_bytes(recording: Recording) -> tuple[Finding, ...]:
    """What the decoder notices when it reads the instrument's bytes once more."""
    from power.recording.redecode import DECODERS, redecode  # which itself reads recordings

    info = recording.record.info
    try:
        decoder = DECODERS.load(info.kind)(info)
    except ConfigError as error:
        return (_lost(error),)
    try:
        deque(redecode(recording, decoder), maxlen=0)
    except StorageError as error:  # no bytes, or fewer than there were
        return (*decoder.findings, _lost(error))
    return decoder.findings


def _lost(error: JoulefleetError) -> Finding:
    message = f"what the driver had noticed is not known ({error.message})"
    return Finding(code="driver_findings_lost", severity=Severity.WARNING, message=message)


def _replace_blocks(folder: Path, blocks: pa.Table) -> None:
    import pyarrow.parquet as pq

    with new_file(folder / "blocks.parquet", replace=True) as file:
        pq.write_table(blocks, file, compression="zstd")
