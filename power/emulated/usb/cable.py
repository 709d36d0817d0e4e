"""A USB cable made of a Unix socket: transfers as length-prefixed requests and responses.

Imports the standard library only, so that it also runs in environments that hold other people's clients.

::

    request    u32 length of what follows | u32 tag | u8 `Operation` | fields of the operation | data
    response   u32 length of what follows | u32 tag | u32 errno, 0 for success | data

A response has the tag of its request. Bulk reads may be under way while others are asked for, as a host keeps
transfers queued; they are answered in turn. Everything else is answered at once. All integers are
little-endian. Lengths are checked against `MAX_MESSAGE_BYTES` before anything is read.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from joulefleet.files import scratch_folder

ADDRESS_PREFIX: Final = "usb-emulated:"
MAX_MESSAGE_BYTES: Final = 4096

_NOTICE_S: Final = 0.3
_SLICE_NS: Final = 20_000_000
"""How often a read that waits looks whether it was cancelled."""

_NEVER_NS: Final = 1 << 63

LENGTH = struct.Struct("<I")
TAG = struct.Struct("<I")
ANSWER = struct.Struct("<II")  # tag, errno
CONTROL = struct.Struct("<BBHHHI")  # bmRequestType, bRequest, wValue, wIndex, wLength, timeout in ms
BULK = struct.Struct("<BHIQ")  # endpoint, size, timeout in ms or 0, host-monotonic time of the request in ns


class Operation(IntEnum):
    """What a request asks for."""

    OPEN = 1
    CLAIM = 2
    RELEASE = 3
    CONTROL = 4
    BULK_READ = 5
    RESET = 6
    CANCEL = 7


class TransferError(Exception):
    """A transfer failed; ``code`` is an errno as the kernel would report it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """The setup packet of a control transfer, and the data that goes out with it."""

    request_type: int
    request: int
    value: int
    index: int
    length: int
    data: bytes


class UsbDevice(Protocol):
    """A device at the far end of the cable. Methods are called from several threads."""

    def open_error(self) -> int:
        """0, or the errno with which the host may not open it."""

    def control(self, request: ControlRequest) -> bytes:
        """Answer a control transfer, or raise `TransferError`."""

    def bulk_read(self, size: int, requested_ns: int, deadline_ns: int) -> bytes:
        """Data for the host, or raise `TransferError`; times are host-monotonic.

        Called again, with the same ``requested_ns``, while a read goes on.
        """

    def reset(self) -> None:
        """The host resets the port."""


@dataclass(frozen=True, slots=True)
class _Read:
    tag: int
    size: int
    requested_ns: int
    deadline_ns: int


