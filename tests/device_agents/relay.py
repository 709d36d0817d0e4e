"""A slow link in user space: a TCP relay with delay and rate, and a switch to cut it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import NamedTuple


class Moved(NamedTuple):
    """Bytes that arrived at the relay, by the monotonic clock."""

    t_ns: int
    size: int
    outward: bool


class Relay:
    """Forwards one port of loopback to another."""

    def __init__(self, target_port: int, *, delay_s: float = 0.0, rate_bytes_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.rate_bytes_s = rate_bytes_s
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._links: list[socket.socket] = []
        self.moved: list[Moved] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
                self._links += [near, far]
                for source, sink, outward in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=(source, sink, outward), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        """Read at once, deliver later: a delay must not slow the rate down."""
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def deliver() -> None:
            with contextlib.suppress(OSError):
                while True:
                    due_s, data = waiting.get()
                    time.sleep(max(0.0, due_s - time.monotonic()))
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)

        threading.Thread(target=deliver, daemon=True).start()
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(16_384)
                self.moved.append(Moved(time.monotonic_ns(), len(data), outward))
                if self.rate_bytes_s:
                    time.sleep(len(data) / self.rate_bytes_s)
                waiting.put((time.monotonic() + self.delay_s, data))
                if not data:
                    return

    def cut(self) -> None:
        """Drop every connection without a goodbye."""
        links, self._links = self._links, []  # a connection made from now on is not meant
        for link in links:
            with contextlib.suppress(OSError):
                # Linger 0 sends a reset instead of an orderly end.
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            link.close()

    def close(self) -> None:
        """Stop listening and drop everything."""
        self._server.close()
        self.cut()


@contextlib.contextmanager
def relay(target_port: int, *, delay_s: float = 0.0, rate_bytes_s: float = 0.0) -> Iterator[Relay]:
    """A relay for the time of a test."""
    link = Relay(target_port, delay_s=delay_s, rate_bytes_s=rate_bytes_s)
    try:
        yield link
    finally:
        link.close()
