"""T and E where the scenario does not give them: the 30 % rule (`docs/selectors.md`, item A15)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Ids
from emulator.fleet.world import World
from joulefleet.errors import ConfigError

SHARE = 0.3
DRAWS = 200
CHUNK = 1 << 17
"""Devices at a time."""
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LoneRounds:
    """What a whole round takes each device that has data, by itself and without background load.

    Attributes:
        duration_s: Receiving the model, all local epochs and sending the update.
        energy_j: Likewise.
        comm_s: The transfers within that.
        comm_j: Likewise.
    """

    duration_s: Array
    energy_j: Array
    comm_s: Array
    comm_j: Array


def lone_rounds(world: World, local_epochs: int, start_ns: int, devices: Ids | None = None) -> LoneRounds:
    """From the profiles, without training anything; transfers by a speed test at that time.

    Of all devices by default, or of some. Those without data do not count: doing nothing is neither fast nor
    cheap.

    Raises:
        ConfigError: No device has data.
    """
    ids = np.flatnonzero(world.fleet.data_size > 0) if devices is None else devices
    if not len(ids):
        raise ConfigError("not a single device has any data", hint="check task.partition and its options")
    columns = np.empty((4, len(ids)))
    for begin in range(0, len(ids), CHUNK):  # or a large fleet would need twenty numbers per device at a time
        part = ids[begin : begin + CHUNK]
        (first_s, first_j), (later_s, later_j) = world.fleet.first_epoch(part), world.fleet.epoch(part)
        down, up = world.network.speed_test(np.full(len(part), start_ns), part)
        columns[:, begin : begin + CHUNK] = (
            down.duration_s + first_s + later_s * (local_epochs - 1) + up.duration_s,
            down.energy_j + first_j + later_j * (local_epochs - 1) + up.energy_j,
            down.duration_s + up.duration_s,
            down.energy_j + up.energy_j,
        )
    return LoneRounds(*columns)


def budgets_by_rule(
    world: World, k: int, local_epochs: int, start_ns: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Time and energy of a random round among the fastest, and among the cheapest, 30 % of the devices.

    Means over 200 draws of `lone_rounds`: a budget of what doing nothing takes would punish every round.

    Returns:
        T in seconds and E in joules.
    """
    found = lone_rounds(world, local_epochs, start_ns)
    return budgets_of(found.duration_s, found.energy_j, k, rng)


def budgets_of(
    duration_s: NDArray[np.float64], energy_j: NDArray[np.float64], k: int, rng: np.random.Generator
) -> tuple[float, float]:
    """The same from what a round of its own takes each device that has data, in seconds and joules."""
    n = len(duration_s)
    pool = max(min(k, n), int(np.ceil(SHARE * n)))

    def draws(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        best = np.sort(values)[:pool]
        return [best[rng.choice(pool, min(k, pool), replace=False)] for _ in range(DRAWS)]

    return (
        float(np.mean([drawn.max() for drawn in draws(duration_s)])),
        float(np.mean([drawn.sum() for drawn in draws(energy_j)])),
    )
