"""Questions and answers with the INA219 sketch before and after a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from joulefleet.errors import MeterError, MeterProtocolError, MeterSilent
from power.meters.serial_port import SerialPort
from power.wire.ina219.csv_rows import recognise
from power.wire.ina219.frames import (
    ASK_HEADER,
    MAX_LINE,
    STOP,
    Counters,
    Header,
    PongLine,
    Refused,
    parse_line,
    ping,
)

HEADER_TRIES = 8
ANSWER_S = 0.5
"""Opening the port resets many boards; with their boot loader they answer after up to two seconds."""

PINGS = 16

Frame = TypeVar("Frame", Header, PongLine, Counters)


@dataclass(frozen=True, slots=True)
class BoardAnswer(Generic[Frame]):
    """A frame, the bytes from its first one on, and when the last of them had arrived."""

    frame: Frame
    data: bytes
    arrival_ns: int


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The microcontroller's clock against the host's.

    Attributes:
        host_ns: Host-monotonic time.
        mcu_us: What the microcontroller's 32-bit clock showed then.
        uncertainty_ns: Half the shortest round trip: the bound of the error.
        pings: Answers it is the best of.
    """

    host_ns: int
    mcu_us: int
    uncertainty_ns: int
    pings: int


class Ina219Link:
    """The sketch at the other end of a serial port."""

    def __init__(self, port: SerialPort, baud: int) -> None:
        self._port = port
        self._baud = baud
        self._heard = b""
        self._refusal = ""

    def ask(
        self,
        command: bytes,
        wanted: type[Frame],
        accept: Callable[[Frame], bool] = lambda frame: True,
        timeout_s: float = ANSWER_S,
    ) -> BoardAnswer[Frame] | None:
        """Send a command and wait for a frame; other frames that come meanwhile are dropped."""
        self._port.write(command)
        buffer = b""
        for data in self._port.reads(timeout_s):
            arrival_ns = time.monotonic_ns()
            self._heard = (self._heard + data)[-2 * MAX_LINE :]
            buffer += data
            while b"\n" in buffer:
                line, _, rest = buffer.partition(b"\n")
                frame = parse_line(line)
                if isinstance(frame, wanted) and accept(frame):
                    return BoardAnswer(frame, buffer, arrival_ns)
                if isinstance(frame, Refused) and frame.code == "bad_header":
                    self._refusal = frame.reason
                buffer = rest
            buffer = buffer[-MAX_LINE:]
        return None

    def stop(self) -> None:
        """End whatever run is under way, and forget what it sent."""
        # A new port echoes what arrives until it is set up: the board may have half a line of its own.
        self._port.write(b"\n" + STOP)
        self._port.drain_input()

    def shake_hands(self) -> Header:
        """Stop whatever run is under way and ask who is there.

        Raises:
            MeterError: Nobody answers, or the sketch is not one we understand.
            MeterProtocolError: What comes is not the protocol.
        """
        self.stop()
        for _ in range(HEADER_TRIES):
            answer = self.ask(ASK_HEADER, Header)
            if answer is not None:
                return answer.frame
            if self._refusal:
                break
        raise self._no_header()

    def read_clock(self) -> ClockReading:
        """Ping several times and keep the fastest answer (RFC 5905 section 10).

        Raises:
            MeterProtocolError: No ping was answered.
        """
        readings = [reading for nonce in range(1, PINGS + 1) if (reading := self._ping(nonce)) is not None]
        if not readings:
            raise MeterProtocolError(
                f"ina219 on {self._port.path}: answers who it is but not what time it has",
                hint="flash the sketch again (device_agents/firmware/ina219)",
            )
        best = min(readings, key=lambda reading: reading.uncertainty_ns)
        return replace(best, pings=len(readings))

    def _ping(self, nonce: int) -> ClockReading | None:
        sent_ns = time.monotonic_ns()
        answer = self.ask(ping(nonce), PongLine, lambda pong: pong.nonce == nonce)
        if answer is None:
            return None
        held_us = (answer.frame.t_tx_us - answer.frame.t_rx_us) % (1 << 32)
        half_trip_ns = max(0, answer.arrival_ns - sent_ns - held_us * 1000) // 2
        return ClockReading(sent_ns + half_trip_ns, answer.frame.t_rx_us, half_trip_ns, pings=1)

    def _no_header(self) -> MeterError:
        where = f"ina219 on {self._port.path}"
        if self._refusal:
            return MeterError(
                f"{where}: its header is not of this version of the protocol ({self._refusal})",
                hint="flash the sketch that belongs to this version (device_agents/firmware/ina219)",
            )
        if not self._heard:
            return MeterSilent(
                f"{where}: nothing answers",
                hint="is the sketch of device_agents/firmware/ina219 on the board, and is this its port?",
            )
        # The first line may be torn.
        if recognise(self._heard.split(b"\n")[1:-1]) is not None:
            return MeterError(
                f"{where}: the board runs a sketch that prints loose lines",
                hint="use kind = 'ina219-csv', or flash the sketch of device_agents/firmware/ina219",
            )
        return MeterProtocolError(
            f"{where}: what arrives is not the INA219 protocol ({self._heard[-24:]!r})",
            hint=f"this is at {self._baud} baud; set options.baud to the BAUD of the sketch",
        )
