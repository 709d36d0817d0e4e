"""The memory behind the control transfers of an emulated Monsoon on USB."""

from __future__ import annotations

import errno
from typing import Final

from power.emulated.hvpm.variant import HvpmVariant
from power.emulated.usb.cable import ControlRequest, TransferError
from power.wire.hvpm_control import (
    EMULATED_MAKER,
    SAMPLING_BIT,
    HardwareModel,
    Opcode,
    Request,
    RequestType,
    UsbPassthrough,
    current_limit_raw,
    temperature_limit_raw,
    voltage_word,
)

LVPM_RESISTOR_OFFSET: Final = 3
VOLTAGE_S: Final = 0.1305
VOLTAGE_WHILE_SAMPLING_S: Final = 0.1935
VOLTAGE_OFF_S: Final = 0.0402
_GET_DESCRIPTOR: Final = (0x80, 6)
_STRING: Final = 3

_HVPM_DEFAULTS: Final = {
    # HVPM.setDefaultScaleValues of the vendor's package
    Opcode.MAIN_FINE_SCALE: 36_500,
    Opcode.MAIN_COARSE_SCALE: 6_400,
    Opcode.USB_FINE_SCALE: 14_000,
    Opcode.USB_COARSE_SCALE: 600,
    Opcode.AUX_FINE_SCALE: 3_100,
    Opcode.AUX_COARSE_SCALE: 250,
    Opcode.MAIN_FINE_ZERO_OFFSET: 15,
    Opcode.MAIN_COARSE_ZERO_OFFSET: 15,
}
_READ_ONLY: Final = {
    Opcode.HARDWARE_MODEL,
    Opcode.FIRMWARE_VERSION,
    Opcode.PROTOCOL_VERSION,
    Opcode.START_STATUS,
}
_SIZES: Final = {  # bytes that count, where it is not two
    **dict.fromkeys((op for op in Opcode if op.name.endswith("RESISTOR_OFFSET")), 1),
    **dict.fromkeys((Opcode.POWER_UP_TIME, Opcode.USB_PASSTHROUGH, Opcode.VOLTAGE_CHANNEL), 1),
    **dict.fromkeys((op for op in Opcode if op.name.endswith("_SCALE")), 4),
    Opcode.MAIN_VOLTAGE: 4,
}
_IN_EEPROM: Final = {
    *(op for op in Opcode if op.name.endswith(("_OFFSET", "_SCALE"))),
    *(Opcode.SERIAL_NUMBER, Opcode.TEMPERATURE_LIMIT, Opcode.DAC_CAL_LOW, Opcode.DAC_CAL_HIGH),
}
_EEPROM_BYTE_S: Final = 0.004
_NOT_KNOWN: Final = 0xFFFFFFFF
FIRST_WITH_STATUS: Final = 26
"""Firmware from which on a unit says whether it samples, and guards its settings meanwhile."""
_DAC_LOW, _DAC_HIGH = 0xE000, 0xC800  # inside what the vendor's check accepts


