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

from device_agents.transport.host_keys import fetch_host_key, trust
from device_agents.transport.ssh import SshTarget

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

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def target(self, *, trusted: bool = True, **changes: object) -> SshTarget:
        known_hosts = self.folder / "known_hosts"
        if trusted and not known_hosts.exists():
            trust(known_hosts, "127.0.0.1", self.port, fetch_host_key("127.0.0.1", self.port))
        fields = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "key": self.folder / "client",
        }
        return SshTarget(known_hosts=known_hosts, **{**fields, **changes})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> None:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def ssh_server(folder: Path, sshd: str, extra: str = "") -> Iterator[SshServer]:
    """Start a server, wait until it greets, stop it by its own process id."""
    folder.mkdir(parents=True, exist_ok=True)
    make_key(folder / "host", "rsa" if "ssh-rsa" in extra else "ed25519")
    make_key(folder / "client")
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    port = free_port()
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd started by root insists on it
    (folder / "config").write_text(
        f"""
Port {port}
ListenAddress 127.0.0.1
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
{extra}
"""
    )
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "config")], stderr=log)
    try:
        _wait_for_greeting(port, process)
        yield SshServer(folder, port, process)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for_greeting(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"sshd ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            if link.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise RuntimeError("sshd did not answer")
