"""From a Monsoon's converter counts to amperes and volts: one channel's constants, and its calibration."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from power.wire.hvpm_control import HardwareModel, Opcode

ChannelName = Literal["main", "usb", "aux"]

ADC_VOLT: Final = 62.5e-6
"""Volts per count at the converter."""

COARSE_OFFSET_A: Final = 2e-3
FINE_OFFSET_A: Final = 100e-6
"""Assumed offset errors, the same as for the LVPM: a calibration that moves by more has changed."""

REFERENCE_SHARE: Final = 0.25
"""Of a range's counts that its reference current takes, at least. An assumption: each unit has its own count,
which only a recording shows. With it a step is rather too wide than too narrow."""

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
    """The calibration of one measuring range.

    Every calibration interval the unit measures its own zero and its own reference current in place of the
    load, in both ranges. A reading is a share of the way from zero to reference, each the mean of the last
    five.

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

    def step_a(self, reference_a: float) -> float:
        """Amperes of one count, at most: see `REFERENCE_SHARE`."""
        return reference_a / (REFERENCE_SHARE * self.raw_limits[1])

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


WINDOW: Final = 5
"""Values that are averaged, and that must have come before any sample is believed."""


@dataclass(slots=True)
class HvpmRangeCalibration:
    """The calibration of one measuring range.

    Every calibration interval the unit measures its own zero and its own reference current in place of the
    load, in both ranges. A reading is a share of the way from zero to reference, each the mean of the last
    five.

    Attributes:
        scale: What the reference stands for, and the unit's own zero offset.
        noise_a: A value further than this from the mean before it means that the calibration has moved.
        zero: Raw value that stands for no current; meaningless before `is_complete`.
        amperes_per_count: Slope; 0 if zero and reference are equal.
    """

    scale: RangeScale
    noise_a: float
    zero: float = 0.0
    amperes_per_count: float = 0.0
    _zeros: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _references: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def is_complete(self) -> bool:
        """Whether both windows are full."""
        return len(self._zeros) == len(self._references) == WINDOW

    def add(self, raw: int, *, is_reference: bool) -> bool:
        """Take over one value; whether it shows that the calibration has moved."""
        window = self._references if is_reference else self._zeros
        moved = False
        if self.is_complete:
            moved = abs(raw - sum(window) / WINDOW) * abs(self.amperes_per_count) > self.noise_a
        window.append(raw)
        if self.is_complete:
            self.zero = sum(self._zeros) / WINDOW + self.scale.zero_offset
            span = sum(self._references) / WINDOW - self.zero
            self.amperes_per_count = self.scale.reference_a / span if span else 0.0
        return moved
