"""Appending to a run's table against writing the same batches with pyarrow alone."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.result import Figure, figure
from joulefleet.runstore import TableWriter

SCHEMA = pa.schema([("t_ns", pa.int64()), ("current_a", pa.float32()), ("voltage_v", pa.float32())])
ROWS, BATCHES, REPEATS = 5_000, 400, 5


def _batch() -> pa.RecordBatch:
    rng = np.random.default_rng(0)
    return pa.record_batch(
        {
            "t_ns": np.arange(ROWS),
            "current_a": rng.random(ROWS, np.float32),
            "voltage_v": rng.random(ROWS, np.float32),
        },
        schema=SCHEMA,
    )


def _ours(folder: Path, batch: pa.RecordBatch) -> float:
    start = time.process_time()
    writer = TableWriter(folder, "samples", SCHEMA)
    for _ in range(BATCHES):
        writer.append(batch)
    writer.abandon()
    return time.process_time() - start


def _pyarrow(folder: Path, batch: pa.RecordBatch) -> float:
    start = time.process_time()
    with pa.OSFile(str(folder / "plain.arrows"), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        for _ in range(BATCHES):
            writer.write_batch(batch)
    return time.process_time() - start


def run() -> list[Figure]:
    """CPU time of an append, ours against pyarrow's own writer without our guarantees."""
    batch = _batch()
    ratios, rates = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            ours, plain = _ours(Path(name), batch), _pyarrow(Path(name), batch)
        ratios.append(ours / plain)
        rates.append(ROWS * BATCHES / ours / 5_000)
    return [
        figure("run_store", "append, CPU time against bare pyarrow", ratios, "x", better="lower"),
        figure("run_store", "append, CPU time against a 5 kHz meter", rates, "x real time"),
    ]
