"""Windows of time cut where the app intensity changes, so that work in them can be integrated exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.replay.flat import FlatTraces


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Stretches of constant intensity, device after device.

    The stretches of the i-th device asked about are ``offset[i]:offset[i + 1]`` of the other arrays. They
    cover its window without gaps, in order; neighbours differ.

    Attributes:
        offset: First stretch of each device, and the total.
        start_ns: Where each stretch begins; the first of a device at the begin of its window.
        end_ns: Where each ends; the last of a device at the end of its window.
        cpu: CPU intensity, 0 to 1, NaN unknown.
        memory: Memory intensity, 0 to 1, NaN unknown.
    """

    offset: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]


def cut_windows(
    flat: FlatTraces,
    user: NDArray[np.int32],
    x_ns: NDArray[np.int64],
    period_ns: NDArray[np.int64],
    t0_ns: NDArray[np.int64],
    t1_ns: NDArray[np.int64],
) -> Segments:
    """Cut one window per device.

    Args:
        flat: The recordings.
        user: Whose recording each device replays.
        x_ns: Where in the recording its window begins.
        period_ns: After how long its recording begins again. Beyond its span nothing is known.
        t0_ns: Begin of the window.
        t1_ns: End of the window.
    """
    end_ns = x_ns + (t1_ns - t0_ns)
    # A window may go through a recording several times: first one piece per device and lap, ...
    device, lap = _spread(x_ns // period_ns, (end_ns - 1) // period_ns)
    lap_ns = lap * period_ns[device]
    begin = np.maximum(x_ns[device] - lap_ns, 0)
    last = np.minimum(end_ns[device] - lap_ns, period_ns[device]) - 1
    who = user[device]
    span = flat.span_ns.take(who)
    # ... then the steps of each piece.
    piece, step = _spread(
        flat.state.at(who, np.minimum(begin, span)), flat.state.at(who, np.minimum(last, span))
    )
    owner = device[piece]
    start = np.maximum(flat.state.t_ns.take(step), begin[piece]) + (lap_ns + (t0_ns - x_ns)[device])[piece]
    cpu, memory = flat.cpu.take(step), flat.memory.take(step)
    changes = np.ones(len(step), bool)
    # As bits, because NaN (unknown) equals NaN here.
    changes[1:] = np.logical_or.reduce(
        [values[1:] != values[:-1] for values in (owner, cpu.view(np.uint32), memory.view(np.uint32))]
    )
    start = start[changes]
    offset = np.searchsorted(owner[changes], np.arange(len(user) + 1))
    end = np.empty_like(start)
    end[:-1] = start[1:]
    end[offset[1:] - 1] = t1_ns
    return Segments(offset, start, end, cpu[changes], memory[changes])


def _spread(
    first: NDArray[np.integer], last: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each i the numbers from ``first[i]`` to ``last[i]``, and the i each belongs to."""
    count = (last - first).astype(np.int64) + 1
    owner = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    return owner, np.arange(len(owner)) + (first - begin)[owner]
