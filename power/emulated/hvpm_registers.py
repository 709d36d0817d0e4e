"""The memory behind the control transfers of an emulated Monsoon on USB."""

from __future__ import annotations

import errno
from typing import Final

from power.emulated.usb_socket import ControlRequest, TransferError
from power.wire.hvpm_control import (
    ERROR_WORD,
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
    Opcode.SERIAL_NUMBER,
    Opcode.HARDWARE_MODEL,
    Opcode.FIRMWARE_VERSION,
    Opcode.PROTOCOL_VERSION,
    Opcode.START_STATUS,
}
_READABLE_WHILE_SAMPLING: Final = {Opcode.FIRMWARE_VERSION, Opcode.PROTOCOL_VERSION, Opcode.START_STATUS}
_DAC_LOW, _DAC_HIGH = 0xE000, 0xC800  # inside what the vendor's check accepts


class Registers:
    """One word per opcode, with the rules of the protocol.

    Attributes:
        sampling: Most opcodes answer with an error word meanwhile.
    """

    def __init__(
        self, model: HardwareModel, serial: int, voltage_v: float, *, dac_is_plausible: bool
    ) -> None:
        self.sampling = False
        self._serial = serial
        self._words = dict.fromkeys(Opcode, 0)
        if model is HardwareModel.HVPM:
            self._words |= _HVPM_DEFAULTS
        else:
            resistors = (op for op in Opcode if op.name.endswith("RESISTOR_OFFSET"))
            self._words |= dict.fromkeys(resistors, LVPM_RESISTOR_OFFSET)
        self._words |= {
            Opcode.SERIAL_NUMBER: serial,
            Opcode.HARDWARE_MODEL: model,
            Opcode.FIRMWARE_VERSION: 32,  # the last one published
            Opcode.PROTOCOL_VERSION: 1,
            Opcode.MAIN_VOLTAGE: voltage_word(voltage_v),
            Opcode.POWER_UP_CURRENT_LIMIT: current_limit_raw(model, 4.6),
            Opcode.RUN_CURRENT_LIMIT: current_limit_raw(model, 4.6),
            Opcode.POWER_UP_TIME: 20,
            Opcode.TEMPERATURE_LIMIT: temperature_limit_raw(60),
            Opcode.USB_PASSTHROUGH: UsbPassthrough.OFF,
            Opcode.DAC_CAL_LOW: _DAC_LOW if dac_is_plausible else 0xA000,
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
            return self._write(opcode, request)
        raise TransferError(errno.EPIPE)

    def _read(self, opcode: Opcode) -> int:
        if self.sampling and opcode not in _READABLE_WHILE_SAMPLING:
            return ERROR_WORD
        if opcode is Opcode.START_STATUS:
            return SAMPLING_BIT if self.sampling else 0
        return self._words[opcode] & 0xFFFFFFFF

    def _write(self, opcode: Opcode, request: ControlRequest) -> bytes:
        # The same 24 bits travel twice; a client that puts them together wrongly fails here.
        word = int.from_bytes(request.data, "little")
        agrees = request.value | (request.index >> 8) << 16 == word & 0xFFFFFF
        if len(request.data) != 4 or not agrees or self.sampling or opcode in _READ_ONLY:
            raise TransferError(errno.EPIPE)
        if opcode is Opcode.CALIBRATE_MAIN_VOLTAGE:
            self._words |= {Opcode.DAC_CAL_LOW: _DAC_LOW, Opcode.DAC_CAL_HIGH: _DAC_HIGH}
        else:
            self._words[opcode] = word
        return b""

    def _string(self, index: int) -> bytes:
        languages, texts = b"\x09\x04", ("", "Monsoon Solutions", "Power Monitor", str(self._serial))
        if index >= len(texts):
            raise TransferError(errno.EPIPE)
        body = texts[index].encode("utf-16-le") if index else languages
        return bytes([len(body) + 2, _STRING]) + body


def _opcode(code: int) -> Opcode:
    try:
        return Opcode(code)
    except ValueError as error:
        raise TransferError(errno.EPIPE) from error
