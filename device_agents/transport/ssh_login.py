"""Where an SSH server is, and how to log in: keys, the agent's keys, a password that stands in no file."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from device_agents.transport.host_keys import host_name
from device_agents.transport.ssh_errors import explain
from joulefleet.errors import DeviceError

if TYPE_CHECKING:
    import paramiko


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where a device is and how to log in.

    Attributes:
        host: Name or address.
        port: 22, or 8022 for Termux.
        user: Login name; empty for this user's.
        key: Private key file; None for the agent's keys and the usual ones in ``~/.ssh``.
        password_env: Name of the environment variable that holds a password. Never the password itself.
        known_hosts: File of pinned host keys.
        jump: Log in here first and go on from there.
    """

    host: str
    known_hosts: Path
    port: int = 22
    user: str = ""
    key: Path | None = None
    password_env: str = ""
    jump: SshTarget | None = None

    @property
    def address(self) -> str:
        """What errors call it."""
        return host_name(self.host, self.port)

    def password(self) -> str | None:
        """From the environment variable.

        Raises:
            DeviceError: The variable is named and not set.
        """
        if not self.password_env:
            return None
        value = os.environ.get(self.password_env)
        if not value:
            raise DeviceError(
                f"{self.address}: the environment variable {self.password_env} is not set",
                hint=f"export {self.password_env} in the shell that runs joulefleet, or use a key",
            )
        return value


def log_in(transport: paramiko.Transport, target: SshTarget) -> None:
    """Try the key that was named, else the agent's and the usual ones, then a password."""
    import paramiko

    user = target.user or getpass.getuser()
    last: Exception | None = None
    for key in _keys(target):
        try:
            transport.auth_publickey(user, key)
        except paramiko.AuthenticationException as error:
            last = error
        else:
            return
    password = target.password()
    if password is not None:
        transport.auth_password(user, password)
    elif _would_take_a_password(transport, user):
        _log_in_as_typed(transport, user, target.address)
    else:
        raise last or paramiko.AuthenticationException(f"no key and no password for user {user}")


_typed: dict[tuple[str, str], str] = {}
_typing = threading.Lock()


def _log_in_as_typed(transport: paramiko.Transport, user: str, address: str) -> None:
    """Ask once: a bench connects for every job. What was typed and accepted stays in memory, only there."""
    with _typing:  # and for one device at a time
        password = _typed.pop((user, address), None)
        if password is None:
            password = getpass.getpass(f"password of {user} on {address}: ")
        transport.auth_password(user, password)
        _typed[user, address] = password


def _would_take_a_password(transport: paramiko.Transport, user: str) -> bool:
    """Whether there is somebody to ask, and whether the server would want to know."""
    import paramiko

    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        transport.auth_none(user)
    except paramiko.BadAuthenticationType as error:
        return "password" in error.allowed_types
    except paramiko.AuthenticationException:
        return False
    return False


def _keys(target: SshTarget) -> Iterator[paramiko.PKey]:
    import paramiko
    from paramiko.pkey import UnknownKeyType

    if target.key is not None:
        try:
            yield paramiko.PKey.from_path(target.key.expanduser())
        except FileNotFoundError as error:
            raise DeviceError(f"{target.address}: no private key at {target.key}") from error
        except TypeError as error:  # what the cryptography package says of an encrypted key
            raise explain(paramiko.PasswordRequiredException(str(error)), target.address) from error
        except (UnknownKeyType, ValueError) as error:
            raise DeviceError(f"{target.address}: {target.key} is not a private key ({error})") from error
        return
    with contextlib.closing(paramiko.Agent()) as agent:
        yield from agent.get_keys()
    for name in ("id_ed25519", "id_ecdsa", "id_rsa"):
        path = Path.home() / ".ssh" / name
        if path.exists():
            with contextlib.suppress(TypeError, ValueError):  # encrypted, or not a key: the agent's turn
                yield paramiko.PKey.from_path(path)
