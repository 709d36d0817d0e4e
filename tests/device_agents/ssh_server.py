"""A real OpenSSH server on loopback, with its own keys and configuration."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agents.transport.host_keys import fetch_host_key, trust
from device_agents.transport.ssh import SshTarget
from tests.device_agents.accounts import Accounts
from tests.device_agents.netns import Host

OLD_SERVER = """
KexAlgorithms diffie-hellman-group14-sha1
HostKeyAlgorithms ssh-rsa
"""
"""What a server of 2012 offers: nothing but SHA-1."""


@dataclass(frozen=True)
class SshServer:
    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    host: str = "127.0.0.1"

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def target(self, *, trusted: bool = True, **changes: Any) -> SshTarget:
        known_hosts = self.folder / "known_hosts"
        if trusted and not known_hosts.exists():
            trust(known_hosts, self.host, self.port, fetch_host_key(self.host, self.port))
        fields: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": getpass.getuser(),
            "key": self.folder / "client",
            "known_hosts": known_hosts,
        }
        return SshTarget(**{**fields, **changes})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> None:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def ssh_server(
    folder: Path, sshd: str, extra: str = "", *, host: Host | Accounts | None = None
) -> Iterator[SshServer]:
    """Start a server (inside a namespace, if one is given), wait until it greets, stop it."""
    folder.mkdir(parents=True, exist_ok=True)
    make_key(folder / "host", "rsa" if "ssh-rsa" in extra else "ed25519")
    make_key(folder / "client")
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    port, address = free_port(), host.address if host else "127.0.0.1"
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd started by root insists on it
    (folder / "config").write_text(
        f"""
{extra}
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
MaxStartups 50
"""
    )
    with (folder / "sshd.log").open("wb") as log:
        argv = [sshd, "-D", "-e", "-f", str(folder / "config")]
        process = subprocess.Popen(host.command(*argv) if host else argv, stderr=log)
    try:
        _wait_for_greeting(address, port, process)
        yield SshServer(folder, port, process, address)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for_greeting(address: str, port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"sshd ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1) as link:
            if link.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise RuntimeError("sshd did not answer")
