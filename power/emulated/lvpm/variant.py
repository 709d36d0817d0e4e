"""Which LVPM is emulated, and how it is set when it comes up."""

from __future__ import annotations

from joulefleet.errors import ConfigError
from power.wire.lvpm_frames import EMULATED_MARK, STATUS_FIELDS, STATUS_TYPE, current_limit_code, voltage_code

_WORDS = {
    "revision-1": "first hardware revision: half the voltage step",
    "fresh": "as after power-up: output off, limits and voltage as the firmware sets them",
    "joined-writes": "takes every frame of a write: a pty joins what a client writes frame by frame",
}


def variant_words(variant: str) -> set[str]:
    """The words of an option ``variant``, known ones only."""
    words = {word for word in variant.split(",") if word}
    for word in words - set(_WORDS):
        raise ConfigError(f"variant {word!r}: an LVPM has no such", hint=f"it has: {', '.join(_WORDS)}")
    return words


def initial_status(serial: str, rate_hz: float, words: set[str]) -> dict[str, int]:
    """The fields of the status packet when it comes up."""
    number = serial or "12345"
    if not number.isdecimal() or int(number) > 0xFFFF:
        raise ConfigError(f"serial {serial!r}: an LVPM's is a number up to 65535")
    if rate_hz % 1000 or rate_hz > 255_000:
        raise ConfigError(f"rate_hz {rate_hz:g}: an LVPM states its rate in whole kHz, up to 255")
    fresh = "fresh" in words
    resistors = dict(zip(("MainFine", "UsbFine", "AuxFine", "MainCoarse", "UsbCoarse", "AuxCoarse"),
                         (69, 60, -28, 51, 41, 20), strict=True))  # fmt: skip
    return dict.fromkeys(STATUS_FIELDS, 0) | {
        "packetType": STATUS_TYPE,
        "reserved": EMULATED_MARK,
        "firmwareVersion": 20,
        "protocolVersion": 17,
        "hardwareRevision": 1 if "revision-1" in words else 4,
        "serialNumber": int(number),
        "sampleRate": int(rate_hz / 1000),
        "temperature": 50,
        "temperatureLimit": 38,
        "dacCalLow": 0xB0E2,
        "dacCalHigh": 0x2E1B,
        "powerUpTime": 20,
        "usbPassthroughMode": 2,
        "initialUsbVoltage": 32_000,
        "initialAuxVoltage": 32_000,
        "outputVoltageSetting": 170 if fresh else voltage_code(4.0),
        "powerUpCurrentLimit": 959 if fresh else current_limit_code(3.0),
        "runTimeCurrentLimit": 434 if fresh else current_limit_code(3.0),
        **{f"{name[0].lower()}{name[1:]}Resistor": value for name, value in resistors.items()},
        **{f"def{name}Resistor": value for name, value in resistors.items()},
    }
