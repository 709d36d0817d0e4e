"""The power of a stretch of a recording, in the few values that aligning needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from power.recording import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trace:
    """Mean power of short stretches; where samples are missing there is none.

    Attributes:
        origin_ns: Host time from which ``t_s`` counts.
        length_s: What was asked for, recorded or not.
        t_s: Middle of each stretch, seconds, increasing.
        power_w: Mean power in it.
        width_s: Length of each.
        averaged: Whether each is the mean of several samples; if not, whether the meter itself averages
            over the time between samples is not known.
    """

    origin_ns: int
    length_s: float
    t_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    width_s: float
    averaged: bool


def read_trace(recording: Recording, start_ns: int, end_ns: int, *, width_s: float) -> Trace:
    """Read only the batches between two times, averaged over ``width_s`` where samples come faster.

    Samples are grouped by their number, never across a gap.
    """
    record, index = recording.record, recording.index
    together = max(1, round(width_s * record.info.rate_hz))
    first_ns = record.timebase.to_host_ns(index["first_tick"])
    last_ns = record.timebase.to_host_ns(index["last_tick"])
    times, powers = [np.empty(0)], [np.empty(0)]
    for i in range(int(np.searchsorted(last_ns, start_ns)), int(np.searchsorted(first_ns, end_ns))):
        block = recording.block(i)
        low, high = np.searchsorted(block.t_ns, (start_ns, end_ns))
        high -= (high - low) % together
        since_s = (block.t_ns[low:high] - start_ns) * 1e-9
        times.append(since_s.reshape(-1, together).mean(axis=1))
        power_w = block.power_w[low:high].astype(np.float64)
        powers.append(power_w.reshape(-1, together).mean(axis=1))
    return Trace(
        origin_ns=start_ns,
        length_s=(end_ns - start_ns) * 1e-9,
        t_s=np.concatenate(times),
        power_w=np.concatenate(powers),
        width_s=together / record.info.rate_hz,
        averaged=together > 1,
    )