class _Host:
    """One connected host, at the device's end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self.cancelled: set[int] = set()
        self.answered = 0  # the last read that was; a cancellation that comes later has nothing to end
        self.gone = False
        self.sending = threading.Lock()

    def answer(self, tag: int, code: int, data: bytes = b"") -> None:
        message = ANSWER.pack(tag, code) + data
        with self.sending, contextlib.suppress(OSError):  # it went away, or the cable was pulled
            self.end.sendall(LENGTH.pack(len(message)) + message)


class UsbSocketServer:
    """The device's end: serves hosts, two threads each, until closed."""

    def __init__(self, device: UsbDevice) -> None:
        self._device = device
        self._folder = contextlib.ExitStack()
        self.path = str(self._folder.enter_context(scratch_folder()) / "device")
        self._lock = threading.Lock()
        self._owner: _Host | None = None  # which host has claimed the interface
        self._hosts: set[_Host] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._closed = False
        threading.Thread(target=self._accept, name="usb-socket", daemon=True).start()

    def close(self) -> None:
        """Pull the cable: every transfer under way or to come fails. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            ends = [self._listener, *(host.end for host in self._hosts)]
            for host in self._hosts:
                host.gone = True  # now, not when its thread looks: no read takes another packet to lose it
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        self._listener.close()
        self._folder.close()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            host = _Host(end)
            with self._lock:
                if self._closed:
                    end.close()
                    return
                self._hosts.add(host)
            # Reads first: whoever has an answer from the host's thread can queue them.
            for target, name in ((self._serve_reads, "usb-reads"), (self._serve, "usb-host")):
                threading.Thread(target=target, args=(host,), name=name, daemon=True).start()

    def _serve(self, host: _Host) -> None:
        try:
            while (message := _receive(host.end)) is not None:
                self._take(host, message)
        except OSError:
            pass  # the host went away, or the cable was pulled
        finally:
            host.gone = True
            host.reads.put(None)
            with self._lock:
                self._hosts.discard(host)
                self._release(host)
            with host.sending:
                host.end.close()

    def _take(self, host: _Host, message: bytes) -> None:
        tag = 0
        try:
            (tag,) = TAG.unpack_from(message)
            operation, fields = Operation(message[TAG.size]), message[TAG.size + 1 :]
            if operation is Operation.BULK_READ:
                host.reads.put(_read_request(tag, fields))
            elif operation is Operation.CANCEL:
                host.cancelled.update(tag for tag in TAG.unpack(fields) if tag > host.answered)
            else:
                host.answer(tag, 0, self._answer(host, operation, fields))
        except TransferError as error:
            host.answer(tag, error.code)
        except (ValueError, IndexError, struct.error):
            host.answer(tag, errno.EINVAL)

    def _answer(self, host: _Host, operation: Operation, fields: bytes) -> bytes:
        if operation is Operation.CONTROL:
            return self._device.control(_control_request(fields))
        if operation is Operation.CLAIM:
            self._wait_for_the_dead(host)
        with self._lock:
            if operation is Operation.OPEN and (code := self._device.open_error()):
                raise TransferError(code)
            if operation is Operation.CLAIM:
                if self._owner not in (None, host):
                    raise TransferError(errno.EBUSY)
                self._owner = host
            elif operation is Operation.RELEASE:
                self._release(host)
        if operation is Operation.RESET:
            self._device.reset()
        return b""

    def _serve_reads(self, host: _Host) -> None:
        while (read := host.reads.get()) is not None and not host.gone:
            try:
                host.answer(read.tag, 0, self._bulk_read(host, read))
            except TransferError as error:
                host.answer(read.tag, error.code)
            host.answered = read.tag
            host.cancelled.discard(read.tag)

    def _bulk_read(self, host: _Host, read: _Read) -> bytes:
        """In slices, between which it can be cancelled without losing data."""
        while not host.gone:
            if read.tag in host.cancelled:
                raise TransferError(errno.ECANCELED)
            if self._owner is not host:
                raise TransferError(errno.EACCES)
            until_ns = min(read.deadline_ns, time.monotonic_ns() + _SLICE_NS)
            try:
                return self._device.bulk_read(read.size, read.requested_ns, until_ns)
            except TransferError as error:
                if error.code != errno.ETIMEDOUT or until_ns == read.deadline_ns:
                    raise
        raise TransferError(errno.ENODEV)

    def _wait_for_the_dead(self, host: _Host) -> None:
        """A kernel releases a dead client's claim at once; here its thread must notice first."""
        deadline = time.monotonic() + _NOTICE_S
        while self._owner not in (None, host) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _release(self, host: _Host) -> None:
        if self._owner is host:
            self._owner = None


def _read_request(tag: int, fields: bytes) -> _Read:
    _, size, timeout_ms, requested_ns = BULK.unpack(fields)
    now_ns = time.monotonic_ns()
    deadline_ns = now_ns + timeout_ms * 1_000_000 if timeout_ms else _NEVER_NS
    return _Read(tag, size, min(requested_ns, now_ns), deadline_ns)


def _control_request(fields: bytes) -> ControlRequest:
    request_type, request, value, index, length, _ = CONTROL.unpack_from(fields)
    return ControlRequest(request_type, request, value, index, length, fields[CONTROL.size :])


def _receive(end: socket.socket) -> bytes | None:
    """One message; None if the far end closed or sends what cannot be one."""
    header = _receive_exactly(end, LENGTH.size)
    if header is None:
        return None
    (length,) = LENGTH.unpack(header)
    return _receive_exactly(end, length) if 0 < length <= MAX_MESSAGE_BYTES else None


def _receive_exactly(end: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            return None
        data += part
    return data
