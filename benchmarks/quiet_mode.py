"""What it costs a device to tell what happens as it happens, instead of keeping it until it is asked.

The same job, quiet and not, in turn, over a real SSH connection whose every packet passes a relay that writes
down when it did. Processor time is the device's: the agent's own threads, and the SSH server that encrypts.
A radio that is kept awake costs more than either; what it sees is the number of packets.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.agent_overhead import phone_tree
from benchmarks.result import Figure, figure
from device_agents import AgentSession, Job, SshTransport
from device_agents.protocol import Phase
from device_agents.transport import fetch_host_key, trust
from tests.device_agents.relay import Relay, relay
from tests.device_agents.ssh_server import SshServer, ssh_server

REPEATS = 5
SAMPLES = 200_000
EPOCHS = 12
TELEMETRY_HZ = 5.0

AGENT = """
import os
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
from device_agents.payload.agent import main
main()
"""


@dataclass
class Measured:
    """One mode over several jobs."""

    agent_percent: list[float] = field(default_factory=list)
    server_percent: list[float] = field(default_factory=list)
    packets_hz: list[float] = field(default_factory=list)
    bytes_per_s: list[float] = field(default_factory=list)
    epoch_cpu_s: list[float] = field(default_factory=list)


def run() -> list[Figure]:
    """Both modes in turn, in one agent."""
    modes = {"quiet": Measured(), "sent as it happens": Measured()}
    with _device() as (session, server, link):
        for _ in range(REPEATS):
            for mode, found in modes.items():
                _measure(session, server, link, found, quiet=mode == "quiet")
    figures = [
        figure("quiet_mode", f"{what}, {mode}", values, unit, better="lower")
        for what, name, unit in (
            ("packets during epochs", "packets_hz", "per s"),
            ("traffic during epochs", "bytes_per_s", "B/s"),
            ("agent's threads", "agent_percent", "% of training CPU"),
            ("SSH server", "server_percent", "% of training CPU"),
        )
        for mode, values in ((mode, getattr(found, name)) for mode, found in modes.items())
    ]
    quiet, loud = modes.values()
    more = [
        b + d - a - c
        for a, b, c, d in zip(
            quiet.agent_percent, loud.agent_percent, quiet.server_percent, loud.server_percent, strict=True
        )
    ]
    note = f"telemetry at {TELEMETRY_HZ:g} Hz, a marker per epoch, heartbeats; agent and SSH server together"
    figures.append(
        figure("quiet_mode", "cost of not being quiet", more, "% of training CPU", better="lower", note=note)
    )
    ratios = [b / a for a, b in zip(quiet.epoch_cpu_s, loud.epoch_cpu_s, strict=True)]
    figures.append(
        figure("quiet_mode", "CPU time of the epochs, not quiet to quiet", ratios, "x", better="lower")
    )
    return figures


def _measure(session: AgentSession, server: SshServer, link: Relay, found: Measured, *, quiet: bool) -> None:
    job = Job(workload="softmax", samples=SAMPLES, epochs=EPOCHS, seed=1, probe=False, quiet=quiet)
    server_before_s = _server_cpu_s(server, session.hello.pid)
    result = session.run_round(job.model_copy(update={"telemetry_hz": TELEMETRY_HZ}))
    server_s = _server_cpu_s(server, session.hello.pid) - server_before_s
    epochs = [m.t_dev_ns for m in result.markers if m.kind is Phase.EPOCH]
    start_ns, end_ns = epochs[0], epochs[-1]  # device and relay are this machine: one clock
    during = [moved.size for moved in link.moved if start_ns < moved.t_ns < end_ns]
    wall_s = (end_ns - start_ns) * 1e-9
    cpu = result.done.cpu
    training_s = cpu.epochs_s - cpu.agent_s
    found.agent_percent.append(100 * cpu.agent_s / training_s)
    found.server_percent.append(100 * server_s / training_s)
    found.packets_hz.append(len(during) / wall_s)
    found.bytes_per_s.append(sum(during) / wall_s)
    found.epoch_cpu_s.append(cpu.epochs_s)


def _server_cpu_s(server: SshServer, agent_pid: int) -> float:
    """Processor time of the SSH server's processes for the connection, the agent left out."""
    total_ns = 0
    waiting = [server.process.pid]
    while waiting:
        pid = waiting.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        waiting += [int(child) for child in children if int(child) != agent_pid]
        total_ns += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return total_ns * 1e-9


@contextmanager
def _device() -> Iterator[tuple[AgentSession, SshServer, Relay]]:
    sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin:/usr/local/sbin")
    if sshd is None:
        raise SystemExit("quiet_mode needs sshd (Debian package openssh-server)")
    with (
        tempfile.TemporaryDirectory(prefix="quiet-mode-") as name,
        ssh_server(Path(name) / "server", sshd) as server,
        relay(server.port) as link,
    ):
        known = Path(name) / "known_hosts"
        trust(known, "127.0.0.1", link.port, fetch_host_key("127.0.0.1", link.port))
        argv = ["env", "-C", str(Path.cwd()), sys.executable, "-c", AGENT, "--state", f"{name}/state"]
        argv += ["--root", str(phone_tree(Path(name) / "root"))]
        with (
            SshTransport(server.target(port=link.port, known_hosts=known)) as device,
            device.open(argv) as channel,
        ):
            yield AgentSession(channel), server, link


if __name__ == "__main__":
    from benchmarks.__main__ import show

    for one in run():
        show(one)
