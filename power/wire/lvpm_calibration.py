"""LVPM calibration: zero and reference readings of both ranges, as the stream brings them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
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


class Change(IntEnum):
    """What a calibration packet does to the calibration."""

    NONE = 0
    DOUBTED = 1
    """It is unlike those before and not used: damage passes an 8-bit sum. The next of its kind decides."""
    CONFIRMED = 2
    """It agrees with a doubted one: a new calibration."""


@dataclass(slots=True)
class _Readings:
    """The last readings of one kind.

    Attributes:
        window: Those that count.
        doubted: Those of the last packet, if they were unlike the others.
    """

    window: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    doubted: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(self.window) / len(self.window)

    def add(self, readings: list[int], noise: float) -> Change:
        """Take over a packet's readings; ``noise`` is the largest change in counts that is none."""
        if not readings:
            return Change.NONE
        if not self.window or all(abs(one - self.mean) <= noise for one in readings):
            self.window.extend(readings)
            self.doubted = []
            return Change.NONE
        before, self.doubted = self.doubted, readings
        both = [*before, *readings]
        if not before or max(both) - min(both) > noise:
            return Change.DOUBTED
        self.window.clear()
        self.window.extend(both)
        self.doubted = []
        return Change.CONFIRMED


@dataclass(slots=True)
class LvpmRangeCalibration:
    """One measuring range.

    Attributes:
        reference_a: The current behind a reference reading.
        noise_a: Largest change that is averaged away.
    """

    reference_a: float
    noise_a: float
    _zero: _Readings = field(default_factory=_Readings)
    _reference: _Readings = field(default_factory=_Readings)
    _last_scale_a: float = 0.0

    def add(self, readings: NDArray[np.int16], *, zero: bool) -> Change:
        """Take over the readings of one packet."""
        kept = self._zero if zero else self._reference
        # Without a scale yet there is nothing to tell noise from change by; the first readings count.
        self._last_scale_a = abs(self.scale_a) or self._last_scale_a
        noise = self.noise_a / self._last_scale_a if self._last_scale_a else float("inf")
        return kept.add(readings.tolist(), noise)

    @property
    def zero(self) -> float:
        """The reading at no current."""
        return self._zero.mean

    @property
    def scale_a(self) -> float:
        """Amperes per count; 0 while unknown."""
        if not self._zero.window or not self._reference.window:
            return 0.0
        span = self._reference.mean - self._zero.mean
        return self.reference_a / span if span else 0.0


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

    def add(self, kind: int, main: NDArray[np.int16]) -> Change:
        """Take over a calibration packet: even readings are fine, odd ones coarse."""
        zero = kind == ZERO_CALIBRATION
        fine = self.fine.add(main[0::2], zero=zero)
        coarse = self.coarse.add(main[1::2], zero=zero)
        return max(fine, coarse)

    def current_a(self, main: NDArray[Any]) -> NDArray[np.float64]:
        """Current of raw readings: bit 0 names the range (1 is coarse) and is cleared, not shifted out."""
        counts = (main & ~1).astype(np.float64)
        fine, coarse = self.fine, self.coarse
        return np.where(
            main & 1, (counts - coarse.zero) * coarse.scale_a, (counts - fine.zero) * fine.scale_a
        )
