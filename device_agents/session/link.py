"""The host's end of the link to an agent: numbered messages both ways, raw blocks behind their headers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from device_agents.payload.link.wire import PROTOCOL_VERSION, TRANSFER_TIMEOUT_S, encode
from device_agents.protocol import (
    AgentError,
    Blob,
    Heartbeat,
    Hello,
    MarkerMessage,
    Message,
    SourceLostMessage,
    SourcesMessage,
    TelemetryMessage,
    parse_line,
)
from device_agents.transport import Channel
from joulefleet.errors import (
    DeviceBusy,
    DeviceError,
    DeviceFull,
    DeviceProtocolError,
    DeviceUnreachable,
)

M = TypeVar("M", bound=Message)

LiveMessage = MarkerMessage | TelemetryMessage | SourcesMessage | SourceLostMessage | Heartbeat
"""What an agent sends by itself during a job that is not quiet."""


class AgentLink:
    """Speaks the protocol over a channel.

    Args:
        channel: A fresh agent.
        timeout_s: How long it may be silent.
        on_live: Called with everything that the agent sends by itself, the moment it arrives.
    """

    def __init__(self, channel: Channel, *, timeout_s: float, on_live: Callable[[LiveMessage], None]) -> None:
        self._channel = channel
        self.timeout_s = timeout_s
        self._on_live = on_live
        self._sent = 0
        self._received = 0
        self._send_lock = threading.Lock()  # a cancellation may come from another thread
        self._until_s = math.inf
        self.send({"type": "hello", "version": PROTOCOL_VERSION})
        self.hello = self._handshake()

    def _handshake(self) -> Hello:
        line = self._channel.receive_line(self.timeout_s)
        _check_version(line)
        message = self._in_order(parse_line(line))
        if isinstance(message, AgentError):
            raise error_of(message.code, message.message)
        if not isinstance(message, Hello):
            raise DeviceProtocolError(f"the agent began with {message.type!r}")
        return message

    def send(self, message: dict[str, Any], block: bytes = b"") -> None:
        """Send a message with a raw block behind it."""
        with self._send_lock:
            self._channel.send(encode({**message, "seq": self._sent}))
            if block:
                left_s = self._until_s - time.monotonic()
                self._channel.send(block, timeout_s=min(TRANSFER_TIMEOUT_S, max(1.0, left_s)))
            self._sent += 1

    @contextlib.contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """A deadline for everything that is received inside, however often the agent gives signs of life.

        Args:
            seconds: From now on; an earlier deadline around it stays.
            what: What has to be over by then, for the message.

        Raises:
            DeviceError: It was not.
        """
        before_s, received = self._until_s, self._received
        self._until_s = min(before_s, time.monotonic() + seconds)
        try:
            yield
        except DeviceUnreachable as error:
            # An agent that said nothing at all is out of reach; one that talked on had its time.
            if time.monotonic() < self._until_s or self._received == received:
                raise
            raise DeviceError(
                f"{what} was not over after {seconds:g} s, although the agent went on sending",
                hint="end what runs on the device; if it needs longer, raise the plan's timing.deadline_s",
            ) from error
        finally:
            self._until_s = before_s

    def without_keepalive(self) -> AbstractContextManager[None]:
        """See `device_agents.transport.base.Channel.without_keepalive`."""
        return self._channel.without_keepalive()

    def next(self, silence_s: float | None = None) -> Message:
        """The next message that is not live; live ones go to ``on_live``.

        Raises:
            DeviceUnreachable: The agent has gone, or was silent for too long.
            DeviceProtocolError: What came is no message, or one is missing.
        """
        while True:
            timeout_s = self.timeout_s if silence_s is None else silence_s
            message = self._in_order(parse_line(self._channel.receive_line(self._left_s(timeout_s))))
            if not isinstance(message, LiveMessage):
                return message
            self._on_live(message)

    def expect(self, kind: type[M], silence_s: float | None = None) -> M:
        """The next message, which has to be of a kind.

        Raises:
            DeviceError: The agent refuses, or something else came.
        """
        message = self.next(silence_s)
        if isinstance(message, kind):
            return message
        if isinstance(message, AgentError):
            raise error_of(message.code, message.message)
        raise DeviceProtocolError(f"the agent sent {message.type!r} where {kind.__name__} was due")

    def receive_block(self, size: int, max_bytes: int, timeout_s: float) -> bytes:
        """A raw block, refused unread if it is larger than allowed."""
        if size > max_bytes:
            raise DeviceProtocolError(
                f"the agent announced a block of {size} bytes, more than the {max_bytes} allowed"
            )
        return self._channel.receive_exactly(size, self._left_s(timeout_s))

    def _left_s(self, timeout_s: float) -> float:
        """How long to wait at most: what comes first, the limit on silence or the deadline."""
        return max(0.0, min(timeout_s, self._until_s - time.monotonic()))

    def receive_blob(self, header: Blob, max_bytes: int, timeout_s: float) -> bytes:
        """The raw block behind a blob's header, checked against its hash."""
        data = self.receive_block(header.size, max_bytes, timeout_s)
        if hashlib.sha256(data).hexdigest() != header.sha256:
            raise DeviceError(f"{header.name} of job {header.job_id} arrived damaged (another hash)")
        return data

    def _in_order(self, message: Message) -> Message:
        if message.seq != self._received:
            raise DeviceProtocolError(f"message {message.seq} arrived where {self._received} was due")
        self._received += 1
        return message


def _check_version(line: bytes) -> None:
    """Before anything else: a hello of another version may look different in every other way."""
    try:
        hello = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or nested without end: the next check says so
        return
    if not isinstance(hello, dict) or hello.get("type") != "hello":
        return
    if hello.get("version") != PROTOCOL_VERSION:
        raise DeviceProtocolError(
            f"the agent speaks protocol {hello.get('version')!r:.20}, this host {PROTOCOL_VERSION}",
            hint="deploy the agent again",
        )


FREE_SPACE = "free some space there; `joulefleet bench prepare DEVICE --clean` empties the agent's cache"

_HINTS = {
    "backend_missing": "`joulefleet bench prepare` says what the device lacks",
    "python_too_old": "install Python 3.9 or newer there, and name it in the inventory: `python = ...`",
    "storage": "is the agent's folder on the device writable?",
}


def error_of(code: str, message: str) -> DeviceError:
    """An agent's refusal as a typed error."""
    if code == "storage_full":
        return DeviceFull(f"no space left on the device: {message}", hint=FREE_SPACE)
    if code == "busy":
        return DeviceBusy(
            f"the device is busy: {message}", hint="resuming the run that has started a job ends it, too"
        )
    if code == "protocol":
        return DeviceProtocolError(f"the agent did not understand this host: {message}")
    return DeviceError(f"the agent failed: {message}", hint=_HINTS.get(code, ""))
