"""From U recorded users to N devices: each device replays one user, shifted in time. Nothing is copied.

At time ``t`` a device is where its user was ``x = t - start + phase`` nanoseconds into the recording. With
``wrap`` the recording repeats for ever, with a period of its span rounded up to whole ``align_ns``; the
padding is unknown. Shifts are whole multiples of ``align_ns`` too, so that with a day (the default) night
stays night. Without ``wrap`` a device is unknown before its recording begins and after it ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from joulefleet.records import StoredRecord
from joulefleet.seeds import generator
from traces.replay.flat import FlatTraces

DAY_NS = 86_400 * 10**9


class FleetRecipe(StoredRecord):
    """How devices are made from users; the same recipe over the same traces gives the same devices.

    Attributes:
        devices: How many.
        seed: Root of the random choices.
        epoch_ns: The time at which the replay begins; every unshifted device is then in the first
            ``align_ns`` of its recording.
        wrap: Repeat a recording for ever; else stop at its end.
        align_ns: Shifts and periods are multiples of this; 0 for any nanosecond and a period of exactly the
            span.
        shift: Start each device at a random place of its recording; else all at the beginning.
        jitter_ns: Up to this much is added to or taken from each shift, so that devices that replay the
            same user do not switch in lock-step.
    """

    devices: int = Field(gt=0, le=100_000_000)
    seed: int = Field(default=0, ge=0)
    epoch_ns: int = 0
    wrap: bool = True
    align_ns: int = Field(default=DAY_NS, ge=0)
    shift: bool = True
    jitter_ns: int = Field(default=0, ge=0)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMap:
    """Which user each device replays, and where in the recording it is.

    Attributes:
        user: Index of the user, one per device.
        phase_ns: Shift, one per device; with ``wrap`` in ``[0, period)``.
        period_ns: One per user.
        wrap: Whether recordings repeat.
    """

    user: NDArray[np.int32]
    phase_ns: NDArray[np.int64]
    period_ns: NDArray[np.int64]
    wrap: bool

    def __len__(self) -> int:
        return len(self.user)


def map_devices(flat: FlatTraces, recipe: FleetRecipe) -> DeviceMap:
    """Deal users to devices, each as often as any other up to one, in random order and with random shifts."""
    rng = generator(recipe.seed, "trace fleet")
    users = len(flat)
    rounds, rest = divmod(recipe.devices, users)
    dealt = np.concatenate([np.tile(np.arange(users), rounds), rng.permutation(users)[:rest]])
    user = rng.permutation(dealt).astype(np.int32)
    unit = max(recipe.align_ns, 1)
    period = -(-flat.span_ns // unit) * unit
    # Without a shift, the recording of every user begins within one unit before the epoch.
    phase = (-((recipe.epoch_ns - flat.start_ns) // unit) * unit)[user]
    if recipe.shift:
        phase = phase + rng.integers(0, (period // unit)[user]) * unit
    if recipe.jitter_ns:
        phase = phase + rng.integers(-recipe.jitter_ns, recipe.jitter_ns + 1, recipe.devices)
    if recipe.wrap:
        phase = phase % period[user]
    return DeviceMap(user, phase.astype(np.int64), period, recipe.wrap)


def one_device_per_user(flat: FlatTraces) -> DeviceMap:
    """Every user once, as recorded."""
    users = np.arange(len(flat), dtype=np.int32)
    return DeviceMap(users, np.zeros(len(flat), np.int64), flat.span_ns, wrap=False)
