"""Losses that the stream's own counters cannot show: whole turns of them.

The 4-bit sequence number turns after 16 packets, the count of samples that the instrument had no room for
after 256 samples. Samples come at a known rate, so the delay ``arrival - index x period`` has a floor. A read
may be late, but never early: a delay that stays above the floor by the length of a turn means that so many
samples are missing from the count. A crystal that is off lets the floor rise slowly and evenly, which is
learned and not mistaken for losses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

WINDOW_NS = 500_000_000
"""The floor is taken over half a second: longer than a busy machine keeps every single read waiting."""

MIN_READS = 4
"""A floor over fewer reads says little."""

NEAR_NS = 3_000_000
"""A read this close to the floor has come down to it: a packet takes so long."""

TOUCHES = 5
"""So many reads must have come down to a floor before it is believed. On time they all do; those of a machine
that begins with a second of being late are spread."""

TOLERANCE = 0.25
"""How far, in turns, a delay may be from a whole number and still be taken for losses: 13 ms."""

UNSETTLED = 0.5
"""A delay above the floor by so many turns may hide one."""

SILENT_NS = 40_000_000
"""So long nothing must have arrived before a turn of a counter can be lost: 16 packets take 48 ms, and 256
samples 67 ms, because the instrument keeps 16 ms of them."""

JUDGED_NS = 200_000_000
"""How long reads are watched before a delay counts as permanent. By then a host that was away has taken what
its kernel (some 4 KB, 0.1 s) and the instrument (16 ms) had kept."""

TRACELESS_NS = 3_000_000_000
"""The same where no counter shows a loss, which is rare (one pause in 256): it may be the link that is late.
And a turn of one counter is only 16 samples longer than one of the other: it takes a read that is on time."""

GIVEN_UP_NS = 5_000_000_000
"""By then there should have been a read that was not late."""

DRIFT = 500e-6
"""How fast the floor may rise beyond what was learned: as much as `power.timebase` allows a crystal."""


@dataclass(slots=True)
class ElapsedCheck:
    """The floor of the delay, followed from read to read.

    Attributes:
        rate_hz: Nominal samples per second.
    """

    rate_hz: float
    _origin_ns: float | None = None
    _floor_ns: float = 0.0
    _floor_at_ns: int = 0
    _window_ns: int = 0
    _lowest_ns: float = float("inf")
    _reads: int = 0
    _touches: int = 0
    _rises: deque[float] = field(default_factory=lambda: deque(maxlen=9))

    @property
    def known(self) -> bool:
        """Whether a floor was found, over half a second or more, and found again."""
        return bool(self._rises) and self._touches >= TOUCHES

    def behind(self, next_index: int, arrival_ns: int) -> float:
        """By how many samples a count is behind what the fastest reads so far lead to expect.

        Args:
            next_index: Samples counted so far, lost ones included.
            arrival_ns: Host time at which the last of them had arrived.
        """
        if self._origin_ns is None:
            self._origin_ns = arrival_ns - next_index * 1e9 / self.rate_hz
            self._floor_at_ns = self._window_ns = arrival_ns
        return (self._delay_ns(next_index, arrival_ns) - self._floor(arrival_ns)) * self.rate_hz * 1e-9

    def accept(self, next_index: int, arrival_ns: int) -> None:
        """Let the floor follow a read whose count is right."""
        delay_ns = self._delay_ns(next_index, arrival_ns)
        self._lowest_ns = min(self._lowest_ns, delay_ns)
        self._reads += 1
        above_ns = delay_ns - self._floor(arrival_ns)
        if above_ns < 0 and not self.known:
            self._touches = 0 if above_ns < -NEAR_NS else self._touches
            self._floor_ns, self._floor_at_ns = delay_ns, arrival_ns
        self._touches += above_ns <= NEAR_NS
        window_ns = arrival_ns - self._window_ns
        if window_ns < WINDOW_NS or self._reads < MIN_READS:
            return
        floor_ns = min(self._lowest_ns, self._floor(arrival_ns) + DRIFT * window_ns)
        self._rises.append((floor_ns - self._floor_ns) / max(1, arrival_ns - self._floor_at_ns))
        self._floor_ns, self._floor_at_ns = floor_ns, arrival_ns
        self._window_ns, self._lowest_ns, self._reads = arrival_ns, float("inf"), 0

    def move(self, next_index: int, arrival_ns: int) -> None:
        """Take the delay of this read as the floor: that it was another is given up."""
        self._floor_ns, self._floor_at_ns = self._delay_ns(next_index, arrival_ns), arrival_ns
        self._window_ns, self._lowest_ns, self._reads = arrival_ns, float("inf"), 0
        self._touches = 0

    def _delay_ns(self, next_index: int, arrival_ns: int) -> float:
        return arrival_ns - (self._origin_ns or 0.0) - next_index * 1e9 / self.rate_hz

    def _floor(self, at_ns: int) -> float:
        """Where the floor should be by now."""
        drift = median(self._rises) if len(self._rises) >= 3 else 0.0
        return self._floor_ns + drift * (at_ns - self._floor_at_ns)


def whole_turns(behind: float, turn: int) -> tuple[int, bool]:
    """The multiple of a turn that is nearest to a delay, in samples, and whether it is near enough."""
    count = max(0, round(behind / turn))
    return turn * count, abs(behind - turn * count) <= TOLERANCE * turn
