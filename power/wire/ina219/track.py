"""Puts the conversions of an INA219 run in order: which belong to it, their number and their time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_U32 = 1 << 32
_HALF = 1 << 31

CLOCK_TOLERANCE = 0.25
"""How far ``seq x period_us`` may be from ``t_us``: conversions may take 10 % longer (SBOS448G 7.5)."""

CLOCK_SLACK_US = 100_000
"""The same for short stretches, where the microcontroller's own jitter dominates."""

RESTART_FRAMES = 32
"""So many conversions in a row that all lie in the past are a restart; fewer are bytes delivered twice."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Conversions that belong to the run.

    Attributes:
        kept: Which of the given conversions they are.
        index: Number of each since the run began, lost ones included.
        tick: The microcontroller's clock, unwrapped.
        repeated: Conversions that came twice.
        out_of_order: Conversions whose number or time cannot be right.
        jumps: Times that number and time leapt together in a way the period does not explain.
    """

    kept: NDArray[np.intp]
    index: NDArray[np.int64]
    tick: NDArray[np.int64]
    repeated: int = 0
    out_of_order: int = 0
    jumps: int = 0


class SampleTrack:
    """Follows one run. A frame must fit the one before in number and time, or be confirmed by its successors.

    A 16-bit checksum lets one damaged line in 65,536 through. One such line with a number far ahead must
    not make all that follow look old.

    Attributes:
        index: Number of the last conversion; -1 before the first.
        restarted: The microcontroller began again, so no later frame can be placed in time.
    """

    def __init__(self, period_us: int, start_us: int) -> None:
        self._period_us = period_us
        self._seq = _U32 - 1
        self._t_us = start_us
        self.index = -1
        self._tick = start_us
        self._suspect: tuple[int, int] | None = None
        self._suspects = 0
        self.restarted = False

    def follow(self, seq: NDArray[np.int64], t_us: NDArray[np.int64]) -> Placed:
        """Place the next conversions."""
        if self.restarted or not len(seq):
            none = np.empty(0, np.int64)
            return Placed(np.empty(0, np.intp), none, none, out_of_order=len(seq))
        ahead = np.diff(seq, prepend=self._seq) % _U32
        elapsed_us = _nearest(np.diff(t_us, prepend=self._t_us), ahead * self._period_us)
        if not _fits(ahead, elapsed_us, ahead * self._period_us).all():
            return self._follow_one_by_one(seq, t_us)
        index = self.index + np.cumsum(ahead)
        tick = self._tick + np.cumsum(elapsed_us)
        self._accept(int(seq[-1]), int(t_us[-1]), int(index[-1]), int(tick[-1]))
        return Placed(np.arange(len(seq)), index, tick)

    def _follow_one_by_one(self, seq: NDArray[np.int64], t_us: NDArray[np.int64]) -> Placed:
        """The same, where at least one frame does not fit."""
        kept, index, tick = [], [], []
        repeated = out_of_order = jumps = 0
        for i, frame in enumerate(zip(seq.tolist(), t_us.tolist(), strict=True)):
            ahead, elapsed_us, fits = self._step((self._seq, self._t_us), frame)
            if not fits and ahead == 0:
                repeated += 1
                continue
            if not fits and not self._confirmed(frame, ahead):
                out_of_order += 1
                if self.restarted:
                    out_of_order += len(seq) - i - 1
                    break
                continue
            if not fits:
                jumps += 1
                elapsed_us = elapsed_us if elapsed_us > 0 else (frame[1] - self._t_us) % _U32
            self._accept(*frame, self.index + ahead, self._tick + elapsed_us)
            kept.append(i)
            index.append(self.index)
            tick.append(self._tick)
        return Placed(
            np.array(kept, np.intp),
            np.array(index, np.int64),
            np.array(tick, np.int64),
            repeated,
            out_of_order,
            jumps,
        )

    def _step(self, before: tuple[int, int], frame: tuple[int, int]) -> tuple[int, int, bool]:
        """Conversions and microseconds between two frames, and whether they agree."""
        ahead = np.array([(frame[0] - before[0]) % _U32])
        expected_us = ahead * self._period_us
        elapsed_us = _nearest(np.array([frame[1] - before[1]]), expected_us)
        return int(ahead[0]), int(elapsed_us[0]), bool(_fits(ahead, elapsed_us, expected_us)[0])

    def _confirmed(self, frame: tuple[int, int], ahead: int) -> bool:
        """Whether a frame off the track follows others off the track, which makes it the track."""
        follows = self._suspect is not None and self._step(self._suspect, frame)[2]
        self._suspect = frame
        self._suspects = self._suspects + 1 if follows else 1
        if ahead < _HALF:
            return self._suspects >= 2
        self.restarted = self._suspects >= RESTART_FRAMES
        return False

    def _accept(self, seq: int, t_us: int, index: int, tick: int) -> None:
        self._seq, self._t_us, self.index, self._tick = seq, t_us, index, tick
        self._suspect, self._suspects = None, 0


def _nearest(difference_us: NDArray[np.int64], expected_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """A difference of a clock that wraps at 2^32, as the value nearest to what is expected."""
    wraps = np.rint((expected_us - difference_us) / _U32).astype(np.int64)
    return difference_us + wraps * _U32


def _fits(
    ahead: NDArray[np.int64], elapsed_us: NDArray[np.int64], expected_us: NDArray[np.int64]
) -> NDArray[np.bool_]:
    slack_us = CLOCK_TOLERANCE * expected_us + CLOCK_SLACK_US
    # Where the slack exceeds half a turn of the clock, every time would seem to fit.
    fits: NDArray[np.bool_] = (
        (ahead > 0)
        & (ahead < _HALF)
        & (elapsed_us > 0)
        & (np.abs(elapsed_us - expected_us) <= slack_us)
        & (slack_us < _HALF)
    )
    return fits
