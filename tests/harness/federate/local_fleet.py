"""A bench of local devices of different speed, one of them on a link whose rate can be set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from device_agents.transport.host_keys import fetch_host_key, trust
from tests.device_agents.relay import Relay, relay
from tests.harness.federate.quota import quotas
from tests.harness.local_bench import LocalBench, local_bench
from tests.priority import ahead_of_others

SETTINGS = """
threads = 1
sync_pattern = false  # under a quota the bursts are cut to pieces; clock exchanges over loopback are exact
[timing]
idle_s = {idle_s}
settle_s = 0
load_only_s = 1.0
deadline_s = 300
[retry]
attempts = 3
wait_s = 0.5
"""
SCENARIO = """
name = "loop"
[task]
name = "{task}"
learning_rate = {learning_rate}
batch_size = {batch_size}
options = {{ samples_per_client = {samples} }}
[protocol]
rounds = {rounds}
k = {k}
candidates = "all"
local_epochs = {epochs}
[selector]
name = "{selector}"
"""


@dataclass
class LocalFleet:
    """A running bench.

    Attributes:
        link: Between the host and the last device.
    """

    bench: LocalBench
    link: Relay
    inventory: Path

    def write(self, name: str, text: str) -> Path:
        path = self.bench.folder / name
        path.write_text(text)
        return path


def deal_cores(shares: Mapping[str, float], cores: Iterable[int]) -> dict[str, int]:
    """A core for every device: the largest shares first, each to the core that has the least."""
    taken = dict.fromkeys(cores, 0.0)
    dealt: dict[str, int] = {}
    for name in sorted(shares, key=lambda name: -shares[name]) if taken else ():
        dealt[name] = min(taken, key=lambda core: taken[core])
        taken[dealt[name]] += shares[name]
    return dealt


@contextlib.contextmanager
def local_fleet(
    folder: Path,
    sshd: str,
    shares: Mapping[str, float],
    meter: str,
    core_speeds: Mapping[int, Path] | None = None,
) -> Iterator[LocalFleet]:
    """Devices with these shares of a core and meters of one kind; the last one is behind a relay.

    With ``core_speeds`` (`steady_host`) each device stays on one core, and its share is one of that core's
    reference speed.
    """
    kinds = dict.fromkeys(shares, meter)
    last = list(shares)[-1]
    cores = deal_cores(shares, core_speeds or {})
    speeds = {name: core_speeds[core] for name, core in cores.items()} if core_speeds else {}
    with contextlib.ExitStack() as stack:
        bench = stack.enter_context(local_bench(folder, sshd, kinds, speeds))
        pids = {name: bench.servers[name].process.pid for name in shares}
        for name, pid in pids.items():
            ahead_of_others(pid)  # others' work must not make a device slower than its quota
            if name in cores:
                os.sched_setaffinity(pid, {cores[name]})
        by_pid = {pids[name]: share for name, share in shares.items()}
        stack.enter_context(quotas(by_pid, {pids[name]: file for name, file in speeds.items()}))
        server = bench.servers[last]
        link = stack.enter_context(relay(server.port))
        inventory = folder / "fleet.toml"
        text = bench.inventory.read_text().replace(f"port = {server.port}\n", f"port = {link.port}\n")
        inventory.write_text(text)
        known_hosts = inventory.with_suffix(".known_hosts")
        known_hosts.write_text(bench.inventory.with_suffix(".known_hosts").read_text())
        trust(known_hosts, server.host, link.port, fetch_host_key(server.host, link.port))
        yield LocalFleet(bench, link, inventory)
