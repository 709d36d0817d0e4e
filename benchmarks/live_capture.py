"""A live 5 kHz capture from the emulated LVPM on a pty while every core is busy: nothing lost, little CPU.

The emulator is a process of its own, writes on its own clock without ever waiting, and counts the bytes it
had to discard because the reader was late: that count is the verdict, together with the share of one core
that the capturing process used (driver, decoder, checks and disk).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from power import MeterConfig, open_meter, record
from power.emulated import EmulatorOptions, EmulatorProcess

NAME = "live_capture"
MAX_CPU_SHARE = 0.15
SPIN = "while True: pass"


def run(seconds: float = 60.0) -> list[Figure]:
    """One capture of so many seconds."""
    measured = measure(seconds)
    note = f"{seconds:g} s, {measured['busy_processes']} spinning processes"
    return [
        figure(NAME, "bytes the emulator had to discard", [measured["discarded_bytes"]], "B",
               bar=0, better="lower", note=note),
        figure(NAME, "samples lost", [measured["dropped"]], "samples", bar=0, better="lower",
               note=f"of {measured['samples']:,}; findings: {', '.join(measured['findings']) or 'none'}"),
        figure(NAME, "CPU of the capturing process", [100 * measured["cpu_share"]], "% of a core",
               bar=100 * MAX_CPU_SHARE, better="lower", note=note),
        figure(NAME, "peak RSS of the capturing process", [measured["peak_rss_mb"]], "MB"),
    ]  # fmt: skip


def measure(seconds: float) -> dict[str, Any]:
    """Capture in a process of its own while others keep every core busy."""
    options = EmulatorOptions(signal="square:low=0.02,high=0.5,period=0.7", noise_a=0.002)
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        with (
            tempfile.TemporaryDirectory(prefix="live-capture-") as name,
            EmulatorProcess("monsoon-lvpm", options) as instrument,
        ):
            captured = _capture_in_child(instrument.address, Path(name) / "recording", seconds)
            sent = instrument.close()
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    return {**captured, "discarded_bytes": sent["discarded_bytes"], "busy_processes": len(spinners)}


def _capture_in_child(port: str, folder: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.live_capture", port, str(folder), str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def capture(port: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Record in this process. Its CPU time counts from the open meter on: importing numpy is no capture."""
    config = MeterConfig(
        kind="monsoon-lvpm", port=port, voltage_v=4.0, voltage_max_v=4.2, current_limit_a=3.0
    )
    with open_meter(config) as meter:
        cpu_s, wall_s = time.process_time(), time.monotonic()
        done = record(meter, folder, config=config, seconds=seconds)
        cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
    return {
        "samples": done.n_samples,
        "dropped": done.dropped,
        "cpu_share": cpu_s / wall_s,
        "peak_rss_mb": peak_rss_mb(),
        "findings": [finding.code for finding in done.findings],
    }


if __name__ == "__main__":
    print(json.dumps(capture(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
