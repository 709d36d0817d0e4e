"""SSH through paramiko: strict host keys, keys or agent, jump host, deadlines on every operation."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from device_agents.payload.link.wire import CHUNK_BYTES
from device_agents.transport.base import (
    MAX_OUTPUT_BYTES,
    SEND_TIMEOUT_S,
    BufferedChannel,
    Completed,
    Transport,
    how_it_ended,
)
from device_agents.transport.host_keys import HostKey, check_key
from device_agents.transport.sftp import SftpFiles
from device_agents.transport.ssh_errors import bounded, dial, explain
from device_agents.transport.ssh_login import SshTarget, log_in
from device_agents.transport.steady_time import steady_timeouts
from joulefleet.errors import DeviceError

if TYPE_CHECKING:
    import socket

    import paramiko

__all__ = ["SshChannel", "SshTarget", "SshTransport"]

KEEPALIVE_S = 5.0
"""Often enough for any router on the way to remember the connection."""

TIMEOUT_S = 15.0

MAX_LAST_WORDS = 4096

ENDING_S = 1.0
"""How long after a command's output has ended its server may take to tell how the command did."""


class SshChannel(BufferedChannel):
    """A command on the device. See `device_agents.transport.base.Channel`."""

    def __init__(self, channel: paramiko.Channel, transport: SshTransport) -> None:
        super().__init__(f"the agent on {transport.address}")
        self._channel = channel
        self._transport = transport
        self._stderr = b""

    def send(self, data: bytes, timeout_s: float = SEND_TIMEOUT_S) -> None:
        """See `Channel`."""
        try:
            _send_all(self._channel, data, time.monotonic() + timeout_s)
        except (OSError, EOFError) as error:
            raise explain(error, self._transport.address) from error

    def _read_some(self, timeout_s: float) -> bytes | None:
        self._drain_stderr()
        try:
            self._channel.settimeout(max(0.01, timeout_s))
            return self._channel.recv(65_536)
        except TimeoutError:
            return None
        except OSError as error:
            raise explain(error, self._transport.address) from error

    def _drain_stderr(self) -> None:
        """Standard error has a window, too: a chatty agent must not block on a full one."""
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(65_536))[-MAX_LAST_WORDS:]

    def _last_words(self) -> str:
        self._drain_stderr()
        return self._stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def _how_it_ended(self) -> str:
        # The server tells how before it closes the channel; a link that is down tells nothing.
        return _ending(self._channel) if self._channel.status_event.wait(ENDING_S) else ""

    def without_keepalive(self) -> contextlib.AbstractContextManager[None]:
        """See `Channel`; holds for the whole connection."""
        return self._transport.without_keepalive()

    def close(self) -> None:
        """See `Channel`."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()


class SshTransport(Transport):
    """A device behind an SSH server. See `device_agents.transport.base.Transport`.

    Args:
        target: Where it is.
        timeout_s: For connecting, and for each answer of the server itself.
        keepalive_s: A packet goes out after this long without one; 0 for never.
    """

    def __init__(
        self, target: SshTarget, *, timeout_s: float = TIMEOUT_S, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self.target = target
        self._files: SftpFiles | None = None
        self._timeout_s = timeout_s
        self._keepalive_s = keepalive_s
        self._keepalive_lock = threading.Lock()
        self._silent = 0
        self._jump: SshTransport | None = None
        if target.jump is not None:
            self._jump = SshTransport(target.jump, timeout_s=timeout_s, keepalive_s=keepalive_s)
        try:
            self._transport = self._connect()
        except BaseException:
            if self._jump is not None:
                self._jump.close()
            raise

    @property
    def address(self) -> str:
        """See `Transport`."""
        return self.target.address

    def _connect(self) -> paramiko.Transport:
        import paramiko

        steady_timeouts()
        with self._explained():
            transport = paramiko.Transport(self._link())
            hear_signals(transport)
            try:
                transport.banner_timeout = self._timeout_s
                transport.auth_timeout = self._timeout_s
                transport.start_client(timeout=self._timeout_s)
                shown = transport.get_remote_server_key()
                check_key(
                    self.target.known_hosts,
                    self.target.host,
                    self.target.port,
                    HostKey(shown.get_name(), shown.asbytes()),
                )
                log_in(transport, self.target)
                transport.set_keepalive(self._keepalive_s)
            except BaseException:
                transport.close()
                raise
            return transport

    def _link(self) -> socket.socket | paramiko.Channel:
        if self._jump is None:
            return dial(self.target.host, self.target.port, self._timeout_s)
        return self._jump.forward(self.target.host, self.target.port)

    def forward(self, host: str, port: int) -> paramiko.Channel:
        """A connection from this server to another, for use as a jump host."""
        with self._explained():
            return self._transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=self._timeout_s
            )

    @contextlib.contextmanager
    def without_keepalive(self) -> Iterator[None]:
        """Nothing is sent on this connection that nobody asked for, nor on those it goes through."""
        with self._jump.without_keepalive() if self._jump is not None else contextlib.nullcontext():
            self._count_silent(1)
            try:
                yield
            finally:
                self._count_silent(-1)

    def _count_silent(self, change: int) -> None:
        """Several channels share the connection: the last one switches on what the first switched off."""
        with self._keepalive_lock:
            self._silent += change
            self._transport.set_keepalive(0.0 if self._silent else self._keepalive_s)

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
            return SshChannel(self._start(argv), self)

    def _start(self, argv: Sequence[str]) -> paramiko.Channel:
        channel = self._transport.open_session(timeout=self._timeout_s)
        with bounded(channel, self._timeout_s):
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
            self._files = SftpFiles(self._transport, self.address, self._timeout_s)
        return self._files

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        import paramiko

        try:
            yield
        except (OSError, EOFError, paramiko.SSHException) as error:
            self._files = None  # an SFTP session whose answer did not come is out of step
            raise explain(error, self.address) from error

    def close(self) -> None:
        """See `Transport`."""
        self._transport.close()
        if self._jump is not None:
            self._jump.close()


def hear_signals(transport: paramiko.Transport) -> None:
    """Keep which signal ended a command: paramiko drops that message (RFC 4254, section 6.10)."""
    from paramiko.common import MSG_CHANNEL_REQUEST

    handlers = dict(transport._channel_handler_table)  # type: ignore[attr-defined]
    usual = handlers[MSG_CHANNEL_REQUEST]

    def handle(channel: paramiko.Channel, message: paramiko.Message) -> None:
        place = message.packet.tell()
        if message.get_text() == "exit-signal":
            message.get_boolean()
            channel.exit_signal = message.get_text()[:16]  # type: ignore[attr-defined]
            channel.status_event.set()
        message.packet.seek(place)
        usual(channel, message)

    handlers[MSG_CHANNEL_REQUEST] = handle
    transport._channel_handler_table = handlers  # type: ignore[attr-defined]


def _ending(channel: paramiko.Channel) -> str:
    """How a command ended; empty if its server did not say."""
    name = getattr(channel, "exit_signal", "")
    return how_it_ended(channel.exit_status, name) if name or channel.exit_status >= 0 else ""


def _send_all(channel: paramiko.Channel, data: bytes, deadline_s: float) -> None:
    """Send in pieces: paramiko's own `sendall` starts its time-out again with every byte that is taken."""
    done = 0
    while done < len(data):
        wait_s = min(SEND_TIMEOUT_S, deadline_s - time.monotonic())
        if wait_s <= 0:
            raise TimeoutError("not all was taken in time")
        channel.settimeout(wait_s)
        sent = channel.send(data[done : done + CHUNK_BYTES])
        if not sent:
            raise EOFError("the channel is closed")
        done += sent


