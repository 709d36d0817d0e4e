"""Questions to a million devices that replay recorded users: time of each, and memory, on one core.

The flat form is written to disk first and asked by a fresh process through its memory map. Users are random
(80 sessions, 2 charges, 12 network changes and 144 battery readings a day): many steps for little structure,
so the index has it no easier than with people. Phases differ to the nanosecond. Times are CPU time of the one
core that the process is pinned to; time on the wall, which other work on the machine stretches, is noted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from traces import (
    AppSessions,
    BatteryPoints,
    Fact,
    FleetRecipe,
    InteractionTrace,
    Intervals,
    NetworkSpans,
    TraceFleet,
    open_flat,
    write_flat,
)
from traces.replay import DAY_NS

NAME = "trace_queries"
SIZES = ((37, 28), (1000, 28))  # users and days: as many as ExtraSensory has, and a large set
DEVICES = 1_000_000
CANDIDATES = 10_000
REPEATS = 15
EPOCH_NS = 1_700_000_000 * 10**9
HALF_HOUR_NS = 1800 * 10**9
BARS_MS = {
    "eligibility mask, 1,000,000 devices": 50.0,
    "eligibility mask with a battery limit, 1,000,000 devices": 50.0,
    "full state, 1,000,000 devices": 150.0,
    "intensity over a window, 1,000,000 devices": 500.0,
    "intensity over a window, 10,000 candidates": 20.0,
    "next change, 1,000,000 devices": None,
    "segments of a window, 10,000 candidates": None,
}
MEMORY_BAR_MB = 2000.0


def run() -> list[Figure]:
    """Median times over different moments, each size in a process of its own, pinned to one core."""
    figures = []
    low: dict[str, Any] = {"better": "lower"}
    for users, days in SIZES:
        with tempfile.TemporaryDirectory(prefix="trace-queries-") as name:
            folder = Path(name) / "flat"
            write_flat(random_users(users, days), folder)
            command = [sys.executable, "-m", "benchmarks.trace_queries", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = json.loads(done.stdout)
        note = f"{users} users x {days} days, {measured['steps']:,} steps"
        for what, bar in BARS_MS.items():
            times = measured["times"][what]
            wall = f"{note}; wall {statistics.median(times['wall_ms']):.3g} ms"
            figures.append(
                figure(NAME, f"{what}, {users} users", times["cpu_ms"], "ms CPU", bar=bar, note=wall, **low)
            )
        memory = f"peak memory of the process, {users} users"
        figures.append(figure(NAME, memory, [measured["peak_mb"]], "MB", bar=MEMORY_BAR_MB, note=note, **low))
    return figures


def random_users(users: int, days: int) -> Iterator[InteractionTrace]:
    """Traces with random edges, to the second."""
    rng = np.random.default_rng(0)
    seconds = days * 86_400

    def edges(per_day: int) -> Any:
        return np.sort(rng.choice(seconds, per_day * days, replace=False)) * 10**9

    readings = np.arange(0, days * DAY_NS, 600 * 10**9)
    for user in range(users):
        screen, plugged, network = edges(160), edges(4), edges(12)
        on = Intervals(screen[::2], screen[1::2])
        apps = rng.integers(0, 20, len(on)).astype(np.int32)
        kinds = rng.integers(0, 2, len(network) - 1).astype(np.int8)
        yield InteractionTrace(
            f"user {user}",
            0,
            days * DAY_NS,
            screen=Fact(on),
            plugged=Fact(Intervals(plugged[::2], plugged[1::2])),
            apps=AppSessions(on.start_ns, on.end_ns, apps, tuple(f"app {i}" for i in range(20))),
            network=NetworkSpans(network[:-1], network[1:], kinds),
            battery=BatteryPoints(readings, 0.5 + 0.5 * np.sin(readings / 3e13 + user)),
            relative_time=True,
        )


def ask(folder: Path) -> dict[str, Any]:
    """All questions, in this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    flat = open_flat(folder)
    fleet = TraceFleet.from_recipe(flat, FleetRecipe(devices=DEVICES, seed=1, jitter_ns=HALF_HOUR_NS))
    some = np.random.default_rng(2).choice(DEVICES, CANDIDATES, replace=False)
    window_ns = 600 * 10**9
    questions: dict[str, Callable[[int], object]] = {
        "eligibility mask, 1,000,000 devices": lambda t: fleet.eligible(t, "charging and wifi and idle"),
        "eligibility mask with a battery limit, 1,000,000 devices": lambda t: fleet.eligible(
            t, "wifi and idle and (charging or battery >= 30 %)"
        ),
        "full state, 1,000,000 devices": fleet.state_at,
        "intensity over a window, 1,000,000 devices": lambda t: fleet.intensity(t, t + window_ns),
        "intensity over a window, 10,000 candidates": lambda t: fleet.intensity(t, t + window_ns, some),
        "next change, 1,000,000 devices": fleet.next_change,
        "segments of a window, 10,000 candidates": lambda t: fleet.segments(t, t + window_ns, some),
    }
    return {
        "steps": len(flat.state),
        "times": {what: _times(question) for what, question in questions.items()},
        "peak_mb": peak_rss_mb(),
    }


def _times(question: Callable[[int], object]) -> dict[str, list[float]]:
    question(EPOCH_NS)  # works the policy out and brings the pages in
    cpu_ms, wall_ms = [], []
    for i in range(1, REPEATS + 1):
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        question(EPOCH_NS + i * 5003 * 10**9)
        cpu_ms.append((time.process_time() - cpu_s) * 1e3)
        wall_ms.append((time.perf_counter() - wall_s) * 1e3)
    return {"cpu_ms": cpu_ms, "wall_ms": wall_ms}


if __name__ == "__main__":
    print(json.dumps(ask(Path(sys.argv[1]))))
