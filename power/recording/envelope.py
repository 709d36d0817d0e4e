"""The lowest and highest power of every few samples: what a picture of a long recording is drawn from.

A day at 5 kHz has 432 million samples. Its envelope has 1.7 million cells, of which a view of any width is
made in milliseconds. A view in which a cell would be wider than a point is made of the samples themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from power.recording.reader import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL_SAMPLES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Stretches of a recording, in the order of time.

    Attributes:
        first_ns: Host-monotonic time of the first sample of each.
        last_ns: Of its last sample.
        low_w: Lowest power of each.
        high_w: Highest.
    """

    first_ns: NDArray[np.int64]
    last_ns: NDArray[np.int64]
    low_w: NDArray[np.float32]
    high_w: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.first_ns)

    def within(self, start_ns: int, end_ns: int) -> Self:
        """The cells that have a sample between two moments, or reach across one of them."""
        part = slice(
            int(np.searchsorted(self.last_ns, start_ns)), int(np.searchsorted(self.first_ns, end_ns, "right"))
        )
        return type(self)(self.first_ns[part], self.last_ns[part], self.low_w[part], self.high_w[part])

    def merged(self, most: int) -> Self:
        """The same in at most so many cells."""
        width = -(-len(self) // most) if len(self) else 1
        if width == 1:
            return self
        edges = np.arange(0, len(self), width)
        last = np.append(edges[1:], len(self)) - 1
        return type(self)(
            self.first_ns[edges],
            self.last_ns[last],
            np.minimum.reduceat(self.low_w, edges),
            np.maximum.reduceat(self.high_w, edges),
        )


@dataclass(slots=True)
class EnvelopeBuilder:
    """Makes an envelope of samples as they come.

    Attributes:
        width: Samples of a cell. One that would reach across the end of what was added is shorter.
    """

    width: int = CELL_SAMPLES
    _parts: list[Envelope] = field(default_factory=list)

    def add(self, t_ns: NDArray[np.int64], power_w: NDArray[np.floating[Any]]) -> None:
        """Add samples that follow those before."""
        if not len(t_ns):
            return
        edges = np.arange(0, len(t_ns), self.width)
        last = np.append(edges[1:], len(t_ns)) - 1
        power = power_w.astype(np.float32)
        low_w, high_w = np.minimum.reduceat(power, edges), np.maximum.reduceat(power, edges)
        self._parts.append(Envelope(t_ns[edges], t_ns[last], low_w, high_w))

    def envelope(self) -> Envelope:
        """Of everything added so far."""
        if not self._parts:
            none = np.empty(0, np.int64)
            return Envelope(none, none, np.empty(0, np.float32), np.empty(0, np.float32))
        if len(self._parts) > 1:
            columns = ("first_ns", "last_ns", "low_w", "high_w")
            self._parts = [Envelope(*(np.concatenate([getattr(p, c) for p in self._parts]) for c in columns))]
        return self._parts[0]


def recording_envelope(recording: Recording) -> Envelope:
    """The envelope of a whole recording, in bounded memory."""
    builder = EnvelopeBuilder()
    for block in recording.blocks():
        builder.add(block.t_ns, block.current_a.astype(np.float64) * block.voltage_v)
    return builder.envelope()


def view(recording: Recording, envelope: Envelope, start_ns: int, end_ns: int, most: int) -> Envelope:
    """What to draw between two moments: at most so many cells, of samples where there are not too many.

    Args:
        recording: Where the samples are.
        envelope: Its envelope.
        start_ns: Host-monotonic time.
        end_ns: Host-monotonic time.
        most: About as many as the picture has points.
    """
    seen = envelope.within(start_ns, end_ns)
    if len(seen) >= most:
        return seen.merged(most)
    builder = EnvelopeBuilder(1)
    for t_ns, power_w in _samples(recording, start_ns, end_ns):
        builder.add(t_ns, power_w)
    return builder.envelope().merged(most)


def extremes_w(
    recording: Recording, envelope: Envelope, start_ns: int, end_ns: int
) -> tuple[float, float] | None:
    """The lowest and highest power of the samples between two moments; None if there is none.

    Cells that reach across a moment are looked up sample by sample: what lies beyond it does not count.
    """
    seen = envelope.within(start_ns, end_ns)
    whole = (seen.first_ns >= start_ns) & (seen.last_ns <= end_ns)
    found = [float(seen.low_w[whole].min()), float(seen.high_w[whole].max())] if whole.any() else []
    for i in np.flatnonzero(~whole).tolist():
        cell = max(start_ns, int(seen.first_ns[i])), min(end_ns, int(seen.last_ns[i]))
        for _, power_w in _samples(recording, *cell):
            found += [float(power_w.min()), float(power_w.max())] if len(power_w) else []
    return (min(found), max(found)) if found else None


def _samples(
    recording: Recording, start_ns: int, end_ns: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    index, timebase = recording.as_stored().index, recording.record.timebase
    first_ns, last_ns = timebase.to_host_ns(index["first_tick"]), timebase.to_host_ns(index["last_tick"])
    for i in np.flatnonzero((last_ns >= start_ns) & (first_ns <= end_ns)).tolist():
        block = recording.block(i)
        part = slice(*np.searchsorted(block.t_ns, [start_ns, end_ns + 1]).tolist())
        yield block.t_ns[part], block.current_a[part].astype(np.float64) * block.voltage_v[part]
