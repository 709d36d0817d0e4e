"""Act 1's bench: processes of this machine as devices, each with an emulated Monsoon that sees what it uses.

The devices are reached by the local transport, so neither an SSH server nor a login is needed. Everything
else is what happens with phones: plan and inventory are files, and `harness.bench` runs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.bench_run.run import BenchFiles, read_bench_files
from joulefleet.files import write_atomic
from power.emulated import EmulatorOptions, EmulatorProcess


@dataclass(frozen=True, slots=True)
class DemoSize:
    """What decides how long it takes.

    Attributes:
        samples: Of one epoch on the bench; a multiple of the batch of 32, so that one graph is exported.
        under_load: Whether the bench also measures beside a background load; without, no app slows a phone.
        rounds: Of each emulation.
        seeds: Of each method.
    """

    samples: int
    under_load: bool
    rounds: int
    seeds: tuple[int, ...]


FULL = DemoSize(samples=960, under_load=True, rounds=15, seeds=(0, 1, 2))
QUICK = DemoSize(samples=320, under_load=False, rounds=4, seeds=(0,))
"""For a first look, and for tests: one seed, so no intervals over seeds."""


METER = "monsoon-lvpm"
VOLTAGE_V = 4.0
FOR_INSTRUMENTS = 1
"""Processors that no device gets: meters and host need one, or samples are lost."""

INSTRUMENT_NICE = -10
"""Where it is allowed, what measures goes before all else: on a real bench it has a machine of its own."""


@dataclass(frozen=True, slots=True)
class LocalDevice:
    """A process that plays a device. Its watts are set, not measured: they turn processor time into power.

    Attributes:
        name: In the inventory.
        idle_w: Drawn when nothing runs.
        busy_w: Drawn on top of that by a busy processor.
    """

    name: str
    idle_w: float
    busy_w: float


DEVICES = (LocalDevice("board-a", idle_w=0.8, busy_w=2.0), LocalDevice("board-b", idle_w=0.5, busy_w=1.2))

PLAN = """\
# Act 1 of the demo: LeNet-5 in both backends. With your own devices.toml it measures your own devices.
name = "demo-bench"
models = ["mnist-lenet5"]
backends = ["torch", "onnxruntime"]
samples = {samples}
local_epochs = 5
threads = 1
seed = {seed}
parallel = {parallel}

[[loads]]
name = "none"
cpu_share = 0
{load}
[repetitions]
count = 1

# Seconds, where a real device needs longer to come to rest.
[timing]
idle_s = 0.5
settle_s = 0.1
load_only_s = 0.5
decision_wait_s = 0.2
deadline_s = 600

[sync]
order = 4
bit_ns = 20_000_000

[retry]
attempts = 5
wait_s = 0.5
"""

APP = """
[[loads]]
name = "app"
cores = 1
cpu_share = 1.0
"""


@contextlib.contextmanager
def local_bench(config: Path, state: Path, size: DemoSize, seed: int) -> Iterator[BenchFiles]:
    """Plug the meters in, write plan and inventory; while inside, a bench run can use them.

    Args:
        config: Existing folder for ``plan.toml`` and ``devices.toml``.
        state: Existing folder for what is on the devices.
        size: How much to measure.
        seed: Of the data, the order of the jobs, and the meters' noise.
    """
    processors = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        lowered = stack.enter_context(_instruments_first())
        entries = []
        for place, device in enumerate(DEVICES):
            folder = state / device.name
            folder.mkdir()
            # From the last one down: the first is where an idle system does its own work.
            python = _interpreter(folder, processors[-1 - place % len(processors)], lowered)
            meter = stack.enter_context(EmulatorProcess(METER, _options(device, folder, seed, place)))
            entries.append(_entry(device, folder, python, meter.address))
        plan = PLAN.format(
            samples=size.samples,
            seed=seed,
            parallel=min(len(DEVICES), max(1, len(processors) - FOR_INSTRUMENTS)),
            load=APP if size.under_load else "",
        )
        write_atomic(config / "plan.toml", plan.encode())
        write_atomic(config / "devices.toml", "\n".join(entries).encode(), mode=0o600)
        yield read_bench_files(config / "plan.toml", config / "devices.toml")


def _options(device: LocalDevice, folder: Path, seed: int, place: int) -> EmulatorOptions:
    load = f"process:pidfile={folder / 'pid'},idle={device.idle_w},dynamic={device.busy_w}"
    return EmulatorOptions(
        signal=f"{load},voltage={VOLTAGE_V}",
        noise_a=0.002,
        tau_s=0.005,
        seed=seed + place,
        serial=str(10_001 + place),
    )


@contextlib.contextmanager
def _instruments_first() -> Iterator[int]:
    """Raise this process, and what it starts, where that is allowed; gives by how much devices come after."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(before, INSTRUMENT_NICE))
    try:
        yield before - os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _interpreter(folder: Path, processor: int, lowered: int) -> Path:
    """A Python that runs on one processor, as a small board does, and tells the meter which process it is."""
    words = ["nice", "-n", str(lowered), sys.executable]
    if shutil.which("taskset"):
        words = ["taskset", "-c", str(processor), *words]
    path = folder / "python"
    text = f'#!/bin/sh\necho $$ > {shlex.quote(str(folder / "pid"))}\nexec {shlex.join(words)} "$@"\n'
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def _entry(device: LocalDevice, folder: Path, python: Path, port: str) -> str:
    # A basic string of TOML has the escapes of JSON.
    return f"""\
[devices.{device.name}]
transport = "local"
python = {json.dumps(str(python))}
state = {json.dumps(str(folder / "state"))}
product = "a process on this machine"

[devices.{device.name}.meter]
kind = "{METER}"
port = {json.dumps(port)}
voltage_v = {VOLTAGE_V}
voltage_max_v = 4.2
current_limit_a = 3.0
"""
