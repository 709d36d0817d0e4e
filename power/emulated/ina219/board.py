"""The circuit around an emulated INA219: load, shunt, chip, the controller's clock, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from power.emulated.ina219.chip import Ina219Chip
from power.emulated.signals import Signal, TruthLog
from power.wire.ina219.csv_rows import CsvFormat
from power.wire.ina219.frames import Flags
from power.wire.ina219.registers import (
    BUS_LSB_V,
    BUS_SHIFT,
    SHUNT_LSB_V,
    BusBits,
    Config,
    Register,
    adc_setting,
    calibration_word,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Misreading = Callable[[Floats, Floats], tuple[Floats, Floats]]

SHUNT_OHM = 0.1
CALIBRATION = calibration_word(100e-6, SHUNT_OHM)
"""0.1 mA per LSB, as in most sketches. We only need it not to be 0: then a reset shows."""

_SHUNT_CODES = (0x3, 0x9, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF)  # 12 bits, averages of 1 to 128


def config_for_rate(rate_hz: float) -> Config:
    """The averaging of the shunt voltage whose conversions come nearest to a rate; 0 for the default.

    The bus is converted once: what varies is the current, and time spent on the bus is time not spent on it.
    The default averages 4 of them, 376 Hz: above the 350 Hz that an SBC needs (arXiv 2206.10377).
    """
    options = [Config(32, 8, adc_setting(0x3), adc_setting(code), 7) for code in _SHUNT_CODES]
    if rate_hz == 0:
        return options[2]
    return min(options, key=lambda config: abs(1e6 / config.pair_us - rate_hz))


@dataclass(frozen=True, slots=True)
class ChipReading:
    """What the microcontroller read from the chip.

    Attributes:
        t_ns: True host time of the reading.
        shunt_raw: Shunt voltage register, signed.
        bus_raw: Bus voltage register.
        current_raw: Current register, signed.
        flags: `power.wire.ina219.frames.Flags` of the moment.
    """

    t_ns: int
    shunt_raw: int
    bus_raw: int
    current_raw: int
    flags: int


class EmulatedBoard:
    """Load, shunt and chip; the microcontroller reads the chip's registers and keeps it set up.

    Args:
        signal: What flows through the shunt, and the voltage at the device.
        config: How the chip is set up.
        boot_ns: Host time at which everything was switched on.
        skew_ppm: How much faster than nominal the microcontroller's crystal runs.
        clock_start_us: What its clock showed at boot.
        truth: Keeps the true load.
        misread: What the chip takes currents and voltages for.
    """

    def __init__(
        self,
        signal: Signal,
        config: Config,
        boot_ns: int,
        *,
        skew_ppm: float = 0.0,
        clock_start_us: int = 0,
        truth: TruthLog | None = None,
        misread: Misreading = lambda current_a, voltage_v: (current_a, voltage_v),
    ) -> None:
        self._signal = signal
        self._misread = misread
        self.config = config
        self._boot_ns = boot_ns
        self._rate = 1.0 + skew_ppm * 1e-6
        self._clock_start_us = clock_start_us
        self._truth = truth
        self.chip = Ina219Chip(self._inputs, boot_ns)
        self._set_up_again = False

    def clock_us(self, t_ns: int) -> int:
        """The microcontroller's 32-bit microsecond clock."""
        elapsed_us = (t_ns - self._boot_ns) / 1000 * self._rate
        return (self._clock_start_us + int(elapsed_us)) % (1 << 32)

    def set_up(self, t_ns: int) -> None:
        """Write configuration and calibration; a new conversion starts."""
        self.chip.write(Register.CALIBRATION, CALIBRATION, t_ns)
        self.chip.write(Register.CONFIG, self.config.word(), t_ns)

    def next_ready_ns(self) -> int:
        """When the conversion under way will be complete."""
        ready_ns = self.chip.ready_ns
        if ready_ns is None:
            raise RuntimeError("the board never puts the chip into a mode without conversions")
        return ready_ns

    def reset_chip(self, t_ns: int) -> None:
        """What a sharp load does."""
        self.chip.power_on_reset(t_ns)

    def read(self, t_ns: int) -> ChipReading:
        """What the sketch reads: bus, shunt, power (clears CNVR), calibration (0 after a reset)."""
        bus_raw = self.chip.read(Register.BUS, t_ns)
        shunt_raw = _signed(self.chip.read(Register.SHUNT, t_ns))
        current_raw = _signed(self.chip.read(Register.CURRENT, t_ns))
        self.chip.read(Register.POWER, t_ns)
        flags = bus_raw & (BusBits.CNVR | BusBits.OVF)
        if self._set_up_again:
            flags |= Flags.RESET
            self._set_up_again = False
        if self.chip.read(Register.CALIBRATION, t_ns) == 0:
            flags |= Flags.CAL_LOST
            self.set_up(t_ns)
            self._set_up_again = True
        return ChipReading(t_ns, shunt_raw, bus_raw, current_raw, int(flags))

    def _inputs(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        current_a, voltage_v = self._signal.sample(t_ns)
        if self._truth is not None:
            self._truth.add(t_ns, current_a, voltage_v)
        current_a, voltage_v = self._misread(current_a, voltage_v)
        return current_a * SHUNT_OHM, voltage_v


def _signed(word: int) -> int:
    return word - 0x10000 if word & 0x8000 else word


RATE_HZ = {CsvFormat.ADAFRUIT: 0.5, CsvFormat.ALL: 2.0}
"""Readings per second: Adafruit's example waits 2 s, luca-bondi's 0.5 s."""

FREE_RUNNING_HZ = 100.0

_CURRENT_LSB_MA = 0.04096 / (CALIBRATION * SHUNT_OHM) * 1e3


def loose_lines(csv_format: CsvFormat, reading: ChipReading, millis: int) -> bytes:
    """A reading as other people's sketches print it; ``Serial.print`` of a float gives two decimals."""
    bus_v = (reading.bus_raw >> BUS_SHIFT) * BUS_LSB_V
    shunt_mv = reading.shunt_raw * SHUNT_LSB_V * 1e3
    load_v = bus_v + shunt_mv * 1e-3
    current_ma = reading.current_raw * _CURRENT_LSB_MA
    if csv_format is CsvFormat.MILLIS_LOAD:
        text = f"{millis},{load_v:.2f},{current_ma:.2f}"
    elif csv_format is CsvFormat.MILLIS_ALL:
        text = f"{millis},{bus_v:.2f},{shunt_mv:.2f},{load_v:.2f},{current_ma:.2f}"
    elif csv_format is CsvFormat.ALL:
        text = f"{bus_v:.2f},{shunt_mv:.2f},{load_v:.2f},{current_ma:.2f}"
    elif csv_format is CsvFormat.MILLIS_CURRENT:
        text = f"{millis} {current_ma:.2f}"
    else:
        text = (
            f"Bus Voltage:   {bus_v:.2f} V\r\nShunt Voltage: {shunt_mv:.2f} mV\r\n"
            f"Load Voltage:  {load_v:.2f} V\r\nCurrent:       {current_ma:.2f} mA\r\n"
            f"Power:         {bus_v * current_ma:.2f} mW\r\n"
        )
    return text.encode() + b"\r\n"
