"""How long trace sets of the published sizes take to import, each in a process of its own.

The inputs are generated: LiveLab's dump with 34 users and 700,000 rows (`tests.traces.livelab_dump`),
FedScale's pickle with 107,749 clients, FLASH's default set of 1,000 phones, a million rows of generic CSV.
Times are CPU time: a reader uses one core, and what else goes on here does not count.
"""

from __future__ import annotations

import json
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from tests.traces import big_input, livelab_dump
from traces.readers import READERS, ImportReport, ReaderOptions

NAME = "trace_import"
LIVELAB_ROWS = 700_000
LIVELAB_BAR_S = 20.0
FEDSCALE_CLIENTS = 107_749
FLASH_PHONES = 1_000
CSV_ROWS = 1_000_000


def run(repeats: int = 3) -> list[Figure]:
    """Import each set so many times."""
    found = []
    with tempfile.TemporaryDirectory(prefix="trace-import-") as name:
        for reader, source, what in _inputs(Path(name)):
            runs = [_in_child(reader, source) for _ in range(repeats)]
            last = runs[-1]
            size_mb = source.stat().st_size / 1e6
            wall_s = statistics.median(one["wall_s"] for one in runs)
            note = f"{size_mb:.0f} MB, {last['rows']:,} rows, {last['traces']:,} traces; wall {wall_s:.3g} s"
            bar = LIVELAB_BAR_S if reader == "livelab" else None
            cpu_s = [one["cpu_s"] for one in runs]
            found += [
                figure(NAME, f"{what}: time", cpu_s, "s CPU", better="lower", note=note, bar=bar),
                figure(NAME, f"{what}: peak RSS", [one["peak_rss_mb"] for one in runs], "MB", better="lower"),
            ]  # fmt: skip
    return found


def _inputs(folder: Path) -> list[tuple[str, Path, str]]:
    dump = folder / "appusage.sql"
    livelab_dump.write(dump, livelab_dump.runs(LIVELAB_ROWS))
    behaviour = folder / "client_behave_trace"
    behaviour.write_bytes(pickle.dumps({client: _client(client) for client in range(FEDSCALE_CLIENTS)}))
    states = folder / "state_traces.json"
    states.write_text("".join(islice(big_input.flash(), FLASH_PHONES)) + "}", encoding="utf-8")
    table = folder / "phones.csv"
    blocks = 1 + CSV_ROWS // (8 * big_input.ROWS_PER_USER)
    table.write_text("".join(islice(big_input.table(), 1 + blocks)), encoding="utf-8")
    return [
        ("livelab", dump, f"LiveLab, {LIVELAB_ROWS:,} rows"),
        ("fedscale", behaviour, f"FedScale, {FEDSCALE_CLIENTS:,} clients"),
        ("flash", states, f"FLASH, {FLASH_PHONES:,} phones"),
        ("csv", table, f"generic CSV, {CSV_ROWS:,} rows"),
    ]


def _client(number: int) -> dict[str, Any]:
    times = sorted(random.Random(number).sample(range(518_400), 2 * (number % 30)))
    return {
        "duration": 518_400,
        "inactive": times[1::2],
        "finish_time": 518_400,
        "active": times[::2],
        "model": f"model {number % 700}",
    }


def _in_child(reader: str, source: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.trace_import", reader, str(source)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _work(reader: str, source: Path) -> dict[str, Any]:
    report = ImportReport(max_bad_rows=0)
    options = ReaderOptions(time_zone="Asia/Shanghai")
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    traces = sum(1 for _ in READERS.load(reader)(source, options, report))
    return {
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "rows": report.rows,
        "traces": traces,
        "peak_rss_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    print(json.dumps(_work(sys.argv[1], Path(sys.argv[2]))))
