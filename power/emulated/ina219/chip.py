"""An INA219 at register level (Texas Instruments SBOS448G): conversions take time, and nothing is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from power.wire.ina219.registers import (
    BUS_LSB_V,
    BUS_SHIFT,
    POWER_ON_CONFIG,
    SHUNT_LSB_V,
    Adc,
    BusBits,
    Config,
    Register,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Inputs = Callable[["NDArray[np.int64]"], "tuple[NDArray[np.float64], NDArray[np.float64]]"]
"""Shunt and bus voltage at times given in nanoseconds; later calls ask for later times."""

_RST = 0x8000
_CONTINUOUS, _BUS, _SHUNT = 0x4, 0x2, 0x1


class Ina219Chip:
    """The chip as seen on its I2C bus. Time is whatever the caller says it is, in nanoseconds.

    Args:
        inputs: The voltages at its pins.
        now_ns: When power comes on.
    """

    def __init__(self, inputs: Inputs, now_ns: int = 0) -> None:
        self._inputs = inputs
        self.power_on_reset(now_ns)

    def power_on_reset(self, now_ns: int) -> None:
        """All registers to their defaults; converting starts at once. A sharp load can cause it."""
        self._config = POWER_ON_CONFIG
        self._calibration = 0
        self._shunt = self._bus = self._current = self._power = 0
        self._overflow = self._ready = False
        self._begin_ns: int | None = now_ns

    @property
    def ready_ns(self) -> int | None:
        """When the conversion under way will be complete; None if none is."""
        return None if self._begin_ns is None else self._begin_ns + self._pair_ns

    def write(self, register: Register, value: int, now_ns: int) -> None:
        """Write a register; those that hold results cannot be written."""
        self.advance(now_ns)
        if register is Register.CALIBRATION:
            self._calibration = value & 0xFFFE  # bit 0 is a void bit and always 0
        elif register is Register.CONFIG and value & _RST:
            self.power_on_reset(now_ns)
        elif register is Register.CONFIG:
            self._config = value & ~_RST
            self._ready = False
            self._begin_ns = now_ns if value & (_SHUNT | _BUS) else None

    def read(self, register: Register, now_ns: int) -> int:
        """Read a register as 16 unsigned bits. Reading the power register clears CNVR (section 8.6.3.2)."""
        self.advance(now_ns)
        if register is Register.POWER:
            self._ready = False
        flags = (BusBits.CNVR if self._ready else 0) | (BusBits.OVF if self._overflow else 0)
        values = {
            Register.CONFIG: self._config,
            Register.SHUNT: self._shunt,
            Register.BUS: self._bus << BUS_SHIFT | flags,
            Register.POWER: self._power,
            Register.CURRENT: self._current,
            Register.CALIBRATION: self._calibration,
        }
        return values[register] & 0xFFFF

    def advance(self, now_ns: int) -> None:
        """Let time pass. Of several conversions completed meanwhile only the last leaves a trace."""
        if self._begin_ns is None or now_ns < self._begin_ns + self._pair_ns:
            return
        complete = (now_ns - self._begin_ns) // self._pair_ns
        begin_ns = self._begin_ns + (complete - 1) * self._pair_ns
        self._convert(begin_ns)
        self._begin_ns = begin_ns + self._pair_ns if self._config & _CONTINUOUS else None

    @property
    def _settings(self) -> Config:
        return Config.from_word(self._config)

    @property
    def _pair_ns(self) -> int:
        settings = self._settings
        shunt_us = settings.shunt_adc.conversion_us if settings.mode & _SHUNT else 0
        return 1000 * (shunt_us + (settings.bus_adc.conversion_us if settings.mode & _BUS else 0))

    def _convert(self, begin_ns: int) -> None:
        """One shunt result, then one bus result, as far as the mode asks for them."""
        settings = self._settings
        shunt_at = _instants(begin_ns, settings.shunt_adc, settings.mode & _SHUNT)
        begin_ns += 1000 * settings.shunt_adc.single_us * len(shunt_at)
        bus_at = _instants(begin_ns, settings.bus_adc, settings.mode & _BUS)
        shunt_v, bus_v = self._inputs(np.concatenate([shunt_at, bus_at]))
        if len(shunt_at):
            limit = settings.shunt_full_scale
            self._shunt = _digitise(
                shunt_v[: len(shunt_at)], SHUNT_LSB_V, settings.shunt_adc, (-limit, limit)
            )
        if len(bus_at):
            self._bus = _digitise(
                bus_v[len(shunt_at) :], BUS_LSB_V, settings.bus_adc, (0, settings.bus_full_scale)
            )
        self._calculate()
        self._ready = True

    def _calculate(self) -> None:
        """Current and power registers (sections 8.6.3.3 and 8.6.3.4)."""
        current = int(self._shunt * self._calibration / 4096)
        power = int(abs(current) * self._bus / 5000)
        self._overflow = abs(current) > 0x7FFF or power > 0xFFFF
        self._current = max(-0x8000, min(0x7FFF, current))
        self._power = min(0xFFFF, power)


def _instants(begin_ns: int, adc: Adc, wanted: int) -> NDArray[np.int64]:
    """The middle of each conversion of an average: a delta-sigma converter integrates over all of it."""
    count = adc.samples if wanted else 0
    return begin_ns + (2 * np.arange(count, dtype=np.int64) + 1) * (adc.single_us * 500)


def _digitise(volts: NDArray[np.float64], lsb_v: float, adc: Adc, limits: tuple[int, int]) -> int:
    """Average of conversions in LSB; below 12 bits the steps are 2, 4 or 8 LSB wide."""
    codes = np.clip(np.rint(volts / (lsb_v * adc.step_lsb)) * adc.step_lsb, *limits)
    return int(np.rint(codes.mean()))
