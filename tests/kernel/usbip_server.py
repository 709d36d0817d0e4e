"""A USB/IP server: puts emulated instruments on the USB bus of another Linux kernel.

Transfers of an endpoint are answered in the order in which they were asked for, one at a time. What was taken
from an instrument for a transfer that the host gives up meanwhile goes to the next one: nothing is lost.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque

from power.emulated.usb.cable import TransferError
from tests.kernel import usbip_wire as wire
from tests.kernel.gadgets import Gadget
from tests.kernel.usbip_wire import Transfer, Unlink, UsbIpError

PATIENCE_S = 0.02
"""How long an instrument is asked for data before the transfer is looked at again."""


class UsbIpServer:
    """Serves gadgets as bus ids ``1-1``, ``1-2`` and so on, on a loopback port; a context manager."""

    def __init__(self, gadgets: dict[str, Gadget]) -> None:
        self._gadgets = gadgets
        self._lock = threading.Lock()
        self._attached: dict[str, Attachment] = {}
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._accept, name="usbip", daemon=True).start()

    def __enter__(self) -> UsbIpServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for end in connections:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def unplug(self, bus_id: str) -> None:
        """Pull the cable; the device can be attached again."""
        with self._lock:
            attached = self._attached.get(bus_id)
        if attached is not None:
            attached.unplug()

    def is_attached(self, bus_id: str) -> bool:
        """Whether a host has the device."""
        with self._lock:
            return bus_id in self._attached

    def _accept(self) -> None:
        while not self._closed:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(end)
            threading.Thread(target=self._serve, args=(end,), name="usbip-host", daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, UsbIpError):
                self._operation(end)
        finally:
            with self._lock:
                self._open.discard(end)
            end.close()

    def _operation(self, end: socket.socket) -> None:
        header = wire.receive(end, wire.OPERATION.size)
        if header is None:
            return
        _, code, _ = wire.OPERATION.unpack(header)
        if code == wire.REQUEST_LIST:
            end.sendall(self._list())
        elif code == wire.REQUEST_IMPORT:
            name = wire.receive(end, wire.BUS_ID_BYTES)
            if name is not None:
                self._import(end, name.split(b"\0")[0].decode("ascii", "replace"))

    def _list(self) -> bytes:
        reply = wire.OPERATION.pack(wire.VERSION, wire.REPLY_LIST, 0)
        reply += len(self._gadgets).to_bytes(4, "big")
        for number, (bus_id, gadget) in enumerate(self._gadgets.items(), 2):
            reply += wire.device_record(bus_id, number, gadget.device, gadget.configuration)
            reply += b"".join(_interfaces(gadget.configuration))
        return reply

    def _import(self, end: socket.socket, bus_id: str) -> None:
        gadget = self._gadgets.get(bus_id)
        with self._lock:
            refused = gadget is None or bus_id in self._attached
            if gadget is not None and not refused:
                self._attached[bus_id] = attached = Attachment(end, gadget)
        if gadget is None or refused:
            end.sendall(wire.OPERATION.pack(wire.VERSION, wire.REPLY_IMPORT, 1))
            return
        number = 2 + list(self._gadgets).index(bus_id)
        try:
            end.sendall(
                wire.OPERATION.pack(wire.VERSION, wire.REPLY_IMPORT, 0)
                + wire.device_record(bus_id, number, gadget.device, gadget.configuration)
            )
            gadget.plugged_in()
            attached.serve()
        finally:
            attached.unplug()
            with self._lock:
                del self._attached[bus_id]


class Attachment:
    """One device that a host has imported: a queue and a thread for each endpoint."""

    def __init__(self, end: socket.socket, gadget: Gadget) -> None:
        self._end = end
        self._gadget = gadget
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._queues: dict[tuple[int, bool], deque[tuple[Transfer, int]]] = {}
        self._left = b""  # taken from the instrument for a transfer that was given up
        self._gone = False

    def serve(self) -> None:
        """Answer the host until it goes away or the cable is pulled."""
        while (request := wire.read_request(self._end)) is not None:
            if isinstance(request, Unlink):
                self._send(wire.unlinked(request, in_time=self._give_up(request.victim)))
            else:
                self._enqueue(request)

    def unplug(self) -> None:
        """Pull the cable. May be called twice."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def _enqueue(self, transfer: Transfer) -> None:
        # One queue for control transfers, whatever their direction; two for the rest.
        key = (transfer.endpoint, transfer.to_host and transfer.endpoint > 0)
        with self._changed:
            known = key in self._queues
            queue = self._queues.setdefault(key, deque())
            queue.append((transfer, time.monotonic_ns()))
            if key[1]:
                self._gadget.deepest = max(self._gadget.deepest, len(queue))
            self._changed.notify_all()
        if not known:
            threading.Thread(target=self._work, args=(key,), name=f"usbip-{key[0]}", daemon=True).start()

    def _give_up(self, number: int) -> bool:
        """Forget a transfer; False if it was answered before."""
        with self._changed:
            for queue in self._queues.values():
                for entry in queue:
                    if entry[0].number == number:
                        queue.remove(entry)
                        self._changed.notify_all()
                        return True
        return False

    def _work(self, key: tuple[int, bool]) -> None:
        queue = self._queues[key]
        with contextlib.suppress(OSError):
            while True:
                with self._changed:
                    while not queue and not self._gone:
                        self._changed.wait()
                    if self._gone:
                        return
                    transfer, asked_ns = queue[0]
                self._transfer(queue, transfer, asked_ns)

    def _transfer(self, queue: deque[tuple[Transfer, int]], transfer: Transfer, asked_ns: int) -> None:
        """Try the first transfer of a queue; it stays there as long as there is no answer."""
        try:
            data, status = self._perform(transfer, asked_ns), 0
        except TransferError as error:
            data, status = b"", -error.code
        if data is None:
            return
        # Both locks: an unlink finds the transfer waiting or answered, and answers go out in order.
        with self._sending, self._changed:
            if queue and queue[0][0] is transfer:
                queue.popleft()
                if transfer.endpoint and transfer.to_host and not status:
                    self._gadget.sent.append(data)
                self._end.sendall(wire.answer(transfer, data, status))
            elif transfer.endpoint and transfer.to_host:
                self._left = data + self._left

    def _perform(self, transfer: Transfer, asked_ns: int) -> bytes | None:
        if transfer.endpoint == 0:
            return self._gadget.control(transfer.setup, transfer.data)
        if not transfer.to_host:
            self._gadget.write(transfer.data)
            return b""
        if transfer.endpoint == self._interrupt_endpoint():
            with self._changed:
                self._changed.wait(PATIENCE_S)
            return None  # nothing ever happens on it
        if self._left:
            data, self._left = self._left[: transfer.length], self._left[transfer.length :]
            return data
        return self._gadget.read(transfer.length, asked_ns, PATIENCE_S)

    def _interrupt_endpoint(self) -> int:
        return 2 if self._gadget.configuration[4] == 2 else -1

    def _send(self, message: bytes) -> None:
        with self._sending:
            self._end.sendall(message)


def _interfaces(configuration: bytes) -> list[bytes]:
    """Class, subclass and protocol of each interface, as the list of devices has them."""
    found, at = [], 0
    while at < len(configuration):
        if configuration[at + 1] == 4:
            found.append(configuration[at + 5 : at + 8] + b"\0")
        at += configuration[at]
    return found
