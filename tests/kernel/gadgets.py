"""Emulated instruments as USB devices: their descriptors, and what their endpoints do.

The descriptors of the Monsoon units are those of the vendor's firmware (LVPM 20, HVPM 32; see
``tests/firmware``), except that each names our emulator as its maker. Those of the INA219's microcontroller
are of an Arduino Uno: CDC-ACM with one interrupt and two bulk endpoints.
"""

from __future__ import annotations

import errno
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque

from power.emulated.pty_port import PtyPort
from power.emulated.usb.cable import ControlRequest, TransferError, UsbDevice
from power.wire.hvpm_control import EMULATED_MAKER

WIRE_BYTES = 4 << 20
"""What a wire holds for a host that is slow: a minute and a half of an LVPM."""

STRING = 3
_GET_STATUS, _GET_DESCRIPTOR, _GET_CONFIGURATION = 0, 6, 8
_ACCEPTED = (1, 3, 9, 11)  # clear and set feature, set configuration, set interface
_SET_LINE_CODING, _GET_LINE_CODING = 0x20, 0x21

_MONSOON_USB = bytes.fromhex("12 01 00 01 ff 00 00 08 b9 2a 01 00 20 00 01 02 03 01")
_MONSOON_USB_CONFIGURATION = bytes.fromhex(
    "09 02 20 00 01 01 00 c0 32"
    "09 04 00 00 02 ff 00 00 00"  # vendor interface
    "07 05 01 02 40 00 00"
    "07 05 81 02 40 00 00"
)
_LVPM = bytes.fromhex("12 01 00 02 02 00 00 08 d8 04 23 fe 00 00 01 02 00 01")
_UNO = bytes.fromhex("12 01 10 01 02 00 00 08 41 23 43 00 01 00 01 02 03 01")


def _acm_configuration(out: int, into: int) -> bytes:
    return bytes.fromhex(
        "09 02 43 00 02 01 00 80 32"
        "09 04 00 00 01 02 02 01 00"  # communication interface: abstract control model
        "05 24 00 10 01 04 24 02 02 05 24 06 00 01 05 24 01 00 01"
        "07 05 82 03 08 00 02"
        "09 04 01 00 02 0a 00 00 00"  # data interface
        f"07 05 {out:02x} 02 40 00 00"
        f"07 05 {into:02x} 02 40 00 00"
    )


class Gadget(ABC):
    """A device at the end of a cable.

    Attributes:
        device: Device descriptor.
        configuration: Configuration descriptor with all that follows it.
        sent: What the host has got from the bulk endpoint, transfer by transfer.
        deepest: How many transfers were waiting for it at most.
    """

    def __init__(self, device: bytes, configuration: bytes, strings: tuple[str, ...]) -> None:
        self.device, self.configuration = device, configuration
        self.sent: list[bytes] = []
        self.deepest = 0
        self._strings = strings

    def control(self, setup: bytes, data: bytes) -> bytes:
        """Answer a control transfer, or raise `TransferError`."""
        request = ControlRequest(*struct.unpack("<BBHHH", setup), data)
        if request.request_type & 0x60:
            return self.own_request(request)
        return self._standard(request)[: request.length]

    @abstractmethod
    def own_request(self, request: ControlRequest) -> bytes:
        """A request of the device's class or vendor."""

    @abstractmethod
    def read(self, size: int, asked_ns: int, patience_s: float) -> bytes | None:
        """Data of the bulk endpoint to the host, or None after a while."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Data from the host."""

    @abstractmethod
    def plugged_in(self) -> None:
        """A host begins to talk to it."""

    def _standard(self, request: ControlRequest) -> bytes:
        kind, index = request.value >> 8, request.value & 0xFF
        if request.request == _GET_DESCRIPTOR and request.request_type == 0x80:
            if kind == STRING:
                return self.string(request, index)
            if kind in (1, 2) and not index:
                return self.device if kind == 1 else self.configuration
        elif request.request == _GET_CONFIGURATION:
            return b"\x01"
        elif request.request == _GET_STATUS:
            return b"\0\0"
        elif request.request in _ACCEPTED:
            return b""
        raise TransferError(errno.EPIPE)

    def string(self, request: ControlRequest, index: int) -> bytes:
        """A string descriptor."""
        if index > len(self._strings):
            raise TransferError(errno.EPIPE)
        body = self._strings[index - 1].encode("utf-16-le") if index else b"\x09\x04"
        return bytes([len(body) + 2, STRING]) + body


