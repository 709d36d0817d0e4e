"""Monsoon HVPM and reflashed LVPM over USB: requests, opcodes, and how their values are encoded.

Sources: ``Operations.py`` and ``pmapi.py`` of the vendor's package Monsoon 0.1.88. The opcode table of its
API.pdf is shifted by one row from ``SetMainFineZeroOffset`` on and was not followed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from joulefleet.errors import MeterProtocolError

VENDOR_ID: Final = 0x2AB9
PRODUCT_ID: Final = 0x0001
BOOTLOADER_IDS: Final = ((0x2AB9, 0xFFFF), (0x04D8, 0x000B))
"""What a unit calls itself while it waits for new firmware (``reflash.py``)."""

EMULATED_MAKER: Final = "joulefleet (emulated)"
"""What our emulators give as their maker on USB, where a real unit says Monsoon Solutions."""

BULK_IN: Final = 0x81
BULK_READ_BYTES: Final = 64

NOMINAL_RATE_HZ: Final = 5000.0
"""One measurement per 200 us (API.pdf, StartSampling)."""

SAMPLE_RATE_HZ: Final = 12e6 / 2403
"""What the firmware makes of it, 4993.8 Hz: its timer is reloaded by software, three instruction cycles of
1/12 us late. A cycle more or less is 417 ppm; the data sheet leaves that open."""

RATE_UNSURE_PPM: Final = 1e6 / 2403
"""A cycle."""

DEFAULT_CALIBRATION_MS: Final = 1250
UNLIMITED_SAMPLES: Final = 0xFFFFFFFF
ERROR_WORD: Final = 0xFFFFFFFE
"""Reply to most reads while the unit is sampling, says API.pdf; firmware 25 to 32 return values."""

SAMPLING_BIT: Final = 0x80
"""In `Opcode.START_STATUS`; only firmware 26 and later sets it."""


class RequestType(IntEnum):
    """``bmRequestType`` of the two vendor transfers."""

    OUT = 0x40
    IN = 0xC0


class Request(IntEnum):
    """``bRequest``."""

    VALUE = 0x01
    START = 0x02
    STOP = 0x03
    RESET_TO_BOOTLOADER = 0xFF


class Opcode(IntEnum):
    """What `Request.VALUE` reads or writes."""

    MAIN_FINE_RESISTOR_OFFSET = 0x02
    CALIBRATE_MAIN_VOLTAGE = 0x03
    RESET = 0x05
    POWER_UP_TIME = 0x0C
    USB_FINE_RESISTOR_OFFSET = 0x0D
    AUX_FINE_RESISTOR_OFFSET = 0x0E
    USB_PASSTHROUGH = 0x10
    MAIN_COARSE_RESISTOR_OFFSET = 0x11
    USB_COARSE_RESISTOR_OFFSET = 0x12
    AUX_COARSE_RESISTOR_OFFSET = 0x13
    MAIN_FINE_SCALE = 0x1A
    MAIN_COARSE_SCALE = 0x1B
    USB_FINE_SCALE = 0x1C
    USB_COARSE_SCALE = 0x1D
    AUX_FINE_SCALE = 0x1E
    AUX_COARSE_SCALE = 0x1F
    VOLTAGE_CHANNEL = 0x23
    MAIN_FINE_ZERO_OFFSET = 0x25
    MAIN_COARSE_ZERO_OFFSET = 0x26
    USB_FINE_ZERO_OFFSET = 0x27
    USB_COARSE_ZERO_OFFSET = 0x28
    TEMPERATURE_LIMIT = 0x29
    MAIN_VOLTAGE = 0x41
    SERIAL_NUMBER = 0x42
    POWER_UP_CURRENT_LIMIT = 0x43
    RUN_CURRENT_LIMIT = 0x44
    HARDWARE_MODEL = 0x45
    DAC_CAL_LOW = 0x88
    DAC_CAL_HIGH = 0x89
    FIRMWARE_VERSION = 0xC0
    PROTOCOL_VERSION = 0xC1
    START_STATUS = 0xC4


_VALUE_BYTES: Final = {
    **dict.fromkeys((op for op in Opcode if op.name.endswith("RESISTOR_OFFSET")), 1),
    Opcode.POWER_UP_TIME: 1,
    Opcode.USB_PASSTHROUGH: 1,
    Opcode.VOLTAGE_CHANNEL: 1,
    Opcode.FIRMWARE_VERSION: 1,
    Opcode.PROTOCOL_VERSION: 1,
    Opcode.START_STATUS: 1,
    Opcode.MAIN_VOLTAGE: 4,
}
"""How many of the four reply bytes count, where it is not two. API.pdf calls scales and zero offsets 4-byte
values, but every client that was run on hardware takes two; so do we."""

_SIGNED: Final = frozenset(op for op in Opcode if op.name.endswith(("RESISTOR_OFFSET", "ZERO_OFFSET")))


class HardwareModel(IntEnum):
    """`Opcode.HARDWARE_MODEL`."""

    LVPM = 1
    HVPM = 2


class UsbPassthrough(IntEnum):
    """Whether the USB port at the front is connected through; ``AUTO`` is off while the unit samples.

    The same numbers in `Opcode.USB_PASSTHROUGH` and in the LVPM's own command.
    """

    OFF = 0
    ON = 1
    AUTO = 2


class VoltageChannel(IntEnum):
    """`Opcode.VOLTAGE_CHANNEL`: which voltages the observations carry."""

    MAIN_AND_USB = 0
    MAIN_AND_AUX = 1


@dataclass(frozen=True, slots=True)
class ValueTransfer:
    """The parts of a control transfer that set a value."""

    w_value: int
    w_index: int
    data: bytes


def encode_set(opcode: Opcode, value: int) -> ValueTransfer:
    """The transfer that writes ``value``; bits 23 to 16 travel in the upper half of ``wIndex``."""
    word = value & 0xFFFFFFFF
    return ValueTransfer(
        w_value=word & 0xFFFF,
        w_index=opcode | ((word >> 16) & 0xFF) << 8,
        data=word.to_bytes(4, "little"),
    )


def decode_word(reply: bytes) -> int:
    """The four reply bytes of a read as one word.

    Raises:
        MeterProtocolError: There are not four.
    """
    if len(reply) != 4:
        raise MeterProtocolError(
            f"monsoon-hvpm: a reply of {len(reply)} bytes instead of 4", hint="power-cycle the instrument"
        )
    return int.from_bytes(reply, "little")


def decode_value(opcode: Opcode, word: int) -> int:
    """The part of a reply word that is this opcode's value."""
    size = _VALUE_BYTES.get(opcode, 2)
    return int.from_bytes(word.to_bytes(4, "little")[:size], "little", signed=opcode in _SIGNED)


