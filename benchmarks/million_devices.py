"""A million devices with traces, batteries, interference and every selector's bookkeeping, from start to end.

Each run is the preset in a process of its own, which is counted whole: imports, fleet, rounds, tables.
Without training, learning curves are a formula (``surrogate-1m``); with training, the 1,000 that are probed
and the 100 that are chosen really train (``digits-1m``).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from emulator import SELECTORS, RoundOutcome
from joulefleet.errors import ConfigError

NAME = "million_devices"
DEVICES = 1_000_000
ROUNDS = 50
FULL = os.environ.get("JOULEFLEET_BENCH") == "full"
REPEATS = 3 if FULL else 1
SHORT_ROUNDS = 5
CPU_BAR_S, MEMORY_BAR_MB = 60.0, 4000.0
SURROGATE, REAL = "surrogate-1m", "digits-1m"
REFUSED = 3
"""Exit code of a run whose selector refuses a fleet of this size."""


def run() -> list[Figure]:
    """The bars, how time grows with N, every selector, and real training."""
    return [*_bars(), *_every_selector(), *_with_training()]


def _bars() -> list[Figure]:
    once, twice = [], []
    for _ in range(REPEATS):  # in turns, so that both meet the same neighbours
        once.append(in_child(SURROGATE, "fedrank", DEVICES, ROUNDS))
        twice.append(in_child(SURROGATE, "fedrank", 2 * DEVICES, ROUNDS))
    growth = [b["cpu_s"] / a["cpu_s"] for a, b in zip(once, twice, strict=True)]
    what = f"FedRank, {DEVICES:,} devices, {ROUNDS} rounds, no training"
    wall = f"wall {statistics.median(one['wall_s'] for one in once):.3g} s"
    peaks = [one["peak_mb"] for one in once]
    low: dict[str, Any] = {"better": "lower"}
    return [
        figure(NAME, what, [one["cpu_s"] for one in once], "s CPU", bar=CPU_BAR_S, note=wall, **low),
        figure(NAME, f"{what}: peak memory", peaks, "MB", bar=MEMORY_BAR_MB, **low),
        figure(NAME, "CPU time of 2 N over that of N", growth, "x", bar=2.0, **low),
        figure(NAME, "peak memory, 2 N", [one["peak_mb"] for one in twice], "MB", **low),
    ]


def _every_selector() -> list[Figure]:
    figures, refused = [], []
    for name in SELECTORS.entries():
        try:
            found = in_child(SURROGATE, name, DEVICES, SHORT_ROUNDS)
        except ConfigError as error:
            refused.append(error.message)
            continue
        choice_ms = 1e3 * statistics.median(found["selection_s"])
        note = f"{found['cpu_s']:.3g} s CPU in all, {found['peak_mb']:.0f} MB, choice {choice_ms:.3g} ms"
        figures.append(
            figure(NAME, f"a round, {name}", found["round_cpu_s"], "s CPU", better="lower", note=note)
        )
    ran = float(len(figures))
    note = "; ".join(refused) or "none refused"
    return [*figures, figure(NAME, f"selectors that run with {DEVICES:,} devices", [ran], "", note=note)]


def _with_training() -> list[Figure]:
    found = in_child(REAL, "fedrank", DEVICES, SHORT_ROUNDS)
    note = f"{found['client_epochs']:,} client-epochs in {SHORT_ROUNDS} rounds, {found['training']}"
    low: dict[str, Any] = {"better": "lower"}
    return [
        figure(NAME, "a round with training, FedRank", found["round_cpu_s"], "s CPU", note=note, **low),
        figure(NAME, "with training: peak memory", [found["peak_mb"]], "MB", bar=MEMORY_BAR_MB, **low),
    ]


def in_child(preset: str, selector: str, devices: int, rounds: int) -> dict[str, Any]:
    """A run in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{NAME}", preset, selector, str(devices), str(rounds)]
    print(f"  {preset}, {selector}, {devices:,} devices, {rounds} rounds", flush=True)
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode == REFUSED:
        raise ConfigError(done.stdout.strip())
    done.check_returncode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def play(preset: str, selector: str, devices: int, rounds: int) -> dict[str, Any]:
    """A run in this process, which has done nothing else."""
    import emulator
    from emulator import load_scenario

    scenario = load_scenario(preset)
    changed = scenario.model_copy(
        update={
            "fleet": scenario.fleet.model_copy(update={"devices": devices}),
            "selector": scenario.selector.model_copy(update={"name": selector}),
            "protocol": scenario.protocol.model_copy(update={"rounds": rounds}),
        }
    )
    ends_s: list[float] = []
    epochs = 0

    def on_round(outcome: RoundOutcome) -> None:
        nonlocal epochs
        ends_s.append(time.process_time())
        epochs += len(outcome.clients) + int(outcome.chosen.sum()) * (scenario.protocol.local_epochs - 1)

    wall_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="million-devices-") as folder:
        result = emulator.run(changed, out=Path(folder), on_round=on_round)
        selection_s = result.overhead["selection_s"].tolist()
        training = str(result.record.facts["trainer"])
    return {
        "cpu_s": time.process_time(),  # since the process began
        "wall_s": time.perf_counter() - wall_s,
        "round_cpu_s": [b - a for a, b in pairwise(ends_s)],
        "selection_s": selection_s,
        "client_epochs": epochs,
        "training": training,
        "peak_mb": peak_rss_mb(),
    }


def main(preset: str, selector: str, devices: str, rounds: str) -> int:
    """The child's part."""
    try:
        print(json.dumps(play(preset, selector, int(devices), int(rounds))))
    except ConfigError as error:
        print(error.message)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
