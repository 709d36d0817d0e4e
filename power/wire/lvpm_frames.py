"""Monsoon LVPM (white, stock firmware): frames, commands and the status packet.

The vendor never published this protocol. The facts are those on which four independent public clients
agree byte for byte: AOSP CTS, Mobly 1.10.1, Catapult and ACTS.

A frame, in both directions, is ``LEN | BODY | CKSUM``. LEN counts the body and the checksum; the checksum
is the low byte of the sum of everything before it. There is no byte that marks a start.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache

import numpy as np

from power.wire.hvpm_control import UsbPassthrough

VOLTAGE_MIN_V = 2.01
VOLTAGE_MAX_V = 4.55
"""Range of the output: codes 1 to 255 are 2.0 V + 10 mV each; code 0 switches the output off."""

VOLTAGE_SETTING_STEP_V = 0.01

CURRENT_LIMIT_MAX_A = 8.0
CURRENT_LIMIT_STEP_A = CURRENT_LIMIT_MAX_A / 1023

FINE_REFERENCE_A = 0.0332
COARSE_REFERENCE_A = 2.88
"""The currents behind a reference calibration packet, the same in every client of stock units."""

_FINE_REFERENCE_AT_50_MOHM_A = 0.035946
_COARSE_REFERENCE_AT_50_MOHM_A = 3.1034
"""The same in the vendor's package, made for units with the USB firmware: scaled by the unit's resistors."""

SEQUENCE_MODULUS = 16
FLAG_OVER_CURRENT = 0x10
FLAG_OUTPUT_ON = 0x20
FLAGS_RESERVED = 0xC0

DATA, ZERO_CALIBRATION, REFERENCE_CALIBRATION = 0, 1, 2


def encode_frame(body: bytes) -> bytes:
    """``LEN | BODY | CKSUM``."""
    framed = bytes([len(body) + 1]) + body
    return framed + bytes([sum(framed) & 0xFF])


GET_STATUS = encode_frame(b"\x01\x00\x00")
STOP = encode_frame(b"\x03\x00")
PREPARE = encode_frame(b"\x01\x1b\x01")
START = encode_frame(b"\x02\xff\xff\xff\xff\x03\xe8")
"""Each is a write of its own: of several frames in one write the firmware takes the first only. Preparing has
no known effect, but every client does it. Start asks for samples without end (FFFFFFFF) and a calibration
after every 0x03E8 = 1000 packets."""


def voltage_code(voltage_v: float) -> int:
    """The code of the highest voltage that does not exceed ``voltage_v``.

    Raises:
        ValueError: Outside what the instrument can do.
    """
    if not VOLTAGE_MIN_V <= voltage_v <= VOLTAGE_MAX_V:
        raise ValueError(f"{voltage_v:g} V is outside {VOLTAGE_MIN_V} to {VOLTAGE_MAX_V} V")
    return int((voltage_v - 2.0) * 100 + 1e-6)  # 3.7 - 2.0 is slightly below 1.7 in binary


def setting_v(code: int) -> float:
    """The voltage of a code; not for 0, which is off."""
    return 2.0 + VOLTAGE_SETTING_STEP_V * code


def current_limit_code(limit_a: float) -> int:
    """The 10-bit code of the highest current limit that does not exceed ``limit_a``."""
    # A whole step may come out slightly below itself in binary.
    return 1023 - int(limit_a / CURRENT_LIMIT_MAX_A * 1023 + 1e-6)


def set_voltage(code: int) -> bytes:
    """Command: output voltage by code; 0 switches the output off."""
    return encode_frame(bytes([0x01, 0x01, code]))


class Limit(IntEnum):
    """A current limit: the number of the command for its low byte; the next one is for the high byte."""

    POWER_UP = 0x08
    RUN_TIME = 0x0A


def set_limit(limit: Limit, old: int, new: int) -> list[bytes]:
    """Commands that change a limit from one code to another, each to be written and confirmed by itself.

    A limit takes two commands and holds in between. Their order is such that this limit is never higher, in
    amperes, than the higher of the old and the new one.
    """
    low = encode_frame(bytes([0x01, limit, new & 0xFF]))
    high = encode_frame(bytes([0x01, limit + 1, new >> 8]))
    return [high, low] if new >> 8 > old >> 8 else [low, high]  # a higher code is a lower current


def set_usb_passthrough(mode: UsbPassthrough) -> bytes:
    """Command: USB passthrough."""
    return encode_frame(bytes([0x01, 0x10, mode]))


def split_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The bodies of the whole frames at the start of ``data``, and the rest.

    For the few frames of a dialogue. A bad checksum throws everything away: without a start byte there
    is nothing to resynchronise on.
    """
    bodies: list[bytes] = []
    while data:
        end = data[0] + 1
        if len(data) < end:
            break
        if data[0] and sum(data[: end - 1]) & 0xFF != data[end - 1]:
            return bodies, b""
        bodies.append(data[1 : end - 1])
        data = data[end:]
    return bodies, data


