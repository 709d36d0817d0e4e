"""Recorded conversations with an instrument: JSON lines, one message each, and how two of them are compared.

::

    {"scenario": "stream", "unit": "LVPM", "firmware": 20}   begins a conversation
    {"t_s": 0.0, "from": "host", "hex": "0401000005"}        a write of the host, and when it began
    {"t_s": 0.003, "from": "unit", "hex": "3b10..."}         a message of the instrument, and when it ended
    {"t_s": 0.21, "until_s": 3.2, "count": 1000, ...}        so many that differ by their running number only

On USB a message has a ``what``: the setup packet of a control transfer as hex, or ``bulk``. A refused one
has ``"stall": true``. Times are seconds since the conversation began. Messages are facts about a protocol; no
byte of an instrument's program is among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent / "golden"


@dataclass(frozen=True, slots=True)
class Message:
    """One message, or several that are alike."""

    t_s: float
    sender: str
    data: bytes = b""
    what: str = ""
    stall: bool = False
    count: int = 1
    until_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        out: dict[str, Any] = {"t_s": round(self.t_s, 5), "from": self.sender}
        if self.what:
            out["what"] = self.what
        if self.stall:
            out["stall"] = True
        else:
            out["hex"] = self.data.hex()
        if self.count > 1 and self.until_s is not None:
            out |= {"count": self.count, "until_s": round(self.until_s, 5)}
        return out

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Message:
        """From what is stored."""
        return cls(
            record["t_s"],
            record["from"],
            bytes.fromhex(record.get("hex", "")),
            record.get("what", ""),
            record.get("stall", False),
            record.get("count", 1),
            record.get("until_s"),
        )


Conversation = list[Message]


def without_number(message: Message) -> tuple[str, str, bool, bytes]:
    """What makes two messages alike: everything but their time, running number and checksum."""
    data = bytearray(message.data)
    if message.sender == "unit" and message.what == "bulk" and len(data) > 3:
        data[2] &= 0xF0
        if is_calibration(message):
            data[12:16] = bytes(4)  # of aux: how it gets its reference is not known
    elif message.sender == "unit" and message.what.startswith("80 06 0301"):
        data.clear()  # the maker: our emulator names itself there
    elif message.sender == "unit" and not message.what and is_short(data):
        data = data[1:3]  # how many samples are left over is a matter of microseconds
        data[0] &= 0xF0
    elif message.sender == "unit" and not message.what and len(data) > 60:
        data[1] &= 0xF0
        data[4] = 0  # samples lost before the packet: depends on the instrument's phase
        data[-1] = 0
    elif message.sender == "unit" and not message.what and len(data) == 60:
        data[23] = data[-1] = 0  # where our emulator says that it is one
    return message.sender, message.what, message.stall, bytes(data)


def is_short(frame: bytes | bytearray) -> bool:
    """Whether it is the last data packet of an LVPM's stream, which holds what is left."""
    return len(frame) > 6 and frame[1] & 0xF0 == 0x20 and frame[2] == 0 and frame[0] < 126


def is_calibration(message: Message) -> bool:
    """Whether it is a calibration that an instrument sends within its stream."""
    if message.what == "bulk":
        return bool(message.data[21] & 0x10)
    return not message.what and len(message.data) > 60 and message.data[2] != 0


def condense(messages: Iterable[Message]) -> Conversation:
    """Join messages that follow each other and are alike, also where two kinds of calibration alternate."""
    out: Conversation = []
    for message in messages:
        place = _place(out, message)
        if place is None:
            out.append(message)
        else:
            out[place] = replace(out[place], count=out[place].count + 1, until_s=message.t_s)
    return out


def _place(out: Conversation, message: Message) -> int | None:
    if message.sender != "unit":
        return None
    if out and without_number(out[-1]) == without_number(message):
        return -1
    pair = [*out[-2:], message]
    if len(pair) == 3 and all(m.sender == "unit" and is_calibration(m) for m in pair):
        return -2 if without_number(out[-2]) == without_number(message) else None
    return None


def by_observation(conversation: Conversation) -> Conversation:
    """The same with one message for each observation: how many share a packet is a matter of microseconds."""
    out: list[Message] = []
    for message in conversation:
        if message.what != "bulk":
            out.append(message)
            continue
        head, rows = message.data[:3] + b"\x01", message.data[4:]
        singles = [replace(message, data=head + rows[i : i + 18]) for i in range(0, len(rows), 18)]
        out += (
            [replace(single, count=1) for single in singles * message.count] if len(singles) > 1 else singles
        )
    # A few measurements at an edge (a changing flag, a stop) may be in a packet made up before or behind it.
    joined = _add_counts(out)
    return _add_counts(m for m in joined if m.what != "bulk" or m.count > EDGE or m.data[21] & 0x30)


EDGE = 3


def _add_counts(messages: Iterable[Message]) -> Conversation:
    out: Conversation = []
    for message in messages:
        if out and message.what == "bulk" and without_number(out[-1]) == without_number(message):
            last = message.until_s if message.until_s is not None else message.t_s
            out[-1] = replace(out[-1], count=out[-1].count + message.count, until_s=last)
        else:
            out.append(message)
    return out


def load(name: str) -> dict[str, Conversation]:
    """A golden file: conversations by scenario."""
    conversations: dict[str, Conversation] = {}
    current: Conversation = []
    for line in (GOLDEN / f"{name}.jsonl").read_text(encoding="ascii").splitlines():
        record = json.loads(line)
        if "scenario" in record:
            current = conversations.setdefault(record["scenario"], [])
        else:
            current.append(Message.from_json(record))
    return conversations


def dump(unit: str, firmware: int, conversations: dict[str, Conversation]) -> str:
    """The text of a golden file."""
    lines = []
    for scenario, messages in conversations.items():
        lines.append(json.dumps({"scenario": scenario, "unit": unit, "firmware": firmware}))
        lines += [json.dumps(message.to_json()) for message in messages]
    return "\n".join(lines) + "\n"


def _losses(message: Message) -> int:
    """What a bulk packet says was dropped."""
    return int.from_bytes(message.data[:2], "little") if message.what == "bulk" else 0


def _without_losses(message: Message) -> tuple[str, str, bool, bytes]:
    sender, what, stall, data = without_number(message)
    return sender, what, stall, bytes(2) + data[2:] if what == "bulk" else data


def differences(expected: Conversation, found: Conversation, tolerance_s: float) -> list[str]:
    """What a reader should know of two conversations that ought to be the same; empty if they are."""
    out = []
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        if _without_losses(one) != _without_losses(other):
            out.append(f"message {number}: expected {one.to_json()}, found {other.to_json()}")
            break
        if abs(_losses(one) - _losses(other)) > max(EDGE, 0.01 * _losses(one)):
            out.append(f"message {number}: expected {_losses(one)} lost samples, found {_losses(other)}")
        late_s = other.t_s - one.t_s
        if abs(late_s) > tolerance_s:
            out.append(f"message {number} comes {1e3 * late_s:+.2f} ms later than expected: {one.to_json()}")
        # The last run of a conversation ends when the host stops listening.
        if abs(one.count - other.count) > max(3, 5000 * tolerance_s):
            out.append(
                f"message {number}: expected {one.count} of them, found {other.count}: {one.to_json()}"
            )
    if len(expected) != len(found) and not out:
        out.append(f"expected {len(expected)} messages, found {len(found)}")
    return out
