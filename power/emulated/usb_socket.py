"""A USB cable made of a Unix socket: transfers as length-prefixed requests and responses.

Imports the standard library only, so that it also runs in environments that hold other people's clients.

::

    request    u32 length of what follows | u8 `Operation` | fields of the operation | data
    response   u32 length of what follows | u32 errno, 0 for success | data

All integers are little-endian. Lengths are checked against `MAX_MESSAGE_BYTES` before anything is read.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
import struct
import tempfile
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Protocol

ADDRESS_PREFIX: Final = "usb-emulated:"
MAX_MESSAGE_BYTES: Final = 4096

_NOTICE_S: Final = 0.3

_LENGTH = struct.Struct("<I")
_ERRNO = struct.Struct("<I")
_CONTROL = struct.Struct("<BBHHHI")  # bmRequestType, bRequest, wValue, wIndex, wLength, timeout in ms
_BULK = struct.Struct("<BHIQ")  # endpoint, size, timeout in ms, host-monotonic time of the request in ns


class Operation(IntEnum):
    """What a request asks for."""

    OPEN = 1
    CLAIM = 2
    RELEASE = 3
    CONTROL = 4
    BULK_READ = 5
    RESET = 6


class TransferError(Exception):
    """A transfer failed; ``code`` is an errno as libusb would report it."""

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
        """Data for the host, or raise `TransferError`; times are host-monotonic."""

    def reset(self) -> None:
        """The host resets the port."""


class SocketHandle:
    """The host's end: one open device. Transfers from several threads take turns."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lock = threading.Lock()
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
        self._exchange(bytes([operation]), 1000)

    def control(self, request: ControlRequest, timeout_ms: int) -> bytes:
        """A control transfer."""
        fields = (request.request_type, request.request, request.value, request.index, request.length)
        message = bytes([Operation.CONTROL]) + _CONTROL.pack(*fields, timeout_ms) + request.data
        return self._exchange(message, timeout_ms)

    def bulk_read(self, endpoint: int, size: int, timeout_ms: int) -> bytes:
        """A bulk transfer to the host."""
        fields = _BULK.pack(endpoint, size, timeout_ms, time.monotonic_ns())
        return self._exchange(bytes([Operation.BULK_READ]) + fields, timeout_ms)

    def close(self) -> None:
        """Close the device; the far end forgets this host's claims."""
        self._socket.close()

    def _exchange(self, message: bytes, timeout_ms: int) -> bytes:
        with self._lock:
            # The device keeps the time itself; this only guards against one that is stopped altogether.
            self._socket.settimeout(timeout_ms / 1000 + 5)
            try:
                self._socket.sendall(_LENGTH.pack(len(message)) + message)
                response = _receive(self._socket)
            except TimeoutError as error:
                raise TransferError(errno.ETIMEDOUT) from error
            except OSError as error:
                raise TransferError(errno.ENODEV) from error
        if response is None or len(response) < _ERRNO.size:
            raise TransferError(errno.ENODEV)
        (code,) = _ERRNO.unpack_from(response)
        if code:
            raise TransferError(code)
        return response[_ERRNO.size :]


class UsbSocketServer:
    """The device's end: serves hosts, one thread each, until closed."""

    def __init__(self, device: UsbDevice) -> None:
        self._device = device
        self._folder = Path(tempfile.mkdtemp(prefix="joulefleet-usb-"))
        self.path = str(self._folder / "device")
        self._lock = threading.Lock()
        self._owner: socket.socket | None = None  # which host has claimed the interface
        self._hosts: set[socket.socket] = set()
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
            hosts = list(self._hosts)
        for end in (self._listener, *hosts):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                host, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    host.close()
                    return
                self._hosts.add(host)
            threading.Thread(target=self._serve, args=(host,), name="usb-host", daemon=True).start()

    def _serve(self, host: socket.socket) -> None:
        try:
            while (message := _receive(host)) is not None:
                try:
                    code, data = 0, self._answer(host, message)
                except TransferError as error:
                    code, data = error.code, b""
                host.sendall(_LENGTH.pack(_ERRNO.size + len(data)) + _ERRNO.pack(code) + data)
        except OSError:
            pass  # the host went away, or the cable was pulled
        finally:
            with self._lock:
                self._hosts.discard(host)
                self._release(host)
            host.close()

    def _answer(self, host: socket.socket, message: bytes) -> bytes:
        try:
            operation, fields = Operation(message[0]), message[1:]
            if operation is Operation.CONTROL:
                return self._device.control(_control_request(fields))
            if operation is Operation.BULK_READ:
                return self._bulk_read(host, fields)
        except (ValueError, IndexError, struct.error) as error:
            raise TransferError(errno.EINVAL) from error
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

    def _bulk_read(self, host: socket.socket, fields: bytes) -> bytes:
        _, size, timeout_ms, requested_ns = _BULK.unpack(fields)
        if self._owner is not host:
            raise TransferError(errno.EACCES)
        now_ns = time.monotonic_ns()
        return self._device.bulk_read(size, min(requested_ns, now_ns), now_ns + timeout_ms * 1_000_000)

    def _wait_for_the_dead(self, host: socket.socket) -> None:
        """A kernel releases a dead client's claim at once; here its thread must notice first."""
        deadline = time.monotonic() + _NOTICE_S
        while self._owner not in (None, host) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _release(self, host: socket.socket) -> None:
        if self._owner is host:
            self._owner = None


def _control_request(fields: bytes) -> ControlRequest:
    request_type, request, value, index, length, _ = _CONTROL.unpack_from(fields)
    return ControlRequest(request_type, request, value, index, length, fields[_CONTROL.size :])


def _receive(end: socket.socket) -> bytes | None:
    """One message; None if the far end closed or sends what cannot be one."""
    header = _receive_exactly(end, _LENGTH.size)
    if header is None:
        return None
    (length,) = _LENGTH.unpack(header)
    return _receive_exactly(end, length) if 0 < length <= MAX_MESSAGE_BYTES else None


def _receive_exactly(end: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            return None
        data += part
    return data
