"""Computing beside whatever else the phone does: progress integrated over the segments of background load.

The profile says how long an epoch takes without load, `emulator.fleet.interference` by which factor a load
slows it and changes its marginal energy. What the phone draws beside, which gross energy holds, it draws for
as long as it takes. The trace says which load there is at each moment. A phone that is picked up in the
middle of an epoch is slower from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.battery_debt import between
from emulator.fleet.conditions import Conditions, Ids, Times
from emulator.fleet.interference import Slowing, in_use

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far a stage got on each device.

    Attributes:
        t_ns: Moments of the stage, ascending, one row per device; the last is where it ended.
        energy_j: Energy spent in the stage up to each of them.
        completed: Whether it came to its end before its limit.
        loaded_s: How much of it went on beside a background load; ``None`` for none.
    """

    t_ns: Times
    energy_j: Array
    completed: NDArray[np.bool_]
    loaded_s: Array | None = None

    @property
    def end_ns(self) -> Times:
        """Where it ended."""
        return self.t_ns[:, -1]

    @property
    def total_j(self) -> Array:
        """What it took."""
        return self.energy_j[:, -1]

    def energy_at(self, t_ns: Times, start_ns: Times) -> Array:
        """What had been spent at a moment of the stage; linear between the known ones."""
        times = np.column_stack([start_ns, self.t_ns])
        energy_j = np.column_stack([np.zeros(len(times)), self.energy_j])
        return np.asarray(between(times, energy_j, t_ns[:, None])[:, 0])


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """Something to compute, one entry per device.

    Attributes:
        devices: Who.
        profile: Their profiles.
        duration_s: How long it takes without background load.
        energy_j: What it takes without background load.
        base_w: Power within that which is drawn for as long as it takes; the rest goes by the work done.
    """

    devices: Ids
    profile: NDArray[np.integer]
    duration_s: Array
    energy_j: Array
    base_w: Array


def compute(
    work: Computation, start_ns: Times, limit_ns: Times, conditions: Conditions, apps: Slowing
) -> Progress:
    """Work from a start until it is done or its limit comes."""
    # The worst load there is bounds how long it can take; one nanosecond more for rounding.
    longest_s = work.duration_s * apps.worst(work.profile)
    window_ns = np.minimum(start_ns + np.ceil(longest_s * 1e9).astype(np.int64) + 1, limit_ns)
    window_ns = np.maximum(window_ns, start_ns + 1)
    found = conditions.segments(start_ns, window_ns, work.devices)
    count = np.diff(found.offset)
    row = np.repeat(np.arange(len(count)), count)
    column = np.arange(len(row)) - found.offset[row]
    slowdown, factor = apps.factors(work.profile[row], work.devices[row], found)

    def table(values: NDArray[np.generic]) -> NDArray[np.generic]:
        filled = np.zeros((len(count), int(count.max())), values.dtype)
        filled[row, column] = values
        return filled

    # Row by row, so that nobody's result depends on who else is asked about.
    possible_s = np.cumsum(table((found.end_ns - found.start_ns) * 1e-9 / slowdown), axis=1)
    # Who starts at its limit does nothing; its window is a nanosecond only because windows have a length.
    target_s = np.where(start_ns < limit_ns, work.duration_s, 0.0)[:, None]
    done_s = np.minimum(possible_s, target_s)
    step_s = np.diff(done_s, prepend=0.0)
    slowed_s = step_s * table(slowdown)
    ends_ns = table(found.start_ns) + np.ceil(slowed_s * 1e9).astype(np.int64)
    # Beyond the end of the work (or of the window) every moment is that end.
    t_ns = np.maximum.accumulate(np.where(step_s > 0, ends_ns, start_ns[:, None]), axis=1)
    done = done_s[:, -1] >= work.duration_s * (1.0 - 1e-12)
    t_ns[~done, -1] = np.minimum(window_ns, limit_ns)[~done]
    with np.errstate(invalid="ignore", divide="ignore"):
        own_w = np.where(work.duration_s > 0, work.energy_j / work.duration_s - work.base_w, 0.0)
    energy_j = np.cumsum(step_s * table(factor), axis=1) * own_w[:, None]
    energy_j += np.cumsum(slowed_s, axis=1) * work.base_w[:, None]
    busy = in_use(found)
    loaded_s = (slowed_s * table(busy)).sum(1) if busy.any() else None
    return Progress(t_ns, energy_j, done & (t_ns[:, -1] <= limit_ns), loaded_s)


def steady(start_ns: Times, duration_s: Array, energy_j: Array, limit_ns: Times) -> Progress:
    """A stage at constant power, such as a transfer."""
    wanted_ns = np.ceil(duration_s * 1e9).astype(np.int64)
    end_ns = np.minimum(start_ns + wanted_ns, limit_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(wanted_ns > 0, (end_ns - start_ns) / wanted_ns, 1.0)
    return Progress(end_ns[:, None], (energy_j * share)[:, None], start_ns + wanted_ns <= limit_ns)
