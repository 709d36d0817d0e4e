"""The host's end of a USB cable made of a Unix socket; see `power.emulated.usb.cable` for what is sent.

Imports the standard library only, so that it also runs in environments that hold other people's clients.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from power.emulated.usb.cable import (
    ANSWER,
    BULK,
    CONTROL,
    LENGTH,
    MAX_MESSAGE_BYTES,
    TAG,
    ControlRequest,
    Operation,
    TransferError,
)

_LOOK_S: Final = 0.02
"""How often a thread that waits looks whether another one has received its answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: an errno, or 0 and data."""

    tag: int
    code: int
    data: bytes = b""


class SocketHandle:
    """The host's end: one open device, to be used from several threads."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lock = threading.Lock()
        self._received = bytearray()
        self._answers: dict[int, Answer] = {}
        self._reads: dict[int, Callable[[Answer], None]] = {}
        self._tags = itertools.count(1)
        self._gone = False
        self._finished: deque[tuple[Callable[[Answer], None], Answer]] = deque()
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise TransferError(errno.ENODEV) from error
        try:
            self.call(Operation.OPEN)
        except TransferError:
            self._socket.close()
            raise

    def call(self, operation: Operation) -> None:
        """A request without fields."""
        self._wait_for(self._send(operation), 1.0)

    def control(self, request: ControlRequest, timeout_ms: int) -> bytes:
        """A control transfer."""
        fields = (request.request_type, request.request, request.value, request.index, request.length)
        tag = self._send(Operation.CONTROL, CONTROL.pack(*fields, timeout_ms) + request.data)
        return self._wait_for(tag, timeout_ms / 1000)

    def bulk_read(self, endpoint: int, size: int, timeout_ms: int) -> bytes:
        """A bulk transfer to the host that is waited for."""
        fields = BULK.pack(endpoint, size, timeout_ms, time.monotonic_ns())
        return self._wait_for(self._send(Operation.BULK_READ, fields), timeout_ms / 1000)

    def queue_read(self, endpoint: int, size: int, ended: Callable[[Answer], None]) -> int:
        """Begin a bulk transfer without a time limit; `call_back` tells when it has ended."""
        return self._send(Operation.BULK_READ, BULK.pack(endpoint, size, 0, time.monotonic_ns()), ended=ended)

    def cancel(self, tag: int) -> None:
        """End a queued read that is not answered yet; its answer will be ECANCELED, or data after all."""
        self._send(Operation.CANCEL, TAG.pack(tag))

    def call_back(self) -> bool:
        """Tell about the queued reads that have ended, in that order; whether there were any."""
        told = False
        while self._finished:
            with contextlib.suppress(IndexError):  # another thread has taken it
                ended, answer = self._finished.popleft()
                told = True
                ended(answer)
        return told

    def receive(self, timeout_s: float) -> None:
        """Wait for answers and sort them; returns when there is something new, or after the timeout."""
        poller = select.poll()
        with self._lock:
            gone = self._gone
            if not gone:
                poller.register(self._socket, select.POLLIN)
        poller.poll((min(timeout_s, _LOOK_S) if gone else timeout_s) * 1000)
        with self._lock:
            self._take()

    def close(self) -> None:
        """Close the device; the far end forgets this host's claims. May be called twice."""
        with self._lock:
            self._lose()
            self._socket.close()

    def _send(
        self, operation: Operation, fields: bytes = b"", *, ended: Callable[[Answer], None] | None = None
    ) -> int:
        with self._lock:
            tag = next(self._tags)
            message = TAG.pack(tag) + bytes([operation]) + fields
            if self._gone:
                raise TransferError(errno.ENODEV)
            if ended is not None:
                self._reads[tag] = ended
            try:
                self._socket.sendall(LENGTH.pack(len(message)) + message)
            except OSError as error:
                self._reads.pop(tag, None)
                raise TransferError(errno.ENODEV) from error
        return tag

    def _wait_for(self, tag: int, timeout_s: float) -> bytes:
        # The device keeps the time itself; this only guards against one that is stopped altogether.
        deadline = time.monotonic() + timeout_s + 5
        while (answer := self._answers.pop(tag, None)) is None:
            if self._gone:
                raise TransferError(errno.ENODEV)
            if time.monotonic() > deadline:
                raise TransferError(errno.ETIMEDOUT)
            self.receive(_LOOK_S)
        if answer.code:
            raise TransferError(answer.code)
        return answer.data

    def _take(self) -> None:
        try:
            part = b"" if self._gone else self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._received += part
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            if not ANSWER.size <= length <= MAX_MESSAGE_BYTES:
                part = b""  # this is no device of ours
                break
            end = LENGTH.size + length
            if len(self._received) < end:
                break
            self._sort(bytes(self._received[LENGTH.size : end]))
            del self._received[:end]
        if not part:
            self._lose()

    def _sort(self, message: bytes) -> None:
        tag, code = ANSWER.unpack_from(message)
        answer = Answer(tag, code, message[ANSWER.size :])
        ended = self._reads.pop(tag, None)
        if ended is None:
            self._answers[tag] = answer
        else:
            self._finished.append((ended, answer))

    def _lose(self) -> None:
        """The device is gone, and with it every transfer under way."""
        self._gone = True
        self._finished.extend((ended, Answer(tag, errno.ENODEV)) for tag, ended in self._reads.items())
        self._reads.clear()
