"""The USB/IP server against a client of the tests' own, which packs its bytes by hand.

``Documentation/usb/usbip_protocol.rst`` of the kernel is the reference. A real kernel talks to the same
server in `test_instruments`.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from power.emulated import EmulatorOptions, in_thread
from power.emulated.usb.cable import ControlRequest, TransferError
from tests.kernel.bench import wired
from tests.kernel.gadgets import Gadget, MonsoonUsb, stock_lvpm
from tests.kernel.usbip_server import UsbIpServer

SERIAL_STRING = bytes([0x80, 6, 3, 3, 9, 4, 255, 0])


class Numbers(Gadget):
    """A device whose bulk endpoint counts, as fast as it is told to."""

    def __init__(self) -> None:
        device = bytes.fromhex("12 01 00 02 ff 00 00 40 01 02 03 04 05 06 00 00 00 01")
        configuration = bytes.fromhex(
            "09 02 19 00 01 01 00 80 32 09 04 00 00 01 ff 00 00 00 07 05 81 02 40 00 00"
        )
        super().__init__(device, configuration, ())
        self.next, self.allowed, self.stalls = 0, threading.Semaphore(0), False

    def plugged_in(self) -> None:
        self.plugs = getattr(self, "plugs", 0) + 1

    def own_request(self, request: ControlRequest) -> bytes:
        raise TransferError(errno.EPIPE)

    def read(self, size: int, asked_ns: int, patience_s: float) -> bytes | None:
        if not self.allowed.acquire(timeout=patience_s):
            return None
        self.next += 1
        return struct.pack(">I", self.next)

    def write(self, data: bytes) -> None:
        self.written = data


class Host:
    """The other end, byte by byte."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def attach(self, bus_id: bytes) -> int:
        self.send(b"\x01\x11\x80\x03\0\0\0\0" + bus_id.ljust(32, b"\0"))
        version, code, status = struct.unpack(">HHI", self.take(8))
        assert (version, code) == (0x0111, 0x0003)
        if not status:
            self.record = self.take(312)
        return int(status)

    def submit(
        self, number: int, endpoint: int, length: int, setup: bytes = b"", data: bytes | None = None
    ) -> None:
        direction = data is None
        head = struct.pack(">5I", 1, number, 0x10002, direction, endpoint)
        self.send(head + struct.pack(">IiiiI8s", 0, length, 0, -1, 0, setup) + (data or b""))

    def unlink(self, number: int, victim: int) -> None:
        self.send(struct.pack(">5I", 2, number, 0x10002, 0, 0) + struct.pack(">I24x", victim))

    def reply(self) -> tuple[int, int, int, bytes]:
        """Command, number, status, data."""
        command, number, *_ = struct.unpack(">5I", self.take(20))
        status, length = struct.unpack(">ii20x", self.take(28))
        return command, number, status, self.take(length) if command == 3 else b""

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def numbers() -> Iterator[tuple[Numbers, UsbIpServer]]:
    gadget = Numbers()
    with UsbIpServer({"1-1": gadget}) as server:
        yield gadget, server


def test_a_list_names_the_device_and_its_interface(numbers: tuple[Numbers, UsbIpServer]) -> None:
    host = Host(numbers[1].port)
    host.send(b"\x01\x11\x80\x05\0\0\0\0")
    assert struct.unpack(">HHII", host.take(12)) == (0x0111, 0x0005, 0, 1)
    record, interface = host.take(312), host.take(4)
    assert record[256:288].rstrip(b"\0") == b"1-1"
    assert struct.unpack_from(">IIIHHH", record, 288) == (1, 2, 2, 0x0201, 0x0403, 0x0605)
    assert record[306:] == bytes([255, 0, 0, 1, 1, 1])
    assert interface == bytes([255, 0, 0, 0])
    assert host._socket.recv(1) == b""
    host.close()


def test_a_device_is_imported_once_and_only_if_it_exists(numbers: tuple[Numbers, UsbIpServer]) -> None:
    first, second, third = (Host(numbers[1].port) for _ in range(3))
    assert first.attach(b"1-1") == 0
    assert second.attach(b"1-1") != 0
    assert third.attach(b"1-9") != 0
    first.close()
    deadline = time.monotonic() + 5
    while numbers[1].is_attached("1-1") and time.monotonic() < deadline:
        time.sleep(0.01)
    again = Host(numbers[1].port)
    assert again.attach(b"1-1") == 0
    for host in (second, third, again):
        host.close()


def test_queued_transfers_are_answered_in_order(numbers: tuple[Numbers, UsbIpServer]) -> None:
    gadget, server = numbers
    host = Host(server.port)
    host.attach(b"1-1")
    for number in range(1, 33):
        host.submit(number, 1, 64)
    gadget.allowed.release(32)
    replies = [host.reply() for _ in range(32)]
    assert [(command, number, status) for command, number, status, _ in replies] == [
        (3, n, 0) for n in range(1, 33)
    ]
    assert [int.from_bytes(data, "big") for *_, data in replies] == list(range(1, 33))
    assert b"".join(gadget.sent) == b"".join(data for *_, data in replies)
    host.close()


