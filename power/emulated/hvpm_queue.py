"""The 16-measurement queue inside a Monsoon: what a host that comes late finds, and what it has lost.

The emulator makes samples in bursts and may itself be late on a busy machine; a real unit is not. So the
queue is not filled by what has been made, but by the time the host stayed away: from the answer to its last
read until it asked again. While a read waits for an answer nothing can be lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

QUEUE_DEPTH = 16
"""Measurements, 3.2 ms (API.pdf, StartSampling)."""


@dataclass(slots=True)
class ObservationQueue:
    """Observations waiting for the host.

    Attributes:
        depth: How many the unit can hold.
        dropped: How many did not fit so far.
        away_since_ns: From when on no read has been waiting, as far as was accounted for.
    """

    depth: int = QUEUE_DEPTH
    dropped: int = 0
    away_since_ns: int = 0
    _waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    _fill: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, t_ns: int, observation: bytes) -> None:
        """A new observation, taken at host time ``t_ns``."""
        self._waiting.append((t_ns, observation))

    def host_was_away(self, until_ns: int) -> None:
        """Account for the time up to ``until_ns`` in which no read was waiting."""
        missed = 0
        for t_ns, _ in reversed(self._waiting):
            if t_ns <= self.away_since_ns:
                break
            missed += t_ns <= until_ns
        self._fill += missed
        self.away_since_ns = max(self.away_since_ns, until_ns)
        if self._fill > self.depth:
            self._drop(until_ns, min(missed, self._fill - self.depth))
            self._fill = self.depth

    def take(self, count: int, now_ns: int) -> list[bytes]:
        """Hand out the oldest observations; the host is away from now on."""
        self.away_since_ns = now_ns
        taken = [self._waiting.popleft()[1] for _ in range(min(count, len(self._waiting)))]
        self._fill = max(0, self._fill - len(taken))
        return taken

    def _drop(self, until_ns: int, count: int) -> None:
        """The queue is full: it is the newest that find no place."""
        later: list[tuple[int, bytes]] = []
        while self._waiting and self._waiting[-1][0] > until_ns:
            later.append(self._waiting.pop())
        for _ in range(count):
            self._waiting.pop()
        self.dropped += count
        self._waiting.extend(reversed(later))
