"""Windows of time cut where the app intensity changes, so that work in them can be integrated exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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
        app: Number of the foreground app, -1 none, -2 unknown; only if the windows were cut by use.
        use_ns: When the use of the phone began that it is part of, wherever the window begins; likewise.
    """

    offset: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]
    app: NDArray[np.int32] | None = None
    use_ns: NDArray[np.int64] | None = None


def uses(flat: FlatTraces) -> NDArray[np.int64]:
    """For each step of the state the first one since which the same app has run at the same intensity.

    One use of an app is one stretch, whatever charger and network do meanwhile.
    """
    begins = np.ones(len(flat.app), bool)
    begins[1:] = np.logical_or.reduce(
        [_differs(values) for values in (flat.app, flat.cpu.view(np.uint32), flat.memory.view(np.uint32))]
    )
    begins[flat.state.offset[:-1]] = True
    first = np.flatnonzero(begins)
    return np.asarray(first[np.cumsum(begins) - 1])


def cut_windows(
    flat: FlatTraces,
    user: NDArray[np.int32],
    x_ns: NDArray[np.int64],
    period_ns: NDArray[np.int64],
    t0_ns: NDArray[np.int64],
    t1_ns: NDArray[np.int64],
    use: NDArray[np.int64] | None = None,
) -> Segments:
    """Cut one window per device, where its intensity changes.

    Args:
        flat: The recordings.
        user: Whose recording each device replays.
        x_ns: Where in the recording its window begins.
        period_ns: After how long its recording begins again. Beyond its span nothing is known.
        t0_ns: Begin of the window.
        t1_ns: End of the window.
        use: Of each step (`uses`): cut where one ends, too.
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
    parts: list[NDArray[Any]] = [owner, cpu.view(np.uint32), memory.view(np.uint32)]
    if use is not None:
        # By its time: the same use in another lap of the recording is another one.
        use_ns = flat.state.t_ns.take(use.take(step)) + (lap_ns + (t0_ns - x_ns)[device])[piece]
        parts.append(use_ns)
    changes[1:] = np.logical_or.reduce([_differs(values) for values in parts])
    start = start[changes]
    offset = np.searchsorted(owner[changes], np.arange(len(user) + 1))
    end = np.empty_like(start)
    end[:-1] = start[1:]
    end[offset[1:] - 1] = t1_ns
    found = Segments(offset, start, end, cpu[changes], memory[changes])
    if use is None:
        return found
    return replace(found, app=flat.app.take(step[changes]), use_ns=use_ns[changes])


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Each but the first from the one before it."""
    return np.asarray(values[1:] != values[:-1])


def _spread(
    first: NDArray[np.integer], last: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each i the numbers from ``first[i]`` to ``last[i]``, and the i each belongs to."""
    count = (last - first).astype(np.int64) + 1
    owner = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    return owner, np.arange(len(owner)) + (first - begin)[owner]
