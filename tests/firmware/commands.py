"""``meter info | output | record | selftest`` as a user gives them, and what is then said on the wire.

Host and instrument run in real time, on a machine that does other things too: two conversations agree in
their messages and in the order of these. Of a stream the first message of each kind is kept, up to the first
measurement. When things are said, and how often, is what `tests.firmware.conversations` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from power.emulated.usb.cable import ControlRequest
from power.meters.serial_port import SerialPort
from tests.firmware.frames import START, STOP, frame, split
from tests.firmware.transcript import Conversation, Message

COMMANDS = {
    "info": [],
    "output-on": ["--set", "4.0", "--yes"],
    "info-on": [],
    "record": ["--seconds", "0.4"],
    "selftest": ["--seconds", "1", "--load-ohms", "16", "--tolerance", "5"],
    "output-higher-limit": ["--set", "4.0", "--yes"],
    "output-off": ["--off", "--yes"],
}
"""In this order, with one unit that was just switched on."""

_LIMITS_A = {"output-higher-limit": "4.0"}


class Tap:
    """Writes down what is said, in the words of the protocol."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._rest = b""

    def on_serial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listen at the driver's end of serial ports."""
        write, read = SerialPort.write, SerialPort.read_available

        def tapped_write(port: SerialPort, data: bytes) -> None:
            self._messages.append(Message(0.0, "host", data))
            write(port, data)

        def tapped_read(port: SerialPort, timeout_s: float = 0.2) -> bytes:
            data = read(port, timeout_s)
            frames, self._rest = split(self._rest + data)
            self._messages += [Message(0.0, "unit", whole) for whole in frames]
            return data

        monkeypatch.setattr(SerialPort, "write", tapped_write)
        monkeypatch.setattr(SerialPort, "read_available", tapped_read)

    def on_usb(self, monkeypatch: pytest.MonkeyPatch, unit: type) -> None:
        """Listen at the instrument's end of an emulated cable."""
        control, bulk = unit.control, unit.bulk_read  # type: ignore[attr-defined]

        def tapped_control(device: Any, request: ControlRequest) -> bytes:
            setup = (request.request_type, request.request, request.value, request.index)
            what = f"{setup[0]:02x} {setup[1]:02x} {setup[2]:04x} {setup[3]:04x}"
            self._messages.append(Message(0.0, "host", request.data, what))
            place, answer, stall = len(self._messages), b"", True
            try:
                answer, stall = bytes(control(device, request)), False
            finally:  # what the bulk endpoint says meanwhile comes behind it
                self._messages.insert(place, Message(0.0, "unit", answer, what, stall=stall))
            return answer

        def tapped_bulk(device: Any, *given: Any) -> bytes:
            packet: bytes = bulk(device, *given)
            self._messages.append(Message(0.0, "unit", packet, "bulk"))
            return packet

        monkeypatch.setattr(unit, "control", tapped_control)
        monkeypatch.setattr(unit, "bulk_read", tapped_bulk)

    def take(self) -> Conversation:
        """What was said since the last time."""
        said, self._messages, self._rest = self._messages, [], b""
        return list(_beginnings(said))


def _beginnings(conversation: Conversation) -> Iterator[Message]:
    """Of each stream the first message of a kind, up to the first measurement; nothing else of it."""
    wanted: set[int] = set()
    previous = Message(0.0, "host")
    for message in conversation:
        if message.sender == "host":
            previous = message
            started = message.data == frame(START) or message.what.startswith("40 02")
            wanted = {_MEASUREMENT, *_SPECIAL} if started else set()
        for kind, part in _parts(message):
            if kind is None:
                # What a stop finds going on decides what the status after it says of the last command.
                stopped = previous.data == frame(STOP) and len(part.data) == 60
                yield replace(part, data=part.data[:22] + bytes(2) + part.data[24:-1]) if stopped else part
            elif kind in wanted:
                wanted = wanted - {kind} if kind != _MEASUREMENT else set()
                yield part


_MEASUREMENT, _SPECIAL = 0, (1, 2, 3)


def _parts(message: Message) -> Iterator[tuple[int | None, Message]]:
    """Observations with their kinds, without what depends on the moment; other messages as they are."""
    if message.sender == "host" or (message.what and message.what != "bulk") or len(message.data) == 60:
        yield None, message
    elif not message.what:  # an LVPM's packet: which samples, and how many at the end, is a matter of time
        yield message.data[2], replace(message, data=message.data[:1] + bytes(1) + message.data[2:4])
    else:
        rows = message.data[4:]
        for i in range(0, len(rows), 18):
            kind, row = rows[i + 17] >> 4 & 3, rows[i : i + 18]
            # The invalid observation at the beginning holds what was left in memory.
            yield kind, replace(message, data=bytes(4) + (bytes(17) if kind == 2 else row[:17]) + row[17:])


def run_commands(
    tap: Tap, kind: str, port: str, folder: Path, check: Callable[[str, int], None]
) -> dict[str, Conversation]:
    """All commands in turn; their conversations."""
    said = {}
    for name, more in COMMANDS.items():
        command = name.partition("-")[0]
        limits = ["--voltage", "4", "--voltage-max", "4.2", "--current-limit", _LIMITS_A.get(name, "3")]
        out = ["--out", str(folder / name)] if command in ("record", "selftest") else []
        tap.take()
        check(name, run(["meter", command, "--kind", kind, "--port", port, *limits, *more, *out]))
        said[name] = tap.take()
    return said
