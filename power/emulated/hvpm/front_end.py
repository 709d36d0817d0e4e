"""The analogue side of an emulated Monsoon on USB: amperes and volts to observations, and their queue.

Written from the protocol's description and not from our decoder, which it serves to test.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CHANNELS = ("main", "usb", "aux")

ZERO, REFERENCE, INVALID = 0x10, 0x30, 0x20
"""Sample types of the two calibrations and of the first observation; a measurement has 0x00."""

GAINS = (0x7A, 0xC9)
"""The last two bytes of an observation, as the firmware leaves them; the type is in the second."""


@dataclass(slots=True)
class HvpmConverter:
    """One channel in one range.

    Attributes:
        zero: Counts without current, as the zero calibration shows them.
        reference: Counts at the reference current.
        reference_a: That current, amperes.
        offset: Counts by which measurements, but not the zero calibration, are too high.
        low: Lowest count.
        high: Highest count.
    """

    zero: float
    reference: float
    reference_a: float
    offset: float
    low: int
    high: int

    def counts(self, current_a: Floats) -> NDArray[np.int64]:
        """What the converter shows at these currents; beyond its ends it clips."""
        zero = self.zero + self.offset
        exact = zero + current_a / self.reference_a * (self.reference - zero)
        return np.clip(np.rint(exact), self.low, self.high).astype(np.int64)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """All converters of a unit.

    Attributes:
        converters: Coarse and fine, of main, usb and aux, in the order of the observation's fields.
        main_volt: Volts per count of the main (or aux) voltage.
        usb_volt: The same of the USB voltage.
        load: Number of the channel that the load is connected to; the others carry nothing.
    """

    converters: tuple[HvpmConverter, ...]
    main_volt: float
    usb_volt: float
    load: int

    def measure(self, current_a: Floats, voltage_v: Floats, kind: int = 0) -> NDArray[np.uint8]:
        """One observation per row: measurements, or what is called invalid."""
        nothing = np.zeros(len(current_a))
        currents = [current_a if i // 2 == self.load else nothing for i in range(len(self.converters))]
        counts = [c.counts(current) for c, current in zip(self.converters, currents, strict=True)]
        at_usb = CHANNELS[self.load] == "usb"
        volts = [(nothing if at_usb else voltage_v) / self.main_volt]
        volts += [(voltage_v if at_usb else nothing) / self.usb_volt]
        counts += [np.clip(np.rint(v), 0, 0xFFFF).astype(np.int64) for v in volts]
        return _observations(counts, kind)

    def calibrate(self, kind: int, voltage_v: float) -> NDArray[np.uint8]:
        """One calibration observation; the voltage is measured meanwhile."""
        values = [c.zero if kind == ZERO else c.reference for c in self.converters]
        at_usb = CHANNELS[self.load] == "usb"
        volts = (0.0, voltage_v / self.usb_volt) if at_usb else (voltage_v / self.main_volt, 0.0)
        return _observations([np.array([round(value)]) for value in (*values, *volts)], kind)

    def drift(self) -> None:
        """Become another set of converters, as after warming up: zeros and gains move by about 1 %."""
        for converter in self.converters:
            span = converter.reference - converter.zero
            converter.zero += round(0.01 * span)
            converter.reference += round(0.02 * span)


def _observations(counts: list[NDArray[np.int64]], kind: int) -> NDArray[np.uint8]:
    words = np.stack(counts, axis=1).astype(np.uint16).astype(">u2")
    rows = np.zeros((len(words), 18), np.uint8)
    rows[:, :16] = words.view(np.uint8).reshape(len(words), 16)
    rows[:, 16:] = (0, INVALID) if kind == INVALID else (GAINS[0], GAINS[1] | kind)
    return rows


def hvpm_front_end(load: str) -> FrontEnd:
    """A black unit with factory scales (``HVPM.setDefaultScaleValues`` of the vendor's package).

    Counts are of our choosing: zero at 3000, reference at 36000. The fine range then ends at 67 mA in steps
    of 1.1 uA, the coarse one at 12 A in steps of 0.2 mA.
    """
    unsigned = [
        HvpmConverter(3000 + 10 * i, 36_000 + 10 * i, reference_a, offset, 0, 0xFFFF)
        for i, (reference_a, offset) in enumerate([(6.4, 15), (36.5e-3, 15), (0.6, 0), (14e-3, 0)])
    ]
    aux = [_signed(reference_a) for reference_a in (0.25, 3.1e-3)]
    return FrontEnd((*unsigned, *aux), 4 * 62.5e-6, 2 * 62.5e-6, CHANNELS.index(load))


def lvpm_front_end(load: str, resistor_offset: int) -> FrontEnd:
    """A reflashed white unit; all its counts are signed. ``resistor_offset`` is in 0.1 milliohm."""
    at_50_mohm = 0.05 / (0.05 + 1e-4 * resistor_offset)
    at_100_mohm = 0.10 / (0.10 + 1e-4 * resistor_offset)
    main = [_signed(reference_a * at_50_mohm) for reference_a in (3.1034, 35.946e-3)]
    usb = [_signed(reference_a * at_50_mohm) for reference_a in (3.1034, 35.946e-3)]
    aux = [_signed(reference_a * at_100_mohm) for reference_a in (1.289, 50.49e-3)]
    return FrontEnd((*main, *usb, *aux), 2 * 62.5e-6, 2 * 62.5e-6, CHANNELS.index(load))


def _signed(reference_a: float) -> HvpmConverter:
    """Zero at 120 (the vendor's package takes a zero of 0 for no value), reference at 20000."""
    return HvpmConverter(120, 20_000, reference_a, 0, -0x8000, 0x7FFF)


QUEUE_DEPTH = 16
"""Measurements, 3.2 ms (API.pdf, StartSampling): 15 in a ring, one in a packet made up already."""

DROPPED_MAX = 0xFFFF
"""The unit's count of what it dropped stops here."""


@dataclass(slots=True)
class ObservationQueue:
    """The unit's 16-measurement queue: what a host that comes late finds, and what it has lost.

    The emulator makes samples in bursts and may itself be late on a busy machine; a real unit is not. So the
    queue is not filled by what has been made, but by the time the host stayed away: from the answer to its
    last read until it asked again. While a read waits for an answer nothing can be lost.

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
    _made_up: tuple[int, int] | None = None  # a packet from before a loss: its observations, its count

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_ns(self) -> int:
        """When the oldest that waits was taken."""
        return self._waiting[0][0]

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

    def take(self, count: int, now_ns: int) -> tuple[int, list[bytes]]:
        """Hand out a packet of the oldest observations: what it says was dropped, and its contents.

        The host is away from now on.
        """
        self.away_since_ns = now_ns
        made_up, self._made_up = self._made_up, None
        size, dropped = made_up or (count, self.dropped)
        taken = [self._waiting.popleft()[1] for _ in range(min(size, len(self._waiting)))]
        self._fill = max(0, self._fill - len(taken))
        return dropped, taken

    def _drop(self, until_ns: int, count: int) -> None:
        """The ring is full: it is the oldest that give way, behind the packet that was made up before."""
        if self._made_up is None:
            self._made_up = (1, self.dropped)
        kept = [self._waiting.popleft() for _ in range(min(self._made_up[0], len(self._waiting)))]
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()
        self._waiting.extendleft(reversed(kept))
        self.dropped += count