def test_a_transfer_that_is_given_up_loses_no_data(numbers: tuple[Numbers, UsbIpServer]) -> None:
    gadget, server = numbers
    host = Host(server.port)
    host.attach(b"1-1")
    got: list[int] = []
    for turn in range(60):  # cancelled while data arrive: sometimes before, sometimes behind the answer
        first = 3 * turn + 1
        host.submit(first, 1, 64)
        gadget.allowed.release()
        time.sleep(0.0004 * (turn % 6))
        host.unlink(first + 1, first)
        answers = [host.reply()]
        if answers[0][0] == 3:
            answers.append(host.reply())
        got += [int.from_bytes(data, "big") for command, *_, data in answers if command == 3]
        (status,) = [status for command, number, status, _ in answers if command == 4 and number == first + 1]
        assert status == (0 if len(answers) == 2 else -errno.ECONNRESET)
    host.submit(1000, 1, 64)
    gadget.allowed.release()
    got.append(int.from_bytes(host.reply()[3], "big"))
    while len(got) < gadget.next:
        host.submit(1001, 1, 64)
        got.append(int.from_bytes(host.reply()[3], "big"))
    assert got == list(range(1, gadget.next + 1))
    host.close()


def test_a_stall_and_a_write(numbers: tuple[Numbers, UsbIpServer]) -> None:
    gadget, server = numbers
    host = Host(server.port)
    host.attach(b"1-1")
    host.submit(7, 0, 4, bytes([0xC0, 1, 0, 0, 0x42, 0, 4, 0]))
    assert host.reply() == (3, 7, -errno.EPIPE, b"")
    host.submit(8, 1, 3, data=b"abc")
    assert struct.unpack(">5I", host.take(20))[:2] == (3, 8)
    assert struct.unpack(">ii", host.take(28)[:8]) == (0, 3)
    assert gadget.written == b"abc"
    host.close()


def test_a_pulled_cable_ends_the_connection(numbers: tuple[Numbers, UsbIpServer]) -> None:
    host = Host(numbers[1].port)
    host.attach(b"1-1")
    host.submit(1, 1, 64)
    numbers[1].unplug("1-1")
    with pytest.raises(ConnectionError):
        host.reply()
    host.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(64),
        struct.pack(">5I", 9, 1, 0, 0, 0) + bytes(28),
        struct.pack(">5I", 1, 1, 0, 1, 99) + bytes(28),
        struct.pack(">5I", 1, 1, 0, 0, 1) + struct.pack(">IiiiI8s", 0, 0x7FFFFFFF, 0, 0, 0, b""),
        struct.pack(">5I", 1, 1, 0, 0, 1) + struct.pack(">IiiiI8s", 0, -5, 0, 0, 0, b""),
        struct.pack(">5I", 1, 1, 0, 1, 1) + struct.pack(">IiiiI8s", 0, 64, 0, 8, 0, b""),
    ],
)
def test_what_is_no_request_ends_the_connection_alone(
    numbers: tuple[Numbers, UsbIpServer], garbage: bytes
) -> None:
    host = Host(numbers[1].port)
    assert host.attach(b"1-1") == 0
    host.send(garbage)
    with pytest.raises(ConnectionError):
        host.reply()
    host.close()
    test_a_list_names_the_device_and_its_interface(numbers)


def test_an_emulated_hvpm_enumerates_and_samples() -> None:
    options = EmulatorOptions(serial="20123", variant="patient")
    with in_thread("monsoon-hvpm", options) as unit, UsbIpServer({"1-1": MonsoonUsb(unit)}) as server:  # type: ignore[arg-type]
        host = Host(server.port)
        host.attach(b"1-1")
        assert struct.unpack_from(">HHH", host.record, 300) == (0x2AB9, 0x0001, 0x0020)
        host.submit(1, 0, 255, SERIAL_STRING)
        assert host.reply()[3][2:].decode("utf-16-le") == "20123"
        host.submit(2, 0, 255, bytes([0x80, 6, 1, 3, 9, 4, 255, 0]))
        assert "emulated" in host.reply()[3][2:].decode("utf-16-le")
        host.submit(3, 0, 4, bytes([0x40, 2, 0xE2, 4, 0, 0, 4, 0]), b"\xff\xff\xff\xff")
        assert struct.unpack(">5I", host.take(20))[:2] == (3, 3)
        host.take(28)
        packets = []
        for number in range(4, 104):
            host.submit(number, 1, 64)
            packets.append(host.reply()[3])
        assert all(len(packet) == 4 + 18 * packet[3] for packet in packets)
        assert [packet[2] & 0x0F for packet in packets] == [n % 16 for n in range(100)]
        host.close()


def test_an_emulated_lvpm_answers_on_its_bulk_endpoints() -> None:
    with wired("monsoon-lvpm", EmulatorOptions(serial="777")) as unit:
        gadget = stock_lvpm(unit._port)  # type: ignore[attr-defined]
        with UsbIpServer({"1-1": gadget}) as server:
            host = Host(server.port)
            host.attach(b"1-1")
            host.submit(1, 3, 6, data=bytes.fromhex("05 01 00 00 00 01"))  # GetStatus
            host.take(48)
            host.submit(2, 3, 128)
            status = host.reply()[3]
            assert status[1] == 0x10
            assert status[0] == len(status) - 1
            host.submit(3, 2, 8)  # the interrupt endpoint stays silent until it is given up
            host.unlink(4, 3)
            assert host.reply() == (4, 4, -errno.ECONNRESET, b"")
            host.close()