class MonsoonUsb(Gadget):
    """An HVPM, or an LVPM with the USB firmware: vendor requests, and one bulk endpoint that samples."""

    def __init__(self, unit: UsbDevice) -> None:
        super().__init__(_MONSOON_USB, _MONSOON_USB_CONFIGURATION, ())
        self._unit = unit

    def plugged_in(self) -> None:
        """See `Gadget`; a host begins with a reset of the port."""
        self._unit.reset()

    def own_request(self, request: ControlRequest) -> bytes:
        """See `Gadget`."""
        return self._unit.control(request)

    def string(self, request: ControlRequest, index: int) -> bytes:
        """See `Gadget`; the unit knows its strings itself."""
        return self._unit.control(request)

    def read(self, size: int, asked_ns: int, patience_s: float) -> bytes | None:
        """See `Gadget`."""
        try:
            return self._unit.bulk_read(size, asked_ns, time.monotonic_ns() + round(patience_s * 1e9))
        except TransferError as error:
            if error.code == errno.ETIMEDOUT:
                return None
            raise

    def write(self, data: bytes) -> None:
        """See `Gadget`; the endpoint exists, and no firmware reads it."""


class Wire(PtyPort):
    """In place of an emulated instrument's pseudo-terminal: keeps writes apart, as USB does, and holds more.

    A pseudo-terminal holds 4 KiB, and on a busy machine nobody empties it in time.
    """

    def __init__(self) -> None:
        self.path = "a wire of the tests"
        self.discarded_bytes = 0
        self._from_host: deque[bytes] = deque()
        self._to_host = bytearray()
        self._changed = threading.Condition()
        self._open = True

    def write(self, data: bytes) -> None:
        """See `PtyPort`."""
        with self._changed:
            self._to_host += data
            lost = max(0, len(self._to_host) - WIRE_BYTES)
            del self._to_host[:lost]
            self.discarded_bytes += lost
            self._changed.notify()

    def read(self, timeout_s: float = 0.0) -> bytes:
        """See `PtyPort`; one write of the host."""
        with self._changed:
            return self._from_host.popleft() if self._from_host else b""

    def close(self) -> None:
        """See `PtyPort`."""
        self._open = False

    @property
    def is_open(self) -> bool:
        """See `PtyPort`."""
        return self._open

    def from_host(self, data: bytes) -> None:
        """The host writes."""
        with self._changed:
            self._from_host.append(data)

    def to_host(self, size: int, patience_s: float) -> bytes | None:
        """The host reads; None after a while."""
        with self._changed:
            if not self._to_host:
                self._changed.wait(patience_s)
            data = bytes(self._to_host[:size])
            del self._to_host[:size]
        return data or None

    def forget(self) -> None:
        """Nobody was there to read."""
        with self._changed:
            self._to_host.clear()


class SerialGadget(Gadget):
    """A CDC-ACM port in front of an instrument."""

    def __init__(self, wire: Wire, device: bytes, configuration: bytes, strings: tuple[str, ...]) -> None:
        super().__init__(device, configuration, strings)
        self._wire = wire
        self._line_coding = struct.pack("<IBBB", 9600, 0, 0, 8)

    def plugged_in(self) -> None:
        """See `Gadget`."""
        self._wire.forget()

    def own_request(self, request: ControlRequest) -> bytes:
        """See `Gadget`."""
        if request.request_type == 0x21:  # line coding is kept; line state and breaks mean nothing here
            if request.request == _SET_LINE_CODING:
                self._line_coding = request.data[:7]
            return b""
        if (request.request_type, request.request) == (0xA1, _GET_LINE_CODING):
            return self._line_coding
        raise TransferError(errno.EPIPE)

    def read(self, size: int, asked_ns: int, patience_s: float) -> bytes | None:
        """See `Gadget`."""
        return self._wire.to_host(size, patience_s)

    def write(self, data: bytes) -> None:
        """See `Gadget`."""
        self._wire.from_host(data)


def stock_lvpm(wire: Wire) -> SerialGadget:
    """A stock LVPM; like the real one it has no serial number on USB."""
    return SerialGadget(
        wire, _LVPM, _acm_configuration(0x03, 0x83), (EMULATED_MAKER, "Mobile Device Power Monitor")
    )


def arduino_uno(wire: Wire, serial: str) -> SerialGadget:
    """The microcontroller in front of an INA219."""
    return SerialGadget(wire, _UNO, _acm_configuration(0x04, 0x83), (EMULATED_MAKER, "Arduino Uno", serial))
