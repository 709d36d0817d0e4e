"""Drives our chip model with Adafruit's INA219 library; prints what it saw as one JSON line.

Runs in the environment of the peers: ``python adafruit_ina219.py REPOSITORY``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# A script's own folder comes first on the path, and there this file hides the library of the same name.
HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

import numpy as np  # noqa: E402
from adafruit_ina219 import INA219, ADCResolution, Mode  # noqa: E402


class FakeI2C:
    """An I2C bus at 400 kHz with one INA219 on it, whose pins see constant voltages."""

    TRANSFER_NS = 100_000

    def __init__(self, repository: str) -> None:
        sys.path.append(repository)
        from power.emulated.ina219.chip import Ina219Chip
        from power.wire.ina219.registers import Register

        self.shunt_v = self.bus_v = 0.0
        self.now_ns = 0
        self.chip = Ina219Chip(
            lambda t_ns: (np.full(len(t_ns), self.shunt_v), np.full(len(t_ns), self.bus_v))
        )
        self._register = Register
        self._pointer = Register.CONFIG

    def try_lock(self) -> bool:
        return True

    def unlock(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def writeto(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        self._transfer(address)
        data = bytes(buffer[start:end])
        if data:
            self._pointer = self._register(data[0])
        if len(data) == 3:
            self.chip.write(self._pointer, data[1] << 8 | data[2], self.now_ns)

    def readfrom_into(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        self._transfer(address)
        word = self.chip.read(self._pointer, self.now_ns)
        buffer[start:end] = word.to_bytes(2, "big")[: len(buffer[start:end])]

    def writeto_then_readfrom(
        self, address: int, out: Any, into: Any, *, out_start: int, out_end: int, in_start: int, in_end: int
    ) -> None:
        self.writeto(address, out, start=out_start, end=out_end)
        self.readfrom_into(address, into, start=in_start, end=in_end)

    def _transfer(self, address: int) -> None:
        if address != 0x40:
            raise OSError(121, "no acknowledge")
        self.now_ns += self.TRANSFER_NS


def readings(sensor: INA219) -> dict[str, float]:
    return {
        "bus_v": sensor.bus_voltage,
        "shunt_v": sensor.shunt_voltage,
        "current_ma": sensor.current,
        "power_w": sensor.power,
        "overflow": int(sensor.overflow),
    }


def main(repository: str) -> None:
    bus = FakeI2C(repository)
    seen: dict[str, Any] = {}
    sensor = INA219(bus)
    seen["config"] = bus.chip.read(bus._register.CONFIG, bus.now_ns)
    for name, set_up, ohm in (
        ("32V_2A", sensor.set_calibration_32V_2A, 0.1),
        ("32V_1A", sensor.set_calibration_32V_1A, 0.1),
        ("16V_400mA", sensor.set_calibration_16V_400mA, 0.1),
        ("16V_5A", sensor.set_calibration_16V_5A, 0.02),
    ):
        set_up()
        for amperes in (0.25, -0.1, 5.0):
            bus.shunt_v, bus.bus_v = amperes * ohm, 5.0
            bus.sleep(0.01)
            seen[f"{name} {amperes}"] = readings(sensor)
    sensor.set_calibration_32V_2A()
    sensor.bus_adc_resolution = ADCResolution.ADCRES_12BIT_128S
    sensor.shunt_adc_resolution = ADCResolution.ADCRES_12BIT_128S
    bus.shunt_v = 0.02
    sensor.mode = Mode.SANDBVOLT_TRIGGERED
    waits = 0
    while not sensor.conversion_ready:
        bus.sleep(0.001)
        waits += 1
    seen["triggered"] = {"waited_ms": waits, **readings(sensor)}
    bus.shunt_v = 0.03
    bus.sleep(1.0)
    seen["triggered once"] = readings(sensor)
    sensor.reset = 1
    bus.sleep(0.01)
    seen["after reset"] = {
        "config": bus.chip.read(bus._register.CONFIG, bus.now_ns),
        "raw_current": sensor.raw_current,
        "raw_shunt": sensor.raw_shunt_voltage,
    }
    _ = sensor.current  # writes the calibration again, as the library does before every reading
    bus.sleep(0.01)
    seen["recovered"] = readings(sensor)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
