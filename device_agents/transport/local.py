"""A device that is this machine: commands are processes, files are files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from device_agents.transport.base import (
    MAX_OUTPUT_BYTES,
    SEND_TIMEOUT_S,
    BufferedChannel,
    Completed,
    Transport,
    how_it_ended,
    too_slow,
)
from joulefleet.errors import DeviceError, DeviceUnreachable
from joulefleet.files import storage_error, write_atomic

HANG_UP_S = 3.0
"""How long a command may take to end after its input has ended."""


class LocalChannel(BufferedChannel):
    """A process on this machine. See `device_agents.transport.base.Channel`."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__("the agent")
        self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=dict(environment)
        )
        # PIPE was asked for, so both are there.
        self._stdin = cast("BinaryIO", self._process.stdin)
        self._stdout = cast("BinaryIO", self._process.stdout)
        os.set_blocking(self._stdin.fileno(), False)

    @property
    def pid(self) -> int:
        """The process, for load models that follow it."""
        return self._process.pid

    def send(self, data: bytes, timeout_s: float = SEND_TIMEOUT_S) -> None:
        """See `Channel`."""
        view = memoryview(data)
        deadline_s = time.monotonic() + timeout_s
        try:
            while view:
                wait_s = min(SEND_TIMEOUT_S, deadline_s - time.monotonic())
                if wait_s <= 0 or not select.select([], [self._stdin], [], wait_s)[1]:
                    raise too_slow(self._whose, len(view), len(data))
                view = view[self._stdin.write(view) or 0 :]
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error

    def _read_some(self, timeout_s: float) -> bytes | None:
        ready, _, _ = select.select([self._stdout], [], [], timeout_s)
        return os.read(self._stdout.fileno(), 65_536) if ready else None

    def _how_it_ended(self) -> str:
        try:
            return how_it_ended(self._process.wait(timeout=HANG_UP_S))
        except subprocess.TimeoutExpired:  # it closed its output and lives on
            return ""

    def without_keepalive(self) -> contextlib.AbstractContextManager[None]:
        """See `Channel`; a pipe has none."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """See `Channel`; a process that does not take the hint is killed."""
        self._stdin.close()
        try:
            self._process.wait(timeout=HANG_UP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()


class LocalTransport(Transport):
    """This machine as a device. See `device_agents.transport.base.Transport`.

    Args:
        environment: Variables for its commands, on top of this process's own.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, **(environment or {})}

    @property
    def address(self) -> str:
        """See `Transport`."""
        return "this machine"

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Completed:
        """See `Transport`."""
        deadline_s = time.monotonic() + timeout_s
        try:
            process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=self._environment,
            )
        except OSError as error:
            return Completed(127, b"", f"{argv[0]}: {error.strerror}".encode())
        with process:
            try:
                out, err = _collect(process, argv[0], stdin, deadline_s)
                code = process.wait(max(0.0, deadline_s - time.monotonic()))
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise DeviceUnreachable(
                    f"{argv[0]} on this machine did not end within {timeout_s:g} s"
                ) from error
            finally:
                process.kill()
        return Completed(code, out, err, how_it_ended(code))

    def open(self, argv: Sequence[str]) -> LocalChannel:
        """See `Transport`."""
        try:
            return LocalChannel(argv, self._environment)
        except OSError as error:
            raise DeviceError(f"{argv[0]} cannot be started: {error.strerror}") from error

    def upload(
        self, data: bytes, path: str, sha256: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """See `Transport`."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DeviceError(f"{path}: the content does not have the hash it was announced with")
        target = Path(path).expanduser()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(target, error) from error
        write_atomic(target, data, replace=True)
        on_progress(len(data))
        return len(data)

    def download(self, path: str, *, max_bytes: int) -> bytes:
        """See `Transport`."""
        target = Path(path).expanduser()
        try:
            if not target.is_file() and target.exists():
                raise DeviceError(f"{path}: not a plain file")
            with target.open("rb") as file:
                data = file.read(max_bytes + 1)
            if len(data) > max_bytes:
                raise DeviceError(f"{path}: more than the {max_bytes} bytes allowed")
            return data
        except OSError as error:
            raise DeviceError(f"{path}: {error.strerror}") from error

    def close(self) -> None:
        """Nothing to release."""


def _collect(
    process: subprocess.Popen[bytes], name: str, stdin: bytes, deadline_s: float
) -> tuple[bytes, bytes]:
    """Feed a command its input and collect its output, all of it bounded."""
    to, out, err = (cast("BinaryIO", pipe) for pipe in (process.stdin, process.stdout, process.stderr))
    rest, heard = memoryview(stdin), {out: bytearray(), err: bytearray()}
    os.set_blocking(to.fileno(), False)
    with selectors.DefaultSelector() as ready:
        for pipe in heard:
            ready.register(pipe, selectors.EVENT_READ)
        ready.register(to, selectors.EVENT_WRITE)
        while ready.get_map():
            wait_s = deadline_s - time.monotonic()
            if wait_s <= 0:
                raise TimeoutError(f"{name} did not end in time")
            for key, _ in ready.select(wait_s):
                pipe = cast("BinaryIO", key.fileobj)
                if pipe is to:
                    rest = _feed(to, rest)
                    ended = not rest
                else:
                    some = pipe.read(65_536)
                    heard[pipe] = (heard[pipe] + some)[-MAX_OUTPUT_BYTES - 1 :]
                    ended = not some
                if ended:
                    ready.unregister(pipe)
                    pipe.close()
            if len(heard[out]) > MAX_OUTPUT_BYTES:
                raise DeviceError(f"{name} printed more than {MAX_OUTPUT_BYTES} bytes")
    return bytes(heard[out]), bytes(heard[err][-MAX_OUTPUT_BYTES:])


def _feed(pipe: BinaryIO, rest: memoryview) -> memoryview:
    """What is left of the input; nothing if the command does not read it."""
    try:
        return rest[(pipe.write(rest) or 0) if rest else 0 :]
    except BrokenPipeError:
        return rest[:0]
