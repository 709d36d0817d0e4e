"""Memory does not grow with the input, or by no more than is promised: a little imported, and much more."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces.readers import READERS, ImportReport, ReaderOptions
from traces.readers.rows import spool

# Megabytes in CI and in the campaign; in CI the spool spills early, so that it spills at all.
SIZES = {"livelab": (24, 10_000), "flash": (8, 10_000), "csv": (6, 2_000)}
SPILL_EARLY_ROWS = 20_000
MAX_GROWTH_MB = {"ci": 6, "campaign": 64}
"""What may grow is the index of users; each of these inputs kept in memory would grow by more than this."""


def peak(reader: str, megabytes: float, buffered_rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.traces.big_input"]
    with subprocess.Popen([*command, "write", reader, str(megabytes)], stdout=subprocess.PIPE) as writer:
        done = subprocess.run(
            [*command, "read", reader, str(buffered_rows)],
            stdin=writer.stdout,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    assert writer.returncode == 0
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["megabytes"] >= megabytes
    return found


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("reader", SIZES)
def test_peak_memory_does_not_follow_the_size(
    reader: str, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    megabytes = campaign_count(*SIZES[reader])
    is_ci = megabytes == SIZES[reader][0]
    buffered_rows = SPILL_EARLY_ROWS if is_ci else spool.MAX_BUFFERED_ROWS
    # The campaign's smaller size fills the spool's buffer, too.
    little = peak(reader, megabytes / 5, buffered_rows)
    much = peak(reader, megabytes, buffered_rows)
    record_property("megabytes", [little["megabytes"], much["megabytes"]])
    record_property("rows", [little["rows"], much["rows"]])
    record_property("peak_rss_mb", [little["peak_rss_mb"], much["peak_rss_mb"]])
    assert much["traces"] > 3 * little["traces"]
    assert much["peak_rss_mb"] - little["peak_rss_mb"] < MAX_GROWTH_MB["ci" if is_ci else "campaign"]


PICKLE_CHILD = """
import json, sys
from pathlib import Path
from tests.traces.big_input import read
print(json.dumps(read(Path(sys.argv[1]), "fedscale", 1)))
"""


def test_pickles_are_read_in_constant_memory(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    peaks_mb = []
    for clients in (2_000, 12_000):
        entry = {"active": list(range(0, 60_000, 1000)), "inactive": list(range(500, 60_500, 1000))}
        value = {i: {**{k: list(v) for k, v in entry.items()}, "finish_time": 99_999} for i in range(clients)}
        source = tmp_path / "client_behave_trace"
        source.write_bytes(pickle.dumps(value))
        done = subprocess.run(
            [sys.executable, "-c", PICKLE_CHILD, str(source)], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
        assert found["traces"] == clients
        peaks_mb.append(found["peak_rss_mb"])
    record_property("peak_rss_mb", peaks_mb)
    # What may grow is the set of names; the times of ten thousand more clients would be 40 MB.
    assert peaks_mb[1] - peaks_mb[0] < 8


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_matrix_is_held_once_and_no_wider_than_it_was_stored(tmp_path: Path, dtype: type) -> None:
    steps, devices = 20_000, 200
    available = np.zeros((steps, devices), dtype)
    available[::1000] = 1
    np.savez(tmp_path / "m.npz", available=available, start="2020-01-29T00:00:00Z", step_minutes=30)
    stored_bytes = available.nbytes
    del available
    read = READERS.load("availability")
    tracemalloc.start()
    try:
        count = sum(1 for _ in read(tmp_path / "m.npz", ReaderOptions(), ImportReport()))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == devices
    # Beside the matrix, the records of one device at a time.
    assert stored_bytes < peak_bytes < 1.3 * stored_bytes
