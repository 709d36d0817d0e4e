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
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Figure, figure
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
OURS_SCRIPTS = {OURS: ["joulefleet_cpu.py", "1"], OURS_ON_TWO: ["joulefleet_cpu.py", "2"]}
# The environment and the script of each.
PEERS = {
    "plain torch loop": ("fl", "plain_torch.py"),
    "Flower, 2 actors": ("fl", "flower.py"),
    "pfl-research": ("fl", "pfl_research.py"),
    "FedJAX": ("fedjax", "fedjax_loop.py"),
    "FLGo": ("flgo", "flgo_loop.py"),
}
# Two-sided 95 % points of Student's t by degrees of freedom (any table).
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one contender.

    Attributes:
        cpu_s: CPU time of all its processes.
        path_s: CPU time of its first process and of the busiest other one: how long it would take on idle
            cores if the first did nothing while the others work.
        wall_s: How long it took.
        loss: Mean of the clients' last epochs.
    """

    cpu_s: float
    path_s: float
    wall_s: float
    loss: float

    @property
    def rate(self) -> float:
        """Client-epochs per CPU-second."""
        return CLIENT_EPOCHS / self.cpu_s


def run(repeats: int = REPEATS) -> list[Figure]:
    """All contenders in turn, after one block each to warm up."""
    commands, absent = _commands()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="multi-client-") as folder, contextlib.ExitStack() as stack:
        _write_work(Path(folder))
        contenders = {
            name: stack.enter_context(_Contender.started(command, Path(folder)))
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
    rates = {name: [block.rate for block in blocks] for name, blocks in found.items()}
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


class _Contender:
    """A process that does a block of work whenever it is told to."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._answer()

    @classmethod
    @contextlib.contextmanager
    def started(cls, command: list[str], folder: Path) -> Iterator[_Contender]:
        """Run it until the end of the block."""
        log = folder / f"{command[1]}-{len(command)}-{time.monotonic_ns()}.log"
        environment = {**os.environ, "BLOCK_FOLDER": str(folder), "PYTHONPATH": str(REPOSITORY)}
        environment.update(OMP_NUM_THREADS="1", RAY_DEDUP_LOGS="0")
        with log.open("w") as errors:
            process = subprocess.Popen(
                [command[0], str(HERE / "peers" / command[1]), *command[2:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        with process:
            try:
                yield cls(process, log)
            finally:
                _pipe(process.stdin).close()  # the end of its input ends it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()

    def block(self) -> Block:
        """Have it do one."""
        before, wall_s = _tree_cpu_s(self._process.pid), time.perf_counter()
        stdin = _pipe(self._process.stdin)
        stdin.write("go\n")
        stdin.flush()
        answer = self._answer()
        wall_s = time.perf_counter() - wall_s
        after = _tree_cpu_s(self._process.pid)
        used = {process: cpu_s - before.get(process, 0.0) for process, cpu_s in after.items()}
        first = used.pop(self._process.pid)
        return Block(
            first + sum(used.values()), first + max(used.values(), default=0.0), wall_s, answer["loss"]
        )

    def _answer(self) -> dict[str, Any]:
        for line in _pipe(self._process.stdout):
            if line.startswith("@@ "):
                text = line[3:].strip()
                return {} if text == "ready" else dict(json.loads(text))
        raise RuntimeError(f"{self._process.args!r} ended:\n{self._log.read_text()[-2000:]}")


def _pipe(stream: Any) -> Any:
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    return stream


def _tree_cpu_s(root: int) -> dict[int, float]:
    """CPU time of a process and of each of its descendants, with that of their children that ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    members, size = {root}, 0
    while len(members) > size:
        size = len(members)
        members |= {child for child, parent in parents.items() if parent in members}
    return {member: ticks.get(member, 0) / os.sysconf("SC_CLK_TCK") for member in members}


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
    for name, (environment, script) in PEERS.items():
        try:
            commands[name] = [str(peer_python(environment)), script]
        except PeerUnavailable as error:
            absent.append(f"{name} does not install: {error}")
    return commands, absent