class Registers:
    """One word per opcode, with the rules of the firmware.

    Attributes:
        sampling: Whether the unit samples.
    """

    def __init__(self, variant: HvpmVariant) -> None:
        self.sampling = False
        self._firmware = variant.firmware
        model = variant.model
        self._words = dict.fromkeys(Opcode, 0)
        resistors = [op for op in Opcode if op.name.endswith("RESISTOR_OFFSET")]
        if model is HardwareModel.HVPM:
            self._words |= _HVPM_DEFAULTS | dict.fromkeys(resistors, 0xFF)  # a blank EEPROM
        else:
            self._words |= dict.fromkeys(resistors, LVPM_RESISTOR_OFFSET)
        limits = (0x3100, 0x9900) if variant.fresh else (current_limit_raw(model, 4.6),) * 2
        self._words |= {
            Opcode.SERIAL_NUMBER: variant.serial,
            Opcode.HARDWARE_MODEL: model,
            Opcode.FIRMWARE_VERSION: variant.firmware,
            Opcode.PROTOCOL_VERSION: 0x0201,
            Opcode.MAIN_VOLTAGE: 0 if variant.fresh else voltage_word(variant.voltage_v),
            Opcode.POWER_UP_CURRENT_LIMIT: limits[0],
            Opcode.RUN_CURRENT_LIMIT: limits[1],
            Opcode.POWER_UP_TIME: 20,
            Opcode.TEMPERATURE_LIMIT: temperature_limit_raw(37.75),
            Opcode.USB_PASSTHROUGH: UsbPassthrough.AUTO,
            Opcode.DAC_CAL_LOW: _DAC_LOW if variant.dac_is_plausible else 0xA000,
            Opcode.DAC_CAL_HIGH: _DAC_HIGH,
        }

    def __getitem__(self, opcode: Opcode) -> int:
        return self._words[opcode]

    def answer(self, request: ControlRequest) -> bytes:
        """Reads, writes and string descriptors; anything else stalls, as a real endpoint does."""
        kind = (request.request_type, request.request)
        if kind == _GET_DESCRIPTOR and request.value >> 8 == _STRING:
            return self._string(request.value & 0xFF)[: request.length]
        opcode = _opcode(request.index & 0xFF)
        if kind == (RequestType.IN, Request.VALUE):
            return self._read(opcode).to_bytes(4, "little")[: request.length]
        if kind == (RequestType.OUT, Request.VALUE):
            self._write(opcode, request)
            return b""
        raise TransferError(errno.EPIPE)

    def takes_s(self, request: ControlRequest) -> float:
        """How long the unit is busy with a request."""
        opcode = _opcode(request.index & 0xFF)
        if request.request_type != RequestType.OUT or request.request != Request.VALUE:
            return 0.0
        if opcode is Opcode.MAIN_VOLTAGE:
            on_s = VOLTAGE_WHILE_SAMPLING_S if self.sampling else VOLTAGE_S
            return on_s if self._words[opcode] else VOLTAGE_OFF_S
        return _EEPROM_BYTE_S * _SIZES.get(opcode, 2) if opcode in _IN_EEPROM else 0.0

    def _read(self, opcode: Opcode | None) -> int:
        if opcode is None:
            return _NOT_KNOWN
        if opcode is Opcode.START_STATUS:
            if self._firmware < FIRST_WITH_STATUS:
                return _NOT_KNOWN
            return SAMPLING_BIT if self.sampling else 0
        return self._words[opcode] & 0xFFFFFFFF

    def _write(self, opcode: Opcode | None, request: ControlRequest) -> None:
        """The value is in the setup packet; the firmware does not look at the data."""
        guarded = self.sampling and self._firmware >= FIRST_WITH_STATUS and opcode is Opcode.MAIN_VOLTAGE
        if opcode is None or opcode in _READ_ONLY or guarded:
            raise TransferError(errno.EPIPE)
        word = request.value | (request.index >> 8) << 16
        if opcode is Opcode.CALIBRATE_MAIN_VOLTAGE:
            self._words |= {Opcode.DAC_CAL_LOW: _DAC_LOW, Opcode.DAC_CAL_HIGH: _DAC_HIGH}
        else:
            self._words[opcode] = word & (1 << 8 * _SIZES.get(opcode, 2)) - 1

    def _string(self, index: int) -> bytes:
        languages = b"\x09\x04"
        texts = ("", EMULATED_MAKER, "Mobile Device Power Monitor", str(self._words[Opcode.SERIAL_NUMBER]))
        if index >= len(texts):
            raise TransferError(errno.EPIPE)
        body = texts[index].encode("utf-16-le") if index else languages
        return bytes([len(body) + 2, _STRING]) + body


def _opcode(code: int) -> Opcode | None:
    return Opcode(code) if code in Opcode._value2member_map_ else None
