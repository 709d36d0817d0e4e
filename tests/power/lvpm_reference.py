"""LVPM packets built with struct, and a slow decoder that reads like the protocol description.

It shares no code with `power.wire`: one byte, one packet, one sample at a time.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from dataclasses import dataclass, field

FINE_ZERO, FINE_REF, COARSE_ZERO, COARSE_REF = 100, 20_100, -40, 14_960
STEP_V = 125e-6

Row = tuple[int, int, int, int]  # main, usb, aux, voltage


def frame(body: bytes) -> bytes:
    length = len(body) + 1
    return struct.pack("B", length) + body + struct.pack("B", (length + sum(body)) % 256)


def packet(sequence: int, kind: int, rows: list[Row], *, flags: int = 0x20, lost: int = 0) -> bytes:
    body = struct.pack("BBBB", flags | sequence % 16, kind, 0x00, lost)
    body += b"".join(struct.pack(">hhhH", *row) for row in rows)
    return frame(body + b"\x84")


def zero_packet(sequence: int, fine: int = FINE_ZERO, coarse: int = COARSE_ZERO) -> bytes:
    return packet(sequence, 1, [(fine, 0, 0, 0), (coarse, 0, 0, 0)])


def reference_packet(sequence: int, fine: int = FINE_REF, coarse: int = COARSE_REF) -> bytes:
    return packet(sequence, 2, [(fine, 0, 0, 0), (coarse, 0, 0, 0)])


def main_reading(number: int) -> int:
    """A raw reading that differs from sample to sample, in both ranges."""
    return (number * 62) % 20_000 | (number // 50) % 2


def data_packets(count: int, *, first_sequence: int = 2, samples: int = 7) -> list[bytes]:
    """Packets of recognisable samples: sample number ``i`` always reads the same."""
    out = []
    for p in range(count):
        numbers = range(p * samples, (p + 1) * samples)
        rows = [(main_reading(i), 5, -5, 32_000 + i % 4000) for i in numbers]
        out.append(packet(first_sequence + p, 0, rows))
    return out


def clean_stream(count: int, *, samples: int = 7) -> list[bytes]:
    """A calibration pair and ``count`` data packets."""
    return [zero_packet(0), reference_packet(1), *data_packets(count, samples=samples)]


@dataclass
class SlowResult:
    """``samples``: number, amperes, volts. ``lost``: number of the next sample to how many are missing."""

    samples: list[tuple[int, float, float]] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)


class SlowDecoder:
    """Decodes a whole stream at once."""

    def __init__(self, data: bytes, voltage_step_v: float = STEP_V) -> None:
        self.data = data
        self.step_v = voltage_step_v
        self.result = SlowResult()
        self.windows: dict[str, deque[int]] = {
            name: deque(maxlen=5) for name in ("fine1", "fine2", "coarse1", "coarse2")
        }
        self.doubted: dict[str, list[int]] = {}
        self.last_scale = {"fine": 0.0, "coarse": 0.0}
        self.sequence: int | None = None
        self.packet_samples = 0
        self.index = 0
        self.pending_loss = 0
        self.skipped = 0

    def run(self) -> SlowResult:
        at = 0
        in_sync, jumped = True, False
        while at < len(self.data):
            believed = not in_sync
            if not in_sync:
                verdict = self.chain_at(at)
                if verdict == "unknown":
                    break
                if verdict == "no":
                    at += 1
                    self.skipped += 1
                    jumped = False
                    continue
                self.result.seen["resync"] += not jumped
                in_sync, jumped = True, False
            length = self.data[at]
            if at + length + 1 > len(self.data):
                break
            whole = self.data[at : at + length + 1]
            if length == 0:
                self.result.seen["empty_packet"] += 1
            elif sum(whole[:-1]) % 256 != whole[-1]:
                self.result.seen["bad_checksum"] += 1
                in_sync = False
                at += 1
                self.skipped += 1
                continue
            elif not believed and self.tells_of_losses(whole[1:-1]):
                in_sync, jumped = False, True
                continue
            else:
                self.take(whole[1:-1])
            at += length + 1
        self.result.seen += Counter()  # without zeros
        return self.result

    def is_sample_packet(self, body: bytes) -> bool:
        count, rest = divmod(len(body) - 5, 8)
        if rest or count < 1 or body[0] >= 64 or body[1] > 2:
            return False
        return body[1] == 0 or count % 2 == 0

    def tells_of_losses(self, body: bytes) -> bool:
        """Whether more than one packet has to say so."""
        if not self.is_sample_packet(body):
            return False
        skips = self.sequence is not None and (body[0] - self.sequence - 1) % 16 != 0
        return skips or body[3] != 0

    def frame_at(self, at: int) -> str:
        header = self.data[at : at + 3]
        if not header:
            return "unknown"
        if header[0] not in range(14, 256, 8):
            return "no"
        if len(header) > 1 and header[1] >= 64:
            return "no"
        if len(header) > 2 and (header[2] > 2 or (header[2] > 0 and header[0] % 16 != 6)):
            return "no"
        whole = self.data[at : at + header[0] + 1]
        if len(whole) < header[0] + 1:
            return "unknown"
        return "yes" if sum(whole[:-1]) % 256 == whole[-1] else "no"

    def chain_at(self, at: int) -> str:
        first = self.frame_at(at)
        if first != "yes":
            return first
        following = at + self.data[at] + 1
        if self.data[following : following + 1] == b"\x3b":  # a status ends the stream
            whole = self.data[following : following + 60]
            if whole[1:2] not in (b"", b"\x10"):
                return "no"
            return "unknown" if len(whole) < 60 else "yes" if sum(whole[:-1]) % 256 == whole[-1] else "no"
        if following + 1 < len(self.data):
            expected = (self.data[at + 1] + 1) % 16
            if self.data[following + 1] % 16 != expected:
                return "no"
        return self.frame_at(following)

    def take(self, body: bytes) -> None:
        if len(body) == 58 and body[0] == 0x10:
            return
        if not self.is_sample_packet(body):
            self.result.seen["unknown_packet"] += 1
            self.skipped += len(body) + 2
            return
        count = (len(body) - 5) // 8
        self.count_lost(body[0] % 16, count, len(body) + 2)
        if self.result.samples:
            self.pending_loss += body[3]
            self.index += body[3]
        if body[0] & 0x10:
            self.result.seen["over_current"] += 1
        if not body[0] & 0x20:
            self.result.seen["output_off"] += 1
        rows = [struct.unpack(">hhhH", body[4 + 8 * i : 12 + 8 * i]) for i in range(count)]
        if body[1] == 0:
            self.packet_samples = count
            for main, _, _, voltage in rows:
                self.sample(main, voltage)
        else:
            for i, name in enumerate(("fine", "coarse")):
                self.calibrate(name, str(body[1]), [row[0] for row in rows[i::2]])
            if self.result.samples:
                self.index += count

    def count_lost(self, sequence: int, count: int, size: int) -> None:
        if self.sequence is not None:
            packets = (sequence - self.sequence - 1) % 16
            packets += 16 * max(0, round((self.skipped / size - packets) / 16))
            lost = packets * (self.packet_samples or count)
            self.pending_loss += lost
            self.index += lost
        self.sequence = sequence
        self.skipped = 0

    def mean(self, name: str) -> float:
        return sum(self.windows[name]) / len(self.windows[name])

    def scale(self, name: str) -> float:
        if not self.windows[name + "1"] or not self.windows[name + "2"]:
            return 0.0
        span = self.mean(name + "2") - self.mean(name + "1")
        return {"fine": 0.0332, "coarse": 2.88}[name] / span if span else 0.0

    def calibrate(self, name: str, kind: str, readings: list[int]) -> None:
        """Of one packet and range."""
        window = self.windows[name + kind]
        scale = self.last_scale[name] = self.scale(name) or self.last_scale[name]
        limit_a = {"fine": 100e-6, "coarse": 2e-3}[name]
        doubted = self.doubted.pop(name + kind, [])
        if not window or all(abs(r - self.mean(name + kind)) * abs(scale) <= limit_a for r in readings):
            window.extend(readings)
            return
        both = doubted + readings
        if doubted and (max(both) - min(both)) * abs(scale) <= limit_a:
            window.clear()
            window.extend(both)
        else:
            self.doubted[name + kind] = readings

    def sample(self, main: int, voltage: int) -> None:
        if not self.scale("fine") or not self.scale("coarse"):
            lost = bool(self.result.samples)  # before the first sample nothing is missed
            self.result.seen["bad_calibration" if lost else "before_calibration"] += 1
            self.pending_loss += lost
        else:
            name = "coarse" if main & 1 else "fine"
            current_a = ((main & ~1) - self.mean(name + "1")) * self.scale(name)
            if main & ~1 in (-32768, 32766):
                self.result.seen["clipping"] += 1
            if self.pending_loss and self.result.samples:
                self.result.lost[self.index] = self.pending_loss
            self.pending_loss = 0
            self.result.samples.append((self.index, current_a, (voltage & ~3) * self.step_v))
        self.index += 1


def decode_slowly(data: bytes, voltage_step_v: float = STEP_V) -> SlowResult:
    return SlowDecoder(data, voltage_step_v).run()
