"""What a client-epoch and a round cost on Ray: the numbers of the cost model in ``docs/scale.md``.

LeNet-5, 100 clients of 600 random samples, batches of 32; a round probes 15 of them for one epoch and takes 5
of these through four more. A Ray of two actors on this machine, beside the two processes of the local engine,
in turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.result import Figure, figure
from device_agents.workloads import TASKS, synthetic_shard
from emulator import DataSet, Split, Trainer
from emulator.data import make_partition
from emulator.scale import RayTrainer, connected, open_ray_trainer
from emulator.training import ClientData, open_trainer

NAME = "ray_training"
TASK = TASKS["mnist-lenet5"]
CLIENTS, SAMPLES, ACTORS, REPEATS = 100, 600, 2, 3
PROBED, CHOSEN, EPOCHS = 15, 5, 5
CLIENT_EPOCHS = PROBED + CHOSEN * (EPOCHS - 1)


@dataclass(frozen=True, slots=True)
class Round:
    """What a round took: everything, and of that the collecting of the chosen's weights."""

    wall_s: float
    server_cpu_s: float
    aggregate_s: float


def run() -> list[Figure]:
    """A round to warm up and three that count, of each engine."""
    data = _data()
    partition = make_partition("iid", data.train, CLIENTS, 0)
    clients = ClientData(data, partition, 0)
    here = open_trainer(TASK, clients, implementation="cpu", workers=ACTORS)
    _round(here, 0)  # before Ray's threads are there: workers are forked
    started_s = time.monotonic()
    with connected(num_cpus=ACTORS, object_store_memory=400 * 2**20):
        there = open_ray_trainer(TASK, clients, implementation="cpu", workers=ACTORS)
        there.evaluate(there.initial(), "validation")
        start_s = time.monotonic() - started_s
        _round(there, 0)
        figures = [figure(NAME, "start of Ray and of the first actor", [start_s], "s", better="lower")]
        figures += _measured(here, there)
        there.close()
    here.close()
    return figures


def _measured(here: Trainer, there: RayTrainer) -> list[Figure]:
    local, remote, cpu_s, calls, sent, received = [], [], [], [], [], []
    for number in range(1, REPEATS + 1):
        local.append(_round(here, number))
        before = (there.spent.training_cpu_s, there.spent.calls)
        bytes_before = (there.spent.sent_bytes, there.spent.received_bytes)
        remote.append(_round(there, number))
        cpu_s.append((there.spent.training_cpu_s - before[0]) / CLIENT_EPOCHS)
        calls.append(there.spent.calls - before[1])
        sent.append(there.spent.sent_bytes - bytes_before[0])
        received.append(there.spent.received_bytes - bytes_before[1])
    model_bytes = there.initial().nbytes
    memory = [_resident_bytes(where.process) for where in there.pool.present.values()]

    def lower(name: str, values: list[float], unit: str, note: str = "") -> Figure:
        return figure(NAME, name, values, unit, better="lower", note=note)

    ratios = [r.wall_s / h.wall_s for r, h in zip(remote, local, strict=True)]
    server_s = [r.server_cpu_s / n for r, n in zip(remote, calls, strict=True)]
    return [
        lower("CPU time of an actor per client-epoch", cpu_s, "s", f"{SAMPLES} samples"),
        lower("a round on Ray over a round on the local engine, wall", ratios, "x"),
        lower("CPU time of the server per call, all it does included", server_s, "s"),
        lower("calls per round", [float(n) for n in calls], "calls"),
        lower("weights put into the object store per round", [n / model_bytes for n in sent], "models"),
        lower("weights received per round", [n / model_bytes for n in received], "models", f"K={CHOSEN}"),
        lower("collecting and summing one client's weights", [r.aggregate_s / CHOSEN for r in remote], "s"),
        lower("size of the model", [float(model_bytes)], "bytes"),
        lower("resident memory of an actor", memory, "bytes", "shared data included"),
    ]


def _round(trainer: Trainer, number: int) -> Round:
    weights = trainer.initial() + np.float32(number * 1e-6)  # other weights each time, as in a run
    probed = np.arange(PROBED)
    chosen = probed[:CHOSEN]
    wall_s, cpu_s = time.monotonic(), time.process_time()
    trainer.begin(number, weights)
    trainer.train(probed, np.ones(PROBED, np.int64))
    trainer.train(chosen, np.full(CHOSEN, EPOCHS - 1))
    found = _timed(lambda: trainer.aggregate(chosen, np.full(CHOSEN, 1 / CHOSEN)))
    trainer.end()
    return Round(time.monotonic() - wall_s, time.process_time() - cpu_s, found)


def _timed(work: Callable[[], object]) -> float:
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def _data() -> DataSet:
    rng = np.random.default_rng(0)
    train, server = (Split(*synthetic_shard(TASK, n, rng)) for n in (CLIENTS * SAMPLES, 1000))
    return DataSet(TASK.name, TASK.classes, train, server, server, note="random")


def _resident_bytes(process: int) -> float:
    """Resident set of a process of this machine (proc(5), statm: pages)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
