"""Local training of many clients beside a plain torch loop, Flower, pfl-research, FedJAX and FLGo.

LeNet-5, 100 clients of 600 samples, ten of them at a time, five epochs in batches of 32: client-epochs per
second of CPU time, every process of a contender counted. All contenders are up at once and take turns, one
block each, so that they meet the same neighbours. The peers live in environments of their own
(``.venv-peers-*``), which the first run makes from ``benchmarks/peers/requirements-*.txt``; one that does not
install is left out, and the note says so.

Two repeats by default; ``JOULEFLEET_BENCH=full`` makes them seven.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.result import Figure, figure
from benchmarks.suite.contender import Block, Contender
from benchmarks.suite.peers import PeerUnavailable, peer_python
from device_agents.workloads import TASKS, initial_state, synthetic_shard
from emulator.data import load_data_set
from joulefleet.errors import StorageError

NAME = "multi_client_training"
HERE = Path(__file__).parent
REPOSITORY = HERE.parent
REPEATS = 7 if os.environ.get("JOULEFLEET_BENCH") == "full" else 2

CLIENT_EPOCHS = 50  # in a block: ten clients, five epochs
SAMPLES = 60_000
OURS, OURS_ON_TWO = "joulefleet, 1 worker", "joulefleet, 2 workers"
OURS_SCRIPTS = {OURS: ["joulefleet_cpu.py", "1", "cpu"], OURS_ON_TWO: ["joulefleet_cpu.py", "2", "cpu"]}
# The environment and the script of each.
PEERS = {
    "plain torch loop": ("fl", "plain_torch.py"),
    "Flower, 2 actors": ("fl", "flower.py", "2"),
    "pfl-research": ("fl", "pfl_research.py"),
    "FedJAX": ("fedjax", "fedjax_loop.py"),
    "FLGo": ("flgo", "flgo_loop.py"),
}
# Two-sided 95 % points of Student's t by degrees of freedom (any table).
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def run(repeats: int = REPEATS) -> list[Figure]:
    """All contenders in turn, after one block each to warm up."""
    commands, absent = _commands()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="multi-client-") as folder, contextlib.ExitStack() as stack:
        _write_work(Path(folder))
        contenders = {
            name: stack.enter_context(Contender.started(command, Path(folder)))
            for name, command in commands.items()
        }
        for contender in contenders.values():
            contender.block()
        found: dict[str, list[Block]] = {name: [] for name in contenders}
        for _ in range(repeats):
            for name, contender in contenders.items():
                found[name].append(contender.block())
    note = "; ".join([f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after", *absent])
    return _figures(found, note)


def _figures(found: dict[str, list[Block]], note: str) -> list[Figure]:
    rates = {name: [CLIENT_EPOCHS / block.cpu_s for block in blocks] for name, blocks in found.items()}
    rows = [
        figure(NAME, name, rates[name], "client-ep/CPU-s", note=f"last loss {_loss(found[name]):.3f}")
        for name in found
    ]
    peers = [name for name in PEERS if name in rates]
    if not peers:
        raise RuntimeError(f"there is nobody to compare with: {note}")
    rows += [figure(NAME, f"ours to {name}", _ratios(rates, name), "x") for name in peers]
    best = max(peers, key=lambda name: statistics.median(rates[name]))
    ratios = _ratios(rates, best)
    rows.append(figure(NAME, "ours to the best of them", ratios, "x", bar=1.3, note=f"{best}; {note}"))
    if len(ratios) > 1:
        bound = _lower_bound(ratios)
        rows.append(
            figure(NAME, "the same, lower 95 % bound", [bound], "x", bar=1.3, note=f"n={len(ratios)}")
        )
    one, two = ([block.wall_s for block in found[name]] for name in (OURS, OURS_ON_TWO))
    scaling = [a / b / 2 for a, b in zip(one, two, strict=True)]
    rows.append(figure(NAME, "two workers, share of twice the speed", scaling, "x", bar=0.85, note=note))
    paths = [a.cpu_s / b.path_s / 2 for a, b in zip(found[OURS], found[OURS_ON_TWO], strict=True)]
    rows.append(
        figure(
            NAME, "the same from CPU times, whatever the load", paths, "x", note="busiest worker and parent"
        )
    )
    return rows


def _ratios(rates: dict[str, list[float]], peer: str) -> list[float]:
    return [ours / theirs for ours, theirs in zip(rates[OURS], rates[peer], strict=True)]


def _lower_bound(ratios: list[float]) -> float:
    """Of the mean of the logarithms, by Student's t."""
    logs = [math.log(ratio) for ratio in ratios]
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.fmean(logs) - T95.get(len(logs) - 1, 2.262) * spread)


def _loss(blocks: list[Block]) -> float:
    return statistics.fmean(block.loss for block in blocks)


def _write_work(folder: Path) -> None:
    """MNIST where it is at hand, else random images: the work is the same."""
    task = TASKS["mnist-lenet5"]
    try:
        data = load_data_set("mnist", download=False)
        x, y = data.inputs(data.train.x), data.train.y
    except StorageError:
        x, y = synthetic_shard(task, SAMPLES, np.random.default_rng(0))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.savez(folder / "start.npz", **initial_state(task, 0))  # type: ignore[arg-type]


def _commands() -> tuple[dict[str, list[str]], list[str]]:
    """How each contender is started, and who cannot take part."""
    commands = {name: [sys.executable, *script] for name, script in OURS_SCRIPTS.items()}
    absent = []
    for name, (environment, *script) in PEERS.items():
        try:
            commands[name] = [str(peer_python(environment)), *script]
        except PeerUnavailable as error:
            absent.append(f"{name} does not install: {error}")
    return commands, absent
