"""The calibration that a Monsoon interleaves with its measurements.

Every calibration interval the unit measures its own zero and its own reference current in place of the load,
in both ranges. A reading is a share of the way from zero to reference, each the mean of the last five.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from power.wire.hvpm_scaling import RangeScale

WINDOW: Final = 5
"""Values that are averaged, and that must have come before any sample is believed (spec 1b)."""


@dataclass(slots=True)
class HvpmRangeCalibration:
    """One measuring range.

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
