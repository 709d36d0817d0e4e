"""Rounds of the engine without training: check-in, candidates, probe, choice, cost, batteries, log.

A fresh process per size, pinned to one core; rounds are counted per second of its CPU time, and time on the
wall, which other work on the machine stretches, is noted. Users are random (80 sessions, 2 charges, 12
network changes and 144 battery readings a day), phases differ to the nanosecond, every candidate is probed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from benchmarks.trace_queries import HALF_HOUR_NS, random_users
from emulator import Probe
from emulator.fleet import Batteries, Network, Replayed, TransferSource, World, fleet_from_profiles
from emulator.round import REWARDS, Budgets, Engine, RewardRules, RoundRules
from emulator.runs import RunLog, with_behaviour
from emulator.scenario import FleetSection
from emulator.selectors import FedAvg
from emulator.training import SurrogateTrainer
from joulefleet.runstore import RunStore
from power import reference_fleet
from traces import FleetRecipe, TraceFleet
from traces.merge import SYNTHETIC, network_recordings
from traces.replay import NetworkPools, flatten, pair

BATCHES = 7
ROUNDS_PER_BATCH = 10
SIZES = {
    # name: devices, candidates, K, whether the world moves, bar in rounds per second, bar in MB
    "N=100,000, 300 candidates, K=100": (100_000, 300, 100, False, 50.0, None),
    "N=1,000,000, 1,000 candidates, K=300": (1_000_000, 1_000, 300, False, 8.0, 4000.0),
    "N=100,000, 3,000 candidates, K=1,000": (100_000, 3_000, 1_000, False, None, None),
    "N=100,000, 300 candidates, K=100, all that moves": (100_000, 300, 100, True, 50.0, None),
    "N=1,000,000, 1,000 candidates, K=300, all that moves": (1_000_000, 1_000, 300, True, 8.0, 4000.0),
}
EVERY_S = 1800.0
"""Pace where the world moves."""


class ProbingRandom(FedAvg):
    """Random choice after a probe: the cheapest method that makes the engine do all of its work."""

    name: ClassVar[str] = "probing_random"
    probe: ClassVar[Probe] = Probe.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset({"epoch_s", "epoch_j", "comm_s", "comm_j", "loss"})


def run() -> list[Figure]:
    """Rounds per second and peak memory of each size, and how the time grows."""
    figures, seconds = [], dict[str, list[float]]()
    for name, (devices, candidates, k, moves, bar, memory_bar) in SIZES.items():
        sizes = map(str, (devices, candidates, k, int(moves)))
        command = [sys.executable, "-m", "benchmarks.engine_rounds", *sizes]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = json.loads(done.stdout)
        seconds[name] = measured["cpu_s"]
        wall = f"wall {1 / statistics.median(measured['wall_s']):.3g} rounds/s"
        rates = [1 / value for value in measured["cpu_s"]]
        figures.append(figure("engine_rounds", name, rates, "rounds/CPU-s", bar=bar, note=wall))
        figures.append(
            figure(
                "engine_rounds", f"{name}: peak memory", [measured["peak_mb"]], "MB",
                bar=memory_bar, better="lower",
            )
        )  # fmt: skip
    small, large, crowded, *_ = seconds.values()
    for what, more in (("10 x candidates", crowded), ("10 x N", large)):
        ratios = [b / a for a, b in zip(small, more, strict=True)]
        name = f"time of a round, {what}"
        figures.append(figure("engine_rounds", name, ratios, "x", bar=10.0, better="lower"))
    return figures


def engine(devices: int, candidates: int, k: int, *, moves: bool = False) -> Engine:
    """An engine on random users; with a pace, interference, variation and networks if the world moves."""
    recipe = FleetRecipe(devices=devices, seed=1, jitter_ns=HALF_HOUR_NS)
    people = flatten(random_users(100, 14))
    paired = pair(people, NetworkPools.of(network_recordings(SYNTHETIC).flat), 0) if moves else None
    traces = TraceFleet.from_recipe(people, recipe, paired)
    conditions = Replayed(traces, "wifi" if moves else "wifi and idle", by_use=moves)
    sizes = np.full(devices, 600)
    fleet = fleet_from_profiles(reference_fleet("mnist-lenet5"), sizes, rng=np.random.default_rng(0))
    link = TransferSource.TRACE if moves else TransferSource.PROFILE
    network = Network(fleet, conditions, link, 250_000)
    world = World(fleet, conditions, Batteries(fleet, conditions), network)
    if moves:
        world = with_behaviour(world, FleetSection(devices=devices), seed=0)
    every_s = EVERY_S if moves else 0.0
    rules = RoundRules(rounds=10**6, k=k, candidates=candidates, local_epochs=5, every_s=every_s)
    reward_rules = RewardRules(REWARDS.load("signed"), Budgets(time_s=5.0, energy_j=50.0 * k))
    trainer = SurrogateTrainer(sizes, 10, 0)
    return Engine(world, trainer, ProbingRandom(), rules, reward_rules, 0, classes=10)


def measure(devices: int, candidates: int, k: int, moves: int = 0) -> dict[str, Any]:
    """Time per round in batches, log included."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    made = engine(devices, candidates, k, moves=bool(moves))
    cpu_s, wall_s = [], []
    with (
        tempfile.TemporaryDirectory(prefix="engine-rounds-") as name,
        RunStore(Path(name)).create("bench", kind="benchmark") as stored,
        RunLog(stored, made.world.fleet.origin, training="surrogate") as log,
    ):
        for batch in range(BATCHES + 1):
            begin_cpu, begin_wall = time.process_time(), time.perf_counter()
            for _ in range(ROUNDS_PER_BATCH):
                outcome = made.play()
                log.append(
                    outcome,
                    eligible=made.eligible,
                    loss=made.score.loss,
                    test_accuracy=float("nan"),
                    overhead_s=made.chooser.overhead_s,
                    metrics={},
                    motion=made.motion.counts(),
                )
            if batch:  # the first one also works the policy out
                cpu_s.append((time.process_time() - begin_cpu) / ROUNDS_PER_BATCH)
                wall_s.append((time.perf_counter() - begin_wall) / ROUNDS_PER_BATCH)
    return {"cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": peak_rss_mb()}


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
