"""100,000 devices x 7 days of generated traces, from the shipped model to a stored set: time and memory.

The time is CPU time of the whole process, both threads; on the wall it takes less on an idle machine with two
cores, and more where other work is going on.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure

USERS = 100_000
DAYS = 7
REPEATS = 3
TIME_BAR_S = 60.0


def run() -> list[Figure]:
    """Each repeat in a process of its own, from a loaded model to a complete folder."""
    measured = []
    for seed in range(REPEATS):
        with tempfile.TemporaryDirectory(prefix="trace-synth-") as folder:
            command = [sys.executable, "-m", "benchmarks.trace_synth", str(seed), f"{folder}/set"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured.append(json.loads(done.stdout))
    note = f"{measured[0]['rows']:,} rows, {measured[0]['size_mb']:.0f} MB on disk"
    wall_s = statistics.median(one["wall_s"] for one in measured)
    what = f"{USERS:,} devices x {DAYS} days"
    times = [one["cpu_s"] for one in measured]
    peaks = [one["peak_mb"] for one in measured]
    return [
        figure(
            "trace_synth",
            f"generate {what}",
            times,
            "s CPU",
            bar=TIME_BAR_S,
            better="lower",
            note=f"{note}; wall {wall_s:.3g} s",
        ),
        figure("trace_synth", f"peak memory, {what}", peaks, "MB", better="lower"),
    ]


def generate(seed: int, out: Path) -> dict[str, Any]:
    """One set, in this process."""
    from traces import synthesise
    from traces.synth import load_model

    model = load_model("default")
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    made = synthesise(model, out, users=USERS, days=DAYS, seed=seed)
    return {
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "rows": sum(table.rows for table in made.record.tables.values()),
        "size_mb": sum(path.stat().st_size for path in out.iterdir()) / 1e6,
        "peak_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    print(json.dumps(generate(int(sys.argv[1]), Path(sys.argv[2]))))
