"""Host keys: who a device is. One known-hosts file per inventory, in OpenSSH's own format, strict."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from joulefleet.errors import DeviceError
from joulefleet.files import write_atomic

if TYPE_CHECKING:
    import paramiko


@dataclass(frozen=True, slots=True)
class HostKey:
    """A key as a server showed it."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """What ``ssh-keygen -lf`` prints, to compare with the device's own screen."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """Kind and key as they stand in a known-hosts file."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


def host_name(host: str, port: int) -> str:
    """The name of a server in a known-hosts file: OpenSSH brackets ports other than 22."""
    return host if port == 22 else f"[{host}]:{port}"


def known_keys(path: Path, host: str, port: int) -> dict[str, HostKey]:
    """The pinned keys of a server, by kind."""
    from paramiko import HostKeys

    if not path.exists():
        return {}
    try:
        entries: Mapping[str, paramiko.PKey] = HostKeys(str(path)).lookup(host_name(host, port)) or {}
    except Exception as error:  # paramiko raises whatever its parsers do
        raise DeviceError(f"{path}: not readable as a known-hosts file ({error})") from error
    return {kind: HostKey(kind, key.asbytes()) for kind, key in entries.items()}


def trust(path: Path, host: str, port: int, key: HostKey, *, replace: bool = False) -> None:
    """Pin a key.

    Raises:
        DeviceError: Another key of that server is pinned already and ``replace`` is not given.
    """
    pinned = known_keys(path, host, port)
    if pinned.get(key.kind) == key:
        return
    if pinned and not replace:
        old = next(iter(pinned.values()))
        raise DeviceError(
            f"{host_name(host, port)}: {path.name} has another key already, {old.fingerprint}",
            hint="find out why it changed (reinstalled? another device?); then trust it with --replace",
        )
    name = host_name(host, port)
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if line.split(" ")[0] != name]
    write_atomic(path, "\n".join([*kept, f"{name} {key.line}", ""]).encode(), replace=True)


def fetch_host_key(
    host: str, port: int, *, timeout_s: float = 10.0, via: paramiko.Channel | None = None
) -> HostKey:
    """Ask a server for its key without logging in."""
    import paramiko

    from device_agents.transport.ssh_errors import dial, explain
    from device_agents.transport.steady_time import steady_timeouts

    steady_timeouts()
    try:
        link = via if via is not None else dial(host, port, timeout_s)
        transport = paramiko.Transport(link)
    except (OSError, paramiko.SSHException) as error:
        raise explain(error, host_name(host, port)) from error
    try:
        transport.start_client(timeout=timeout_s)
        key = transport.get_remote_server_key()
    except (EOFError, OSError, paramiko.SSHException) as error:
        raise explain(error, host_name(host, port)) from error
    finally:
        transport.close()
    return HostKey(key.get_name(), key.asbytes())


def check_key(path: Path, host: str, port: int, shown: HostKey) -> None:
    """Refuse a server whose key is not pinned.

    Raises:
        DeviceError: No key is pinned, or another one.
    """
    pinned = known_keys(path, host, port)
    if not pinned:
        raise DeviceError(
            f"{host_name(host, port)}: its host key is not known ({shown.fingerprint})",
            hint="compare the fingerprint with the device's own, then `joulefleet bench trust` it",
        )
    if shown not in pinned.values():
        raise DeviceError(
            f"{host_name(host, port)}: its host key has CHANGED, it now shows {shown.fingerprint}",
            hint="someone may be listening in; if it was reinstalled, `joulefleet bench trust --replace` it",
        )
