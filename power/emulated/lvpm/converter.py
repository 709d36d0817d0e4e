"""The analogue side of an emulated LVPM: amperes and volts to the counts of its packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from power.wire.lvpm_frames import COARSE_REFERENCE_A, FINE_REFERENCE_A, MEASUREMENT, REFERENCE_CALIBRATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

FINE_LIMIT = 30_000
"""Reading at which the fine range gives way to the coarse one (from the vendor's library for USB)."""

MARKERS = 3
"""The low two bits of a voltage are two digital inputs of the instrument, high where nothing is connected."""


@dataclass(slots=True)
class LvpmConverter:
    """Counts of a current and of a voltage, and the readings that calibrate them.

    The counts are of our choosing. With these the fine range ends at 41 mA in steps of 2.8 µA, the coarse
    one at 6 A in steps of 0.37 mA (the low bit names the range, so a step is two counts).
    """

    voltage_step_v: float
    fine_zero: int = 120
    fine_span: int = 24_000
    coarse_zero: int = -64
    coarse_span: int = 15_600

    def measure(self, current_a: NDArray[np.float64], voltage_v: NDArray[np.float64]) -> NDArray[np.void]:
        """The measurements of a data packet; nothing is connected to USB and aux."""
        fine = current_a / FINE_REFERENCE_A * self.fine_span + self.fine_zero
        coarse = current_a / COARSE_REFERENCE_A * self.coarse_span + self.coarse_zero
        in_fine = np.abs(fine) < FINE_LIMIT
        counts = 2 * np.rint(np.where(in_fine, fine, np.clip(coarse, -32768, 32766)) / 2)
        rows = np.zeros(len(current_a), MEASUREMENT)
        rows["main"] = counts.astype(np.int16) | ~in_fine
        rows["usb"] = rows["aux"] = self.fine_zero
        rows["voltage"] = self.voltage_counts(voltage_v)
        return rows

    def voltage_counts(self, voltage_v: NDArray[np.float64]) -> NDArray[np.float64]:
        """Counts of a voltage, with the marker inputs in the low bits."""
        return 4 * np.rint(voltage_v / self.voltage_step_v / 4).clip(0, 0x3FFF) + MARKERS

    def calibration(self, kind: int, pairs: int, voltage_v: float) -> NDArray[np.void]:
        """The measurements of a calibration packet: a fine row and a coarse one in turn."""
        at_reference = kind == REFERENCE_CALIBRATION
        zeros = np.array([self.fine_zero, self.coarse_zero])
        readings = zeros + at_reference * np.array([self.fine_span, self.coarse_span])
        rows = np.zeros(2 * pairs, MEASUREMENT)
        rows["main"] = rows["usb"] = np.tile(readings, pairs)
        rows["aux"] = np.tile(zeros, pairs)  # aux has no reference
        rows["voltage"] = self.voltage_counts(np.array([voltage_v]))
        return rows

    def status(self, current_a: float, voltage_v: float) -> dict[str, int]:
        """What a status packet says of the load."""
        fine = current_a / FINE_REFERENCE_A * self.fine_span + self.fine_zero
        coarse = current_a / COARSE_REFERENCE_A * self.coarse_span + self.coarse_zero
        volts = int(self.voltage_counts(np.array([voltage_v]))[0])
        return {
            "mainFineCurrent": round(min(max(fine, -32768), 32767)),
            "mainCoarseCurrent": round(min(max(coarse, -32768), 32767)),
            **dict.fromkeys(("usbFineCurrent", "auxFineCurrent"), self.fine_zero),
            **dict.fromkeys(("usbCoarseCurrent", "auxCoarseCurrent"), self.coarse_zero),
            **dict.fromkeys(("voltage1", "voltage2"), volts),
        }

    def drift(self) -> None:
        """Become another converter, as after warming up: both zeros and both gains move."""
        self.fine_zero += 400
        self.fine_span -= 600
        self.coarse_zero += 100
        self.coarse_span += 300
