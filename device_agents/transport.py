"""How the host reaches an agent: a channel of lines, whatever carries it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import BinaryIO, Protocol, Self, cast

from device_agents.protocol import MAX_LINE_BYTES
from fedjoule.errors import DeviceError, DeviceUnreachable


class Channel(Protocol):
    """A running agent's standard input and output."""

    def send(self, line: bytes) -> None:
        """Send one line, newline included."""

    def receive(self, timeout_s: float) -> bytes:
        """The next line without its newline.

        Raises:
            DeviceUnreachable: The agent is gone, or silent for ``timeout_s``.
            DeviceError: The line is longer than the protocol allows.
        """

    def close(self) -> None:
        """End the agent and everything it started."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class LocalChannel:
    """An agent as a process on this machine: the device of demos and tests."""

    def __init__(self, python: str = sys.executable) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
            [python, "-m", "device_agents.payload.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        # PIPE was asked for, so both are there.
        self._stdin = cast("BinaryIO", self._process.stdin)
        self._stdout = cast("BinaryIO", self._process.stdout)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The agent's process."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """See `Channel`."""
        try:
            self._stdin.write(line)
        except BrokenPipeError as error:
            raise DeviceUnreachable("the agent ended unexpectedly", hint="see its messages above") from error

    def receive(self, timeout_s: float) -> bytes:
        """See `Channel`."""
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise DeviceError(f"the agent sent a line longer than {MAX_LINE_BYTES} bytes")
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise DeviceUnreachable(f"the agent was silent for {timeout_s:g} s")
            data = os.read(self._stdout.fileno(), 65_536)
            if not data:
                raise DeviceUnreachable("the agent ended unexpectedly", hint="see its messages above")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """End the agent: politely, then not."""
        self._stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
