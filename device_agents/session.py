"""One conversation with an agent: handshake, clock pings, and a round with its probe decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from device_agents.protocol import (
    PROTOCOL_VERSION,
    AgentError,
    Done,
    EpochMarker,
    Hello,
    Job,
    MarkerMessage,
    Message,
    Pong,
    ProbeDone,
    encode,
    parse_line,
)
from device_agents.transport import Channel
from fedjoule.errors import DeviceError

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Ping:
    """One clock exchange: when it left, when the device saw it, when the answer was here."""

    sent_ns: int
    t_dev_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Host time from sending to receiving."""
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round's local work left behind."""

    probe: ProbeDone
    done: Done
    markers: tuple[EpochMarker, ...]


class AgentSession:
    """Talks to one agent. Every wait has a deadline.

    Args:
        channel: A fresh agent.
        timeout_s: How long it may be silent.
        on_marker: Called with each marker the moment it arrives, so that none is lost with the session.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        timeout_s: float = 60.0,
        on_marker: Callable[[EpochMarker], None] = lambda _: None,
    ) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._on_marker = on_marker
        self._markers: list[EpochMarker] = []
        self._channel.send(encode({"type": "hello", "version": PROTOCOL_VERSION}))
        self.hello = self._expect(Hello)
        if self.hello.version != PROTOCOL_VERSION:
            raise DeviceError(
                f"the agent speaks protocol {self.hello.version}, this host {PROTOCOL_VERSION}",
                hint="deploy the agent again",
            )

    @property
    def markers(self) -> tuple[EpochMarker, ...]:
        """Every marker that has arrived, also when the session failed later."""
        return tuple(self._markers)

    def ping(self, count: int) -> list[Ping]:
        """Exchange clocks ``count`` times."""
        pings = []
        for nonce in range(count):
            sent_ns = time.monotonic_ns()
            self._channel.send(encode({"type": "ping", "nonce": nonce}))
            pong = self._expect(Pong)
            pings.append(Ping(sent_ns, pong.t_dev_ns, time.monotonic_ns()))
        return pings

    def run_round(self, job: Job, decide: Callable[[ProbeDone], bool]) -> RoundResult:
        """Run the probe, ask ``decide`` whether to go on, and wait for the end."""
        start = len(self._markers)
        self._channel.send(encode(job.model_dump()))
        probe = self._expect(ProbeDone)
        action = "continue" if decide(probe) else "stop"
        self._channel.send(encode({"type": "decide", "action": action}))
        done = self._expect(Done)
        return RoundResult(probe, done, tuple(self._markers[start:]))

    def _expect(self, kind: type[M]) -> M:
        """The next message of a kind; markers on the way are kept, anything else is an error."""
        while True:
            message = parse_line(self._channel.receive_line(self._timeout_s))
            if isinstance(message, MarkerMessage):
                self._keep(message.marker)
            elif isinstance(message, kind):
                return message
            elif isinstance(message, AgentError):
                raise DeviceError(f"the agent failed: {message.message}")
            else:
                raise DeviceError(f"the agent sent {message.type!r} where {kind.__name__} was due")

    def _keep(self, marker: EpochMarker) -> None:
        if marker.seq != len(self._markers):
            raise DeviceError(f"marker {marker.seq} arrived where {len(self._markers)} was due")
        self._markers.append(marker)
        self._on_marker(marker)
