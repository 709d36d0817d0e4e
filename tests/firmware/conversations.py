"""The conversations that are held with the firmware and with our emulators: what the host says, and when.

Both sides run in simulated time, so that a conversation is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tests.firmware.chip import Stalled
from tests.firmware.frames import GET_STATUS, PREPARE, START, STOP, frame, split
from tests.firmware.transcript import Conversation, Message, condense


class SerialUnit(Protocol):
    """An LVPM: the firmware in `tests.firmware.monsoon`, or our emulator."""

    @property
    def seconds(self) -> float: ...
    def write(self, data: bytes) -> None: ...
    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]: ...
    def set_board(self, *, over_current: bool = False) -> None: ...


class UsbUnit(Protocol):
    """An HVPM, in the same way. Refused transfers raise `Stalled`."""

    @property
    def seconds(self) -> float: ...
    def control(self, setup: tuple[int, int, int, int], data: int | bytes) -> bytes: ...
    def read(self, seconds: float) -> Iterator[tuple[float, bytes]]: ...
    def wait(self, seconds: float) -> None: ...
    def set_board(self, *, over_current: bool = False) -> None: ...


class SerialTalk:
    """Writes down what is said on a serial port."""

    def __init__(self, unit: SerialUnit) -> None:
        self.unit = unit
        self._began_s = unit.seconds
        self._rest = b""
        self._messages: list[Message] = []

    def say(self, *bodies: bytes, listen_s: float) -> None:
        """Frames in one write, then silence of the host."""
        data = b"".join(frame(body) for body in bodies)
        self.say_raw(data, listen_s=listen_s)

    def say_raw(self, data: bytes, *, listen_s: float) -> None:
        """The same with bytes as they are."""
        self._messages.append(Message(self._now_s(), "host", data))
        self.unit.write(data)
        self.listen(listen_s)

    def listen(self, seconds: float) -> None:
        """Take what comes."""
        for t_s, data in self.unit.read(seconds):
            frames, self._rest = split(self._rest + data)
            self._messages += [Message(t_s - self._began_s, "unit", whole) for whole in frames]

    def conversation(self) -> Conversation:
        """What was said so far."""
        return condense(self._messages)

    def _now_s(self) -> float:
        return self.unit.seconds - self._began_s


class UsbTalk:
    """Writes down what is said on USB."""

    def __init__(self, unit: UsbUnit) -> None:
        self.unit = unit
        self._began_s = unit.seconds
        self._messages: list[Message] = []

    def control(self, setup: tuple[int, int, int, int], data: int | bytes) -> None:
        """A control transfer and its answer."""
        what = f"{setup[0]:02x} {setup[1]:02x} {setup[2]:04x} {setup[3]:04x}"
        self._messages.append(Message(self._now_s(), "host", data if isinstance(data, bytes) else b"", what))
        try:
            answer, stall = self.unit.control(setup, data), False
        except Stalled:
            answer, stall = b"", True
        self._messages.append(Message(self._now_s(), "unit", answer, what, stall))

    def get(self, *opcodes: int) -> None:
        for opcode in opcodes:
            self.control((0xC0, 1, 0, opcode), 4)

    def set(self, opcode: int, value: int) -> None:
        word = (value & 0xFFFFFFFF).to_bytes(4, "little")
        self.control((0x40, 1, value & 0xFFFF, opcode | (value >> 16 & 0xFF) << 8), word)

    def start(self, calibration: int = 1250, samples: int = 0xFFFFFFFF) -> None:
        self.control((0x40, 2, calibration, 0), samples.to_bytes(4, "little"))

    def stop(self) -> None:
        self.control((0x40, 3, 0, 0), b"")

    def listen(self, seconds: float) -> None:
        """Take what comes on the bulk endpoint."""
        for t_s, data in self.unit.read(seconds):
            self._messages.append(Message(t_s - self._began_s, "unit", data, "bulk"))

    def conversation(self) -> Conversation:
        """What was said so far."""
        return condense(self._messages)

    def _now_s(self) -> float:
        return self.unit.seconds - self._began_s


REPLY_S = 0.02
"""Most commands are answered after 3 ms."""


def lvpm_status(talk: SerialTalk) -> None:
    """What a client finds after power-up."""
    talk.say(STOP, listen_s=REPLY_S)
    talk.say(GET_STATUS, listen_s=REPLY_S)


def lvpm_settings(talk: SerialTalk) -> None:
    """Every setting by itself, each answered by a status."""
    for body in ("0101c8", "010100", "0101c8"):
        talk.say(bytes.fromhex(body), listen_s=0.2)
    for body in ("010880", "010902", "010a80", "010b02", "011000", "011001", "011002", "011b01"):
        talk.say(bytes.fromhex(body), listen_s=REPLY_S)


def lvpm_strange(talk: SerialTalk) -> None:
    """A wrong checksum, an unknown command, and several frames in one write: only the first counts."""
    talk.say_raw(bytes.fromhex("0401000000"), listen_s=REPLY_S)
    talk.say(bytes.fromhex("017700"), listen_s=REPLY_S)
    limits = ("010a80", "010b01", "010880", "010901")
    talk.say(*(bytes.fromhex(body) for body in limits), listen_s=REPLY_S)
    talk.say(GET_STATUS, listen_s=REPLY_S)
    talk.say(PREPARE, START, listen_s=0.4)


def lvpm_stream(talk: SerialTalk) -> None:
    """Start, calibration, data, the calibration after 1000 packets, stop."""
    talk.say(bytes.fromhex("0101c8"), listen_s=0.2)
    talk.say(PREPARE, listen_s=REPLY_S)
    talk.say(START, listen_s=3.4)
    talk.say(STOP, listen_s=REPLY_S)
    talk.say(GET_STATUS, listen_s=REPLY_S)


def lvpm_over_current(talk: SerialTalk) -> None:
    """The board cuts the output while the instrument samples."""
    talk.say(bytes.fromhex("0101c8"), listen_s=0.2)
    talk.say(PREPARE, listen_s=REPLY_S)
    talk.say(START, listen_s=0.3)
    talk.unit.set_board(over_current=True)
    talk.listen(0.1)
    talk.say(GET_STATUS, listen_s=REPLY_S)
    talk.unit.set_board()
    talk.say(GET_STATUS, listen_s=REPLY_S)


READABLE = (
    *(0x02, 0x0C, 0x0D, 0x0E, 0x10, 0x11, 0x12, 0x13, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, 0x23),
    *(0x25, 0x26, 0x27, 0x28, 0x29, 0x41, 0x42, 0x43, 0x44, 0x45, 0x88, 0x89, 0xC0, 0xC1, 0xC4, 0x7E),
)
FOUR_VOLTS = 4 << 20


def hvpm_registers(talk: UsbTalk) -> None:
    """Every value as a client finds it, and the strings."""
    talk.control((0x80, 6, 0x0300, 0), 255)
    for index in (1, 2, 3):
        talk.control((0x80, 6, 0x0300 + index, 0x0409), 255)
    talk.get(*READABLE)


def hvpm_settings(talk: UsbTalk) -> None:
    """Values that a client sets, read back; one that is read-only; one whose two copies disagree."""
    talk.set(0x41, FOUR_VOLTS)
    talk.get(0x41)
    talk.set(0x41, 0)
    talk.get(0x41)
    for opcode, value in (
        (0x43, 0x6000),
        (0x44, 0x7000),
        (0x10, 0),
        (0x10, 1),
        (0x10, 2),
        (0x23, 1),
        (0x0C, 33),
    ):
        talk.set(opcode, value)
        talk.get(opcode)
    talk.set(0xC0, 1)
    talk.control((0x40, 1, 5, 0x0C), (9).to_bytes(4, "little"))
    talk.get(0x0C)


def hvpm_stream(talk: UsbTalk) -> None:
    """Start, calibration, data, a calibration every 1252 observations; requests meanwhile; stop."""
    talk.set(0x41, FOUR_VOLTS)
    talk.start()
    talk.listen(0.3)
    talk.get(0x41, 0x10, 0xC0, 0xC4)
    talk.set(0x10, 0)
    talk.get(0x10)
    talk.set(0x41, FOUR_VOLTS)
    talk.get(0x41)
    talk.listen(0.25)
    talk.stop()
    talk.listen(0.05)
    talk.get(0xC4)


def hvpm_limited(talk: UsbTalk) -> None:
    """A stream of 300 samples ends by itself."""
    talk.start(1250, 300)
    talk.listen(0.1)
    talk.get(0xC4)


def hvpm_slow_host(talk: UsbTalk) -> None:
    """A host that stays away for 10 ms and for 1 s finds the newest samples and a count of the lost ones."""
    talk.start(60_000)
    talk.listen(0.05)
    talk.unit.wait(0.010)
    talk.listen(0.02)
    talk.unit.wait(1.0)
    talk.listen(0.02)
    talk.stop()


def hvpm_over_current(talk: UsbTalk) -> None:
    """The board cuts the output while the unit samples: a flag, and the stream goes on."""
    talk.set(0x41, FOUR_VOLTS)
    talk.start()
    talk.listen(0.05)
    talk.unit.set_board(over_current=True)
    talk.listen(0.02)
    talk.get(0x41, 0xC4)
    talk.unit.set_board()
    talk.listen(0.02)


LVPM_SCENARIOS: dict[str, Callable[[SerialTalk], None]] = {
    "status": lvpm_status,
    "settings": lvpm_settings,
    "strange": lvpm_strange,
    "stream": lvpm_stream,
    "over-current": lvpm_over_current,
}
HVPM_SCENARIOS: dict[str, Callable[[UsbTalk], None]] = {
    "registers": hvpm_registers,
    "settings": hvpm_settings,
    "stream": hvpm_stream,
    "limited": hvpm_limited,
    "slow-host": hvpm_slow_host,
    "over-current": hvpm_over_current,
}
