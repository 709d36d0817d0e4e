"""A bench on this machine: real OpenSSH servers as devices, emulated meters that see what they use."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from device_agents.transport.host_keys import fetch_host_key, trust
from harness.bench_run.job_threads import Runner
from harness.rounds.session import Session
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.emulated.signals import process_tree
from tests.device_agents.ssh_server import SshServer, ssh_server
from tests.priority import in_real_time, in_shared_time

IDLE_W = 0.8
DYNAMIC_W = 2.0
VOLTAGE_V = 4.0

FAST = {
    "timing": "idle_s = 0.5\nsettle_s = 0\nload_only_s = 0.5\ndecision_wait_s = 0.2\ndeadline_s = 60",
    "sync": "order = 4\nbit_ns = 20_000_000",
    "retry": "attempts = 6\nwait_s = 0.2",
}
"""Sections of a plan whose jobs take a few seconds. A busy machine loses samples: then they are repeated."""

NOWHERE: Mapping[str, Path] = MappingProxyType({})


@dataclass
class LocalBench:
    """Devices by name with what they are made of; anything can be killed and started again.

    Attributes:
        speeds: Files with the speed of the cores that devices are on, where it is watched.
    """

    folder: Path
    servers: dict[str, SshServer] = field(default_factory=dict)
    meters: dict[str, EmulatorProcess] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    speeds: dict[str, Path] = field(default_factory=dict)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    plugged: int = 0

    @property
    def inventory(self) -> Path:
        return self.folder / "devices.toml"

    def truth(self, device: str) -> list[Path]:
        """Files with the true load of a device, one per time its meter was plugged in."""
        return sorted(self.folder.glob(f"truth-{device}-*.bin"))

    def plug(self, device: str) -> None:
        """Connect a (new) meter to a device; it follows the processes of its SSH server."""
        self.plugged += 1
        kind = self.kinds[device]
        load = f"process:pid={self.servers[device].process.pid},idle={IDLE_W},dynamic={DYNAMIC_W}"
        if device in self.speeds:
            load += f",speedfile={self.speeds[device]}"
        options = EmulatorOptions(
            signal=f"{load},voltage={VOLTAGE_V}",
            noise_a=0.001,
            tau_s=0.005,
            serial="" if kind == "ina219" else str(20_000 + self.plugged),
            truth=self.folder / f"truth-{device}-{self.plugged:03d}.bin",
        )
        meter = self.meters[device] = self.stack.enter_context(EmulatorProcess(kind, options))
        # An instrument that is plugged in again is found where it was, as udev does it for real ones.
        prefix, _, target = meter.address.rpartition(":")
        port = self.folder / f"port-{device}"
        port.unlink(missing_ok=True)
        port.symlink_to(target)
        self.ports[device] = f"{prefix}:{port}" if prefix else str(port)
        self.write_inventory()

    def unplug(self, device: str) -> None:
        """Pull the meter's cable."""
        self.meters[device].kill()

    def cut(self, device: str) -> int:
        """End every connection to a device, with what runs in it. Returns how many processes that were."""
        children = process_tree(self.servers[device].process.pid)[1:]
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(children)

    def write_inventory(self) -> None:
        lines = []
        for name in self.meters:
            server = self.servers[name]
            lines.append(
                f"""
[devices.{name}]
host = "{server.host}"
port = {server.port}
user = "{getpass.getuser()}"
key = "{server.folder}/client"
python = "{sys.executable}"
state = "{self.folder}/state-{name}"

[devices.{name}.meter]
kind = "{self.kinds[name]}"
port = "{self.ports[name]}"
voltage_v = {VOLTAGE_V}
voltage_max_v = 4.2
current_limit_a = 3.0
"""
            )
        self.inventory.write_text("".join(lines))

    def write_plan(
        self, sections: Mapping[str, str] = FAST, loads: Sequence[str] = (), **top: object
    ) -> Path:
        """``plan.toml`` with these top-level entries, sections and load levels."""
        values = {"models": ["softmax"], "backends": ["numpy"], "local_epochs": 2, "samples": 60_000, **top}
        values.setdefault("warmup_epochs", 0)
        text = "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
        text += "".join(f"\n[[loads]]\n{load}\n" for load in loads)
        text += "".join(f"\n[{name}]\n{body}\n" for name, body in sections.items())
        path = self.folder / "plan.toml"
        path.write_text(text)
        return path


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).replace("'", '"')


@contextlib.contextmanager
def local_bench(
    folder: Path, sshd: str, kinds: Mapping[str, str], speeds: Mapping[str, Path] = NOWHERE
) -> Iterator[LocalBench]:
    """Start the devices of ``kinds`` (name to kind of meter) and connect their meters."""
    folder.mkdir(parents=True, exist_ok=True)
    bench = LocalBench(folder, kinds=dict(kinds), speeds=dict(speeds))
    with bench.stack as stack:
        stack.enter_context(in_real_time())
        for name in kinds:
            server = stack.enter_context(
                ssh_server(folder / f"sshd-{name}", sshd, "SetEnv OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1")
            )
            bench.servers[name] = server
            in_shared_time(server.process.pid)
            known_hosts = bench.inventory.with_suffix(".known_hosts")
            trust(known_hosts, server.host, server.port, fetch_host_key(server.host, server.port))
            bench.plug(name)
        yield bench


class Watch:
    """A view for `run_bench` that does something when a device first reaches a stage: ``alpha_round=cut``."""

    def __init__(self, **on: Callable[[], object]) -> None:
        self._on = on
        self.finished = 0
        self.on_finished: Callable[[int], object] = lambda _: None

    def __call__(self, session: Session, _runner: Runner) -> contextlib.AbstractContextManager[None]:
        session.listener = self._changed
        return contextlib.nullcontext()

    def _changed(self, event: str, job: str, facts: dict[str, object]) -> None:
        if event == "finished":
            self.finished += 1
            self.on_finished(self.finished)
        act = self._on.pop(f"{job.split('_')[1]}_{facts.get('stage')}", None) if event == "stage" else None
        if act is not None:
            threading.Timer(0.4, act).start()  # well inside the stage
