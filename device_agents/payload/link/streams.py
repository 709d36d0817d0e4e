"""The agent's end of the link: numbered JSON lines out and in, raw blocks behind their header lines."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import threading
import time
import traceback
from typing import Any, Callable, Protocol

from device_agents.payload.faults import LinkLost, ProtocolError
from device_agents.payload.link.wire import CHUNK_BYTES, MAX_BLOB_BYTES, MAX_LINE_BYTES, encode

SEND_TIMEOUT_S = 30.0
"""A host that takes nothing for this long is gone; a pipe that stays full must not stall the training."""

OFFER_WAIT_S = 0.05

LATE = ("blob", "decide", "got")
"""Answers to what a job has asked; without that job they come too late and mean nothing."""

LOST: dict[str, Any] = {"type": "lost"}
"""What `Reader.take` returns when the host has gone."""


class Sink(Protocol):
    """Where the raw bytes of a blob go."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""


class Sender:
    """Writes messages. Safe to share between threads.

    Attributes:
        quiet: While true, `offer` sends nothing.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)
        self._lock = threading.Lock()
        self._lost = False
        self._next_seq = 0
        self.quiet = False

    def send(self, message: dict[str, Any], block: bytes = b"") -> None:
        """Send a message that the protocol needs, with a raw block behind it.

        Raises:
            LinkLost: The host is gone, or has not read for `SEND_TIMEOUT_S`.
        """
        with self._lock:
            self._send(message, block)

    def offer(self, message: dict[str, Any], *, wait_s: float = OFFER_WAIT_S) -> bool:
        """Send what is also in the journal: not in quiet mode, not when the host is gone.

        It is left out if another thread keeps the line busy: telemetry must not queue behind a blob.
        """
        if self.quiet or self._lost or not self._lock.acquire(timeout=wait_s):
            return False
        try:
            self._send(message, b"")
        except (LinkLost, ValueError):
            return False
        finally:
            self._lock.release()
        return True

    def _send(self, message: dict[str, Any], block: bytes) -> None:
        if self._lost:
            raise LinkLost("the host is gone")
        line = encode({**message, "seq": self._next_seq})
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a message of {len(line)} bytes")
        self._write(line)
        self._write(block)
        self._next_seq += 1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        silent_since_s = time.monotonic()
        while view:
            try:
                count = os.write(self._fd, view[:CHUNK_BYTES])
            except BlockingIOError:  # noqa: PERF203 - the exception is the news
                wait_s = silent_since_s + SEND_TIMEOUT_S - time.monotonic()
                if wait_s <= 0 or not select.select([], [self._fd], [], wait_s)[1]:
                    self._lost = True
                    raise LinkLost("the host does not read") from None
            except OSError as error:
                self._lost = True
                raise LinkLost(str(error)) from error
            else:
                silent_since_s = time.monotonic()
                view = view[count:]


class Reader:
    """Reads commands for `take`. Pings are answered at once, ``cancel`` goes to ``on_cancel`` at once.

    Attributes:
        gone: Whether the host has hung up or stopped making sense.
        cpu_s: Processor time of its thread so far.
    """

    def __init__(
        self, fd: int, sender: Sender, on_cancel: Callable[[str], None], on_lost: Callable[[], None]
    ) -> None:
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self.cpu_s = 0.0
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.gone = False
        self._fd = fd
        self._sender = sender
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._sink: Sink | None = None
        self._sink_lock = threading.Lock()
        self._next_seq = 0

    def take(self, timeout_s: float) -> dict[str, Any]:
        """The next command; `LOST` when the host has gone, as often as it is asked for.

        Raises:
            queue.Empty: None came in time.
        """
        # An interrupted `get` may have swallowed what it got, so the queue alone is not to be trusted.
        if self.gone and self._inbox.empty():
            return LOST
        return self._inbox.get(timeout=timeout_s)

    def direct(self, sink: Sink | None) -> None:
        """Where the next blob goes; with None it is read and dropped."""
        with self._sink_lock:
            self._sink = sink

    def start(self) -> None:
        """Read from here on."""
        self._thread.start()

    def _run(self) -> None:
        """Until the host hangs up or stops making sense."""
        try:
            while True:
                self._dispatch(self._message())
                self.cpu_s = time.thread_time()
        except LinkLost:
            pass
        except ProtocolError as error:
            self._inbox.put({"type": "nonsense", "message": str(error)})
        except Exception:  # a fault of ours: as good as a lost link, and never a silent agent
            traceback.print_exc()
        self.gone = True
        self._inbox.put(LOST)
        self._on_lost()

    def _dispatch(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "ping":
            pong = {"type": "pong", "nonce": message.get("nonce"), "t_dev_ns": time.monotonic_ns()}
            self._sender.send(pong)
        elif kind == "blob":
            self._inbox.put(self._receive(message))
        elif kind == "cancel":
            self._on_cancel(str(message.get("job_id")))
        else:
            self._inbox.put(message)

    def _message(self) -> dict[str, Any]:
        line = self._line()
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ProtocolError(f"not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise ProtocolError(f"not a message: {line[:80]!r}")
        seq = message.get("seq", self._next_seq if message["type"] == "hello" else None)
        if seq != self._next_seq:
            raise ProtocolError(f"message {seq} arrived where {self._next_seq} was due")
        self._next_seq += 1
        return message

    def _receive(self, header: dict[str, Any]) -> dict[str, Any]:
        """The raw block behind a header, hashed on its way into the sink."""
        size = header.get("size")
        if not isinstance(size, int) or not 0 <= size <= MAX_BLOB_BYTES:
            raise ProtocolError(f"a blob of {size!r} bytes")
        with self._sink_lock:
            sink, self._sink = self._sink, None
        digest = hashlib.sha256()
        failure: OSError | None = None
        for data in self._raw(size):
            digest.update(data)
            try:
                if sink is not None and failure is None:
                    sink.write(data)
            except OSError as error:  # a full disk: the rest is read all the same, or the link is out of step
                failure = error
        return {**header, "received_sha256": digest.hexdigest(), "failure": failure}

    def _raw(self, size: int) -> Any:
        while size:
            if not self._buffer:
                self._fill()
            data = bytes(self._buffer[:size])
            del self._buffer[: len(data)]
            size -= len(data)
            yield data

    def _line(self) -> bytes:
        end = -1
        searched = 0
        while end < 0:
            end = self._buffer.find(b"\n", searched)
            searched = len(self._buffer)
            if (searched if end < 0 else end) > MAX_LINE_BYTES:
                raise ProtocolError(f"a line longer than {MAX_LINE_BYTES} bytes")
            if end < 0:
                self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _fill(self) -> None:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except OSError as error:
            raise LinkLost(str(error)) from error
        if not data:
            raise LinkLost("end of input")
        self._buffer += data
