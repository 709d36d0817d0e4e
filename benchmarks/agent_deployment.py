"""Getting the agent onto a device: the first time, and when its payload is there already.

A real OpenSSH server behind a relay that delays every byte and writes down who spoke when. A round trip is a
turn of the host: it speaks, and has to hear the device before it speaks again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from benchmarks.result import Figure, figure
from device_agents import Installation, SshTransport, build_bundle, start_agent
from device_agents.deploy import remove_payloads
from device_agents.transport import SshChannel, fetch_host_key, trust
from tests.device_agents.relay import Relay, relay
from tests.device_agents.ssh_server import ssh_server

NAME = "agent_deployment"
REPEATS = 5
DELAY_S = 0.05  # one way
SETTLE_S = 0.5  # what is left of the start before has arrived by then; less than a keepalive's time


class CountingTransport(SshTransport):
    """Counts what is asked of the device."""

    requests = 0
    uploaded_bytes = 0

    def open(self, argv: Sequence[str]) -> SshChannel:
        """See `Transport`."""
        self.requests += 1
        return super().open(argv)

    def upload(
        self, data: bytes, path: str, sha256: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """See `Transport`."""
        self.requests += 1
        sent = super().upload(data, path, sha256, on_progress=on_progress)
        self.uploaded_bytes += sent
        return sent


class Measured:
    """One case over several starts."""

    def __init__(self) -> None:
        self.requests: list[float] = []
        self.trips: list[float] = []
        self.seconds: list[float] = []
        self.uploaded_bytes: list[float] = []

    def add(self, device: CountingTransport, place: Installation, link: Relay) -> None:
        """Start the agent once, up to its first sign of life, and keep what that took."""
        requests, uploaded = device.requests, device.uploaded_bytes
        time.sleep(SETTLE_S)
        link.moved.clear()
        start_s = time.monotonic()
        channel = start_agent(device, build_bundle(), place)
        self.seconds.append(time.monotonic() - start_s)
        outward = [moved.outward for moved in link.moved]
        self.trips.append(sum(now and not before for before, now in pairwise([False, *outward])))
        channel.close()
        self.requests.append(device.requests - requests)
        self.uploaded_bytes.append(device.uploaded_bytes - uploaded)


def run() -> list[Figure]:
    """First deployments and unchanged ones in turn."""
    first, unchanged = Measured(), Measured()
    with _far_device() as (device, place, link):
        for _ in range(REPEATS):
            remove_payloads(device, place)
            first.add(device, place, link)
            unchanged.add(device, place, link)
    return [row for name, found in (("unchanged", unchanged), ("new", first)) for row in _rows(name, found)]


def _rows(name: str, found: Measured) -> list[Figure]:
    bars = (1.0, 0.0) if name == "unchanged" else (None, None)
    floor = "SSH itself takes two to run a command: the channel is confirmed before the command is sent"
    slow = f"with {1e3 * DELAY_S:g} ms each way; most of the rest is the login shell"
    return [
        figure(NAME, f"{what}, {name} payload", values, unit, better="lower", bar=bar, note=note)
        for what, values, unit, bar, note in (
            ("requests to the device", found.requests, "", bars[0], ""),
            ("sent", found.uploaded_bytes, "B", bars[1], ""),
            ("turns on the wire", found.trips, "round trips", None, floor),
            ("time to the first sign of life", found.seconds, "s", None, slow),
        )
    ]


@contextmanager
def _far_device() -> Iterator[tuple[CountingTransport, Installation, Relay]]:
    sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin:/usr/local/sbin")
    if sshd is None:
        raise SystemExit("agent_deployment needs sshd (Debian package openssh-server)")
    with (
        tempfile.TemporaryDirectory(prefix="agent-deployment-") as name,
        ssh_server(Path(name) / "server", sshd) as server,
        relay(server.port, delay_s=DELAY_S) as link,
    ):
        known = Path(name) / "known_hosts"
        trust(known, "127.0.0.1", link.port, fetch_host_key("127.0.0.1", link.port))
        with CountingTransport(server.target(port=link.port, known_hosts=known)) as device:
            yield device, Installation(state=f"{name}/state", python=sys.executable), link


if __name__ == "__main__":
    from benchmarks.__main__ import show

    for one in run():
        show(one)