VOLT: Final = 2**20
"""`Opcode.MAIN_VOLTAGE` counts 2^-20 V; 0 switches the output off."""


def voltage_word(voltage_v: float) -> int:
    """The word for an output voltage."""
    return round(voltage_v * VOLT)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one hardware model can do.

    Attributes:
        voltage_min_v: Lowest output voltage other than off.
        voltage_max_v: Highest output voltage that may be set at once.
        current_max_a: Upper end of the scale of the current limits.
    """

    voltage_min_v: float
    voltage_max_v: float
    current_max_a: float


MODEL_LIMITS: Final = {
    HardwareModel.LVPM: ModelLimits(2.01, 4.55, 8.0),
    HardwareModel.HVPM: ModelLimits(0.8, 13.5, 15.625),
}
"""HVPM voltages from ACTS ``api/hvpm/monsoon.py``, the rest from the vendor's ``LVPM.py`` and ``HVPM.py``."""

_HV_LIMIT_ZERO: Final = 0x0F00
_LIMIT_STEPS: Final = {HardwareModel.LVPM: 1023, HardwareModel.HVPM: 0xFFFF - _HV_LIMIT_ZERO}


def current_limit_step_a(model: HardwareModel) -> float:
    """The lowest current limit other than none at all."""
    return MODEL_LIMITS[model].current_max_a / _LIMIT_STEPS[model]


def current_limit_raw(model: HardwareModel, current_a: float) -> int:
    """The value of the highest current limit that does not exceed ``current_a``.

    The scale of the LVPM falls, that of the HVPM rises.
    """
    # A share that is a whole step may come out slightly below it in binary.
    steps = int(_LIMIT_STEPS[model] * (current_a / MODEL_LIMITS[model].current_max_a) + 1e-6)
    return _HV_LIMIT_ZERO + steps if model is HardwareModel.HVPM else _LIMIT_STEPS[model] - steps


def current_limit_a(model: HardwareModel, raw: int) -> float:
    """The current limit that a value stands for, amperes."""
    span = _LIMIT_STEPS[model]
    steps = raw - _HV_LIMIT_ZERO if model is HardwareModel.HVPM else span - min(raw, span)
    return steps / span * MODEL_LIMITS[model].current_max_a


def temperature_limit_raw(celsius: float) -> int:
    """The fan's turn-on temperature as Q7.8."""
    return round(celsius * 256)


def temperature_limit_c(raw: int) -> float:
    """The fan's turn-on temperature, degrees Celsius."""
    return raw / 256


def dac_calibration_is_plausible(low: int, high: int) -> bool:
    """The vendor's check against units that put out a wildly wrong voltage (``HVPM.checkDacValues``).

    It also rejects units that work after an update to firmware 32 (msoon/PyMonsoon#29).
    """
    return 0xD000 < low < 0xF000 and 0xC000 < high < 0xD000
