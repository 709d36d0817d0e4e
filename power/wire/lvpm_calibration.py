"""LVPM calibration: zero and reference readings of both ranges, as the stream brings them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from power.wire.lvpm_frames import ZERO_CALIBRATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW = 5
"""Readings averaged, as ACTS does."""

FINE_NOISE_A = 100e-6
COARSE_NOISE_A = 2e-3
"""A reading that differs by more is a new calibration, not noise to average: the offset errors assumed in
`power.meters.monsoon_lvpm.accuracy`."""


@dataclass(slots=True)
class LvpmRangeCalibration:
    """One measuring range.

    Attributes:
        reference_a: The current behind a reference reading.
        noise_a: Largest change that is averaged away.
    """

    reference_a: float
    noise_a: float
    _zero: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _reference: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, readings: NDArray[np.int16], *, zero: bool) -> bool:
        """Take over readings; True if they start a new calibration."""
        window = self._zero if zero else self._reference
        restarted = False
        for reading in readings.tolist():
            # Without a scale yet there is nothing to tell noise from change by; the first readings count.
            if window and self.scale_a and abs(reading - _mean(window)) * abs(self.scale_a) > self.noise_a:
                window.clear()
                restarted = True
            window.append(reading)
        return restarted

    @property
    def zero(self) -> float:
        """The reading at no current."""
        return _mean(self._zero)

    @property
    def scale_a(self) -> float:
        """Amperes per count; 0 while unknown."""
        if not self._zero or not self._reference:
            return 0.0
        span = _mean(self._reference) - _mean(self._zero)
        return self.reference_a / span if span else 0.0


def _mean(window: deque[int]) -> float:
    return sum(window) / len(window)


@dataclass(slots=True)
class Calibration:
    """Both ranges of the main channel."""

    fine: LvpmRangeCalibration
    coarse: LvpmRangeCalibration

    @classmethod
    def of(cls, fine_reference_a: float, coarse_reference_a: float) -> Calibration:
        """With these currents behind a reference reading."""
        return cls(
            LvpmRangeCalibration(fine_reference_a, FINE_NOISE_A),
            LvpmRangeCalibration(coarse_reference_a, COARSE_NOISE_A),
        )

    @property
    def complete(self) -> bool:
        """Whether currents can be computed."""
        return bool(self.fine.scale_a and self.coarse.scale_a)

    def add(self, kind: int, main: NDArray[np.int16]) -> bool:
        """Take over a calibration packet: even readings are fine, odd ones coarse.

        Returns:
            Whether it starts a new calibration.
        """
        zero = kind == ZERO_CALIBRATION
        fine = self.fine.add(main[0::2], zero=zero)
        coarse = self.coarse.add(main[1::2], zero=zero)
        return fine or coarse

    def current_a(self, main: NDArray[Any]) -> NDArray[np.float64]:
        """Current of raw readings: bit 0 names the range (1 is coarse) and is cleared, not shifted out."""
        counts = (main & ~1).astype(np.float64)
        fine, coarse = self.fine, self.coarse
        return np.where(
            main & 1, (counts - coarse.zero) * coarse.scale_a, (counts - fine.zero) * fine.scale_a
        )
