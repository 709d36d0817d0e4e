"""The INA219's registers and their maths (Texas Instruments SBOS448G, section 8.6). Standard library only.

Nothing here needs the calibration register: current is the shunt voltage over the resistance, computed on
the host, because a chip that lost its calibration reads zero current without saying so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

SHUNT_LSB_V = 10e-6
BUS_LSB_V = 4e-3
BUS_SHIFT = 3
"""The bus voltage stands in bits 15-3 of its register; bit 1 is CNVR, bit 0 is OVF."""

POWER_ON_CONFIG = 0x399F
ABSOLUTE_MAX_V = 26.0
"""Section 7.5, note 2: in no event more than this, whatever the bus range says."""

MODE_SHUNT_AND_BUS_CONTINUOUS = 7


class Register(IntEnum):
    """Register addresses."""

    CONFIG = 0
    SHUNT = 1
    BUS = 2
    POWER = 3
    CURRENT = 4
    CALIBRATION = 5


class BusBits(IntFlag):
    """Flags in the low bits of the bus voltage register."""

    OVF = 0x1
    CNVR = 0x2


# ADC settings table: typical microseconds of a single conversion at 9 to 12 bits; averages are 12-bit.
_SINGLE_US = {9: 84, 10: 148, 11: 276, 12: 532}


@dataclass(frozen=True, slots=True)
class Adc:
    """One setting of the SADC or BADC field.

    Attributes:
        code: The four bits.
        bits: Resolution of one conversion.
        samples: Conversions that are averaged.
    """

    code: int
    bits: int
    samples: int

    @property
    def single_us(self) -> int:
        """Typical time of one conversion (the data sheet allows 10 % more)."""
        return _SINGLE_US[self.bits]

    @property
    def conversion_us(self) -> int:
        """Typical time until an averaged result is there."""
        return self.single_us * self.samples

    @property
    def step_lsb(self) -> int:
        """Between neighbouring results: a short conversion leaves the lowest bits out (TI SBOA511A, 4)."""
        return 1 << (12 - self.bits)


def adc_setting(code: int) -> Adc:
    """What the four bits of SADC or BADC mean (bit 2 does not matter while bit 3 is 0)."""
    code &= 0xF
    if code & 0x8:
        return Adc(code, 12, 1 << (code & 0x7))
    return Adc(code, 9 + (code & 0x3), 1)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration register, taken apart.

    Attributes:
        bus_range_v: 16 or 32, full scale of the bus voltage.
        pga: Gain divider 1, 2, 4 or 8: full scale 40, 80, 160 or 320 mV.
        bus_adc: Resolution and averaging of the bus voltage.
        shunt_adc: The same of the shunt voltage.
        mode: 7 converts shunt and bus in turn, continuously.
    """

    bus_range_v: int
    pga: int
    bus_adc: Adc
    shunt_adc: Adc
    mode: int

    @classmethod
    def from_word(cls, word: int) -> Config:
        """Take a register value apart."""
        return cls(
            bus_range_v=32 if word & 0x2000 else 16,
            pga=1 << ((word >> 11) & 0x3),
            bus_adc=adc_setting(word >> 7),
            shunt_adc=adc_setting(word >> 3),
            mode=word & 0x7,
        )

    def word(self) -> int:
        """Put it together again."""
        return (
            (0x2000 if self.bus_range_v == 32 else 0)
            | (self.pga.bit_length() - 1) << 11
            | self.bus_adc.code << 7
            | self.shunt_adc.code << 3
            | self.mode
        )

    @property
    def pair_us(self) -> int:
        """Typical time of one shunt and one bus result, which the chip converts one after the other."""
        return self.shunt_adc.conversion_us + self.bus_adc.conversion_us

    @property
    def stamp_after_middle_us(self) -> int:
        """Typical time from the middle of a shunt average to the end of the bus result that follows it."""
        return self.shunt_adc.conversion_us // 2 + self.bus_adc.conversion_us

    @property
    def shunt_full_scale(self) -> int:
        """Largest shunt reading in LSB; the register stays there however high the current."""
        return 4000 * self.pga

    @property
    def shunt_full_scale_v(self) -> float:
        """Largest shunt voltage."""
        return self.shunt_full_scale * SHUNT_LSB_V

    @property
    def bus_full_scale(self) -> int:
        """Largest bus reading in LSB."""
        return 8000 if self.bus_range_v == 32 else 4000


def calibration_word(current_lsb_a: float, shunt_ohm: float) -> int:
    """``trunc(0.04096 / (Current_LSB x R))`` (section 8.5.1); bit 0 of the register is always 0."""
    # The small term keeps 0.04096 / (1e-4 * 0.1), exactly 4096 on paper, from becoming 4095.
    return int(0.04096 / (current_lsb_a * shunt_ohm) + 1e-6) & 0xFFFE
