"""Which Monsoon on USB is emulated: the options of the emulator, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np

from joulefleet.errors import ConfigError
from power.emulated.faults import Fault, FaultKind, parse_faults
from power.emulated.options import EmulatorOptions, parse_signal
from power.wire.hvpm_control import NOMINAL_RATE_HZ, HardwareModel

_FIRMWARE: Final = {f"firmware-{version}": version for version in (25, 30, 31, 32)}
_WORDS: Final = (*("hv", "lv", "main", "usb", "aux", "patient", "bad-dac", "forbidden", "fresh"), *_FIRMWARE)

_FAULTS: Final = {
    FaultKind.TRUNCATED_FRAME,
    FaultKind.LOST_PACKETS,
    FaultKind.STALL,
    FaultKind.DISCONNECT,
    FaultKind.OVER_CURRENT,
    FaultKind.DROP_COUNTER_WRAP,
    FaultKind.RECALIBRATE,
}


@dataclass(frozen=True, slots=True)
class HvpmVariant:
    """One unit, from the comma-separated words of ``EmulatorOptions.variant`` and the other options.

    Attributes:
        model: ``hv`` (the usual) or ``lv``.
        load: ``main`` (the usual), ``usb`` or ``aux``: the channel that the load is connected to.
        patient: The queue does not overflow when the host is late; a real one does after 3.2 ms.
        dac_is_plausible: Not with ``bad-dac``: the unit fails the vendor's DAC check.
        forbidden: The host may not open it, as without a udev rule.
        fresh: As after power-up: output off, limits as the firmware sets them.
        firmware: Version, the last published one (32) by default.
        serial: Serial number.
        voltage_v: Output voltage in the beginning: that of the load model, or its mean.
        faults: What goes wrong.
    """

    model: HardwareModel
    load: Literal["main", "usb", "aux"]
    patient: bool
    dac_is_plausible: bool
    forbidden: bool
    fresh: bool
    firmware: int
    serial: int
    voltage_v: float
    faults: tuple[Fault, ...]

    @classmethod
    def parse(cls, options: EmulatorOptions) -> Self:
        """Read the options.

        Raises:
            ConfigError: They ask for something that this instrument does not have.
        """
        words = [word for word in options.variant.split(",") if word]
        unknown = [word for word in words if word not in _WORDS]
        if unknown:
            raise ConfigError(
                f"monsoon-hvpm: no variant {unknown[0]!r}", hint=f"known words: {', '.join(_WORDS)}"
            )
        if options.rate_hz not in (0.0, NOMINAL_RATE_HZ):
            raise ConfigError(
                f"monsoon-hvpm: samples at {NOMINAL_RATE_HZ:g} Hz only, not {options.rate_hz:g}"
            )
        return cls(
            model=HardwareModel.LVPM if "lv" in words else HardwareModel.HVPM,
            load="usb" if "usb" in words else "aux" if "aux" in words else "main",
            patient="patient" in words,
            dac_is_plausible="bad-dac" not in words,
            forbidden="forbidden" in words,
            fresh="fresh" in words,
            firmware=next((version for word, version in _FIRMWARE.items() if word in words), 32),
            serial=_serial_number(options.serial),
            voltage_v=float(np.mean(getattr(parse_signal(options.signal), "voltage_v", 4.0))),
            faults=parse_faults("monsoon-hvpm", options.faults, _FAULTS),
        )


def _serial_number(text: str) -> int:
    if not text:
        return 20001
    if not text.isascii() or not text.isdigit() or int(text) > 0xFFFF:
        raise ConfigError(f"monsoon-hvpm: serial number {text!r} is not a number up to 65535")
    return int(text)