STATUS_STRUCT = struct.Struct(">BBBhhhHhhhHBBBBBbHBHHHHBbbHHBBBbbbbbbbbbBH")
STATUS_TYPE = 0x10
STATUS_FIELDS = (
    *("packetType", "firmwareVersion", "protocolVersion"),
    *("mainFineCurrent", "usbFineCurrent", "auxFineCurrent", "voltage1"),
    *("mainCoarseCurrent", "usbCoarseCurrent", "auxCoarseCurrent", "voltage2"),
    *("outputVoltageSetting", "temperature", "status", "reserved", "leds", "mainFineResistor"),
    "serialNumber",
    *("sampleRate", "dacCalLow", "dacCalHigh", "powerUpCurrentLimit", "runTimeCurrentLimit"),
    *("powerUpTime", "usbFineResistor", "auxFineResistor", "initialUsbVoltage", "initialAuxVoltage"),
    *("hardwareRevision", "temperatureLimit", "usbPassthroughMode"),
    *("mainCoarseResistor", "usbCoarseResistor", "auxCoarseResistor"),
    *("defMainFineResistor", "defUsbFineResistor", "defAuxFineResistor"),
    *("defMainCoarseResistor", "defUsbCoarseResistor", "defAuxCoarseResistor", "eventCode", "eventData"),
)
"""The names that all clients use, in wire order; ``reserved`` is a byte that none of them looks at."""

_NOT_FACTS = ("packetType", "outputVoltageSetting", "reserved")

EMULATED_MARK = 0xE5
"""What our emulator puts into ``reserved``; the firmware leaves 0 there."""


class StatusBit(IntFlag):
    """Bits of the field ``status``, as firmware 20 sets them."""

    OUTPUT_OFF = 0x01
    OVER_CURRENT = 0x02
    BAD_CHECKSUM = 0x04
    STREAM_ENDED = 0x08  # by itself, or it never began
    STOPPED = 0x10
    UNKNOWN_COMMAND = 0x40