def _finish(channel: paramiko.Channel, argv: Sequence[str], stdin: bytes, deadline_s: float) -> Completed:
    """Feed a command its input, collect its output, wait for its end; all of it bounded."""
    _send_all(channel, stdin, deadline_s)
    channel.shutdown_write()
    out, err = bytearray(), bytearray()
    while True:
        # Asked before the data is: whatever was sent before the end has arrived by then. Asked afterwards,
        # output and end that arrive in between would lose the output.
        ended = channel.exit_status_ready() and channel.eof_received
        idle = True
        if channel.recv_ready():
            out += channel.recv(65_536)
            idle = False
        if channel.recv_stderr_ready():
            err = (err + channel.recv_stderr(65_536))[-MAX_OUTPUT_BYTES:]
            idle = False
        if len(out) > MAX_OUTPUT_BYTES:
            raise DeviceError(f"{argv[0]} printed more than {MAX_OUTPUT_BYTES} bytes")
        if idle and ended:
            return Completed(channel.recv_exit_status(), bytes(out), bytes(err), _ending(channel))
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{argv[0]} did not end in time")
        if idle and not channel.closed:
            channel.status_event.wait(0.005)
        elif idle and channel.closed and not channel.exit_status_ready():
            raise EOFError("the channel closed without an exit status")
