"""What other people's INA219 sketches would print for a reading."""

from __future__ import annotations

from power.emulated.ina219_board import CALIBRATION, SHUNT_OHM, ChipReading
from power.wire.ina219_csv_rows import CsvFormat
from power.wire.ina219_registers import BUS_LSB_V, BUS_SHIFT, SHUNT_LSB_V

RATE_HZ = {CsvFormat.ADAFRUIT: 0.5, CsvFormat.ALL: 2.0}
"""Readings per second: Adafruit's example waits 2 s, luca-bondi's 0.5 s."""

FREE_RUNNING_HZ = 100.0

_CURRENT_LSB_MA = 0.04096 / (CALIBRATION * SHUNT_OHM) * 1e3


def loose_lines(csv_format: CsvFormat, reading: ChipReading, millis: int) -> bytes:
    """A reading as its sketch prints it; ``Serial.print`` of a float gives two decimals."""
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
