"""How long an instrument takes to answer what the commands of ``joulefleet meter`` say to it.

Commands run in real time, where a busy machine makes everything late. So their messages are said once more,
one after the other, to a unit in simulated time: the firmware, or our emulator.
"""

from __future__ import annotations

import json

from power.meters.hvpm_unit import DRAIN_TIMEOUT_S
from tests.firmware.conversations import SerialTalk, SerialUnit, UsbTalk, UsbUnit
from tests.firmware.frames import START, STATUS_BYTES, frame
from tests.firmware.transcript import GOLDEN, Conversation, Message

LISTEN_S = 0.14
"""Longer than any answer takes; a voltage takes 0.13 s."""

SERIAL_STREAM_S, USB_STREAM_S = 0.23, 0.03
"""Of a stream: until measurements come."""

Times = dict[str, list[float]]


def serial_answers(unit: SerialUnit, commands: dict[str, Conversation]) -> Times:
    """Seconds from each write to its status packet; after a start to the first measurement."""
    return {name: [_on_serial(unit, m.data) for m in _of_host(said)] for name, said in commands.items()}


def usb_answers(unit: UsbUnit, commands: dict[str, Conversation]) -> Times:
    """Seconds that each control transfer takes; of a start, until the first measurement comes."""
    return {name: [_on_usb(unit, message) for message in _of_host(said)] for name, said in commands.items()}


def stored_answers(unit: str) -> Times:
    """What the firmware of a unit took."""
    times: dict[str, Times] = json.loads((GOLDEN / "answers.json").read_text(encoding="ascii"))
    return times[unit]


def late_answers(stored: Times, found: Times, tolerance_s: float) -> list[str]:
    """Answers that come sooner or later than the firmware's, and by how much."""
    assert {name: len(times) for name, times in stored.items()} == {n: len(t) for n, t in found.items()}
    return [
        f"{name}, message {i}: after {1e3 * other:.1f} ms instead of {1e3 * one:.1f} ms"
        for name in stored
        for i, (one, other) in enumerate(zip(stored[name], found[name], strict=True))
        if abs(one - other) > tolerance_s
    ]


def _of_host(conversation: Conversation) -> Conversation:
    return [message for message in conversation if message.sender == "host"]


def _on_serial(unit: SerialUnit, data: bytes) -> float:
    starts = data == frame(START)
    talk = SerialTalk(unit)
    talk.say_raw(data, listen_s=SERIAL_STREAM_S if starts else LISTEN_S)
    answers = [m for m in talk.conversation() if m.sender == "unit" and _is_answer(m, starts)]
    assert answers, f"no answer to {data.hex()}"
    return round(answers[0].t_s, 4)


def _is_answer(message: Message, starts: bool) -> bool:
    is_status = len(message.data) == STATUS_BYTES
    return not is_status and message.data[2] == 0 if starts else is_status


def _on_usb(unit: UsbUnit, message: Message) -> float:
    setup = [int(word, 16) for word in message.what.split()]
    talk = UsbTalk(unit)
    to_host = setup[0] & 0x80
    talk.control((setup[0], setup[1], setup[2], setup[3]), _SIZE if to_host else message.data)
    answered_s = talk.conversation()[-1].t_s
    if setup[:2] == [0x40, 2]:
        talk.listen(USB_STREAM_S)
        answered_s = next(m.t_s for m in talk.conversation() if _is_measurement(m))
    elif setup[:2] == [0x40, 3]:
        talk.listen(DRAIN_TIMEOUT_S)  # as the driver does: a packet was made up before the stop
    return round(answered_s, 4)


_SIZE = 4
"""Bytes of every value."""


def _is_measurement(message: Message) -> bool:
    return message.what == "bulk" and not message.data[21] & 0x30
