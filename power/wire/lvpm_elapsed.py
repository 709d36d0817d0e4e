"""Losses that the stream's own counters cannot show: whole turns of them.

The 4-bit sequence number turns after 16 packets, the count of samples that the instrument had no room for
after 256 samples. Samples come at a known rate, so the delay ``arrival - index x period`` has a floor. Single
reads are late all the time, but a floor that rises at once by the length of a turn, and stays there, means
that so many samples are missing from the count. A crystal that is off lets the floor rise slowly and evenly,
which is learned and not mistaken for losses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

WINDOW_NS = 500_000_000
"""The floor is taken over half a second, and two in a row must agree: longer than a busy machine keeps
every single read waiting."""

MIN_READS = 8
"""A floor over fewer reads says little."""

TOLERANCE = 0.25
"""How far, in turns, a rise may be from a whole number and still be taken for losses."""

DRIFT = 500e-6
"""How fast the floor may rise beyond what was learned: as much as `power.timebase` allows a crystal."""


@dataclass(slots=True)
class ElapsedCheck:
    """Watches the floor of the delay, one window after the other.

    A loss is noticed when two whole windows show it, one to two seconds late, and counted there.

    Attributes:
        rate_hz: Nominal samples per second.
    """

    rate_hz: float
    _origin_ns: int | None = None
    _window_ns: int = 0
    _lowest_ns: float = float("inf")
    _reads: int = 0
    _floor_ns: float | None = None
    _suspected: int = 0
    _rises_ns: deque[float] = field(default_factory=lambda: deque(maxlen=9))

    def add(self, next_index: int, arrival_ns: int, turn: int) -> int:
        """Note a read.

        Args:
            next_index: Samples counted so far, lost ones included.
            arrival_ns: Host time at which the last of them had arrived.
            turn: Samples after which the counter in question is back at its beginning.

        Returns:
            Samples that the count lacks (if negative: has too many), a multiple of ``turn``. The
            caller is expected to add them to its count, unless negative.
        """
        if self._origin_ns is None:
            self._origin_ns = self._window_ns = arrival_ns
        delay_ns = arrival_ns - self._origin_ns - next_index * 1e9 / self.rate_hz
        self._lowest_ns = min(self._lowest_ns, delay_ns)
        self._reads += 1
        if arrival_ns - self._window_ns < WINDOW_NS or self._reads < MIN_READS:
            return 0
        missing = self._judge(turn, arrival_ns - self._window_ns)
        self._window_ns, self._lowest_ns, self._reads = arrival_ns, float("inf"), 0
        return missing

    def _judge(self, turn: int, window_ns: int) -> int:
        if self._floor_ns is None:
            self._floor_ns = self._lowest_ns
            return 0
        drift_ns = median(self._rises_ns) if len(self._rises_ns) >= 3 else 0.0
        missing = _whole_turns((self._lowest_ns - self._floor_ns - drift_ns) * self.rate_hz * 1e-9, turn)
        if missing != self._suspected and missing != 0:
            self._suspected = missing
            self._floor_ns += drift_ns
            return 0
        self._suspected = 0
        # Counting losses lowers the delay again; a surplus cannot be taken back.
        lowest_ns = self._lowest_ns - max(0, missing) * 1e9 / self.rate_hz
        floor_ns = min(lowest_ns, self._floor_ns + drift_ns + DRIFT * window_ns)
        if missing == 0:
            self._rises_ns.append(floor_ns - self._floor_ns)
        self._floor_ns = floor_ns
        return missing


def _whole_turns(rise: float, turn: int) -> int:
    """The multiple of a turn that is near a rise, in samples; 0 if none is."""
    count = round(rise / turn)
    return turn * count if abs(rise - turn * count) <= TOLERANCE * turn else 0
