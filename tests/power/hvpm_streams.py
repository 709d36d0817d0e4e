"""Byte streams of a Monsoon on USB for tests, and a slow decoder of them that shares nothing with ours."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from power.wire.hvpm_control import HardwareModel, Opcode
from power.wire.hvpm_scaling import ChannelScale, channel_scale

MEASURE, ZERO, INVALID, REFERENCE = 0x00, 0x10, 0x20, 0x30

HV_VALUES = {
    Opcode.MAIN_FINE_SCALE: 36500,
    Opcode.MAIN_COARSE_SCALE: 6400,
    Opcode.MAIN_FINE_ZERO_OFFSET: 15,
    Opcode.MAIN_COARSE_ZERO_OFFSET: -7,
    Opcode.USB_FINE_SCALE: 14000,
    Opcode.USB_COARSE_SCALE: 600,
    Opcode.USB_FINE_ZERO_OFFSET: 2,
    Opcode.USB_COARSE_ZERO_OFFSET: 0,
    Opcode.AUX_FINE_SCALE: 3100,
    Opcode.AUX_COARSE_SCALE: 250,
}
LV_VALUES = {
    Opcode.MAIN_FINE_RESISTOR_OFFSET: 3,
    Opcode.MAIN_COARSE_RESISTOR_OFFSET: -12,
    Opcode.USB_FINE_RESISTOR_OFFSET: 0,
    Opcode.USB_COARSE_RESISTOR_OFFSET: 7,
    Opcode.AUX_FINE_RESISTOR_OFFSET: -1,
    Opcode.AUX_COARSE_RESISTOR_OFFSET: 1,
}


def scale_of(model: str, channel: str = "main") -> ChannelScale:
    if model == "hv":
        return channel_scale(HardwareModel.HVPM, channel, HV_VALUES)  # type: ignore[arg-type]
    return channel_scale(HardwareModel.LVPM, channel, LV_VALUES)  # type: ignore[arg-type]


def observation(words: list[int], kind: int, *, usb_gain: int = 0, gain: int = 0) -> bytes:
    return struct.pack(">8H", *(word & 0xFFFF for word in words)) + bytes([usb_gain, kind | gain])


def packet(observations: list[bytes], sequence: int, dropped: int, flags: int = 0x20) -> bytes:
    return struct.pack("<HBB", dropped & 0xFFFF, flags | sequence & 15, len(observations)) + b"".join(
        observations
    )


@dataclass
class StreamMaker:
    """Makes packets of random observations, with calibration, drops and sizes as told."""

    rng: np.random.Generator
    model: str = "hv"
    sizes: tuple[int, ...] = (1, 2, 3)
    calibration_every: int = 40
    made: int = 0
    sequence: int = 0
    dropped: int = 0
    packets: list[bytes] = field(default_factory=list)

    def add(self, count: int = 1, *, drop: int = 0, flags: int = 0x20, kind: int | None = None) -> None:
        self.dropped += drop
        for _ in range(count):
            size = int(self.rng.choice(self.sizes))
            rows = [self._observation(kind) for _ in range(size)]
            self.packets.append(packet(rows, self.sequence, self.dropped, flags))
            self.sequence += 1

    def finish(self) -> None:
        """End with two packets of one size: the decoder waits for the header behind one of a new size."""
        self.sizes = (3,)
        self.add(2)

    def _observation(self, kind: int | None) -> bytes:
        phase = self.made % self.calibration_every
        if kind is None:
            kind = {0: ZERO, 1: REFERENCE}.get(phase, MEASURE)
        self.made += 1
        signed = self.model == "lv"
        if kind == MEASURE:
            low, high = (-500, 32767) if signed else (0, 65535)
            words = self.rng.integers(low, high, 6, endpoint=True).tolist()
            words[4:6] = self.rng.integers(-500, 32767, 2).tolist()
        else:
            level = (120, 20_000) if signed else (3000, 36_000)
            around = level[0] if kind == ZERO else level[1]
            words = (around + self.rng.integers(-3, 4, 6)).tolist()
            words[4:6] = ((120 if kind == ZERO else 20_000) + self.rng.integers(-3, 4, 2)).tolist()
        voltages = self.rng.integers(0, 65536, 2).tolist()
        gains = {"usb_gain": int(self.rng.integers(256)), "gain": int(self.rng.choice([0, 1, 0x4F, 0xC3]))}
        return observation([*words, *voltages], kind, **gains)

    @property
    def data(self) -> bytes:
        return b"".join(self.packets)


@dataclass
class SlowDecoder:
    """One sample after the other, straight from the protocol's description. For streams without damage."""

    model: str
    channel: str = "main"

    def decode(self, data: bytes) -> list[tuple[int, float, float, int]]:
        """Rows of tick, amperes, volts, samples lost right before."""
        zero: list[deque[int]] = [deque(maxlen=5), deque(maxlen=5)]
        reference: list[deque[int]] = [deque(maxlen=5), deque(maxlen=5)]
        out: list[tuple[int, float, float, int]] = []
        position = tick = seen = lost = 0
        last_dropped: int | None = None
        while position < len(data):
            dropped, _, count = struct.unpack_from("<HBB", data, position)
            position += 4
            rise = self._rise(last_dropped, dropped, settling=seen < 5000)
            last_dropped = dropped
            tick += rise
            lost += rise
            for _ in range(count):
                raw = data[position : position + 18]
                position += 18
                seen += 1
                kind = raw[17] & 0x30
                coarse, fine, volts = self._fields(raw)
                if kind in (ZERO, REFERENCE):
                    windows = zero if kind == ZERO else reference
                    windows[0].append(coarse)
                    windows[1].append(fine)
                elif kind == INVALID:
                    lost += 1
                elif all(len(w) == 5 for w in (*zero, *reference)):
                    use = 1 if fine < self._fine_limit() else 0
                    means = [sum(w[use]) / 5 for w in (zero, reference)]
                    amps = self._amps((coarse, fine)[use], use, *means)
                    out.append((tick, amps, volts, lost if out else 0))
                    lost = 0
                tick += 1
        return out

    @staticmethod
    def _rise(last: int | None, now: int, *, settling: bool) -> int:
        if last is None or now == last:
            return 0
        rise = now - last if now > last else now - last + 65536
        return 0 if settling and (0xFFFF in (now, last) or rise >= 32768) else rise

    def _fine_limit(self) -> int:
        return 64000 if self.model == "hv" and self.channel != "aux" else 30000

    def _fields(self, raw: bytes) -> tuple[int, int, float]:
        place = {"main": 0, "usb": 4, "aux": 8}[self.channel]
        form = ">HH" if self.model == "hv" and self.channel != "aux" else ">hh"
        coarse, fine = struct.unpack_from(form, raw, place)
        (counts,) = struct.unpack_from(">H", raw, 14 if self.channel == "usb" else 12)
        factor = 2 if self.channel == "usb" or self.model == "lv" else 4
        return coarse, fine, counts * 62.5e-6 * factor

    def _amps(self, raw: int, fine: int, zero: float, reference: float) -> float:
        name = f"{self.channel.upper()}_{'FINE' if fine else 'COARSE'}"
        if self.model == "hv":
            full = HV_VALUES[Opcode[f"{name}_SCALE"]] / (1e6 if fine else 1e3)
            zero += HV_VALUES.get(getattr(Opcode, f"{name}_ZERO_OFFSET", None), 0)  # type: ignore[arg-type]
        else:
            offset = LV_VALUES[Opcode[f"{name}_RESISTOR_OFFSET"]]
            factory = 0.1 if self.channel == "aux" else 0.05
            constants = (1.289, 0.05049) if self.channel == "aux" else (3.1034, 0.035946)
            full = constants[fine] * factory / (factory + offset * 1e-4)
        return full * (raw - zero) / (reference - zero)
