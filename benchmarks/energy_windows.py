"""Energy of 10,000 windows over a day at 5 kHz: time and memory of the query in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from power import InstrumentInfo, SampleBlock
from power.energy import GapPolicy, Window, integrate_recording
from power.meters import Accuracy, RangeAccuracy, Timebase
from power.recording import RecordingWriter, open_recording

RATE_HZ = 5000
BLOCK = RATE_HZ // 10  # a live meter hands over about a tenth of a second at a time
SEGMENT_S = 600  # one straight line of the timebase
BYTES_PER_SAMPLE = 8
TARGET_S = 2.0
REPEATS = 3
KINDS = ("back to back", "at random")


def run(hours: float = 24.0, windows: int = 10_000) -> list[Figure]:
    """Generate a recording and query it in fresh processes; nothing if the disk has no room for it."""
    with tempfile.TemporaryDirectory(prefix="energy-windows-") as name:
        folder = Path(name)
        needed = int(hours * 3600 * RATE_HZ * BYTES_PER_SAMPLE * 1.3)
        if shutil.disk_usage(folder).free < needed:
            print(f"  energy_windows: left out, {needed / 1e9:.1f} GB of disk needed in {folder.parent}")
            return []
        generate(folder, hours)
        rows = {kind: [_query_in_child(folder, windows, kind) for _ in range(REPEATS)] for kind in KINDS}
    figures = []
    for kind, queries in rows.items():
        what = f"{windows} windows {kind} over {hours:g} h"
        for key, unit, bar in (("wall_s", "s", TARGET_S), ("cpu_s", "s", None), ("peak_rss_mb", "MB", None)):
            values = [query[key] for query in queries]
            name = f"{what}, {key.rpartition('_')[0].replace('_', ' ')}"
            note = f"{queries[0]['with_energy']} with an energy, of {queries[0]['samples']:,} samples"
            figures.append(figure("energy_windows", name, values, unit, bar=bar, better="lower", note=note))
    return figures


def generate(folder: Path, hours: float) -> None:
    """A recording with bursts, noise, a few gaps and a bent timebase, written in bounded memory."""
    accuracy = Accuracy(
        current=(
            RangeAccuracy(name="fine", up_to_a=0.2, gain_rel=0.01, offset_a=1e-4),
            RangeAccuracy(name="coarse", gain_rel=0.01, offset_a=1e-3),
        ),
        voltage_gain_rel=0.001,
        voltage_offset_v=0.001,
        source="synthetic",
    )
    info = InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=RATE_HZ,
        tick_hz=RATE_HZ,
        uniform_ticks=True,
        accuracy=accuracy,
    )
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.01, BLOCK * 50).astype(np.float32)
    voltage_v = np.full(BLOCK, 4.1, np.float32)
    writer = RecordingWriter(folder, info, None, started_ns=0)
    tick = 0
    for i in range(int(hours * 36_000)):
        dropped = int(rng.integers(1, 20)) if i % 3000 == 2999 else 0
        tick += dropped
        start = int(rng.integers(0, len(noise) - BLOCK))
        current_a = noise[start : start + BLOCK] + np.float32(0.1 + 0.6 * rng.random() ** 3)
        ticks = np.arange(tick, tick + BLOCK)
        t_ns = ticks * (10**9 // RATE_HZ)
        writer.append(SampleBlock(t_ns, ticks, current_a, voltage_v, tick, dropped))
        tick += BLOCK
    writer.close(_bent_timebase(tick, rng), ())


def _bent_timebase(last_tick: int, rng: np.random.Generator) -> Timebase:
    ticks = np.unique(np.append(np.arange(0, last_tick, SEGMENT_S * RATE_HZ), last_tick))
    widths = np.diff(ticks) * (1e9 / RATE_HZ) * (1 + rng.normal(0, 20e-6, len(ticks) - 1))
    host_ns = np.concatenate(([0], np.cumsum(np.rint(widths).astype(np.int64))))
    return Timebase(ticks=tuple(ticks.tolist()), host_ns=tuple(host_ns.tolist()))


def _query_in_child(folder: Path, windows: int, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.energy_windows", str(folder), str(windows), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def query(folder: Path, count: int, kind: str) -> dict[str, Any]:
    """Open the recording and integrate; imports are not counted, opening is."""
    wall, cpu = time.perf_counter(), time.process_time()
    recording = open_recording(folder)
    first_ns, last_ns = recording.record.timebase.host_ns[0], recording.record.timebase.host_ns[-1]
    found = integrate_recording(recording, _windows(first_ns, last_ns, count, kind), policy=GapPolicy())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "windows": count,
        "kind": kind,
        "samples": recording.record.n_samples,
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "with_energy": sum(w.energy_j is not None for w in found),
    }


def _windows(first_ns: int, last_ns: int, count: int, kind: str) -> list[Window]:
    """``back to back`` covers the recording; ``at random`` overlaps freely, of any length up to an hour."""
    edges = np.linspace(first_ns, last_ns - 10**9, count + 1).astype(np.int64)
    if kind == "back to back":
        return [Window(int(a), int(b)) for a, b in pairwise(edges)]
    rng = np.random.default_rng(7)
    longest = min(3600 * 10**9, (last_ns - first_ns) // 4)
    starts = rng.integers(first_ns, last_ns - longest - 10**9, count)
    return [
        Window(int(a), int(a + d)) for a, d in zip(starts, rng.integers(10**8, longest, count), strict=True)
    ]


if __name__ == "__main__":
    print(json.dumps(query(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
