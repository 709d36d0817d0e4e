"""T and E where the scenario does not give them: the 30 % rule (`docs/selectors.md`, item A15)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.world import World
from joulefleet.errors import ConfigError

SHARE = 0.3
DRAWS = 200


def budgets_by_rule(
    world: World, k: int, local_epochs: int, start_ns: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Time and energy of a random round among the fastest, and among the cheapest, 30 % of the devices.

    Means over 200 draws, from the profiles without background load and without training anything. Devices
    without data do not count: a budget of what doing nothing takes would punish every round.

    Returns:
        T in seconds and E in joules.
    """
    ids = np.flatnonzero(world.fleet.data_size > 0)
    if not len(ids):
        raise ConfigError("not a single device has any data", hint="check task.partition and its options")
    now_ns = np.full(len(ids), start_ns)
    (first_s, first_j), (later_s, later_j) = world.fleet.first_epoch(ids), world.fleet.epoch(ids)
    down, up = world.network.speed_test(now_ns, ids)
    duration_s = down.duration_s + first_s + later_s * (local_epochs - 1) + up.duration_s
    energy_j = down.energy_j + first_j + later_j * (local_epochs - 1) + up.energy_j
    return budgets_of(duration_s, energy_j, k, rng)


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