@dataclass(frozen=True, slots=True)
class Status:
    """A status packet: raw fields, and the scaled values of those whose meaning is known."""

    raw: dict[str, int]

    @classmethod
    def decode(cls, body: bytes) -> Status:
        """From the body of a frame.

        Raises:
            ValueError: It is not a status packet.
        """
        if len(body) != STATUS_STRUCT.size or body[0] != STATUS_TYPE:
            raise ValueError("not a status packet")
        return cls(dict(zip(STATUS_FIELDS, STATUS_STRUCT.unpack(body), strict=True)))

    def encode(self) -> bytes:
        """The body of a frame."""
        return STATUS_STRUCT.pack(*(self.raw[name] for name in STATUS_FIELDS))

    @property
    def serial_number(self) -> int:
        """The number printed on the back."""
        return self.raw["serialNumber"]

    @property
    def rate_hz(self) -> float:
        """Samples per second (the field is in kHz)."""
        return self.raw["sampleRate"] * 1000.0

    @property
    def output_setting_v(self) -> float:
        """The voltage last set; it stays when the output is switched off."""
        return setting_v(self.raw["outputVoltageSetting"])

    @property
    def power_up_limit_a(self) -> float:
        """Highest current while the output comes up."""
        return CURRENT_LIMIT_MAX_A * (1023 - self.raw["powerUpCurrentLimit"]) / 1023

    @property
    def run_time_limit_a(self) -> float:
        """Highest current afterwards."""
        return CURRENT_LIMIT_MAX_A * (1023 - self.raw["runTimeCurrentLimit"]) / 1023

    @property
    def usb_passthrough(self) -> int:
        """Mode of the USB passthrough, see `UsbPassthrough`."""
        return self.raw["usbPassthroughMode"]

    def references_a(self, *, by_resistors: bool) -> tuple[float, float]:
        """The currents behind a reference calibration: fine and coarse."""
        if not by_resistors:
            return FINE_REFERENCE_A, COARSE_REFERENCE_A
        fine_ohm, coarse_ohm = (
            0.05 + 1e-4 * self.raw[name] for name in ("mainFineResistor", "mainCoarseResistor")
        )
        return (
            _FINE_REFERENCE_AT_50_MOHM_A * 0.05 / fine_ohm,
            _COARSE_REFERENCE_AT_50_MOHM_A * 0.05 / coarse_ohm,
        )

    @property
    def emulated(self) -> bool:
        """Whether it is our emulator that answers."""
        return self.raw["reserved"] == EMULATED_MARK

    @property
    def bits(self) -> StatusBit:
        """What it says of its output and of the last command."""
        return StatusBit(self.raw["status"])

    @property
    def voltage_step_v(self) -> float:
        """Volts per count of a sample's voltage (Catapult's rule by hardware revision)."""
        return 62.5e-6 if self.raw["hardwareRevision"] == 1 else 125e-6

    def facts(self) -> dict[str, str | int | float | bool]:
        """Everything a later reader may want to know, scaled where the scale is known."""
        out: dict[str, str | int | float | bool] = {
            "output_setting_v": round(self.output_setting_v, 2),
            "power_up_limit_a": self.power_up_limit_a,
            "run_time_limit_a": self.run_time_limit_a,
            "voltage_step_v": self.voltage_step_v,
        }
        for name, value in self.raw.items():
            if name.endswith("Resistor"):
                base_ohm = 0.10 if "aux" in name.lower() else 0.05
                out[f"{name}_ohm"] = round(base_ohm + 1e-4 * value, 4)
            elif name in ("voltage1", "voltage2", "initialUsbVoltage", "initialAuxVoltage"):
                out[f"{name}_v"] = value * 125e-6
            elif name not in ("packetType", "outputVoltageSetting", "reserved") and not name.endswith(
                "CurrentLimit"
            ):
                out[name] = value
        return out


_STATUS_START = bytes([STATUS_STRUCT.size + 1, STATUS_TYPE])


def find_status(data: bytes, bits: int = 0) -> Status | None:
    """The first status packet with these bits, among others, samples, or the rest of a frame."""
    for start in _positions(data, _STATUS_START):
        bodies, _ = split_frames(data[start : start + STATUS_STRUCT.size + 2])
        if bodies and (status := Status.decode(bodies[0])).raw["status"] & bits == bits:
            return status
    return None


def _positions(data: bytes, pattern: bytes) -> Iterator[int]:
    start = data.find(pattern)
    while start >= 0:
        yield start
        start = data.find(pattern, start + 1)


def samples_in(length: int) -> int:
    """How many samples a sample packet with this LEN holds; 0 if it cannot be one.

    The body is 4 header bytes, 8 bytes per sample, and one trailing byte of unknown meaning.
    """
    count, rest = divmod(length - 6, 8)
    return count if rest == 0 and count > 0 else 0


MEASUREMENT = np.dtype([("main", ">i2"), ("usb", ">i2"), ("aux", ">i2"), ("voltage", ">u2")])


@lru_cache(maxsize=32)
def sample_frame(samples: int) -> np.dtype[np.void]:
    """A whole sample packet with so many samples, LEN and checksum included."""
    return np.dtype(
        [
            ("length", "u1"),
            ("flags", "u1"),
            ("type", "u1"),
            ("reserved", "u1"),
            ("lost", "u1"),  # samples that the instrument had no room for before this packet, modulo 256
            ("measurements", MEASUREMENT, samples),
            ("trailer", "u1"),
            ("checksum", "u1"),
        ]
    )
