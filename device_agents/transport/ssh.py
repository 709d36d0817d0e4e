"""SSH through paramiko: strict host keys, keys or agent, jump host, deadlines on every operation."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from device_agents.transport.base import MAX_OUTPUT_BYTES, Completed
from device_agents.transport.host_keys import HostKey, check_key, host_name
from device_agents.transport.inbox import Inbox
from device_agents.transport.sftp import SftpFiles
from device_agents.transport.ssh_errors import explain
from fedjoule.errors import DeviceError, DeviceUnreachable

if TYPE_CHECKING:
    import paramiko

KEEPALIVE_S = 5
CONNECT_TIMEOUT_S = 15.0


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
                hint=f"export {self.password_env} in the shell that runs fedjoule, or use a key",
            )
        return value


class SshChannel:
    """A command on the device. See `device_agents.transport.base.Channel`."""

    def __init__(self, channel: paramiko.Channel, address: str) -> None:
        self._channel = channel
        self._address = address
        self._inbox = Inbox(self._read_some, f"the agent on {address}")
        self.stderr = b""

    def send(self, data: bytes) -> None:
        """See `Channel`."""
        try:
            self._channel.settimeout(CONNECT_TIMEOUT_S)
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise DeviceUnreachable(f"{self._address}: the link is down ({error})") from error

    def receive_line(self, timeout_s: float) -> bytes:
        """See `Channel`."""
        return self._inbox.line(timeout_s)

    def receive_exactly(self, size: int, timeout_s: float) -> bytes:
        """See `Channel`."""
        return self._inbox.exactly(size, timeout_s)

    def _read_some(self, timeout_s: float) -> bytes | None:
        # Standard error is drained too: a chatty agent must not block on a full window.
        while self._channel.recv_stderr_ready():
            self.stderr = (self.stderr + self._channel.recv_stderr(65_536))[-MAX_OUTPUT_BYTES:]
        try:
            self._channel.settimeout(max(0.01, timeout_s))
            return self._channel.recv(65_536)
        except TimeoutError:
            return None
        except OSError as error:
            raise DeviceUnreachable(f"{self._address}: the link is down ({error})") from error

    def close(self) -> None:
        """See `Channel`."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SshTransport:
    """A device behind an SSH server. See `device_agents.transport.base.Transport`."""

    def __init__(self, target: SshTarget, *, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self.target = target
        self._jump = SshTransport(target.jump, timeout_s=timeout_s) if target.jump is not None else None
        try:
            self._transport = self._connect(timeout_s)
        except BaseException:
            if self._jump is not None:
                self._jump.close()
            raise
        self._files: SftpFiles | None = None

    @property
    def address(self) -> str:
        """See `Transport`."""
        return self.target.address

    def _connect(self, timeout_s: float) -> paramiko.Transport:
        import paramiko

        with self._explained():
            transport = paramiko.Transport(self._link(timeout_s))
            try:
                transport.banner_timeout = timeout_s
                transport.auth_timeout = timeout_s
                transport.start_client(timeout=timeout_s)
                shown = transport.get_remote_server_key()
                check_key(
                    self.target.known_hosts,
                    self.target.host,
                    self.target.port,
                    HostKey(shown.get_name(), shown.asbytes()),
                )
                _log_in(transport, self.target)
                transport.set_keepalive(KEEPALIVE_S)
            except BaseException:
                transport.close()
                raise
            return transport

    def _link(self, timeout_s: float) -> socket.socket | paramiko.Channel:
        if self._jump is None:
            return socket.create_connection((self.target.host, self.target.port), timeout=timeout_s)
        return self._jump.forward(self.target.host, self.target.port, timeout_s)

    def forward(self, host: str, port: int, timeout_s: float) -> paramiko.Channel:
        """A connection from this server to another, for use as a jump host."""
        with self._explained():
            return self._transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout_s
            )

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Completed:
        """See `Transport`."""
        with self._explained():
            channel = self._start(argv)
            try:
                return _finish(channel, argv, stdin, time.monotonic() + timeout_s)
            finally:
                channel.close()

    def open(self, argv: Sequence[str]) -> SshChannel:
        """See `Transport`."""
        with self._explained():
            return SshChannel(self._start(argv), self.address)

    def _start(self, argv: Sequence[str]) -> paramiko.Channel:
        channel = self._transport.open_session(timeout=CONNECT_TIMEOUT_S)
        # SSH carries one string that the login shell parses, so every argument is quoted.
        channel.exec_command(shlex.join(argv))
        return channel

    def upload(
        self, data: bytes, path: str, sha256: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """See `Transport`."""
        with self._explained():
            return self._sftp().upload(data, path, sha256, on_progress)

    def download(self, path: str, *, max_bytes: int) -> bytes:
        """See `Transport`."""
        with self._explained():
            return self._sftp().download(path, max_bytes)

    def _sftp(self) -> SftpFiles:
        if self._files is None:
            self._files = SftpFiles(self._transport, self.address)
        return self._files

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        import paramiko

        try:
            yield
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise explain(error, self.address) from error

    def close(self) -> None:
        """See `Transport`."""
        self._transport.close()
        if self._jump is not None:
            self._jump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _log_in(transport: paramiko.Transport, target: SshTarget) -> None:
    """Try the key that was named, else the agent's and the usual ones, then a password."""
    import getpass

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
        return
    raise last or paramiko.AuthenticationException(f"no key and no password for user {user}")


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


def _finish(channel: paramiko.Channel, argv: Sequence[str], stdin: bytes, deadline_s: float) -> Completed:
    """Feed a command its input, collect its output, wait for its end; all of it bounded."""
    if stdin:
        channel.settimeout(max(0.01, deadline_s - time.monotonic()))
        channel.sendall(stdin)
    channel.shutdown_write()
    out, err = bytearray(), bytearray()
    while True:
        idle = True
        if channel.recv_ready():
            out += channel.recv(65_536)
            idle = False
        if channel.recv_stderr_ready():
            err = (err + channel.recv_stderr(65_536))[-MAX_OUTPUT_BYTES:]
            idle = False
        if len(out) > MAX_OUTPUT_BYTES:
            raise DeviceError(f"{argv[0]} printed more than {MAX_OUTPUT_BYTES} bytes")
        if idle and channel.exit_status_ready() and channel.eof_received:
            return Completed(channel.recv_exit_status(), bytes(out), bytes(err))
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{argv[0]} did not end in time")
        if idle and not channel.closed:
            channel.status_event.wait(0.005)
        elif idle and channel.closed and not channel.exit_status_ready():
            raise EOFError("the channel closed without an exit status")
