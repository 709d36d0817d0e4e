"""paramiko's and the socket's errors as ours: transient or stable, with what to do about them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from joulefleet.errors import DeviceError, DeviceUnreachable

if TYPE_CHECKING:
    import paramiko


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to a server; every way in which its name can be wrong is a `socket.gaierror`."""
    try:
        return socket.create_connection((host, port), timeout=timeout_s)
    except UnicodeError as error:  # from the codec for host names, which refuses "192.168.1..5" unasked
        raise socket.gaierror(f"not a host name: {error}") from error


@contextlib.contextmanager
def bounded(channel: paramiko.Channel, timeout_s: float) -> Iterator[None]:
    """A deadline for requests on a channel, which paramiko waits for without one: closing it wakes the wait.

    Raises:
        TimeoutError: No answer in time.
    """
    import paramiko

    late = threading.Event()

    def give_up() -> None:
        late.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the wait is woken all the same
            channel.close()

    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (paramiko.SSHException, OSError, EOFError) as error:
        if late.is_set():
            raise TimeoutError("no answer to a request") from error
        raise
    finally:
        timer.cancel()


def explain(error: BaseException, address: str) -> DeviceError:
    """An error of the SSH link in our own terms."""
    import paramiko
    from paramiko.ssh_exception import IncompatiblePeer

    text = str(error).strip() or type(error).__name__
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, paramiko.PasswordRequiredException):
        return DeviceError(
            f"{address}: the private key is encrypted", hint="load it into ssh-agent with `ssh-add`"
        )
    if isinstance(error, paramiko.AuthenticationException):
        return DeviceError(
            f"{address}: login refused ({text})",
            hint="check user and key: does `ssh` with the same user and key log in?",
        )
    if isinstance(error, IncompatiblePeer):
        return DeviceError(
            f"{address}: no algorithm in common with this server ({text})",
            hint="a server this old offers only SHA-1 (ssh-rsa, diffie-hellman-group14-sha1), which is "
            "broken and no longer supported; update its SSH server (OpenSSH 7.2, Dropbear 2020.79, or newer)",
        )
    if isinstance(error, socket.gaierror):
        return DeviceError(f"{address}: no such host ({text})", hint="check the host name")
    if isinstance(error, TimeoutError):
        return DeviceUnreachable(
            f"{address}: no answer in time", hint="is the device on, and on this network?"
        )
    if isinstance(error, ConnectionRefusedError):
        return DeviceUnreachable(
            f"{address}: connection refused", hint="start its SSH server (Termux: `sshd`, port 8022)"
        )
    return DeviceUnreachable(f"{address}: the link is down ({text})", hint="check the network and try again")
