"""How a debt runs through a stage of work: training adds to it, a charger pays it back, nobody saves up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Conditions, Ids, Times

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StageSegments:
    """A stage cut wherever its power or the charger changes, one row per device.

    Attributes:
        t_ns: Moments, ascending; one more than there are segments.
        energy_j: Spent up to each of them.
        plugged: Whether a charger is connected, one entry per segment.
    """

    t_ns: Times
    energy_j: Array
    plugged: NDArray[np.bool_]


def cut_at_chargers(conditions: Conditions, devices: Ids, t_ns: Times, energy_j: Array) -> StageSegments:
    """The moments of a stage, and those at which a charger comes or goes in it."""
    end_ns = t_ns[:, -1]
    plugged, change_ns = conditions.charging(t_ns[:, 0], devices)
    changes = []
    while (going := np.flatnonzero(change_ns < end_ns)).size:
        changes.append(np.minimum(change_ns, end_ns))
        change_ns = change_ns.copy()
        change_ns[going] = conditions.charging(change_ns[going], devices[going])[1]
    if not changes:
        return StageSegments(t_ns, energy_j, np.repeat(plugged[:, None], t_ns.shape[1] - 1, axis=1))
    cuts_ns = np.column_stack(changes)
    all_ns = np.concatenate([t_ns, cuts_ns], axis=1)
    all_j = np.concatenate([energy_j, between(t_ns, energy_j, cuts_ns)], axis=1)
    order = np.argsort(all_ns, kind="stable")
    all_ns, all_j = np.take_along_axis(all_ns, order, axis=1), np.take_along_axis(all_j, order, axis=1)
    so_far = (cuts_ns[:, None, :] <= all_ns[:, :-1, None]).sum(2)
    return StageSegments(all_ns, all_j, plugged[:, None] ^ (so_far % 2 == 1))


def between(t_ns: Times, values: Array, at_ns: Times) -> Array:
    """Row by row: what a quantity known at some moments is at others; linear in between."""
    right = np.clip((t_ns[:, None, :] < at_ns[:, :, None]).sum(2), 1, t_ns.shape[1] - 1)
    row = np.arange(len(t_ns))[:, None]
    begin_ns, end_ns = t_ns[row, right - 1], t_ns[row, right]
    share = np.where(end_ns > begin_ns, (at_ns - begin_ns) / np.maximum(end_ns - begin_ns, 1), 0.0)
    return np.asarray(values[row, right - 1] * (1.0 - share) + values[row, right] * share)


def run_up(debt_j: Array, added_j: Array) -> Array:
    """The debt at the beginning and after each segment, which adds (or pays back) so much; never below 0.

    What a charger gives to a full battery is lost, so a payment never counts for what is spent later.
    """
    total_j = np.cumsum(np.column_stack([debt_j, added_j]), axis=1)
    # Lifted by as much as it has been below 0 so far.
    return np.asarray(total_j - np.minimum(np.minimum.accumulate(total_j, axis=1), 0.0))
