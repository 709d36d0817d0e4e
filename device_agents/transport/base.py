"""The seam: `Transport` and `Channel`. What crosses it is bytes; nothing here knows the protocol.

Bytes from a device are cut into lines and blocks in bounded memory and with a deadline.
"""

from __future__ import annotations

import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from device_agents.payload.link.wire import MAX_LINE_BYTES
from joulefleet.errors import AgentDied, DeviceError, DeviceUnreachable

MAX_OUTPUT_BYTES = 1_048_576
"""Of a command that is run to its end: enough for any answer we ask for, bounded for any other."""

SEND_TIMEOUT_S = 15.0
"""A command that takes nothing for this long is stuck, or the link is down."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended.

    Attributes:
        returncode: 0 if all was well; negative if a signal ended it.
        ended: How, in words.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    ended: str = ""

    @property
    def message(self) -> str:
        """What it had to say on standard error, shortened for an error message."""
        return self.stderr.decode("utf-8", "replace").strip()[-300:]


class Channel(Protocol):
    """A running command's standard input and output. Use as a context manager."""

    def send(self, data: bytes, timeout_s: float = SEND_TIMEOUT_S) -> None:
        """Send bytes, all of them.

        Raises:
            DeviceUnreachable: The command or the link is gone, takes nothing for `SEND_TIMEOUT_S`, or has not
                taken all of it after ``timeout_s``.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class BufferedChannel(Channel):
    """A channel that cuts what it reads into lines and blocks.

    Args:
        whose: What errors call the sender.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._buffer = bytearray()

    @abstractmethod
    def _read_some(self, timeout_s: float) -> bytes | None:
        """Some bytes, ``b""`` at the end, None on a time-out."""

    def _last_words(self) -> str:
        """What the sender said elsewhere before it ended, for the error message."""
        return ""

    def _how_it_ended(self) -> str:
        """How the sender ended, as `how_it_ended` puts it; empty if only the link did."""
        return ""

    def receive_line(self, timeout_s: float) -> bytes:
        """See `Channel`."""
        deadline_s = time.monotonic() + timeout_s
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0 and len(self._buffer) <= MAX_LINE_BYTES:
            searched = len(self._buffer)
            self._fill(deadline_s, timeout_s)
        if not 0 <= end <= MAX_LINE_BYTES:
            raise DeviceError(f"{self._whose} sent a line longer than {MAX_LINE_BYTES} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def receive_exactly(self, size: int, timeout_s: float) -> bytes:
        """See `Channel`."""
        deadline_s = time.monotonic() + timeout_s
        while len(self._buffer) < size:
            self._fill(deadline_s, timeout_s)
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        return block

    def _fill(self, deadline_s: float, timeout_s: float) -> None:
        data = self._read_some(max(0.0, deadline_s - time.monotonic()))
        if data is None:
            raise DeviceUnreachable(
                f"{self._whose} was silent for {timeout_s:g} s", hint="is the device awake?"
            )
        if not data:
            raise self._gone()
        self._buffer += data

    def _gone(self) -> DeviceUnreachable:
        """The error for a sender that has ended."""
        words, how = self._last_words(), self._how_it_ended()
        said = (f" ({how})" if how else "") + (f": {words[:200]}" if words else "")
        return (AgentDied if how else DeviceUnreachable)(
            f"{self._whose} ended unexpectedly{said}",
            hint=_CRASHED if "SIG" in how else "see its messages (agent.log)",
        )


_CRASHED = (
    "a signal ends a program that crashed (a backend built for another processor) or took all the memory; "
    "`joulefleet bench prepare DEVICE --install` trains one step there and says which"
)


def how_it_ended(returncode: int, signal_name: str = "") -> str:
    """How a command ended, in words.

    Args:
        returncode: Negative for the number of a signal, as Python's; more than 128 likewise, as a shell's.
        signal_name: Where the other side told its name: ``SEGV``.
    """
    if signal_name:
        return f"killed by SIG{signal_name.removeprefix('SIG')[:16]}"
    number = -returncode if returncode < 0 else returncode - 128
    if returncode < 0 or returncode > 128:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit status {returncode}"


def too_slow(whose: str, left: int, size: int) -> DeviceUnreachable:
    """A receiver that takes nothing, or a byte now and then."""
    return DeviceUnreachable(f"{whose} left {left} of {size} bytes untaken", hint="is it stopped?")


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
