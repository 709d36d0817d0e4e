"""USB/IP 1.1.1 on the wire: a remote USB bus over TCP (Linux: Documentation/usb/usbip_protocol.rst).

All integers are big-endian. A connection begins with one operation (list the devices, or import one); behind
an import it carries requests of the kernel's ``vhci_hcd`` until the device is unplugged.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from typing import Final

VERSION: Final = 0x0111
REQUEST_LIST: Final = 0x8005
REPLY_LIST: Final = 0x0005
REQUEST_IMPORT: Final = 0x8003
REPLY_IMPORT: Final = 0x0003

SUBMIT, UNLINK, DID_SUBMIT, DID_UNLINK = 1, 2, 3, 4
FULL_SPEED: Final = 2

MAX_TRANSFER_BYTES: Final = 1 << 20
"""Far above what the drivers here ask for; checked before anything is allocated."""

OPERATION: Final = struct.Struct(">HHI")  # version, code, status
BUS_ID_BYTES: Final = 32
_DEVICE = struct.Struct(">256s32sIIIHHH6B")
_HEADER = struct.Struct(">IIIII")  # command, number, device, direction, endpoint
_SUBMIT = struct.Struct(">IiiiI8s")  # flags, length, start frame, packets, interval, setup
_DID_SUBMIT = struct.Struct(">iiiii8x")  # status, length, start frame, packets, errors
_UNLINK = struct.Struct(">I24x")
_DID_UNLINK = struct.Struct(">i24x")


class UsbIpError(Exception):
    """What arrived is not USB/IP, or not what we serve."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A request for a transfer.

    Attributes:
        number: What the answer, or an `Unlink`, refers to.
        to_host: Direction.
        endpoint: Number without its direction bit.
        length: Bytes that go out or are asked for.
        setup: The eight bytes of a control transfer.
        data: What goes out.
    """

    number: int
    to_host: bool
    endpoint: int
    length: int
    setup: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Unlink:
    """The host no longer wants a transfer."""

    number: int
    victim: int


def device_record(bus_id: str, number: int, device: bytes, configuration: bytes) -> bytes:
    """How an operation describes a device, from its two descriptors."""
    vendor, product, version = struct.unpack_from("<HHH", device, 8)
    path = f"/sys/devices/joulefleet/usb1/{bus_id}".encode()
    kind = (*device[4:7], configuration[5], device[17], configuration[4])
    return _DEVICE.pack(path, bus_id.encode(), 1, number, FULL_SPEED, vendor, product, version, *kind)


def read_request(end: socket.socket) -> Transfer | Unlink | None:
    """The next request; None if the host closed the connection.

    Raises:
        UsbIpError: It is none.
    """
    header = receive(end, 48)
    if header is None:
        return None
    command, number, _, direction, endpoint = _HEADER.unpack_from(header)
    if command == UNLINK:
        return Unlink(number, *_UNLINK.unpack_from(header, _HEADER.size))
    if command != SUBMIT or direction > 1 or endpoint > 15:
        raise UsbIpError(f"command {command}, direction {direction}, endpoint {endpoint}")
    _, length, _, packets, _, setup = _SUBMIT.unpack_from(header, _HEADER.size)
    # No isochronous transfers; other kinds carry 0, newer kernels -1.
    if not 0 <= length <= MAX_TRANSFER_BYTES or packets > 0:
        raise UsbIpError(f"a transfer of {length} bytes in {packets} packets")
    data = receive(end, length) if not direction else b""
    if data is None:
        return None
    return Transfer(number, bool(direction), endpoint, length, setup, data)


def answer(transfer: Transfer, data: bytes, status: int = 0) -> bytes:
    """A transfer that is done: its data, or how many bytes went out; ``status`` is a negative errno."""
    length = len(data) if transfer.to_host else transfer.length if not status else 0
    head = _HEADER.pack(DID_SUBMIT, transfer.number, 0, 0, 0)
    return head + _DID_SUBMIT.pack(status, length, 0, 0, 0) + (data if transfer.to_host else b"")


def unlinked(request: Unlink, *, in_time: bool) -> bytes:
    """The answer to an unlink: whether the transfer was still waiting."""
    head = _HEADER.pack(DID_UNLINK, request.number, 0, 0, 0)
    return head + _DID_UNLINK.pack(-errno.ECONNRESET if in_time else 0)


def receive(end: socket.socket, size: int) -> bytes | None:
    """Exactly so many bytes, or None if the connection ended before."""
    data = bytearray()
    while len(data) < size:
        part = end.recv(min(65536, size - len(data)))
        if not part:
            return None
        data += part
    return bytes(data)
