"""The seam: `Transport` and `Channel`. What crosses it is bytes; nothing here knows the protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

MAX_OUTPUT_BYTES = 1_048_576
"""Of a command that is run to its end: enough for any answer we ask for, bounded for any other."""

SEND_TIMEOUT_S = 15.0
"""A command that takes nothing for this long is stuck, or the link is down."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def message(self) -> str:
        """What it had to say on standard error, shortened for an error message."""
        return self.stderr.decode("utf-8", "replace").strip()[-300:]


class Channel(Protocol):
    """A running command's standard input and output. Use as a context manager."""

    def send(self, data: bytes) -> None:
        """Send bytes, all of them.

        Raises:
            DeviceUnreachable: The command or the link is gone, or takes nothing for `SEND_TIMEOUT_S`.
        """

    def receive_line(self, timeout_s: float) -> bytes:
        """The next line without its newline.

        Raises:
            DeviceUnreachable: The command is gone, or silent for ``timeout_s``.
            DeviceError: The line is longer than `device_agents.payload.link.wire.MAX_LINE_BYTES`.
        """

    def receive_exactly(self, size: int, timeout_s: float) -> bytes:
        """The next ``size`` bytes; errors as in `receive_line`."""

    def without_keepalive(self) -> AbstractContextManager[None]:
        """For the time of a measurement: nothing goes over the link but what `send` is given.

        Routers on the way may forget a connection that is silent for minutes; nobody notices until the next
        message.
        """

    def close(self) -> None:
        """Hang up: the command sees the end of its input. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Transport(Protocol):
    """A device that can be reached. Use as a context manager. Paths are the device's own."""

    @property
    def address(self) -> str:
        """What errors and reports call the device."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Completed:
        """Run a command to its end. Arguments arrive as they are given: nothing is split or expanded.

        Raises:
            DeviceUnreachable: No answer in time, or the link is down.
            DeviceError: It printed more than `MAX_OUTPUT_BYTES`.
        """

    def open(self, argv: Sequence[str]) -> Channel:
        """Start a command and keep talking to it."""

    def upload(
        self, data: bytes, path: str, sha256: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Put a file in place: all of it, verified, under its final name; or nothing.

        A transfer that was cut continues where it stopped. Folders are made as needed.

        Args:
            data: Content.
            path: Where to.
            sha256: Its hash, which the device computes again before the file gets its name.
            on_progress: Told the bytes handed to the link so far.

        Returns:
            The bytes that had to be sent; less than all after a resumed transfer.
        """

    def download(self, path: str, *, max_bytes: int) -> bytes:
        """Read a file.

        Raises:
            DeviceError: It is missing, or larger than ``max_bytes``.
        """

    def close(self) -> None:
        """Release the link. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
