"""An emulated instrument's own crystal: which samples are due by now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class Pacer:
    """Counts samples at a fixed rate that may be off by a few parts per million.

    Attributes:
        rate_hz: Nominal samples per second.
        skew_ppm: How much faster than nominal the crystal runs.
        start_ns: Host time of sample 0.
        next_index: Number of the next sample.
    """

    rate_hz: float
    skew_ppm: float
    start_ns: int
    next_index: int = 0

    @property
    def period_ns(self) -> float:
        """True host time between two samples."""
        return 1e9 / (self.rate_hz * (1.0 + self.skew_ppm * 1e-6))

    def skip(self, count: int) -> NDArray[np.int64]:
        """Leave out the next samples; returns the true host time of each."""
        first = self.next_index
        self.next_index += count
        return self._times(first)

    def _times(self, first: int) -> NDArray[np.int64]:
        numbers = np.arange(first, self.next_index)
        times: NDArray[np.int64] = self.start_ns + np.rint(numbers * self.period_ns).astype(np.int64)
        return times

    def due(self, now_ns: int) -> tuple[int, NDArray[np.int64]]:
        """Samples due since the last call: number of the first, and the true host time of each."""
        first = self.next_index
        self.next_index = max(first, int((now_ns - self.start_ns) / self.period_ns) + 1)
        return first, self._times(first)
