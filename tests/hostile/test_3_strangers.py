"""Class 3, by somebody who had read SECURITY.md only: hosts that never come to the point."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from device_agents.transport.host_keys import fetch_host_key
from joulefleet.errors import DeviceUnreachable

Peer = Callable[[socket.socket, threading.Event], None]


def silent(peer: socket.socket, over: threading.Event) -> None:
    over.wait()


def single_letters(peer: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.05):
        peer.sendall(b"S")


def lines_before_the_banner(peer: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.05):
        peer.sendall(b"welcome\r\n")


def a_line_without_end(peer: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        peer.sendall(b"x" * 65_536)


def a_packet_of_two_gigabytes(peer: socket.socket, over: threading.Event) -> None:
    peer.sendall(b"SSH-2.0-x\r\n" + b"\x7f\xff\xff\xfc\x04" + b"x" * 100)
    over.wait()


def a_handshake_that_stops(peer: socket.socket, over: threading.Event) -> None:
    peer.sendall(b"SSH-2.0-x\r\n" + b"\0\0\1\4\4\x14")
    over.wait()


@contextlib.contextmanager
def listening(behave: Peer) -> Iterator[int]:
    over = threading.Event()

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer, _ = server.accept()
            with peer:
                behave(peer, over)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        yield server.getsockname()[1]
        over.set()
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    "behave",
    [
        silent,
        single_letters,
        lines_before_the_banner,
        a_line_without_end,
        a_packet_of_two_gigabytes,
        a_handshake_that_stops,
    ],
)
def test_a_host_that_never_comes_to_the_point(behave: Peer) -> None:
    began_s = time.monotonic()
    with listening(behave) as port, pytest.raises(DeviceUnreachable):
        fetch_host_key("127.0.0.1", port, timeout_s=1.0)
    assert time.monotonic() - began_s < 10
