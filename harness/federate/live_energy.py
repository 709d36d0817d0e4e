"""Energy so far, while the meter still records: what a server can know when it decides."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from power.model import SampleBlock

LAG_S = 2.0
"""How long to wait for samples of a moment that has just passed: an instrument's link lags behind."""


class LivePower:
    """Adds up the energy of one part of a round, block by block. Any thread may ask.

    Times are those that the samples had when they came in, and power is taken as even within a block of
    samples. Energies that are stored are computed from the closed recording on its final time scale.
    """

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._t_ns: list[int] = []
        self._energy_j: list[float] = []

    def __call__(self, block: SampleBlock) -> None:
        """Take a block into account."""
        last_ns = int(block.t_ns[-1])
        with self._arrived:
            if not self._t_ns:
                self._t_ns.append(int(block.t_ns[0]))
                self._energy_j.append(0.0)
            step_s = (last_ns - self._t_ns[-1]) * 1e-9
            self._t_ns.append(last_ns)
            self._energy_j.append(self._energy_j[-1] + float(block.power_w.mean(dtype=float)) * step_s)
            self._arrived.notify_all()

    def mean_w(self, start_ns: int, end_ns: int) -> float:
        """Mean power between two moments of host time; NaN if not all of it was recorded, or nothing is."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._t_ns) and self._t_ns[-1] >= end_ns, LAG_S)
            known = self._t_ns and self._t_ns[0] <= start_ns < end_ns <= self._t_ns[-1]
            if not known:
                return float("nan")
            begin_j, end_j = np.interp([start_ns, end_ns], self._t_ns, self._energy_j)
        return float(end_j - begin_j) / ((end_ns - start_ns) * 1e-9)
