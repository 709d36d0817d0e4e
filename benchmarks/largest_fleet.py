"""The largest fleet that a simulator has published: Flower's paper (arXiv 2007.14390) has 15,000,000 clients.

Theirs trained on two GPUs. Here it is times and energies only: traces, batteries, interference, a choice.
"""

from __future__ import annotations

from benchmarks.million_devices import SHORT_ROUNDS, SURROGATE, in_child
from benchmarks.result import Figure, figure

NAME = "largest_fleet"
DEVICES = 15_000_000
CPU_BAR_S, MEMORY_BAR_MB = 30.0, 1800.0
"""A first trial took 30 s and 3.6 GB; the memory was to be halved."""


def run() -> list[Figure]:
    """Processor time and memory of the whole process, once."""
    found = in_child(SURROGATE, "fedrank", DEVICES, SHORT_ROUNDS)
    what = f"FedRank, {DEVICES:,} devices, {SHORT_ROUNDS} rounds, no training"
    cpu_s, peak_mb = [found["cpu_s"]], [found["peak_mb"]]
    return [
        figure(NAME, what, cpu_s, "s CPU", bar=CPU_BAR_S, better="lower"),
        figure(NAME, f"{what}: peak memory", peak_mb, "MB", bar=MEMORY_BAR_MB, better="lower"),
        figure(NAME, f"{what}: peak memory per device", [peak_mb[0] * 2**20 / DEVICES], "B", better="lower"),
    ]
