"""From a Monsoon's converter counts to amperes and volts: the constants of one channel (spec 1b, scaling)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from power.wire.hvpm_control import HardwareModel, Opcode

ChannelName = Literal["main", "usb", "aux"]

ADC_VOLT: Final = 62.5e-6
"""Volts per count at the converter."""

COARSE_OFFSET_A: Final = 2e-3
FINE_OFFSET_A: Final = 100e-6
"""Assumed offset errors, the same as for the LVPM: a calibration that moves by more has changed."""

_VOLTAGE_DIVIDER: Final = {
    (HardwareModel.HVPM, "main"): 4,
    (HardwareModel.LVPM, "main"): 2,
    (HardwareModel.HVPM, "usb"): 2,
    (HardwareModel.LVPM, "usb"): 2,
    # No source gives the divider of the aux input; it shares the field, and so the converter, of main.
    (HardwareModel.HVPM, "aux"): 4,
    (HardwareModel.LVPM, "aux"): 2,
}

_FACTORY_OHM: Final = {"main": 0.05, "usb": 0.05, "aux": 0.10}
_OHM_PER_OFFSET: Final = 1e-4

_LV_REFERENCE_A: Final = {
    # The package's constants are 35946 uA and 3103.4 mA. It applies the same units to aux (.05049 and 1.289),
    # which would make 50 nA of a reference current; only amperes fit the 0.1 ohm resistor.
    "main": (3103.4e-3, 35946e-6),
    "usb": (3103.4e-3, 35946e-6),
    "aux": (1.289, 0.05049),
}


@dataclass(frozen=True, slots=True)
class RangeScale:
    """One measuring range.

    Attributes:
        reference_a: Current that the reference calibration stands for, amperes.
        zero_offset: Counts to add to the zero calibration.
    """

    reference_a: float
    zero_offset: int = 0


@dataclass(frozen=True, slots=True)
class ChannelScale:
    """One channel.

    Attributes:
        channel: Its name.
        coarse: The range for large currents.
        fine: The range for small ones.
        fine_limit: The fine range counts as long as its raw value is below this.
        signed: Raw values are two's complement.
        volts_per_count: Of the voltage that belongs to the channel.
    """

    channel: ChannelName
    coarse: RangeScale
    fine: RangeScale
    fine_limit: int
    signed: bool
    volts_per_count: float

    @property
    def raw_limits(self) -> tuple[int, int]:
        """Lowest and highest raw value: a reading there may be clipped."""
        return (-0x8000, 0x7FFF) if self.signed else (0, 0xFFFF)


def scale_opcodes(model: HardwareModel, channel: ChannelName) -> tuple[Opcode, ...]:
    """The values that `channel_scale` needs, as the unit keeps them."""
    name = channel.upper()
    if model is HardwareModel.LVPM:
        return (Opcode[f"{name}_COARSE_RESISTOR_OFFSET"], Opcode[f"{name}_FINE_RESISTOR_OFFSET"])
    scales = (Opcode[f"{name}_COARSE_SCALE"], Opcode[f"{name}_FINE_SCALE"])
    if channel == "aux":
        return scales
    return (*scales, Opcode[f"{name}_COARSE_ZERO_OFFSET"], Opcode[f"{name}_FINE_ZERO_OFFSET"])


def channel_scale(model: HardwareModel, channel: ChannelName, values: Mapping[Opcode, int]) -> ChannelScale:
    """The constants of one channel from the unit's own calibration values."""
    words = [values[opcode] for opcode in scale_opcodes(model, channel)]
    if model is HardwareModel.HVPM:
        zero_coarse, zero_fine = words[2:] or (0, 0)
        coarse = RangeScale(words[0] * 1e-3, zero_coarse)  # mA
        fine = RangeScale(words[1] * 1e-6, zero_fine)  # uA
    else:
        ohm = _FACTORY_OHM[channel]
        coarse, fine = (
            RangeScale(reference_a * ohm / (ohm + _OHM_PER_OFFSET * offset))
            for reference_a, offset in zip(_LV_REFERENCE_A[channel], words, strict=True)
        )
    signed = model is HardwareModel.LVPM or channel == "aux"
    return ChannelScale(
        channel=channel,
        coarse=coarse,
        fine=fine,
        fine_limit=30_000 if signed else 64_000,
        signed=signed,
        volts_per_count=ADC_VOLT * _VOLTAGE_DIVIDER[model, channel],
    )
