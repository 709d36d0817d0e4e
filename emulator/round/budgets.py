"""T and E where the scenario does not give them (`docs/selectors-notes.md`, item A15).

By rule ``feasible`` they are a quantile of what rounds of random devices take under the same protocol, probes
included: what a method can keep and can exceed. ``best_30`` asks for rounds among the best 30 % of the
devices, without probes and without background load, which hardly any round of a method that probes can keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Ids
from emulator.fleet.world import World
from emulator.round.accounting import round_costs
from emulator.round.outcome import Accounting, Fate, RoundCost
from emulator.round.phases import finish, probe
from emulator.round.selector import Probe, Selector
from emulator.round.timeline import Timeline
from joulefleet.errors import ConfigError, NobodyLeft

if TYPE_CHECKING:
    from emulator.round.rules import RoundRules

MOMENTS = 24
APART_NS = 7 * 3600 * 10**9
"""Feasible rounds begin at so many moments so far apart: a week in which every hour of the day comes once,
however many rounds the run has (more may be added to it later)."""
SAMPLE = 100_000
"""Devices of a larger fleet that feasible rounds are drawn from."""
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


def feasible_budgets(
    world: World,
    rules: RoundRules,
    selector: Selector,
    accounting: Accounting,
    quantile: float,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """That quantile of R_T, and of R_E, over `feasible_rounds`.

    Returns:
        T in seconds and E in joules.

    Raises:
        ConfigError: No device has data.
        NobodyLeft: No device is eligible, nor will be.
    """
    rounds = [costs[accounting] for costs in feasible_rounds(world, rules, selector, rng)]
    time_s = float(np.quantile([one.time_s for one in rounds], quantile))
    return time_s, float(np.quantile([one.energy_j for one in rounds], quantile))


def feasible_rounds(
    world: World, rules: RoundRules, selector: Selector, rng: np.random.Generator
) -> list[dict[Accounting, RoundCost]]:
    """What rounds cost in which candidates and participants are drawn at random.

    Nothing is trained, and the world stays as it is: the rounds are a computation of the server's, no device
    is charged for them. Of more than `SAMPLE` devices so many random ones stand for all. Random candidates of
    a random part are random candidates of the whole, so it changes which are drawn, not what is expected.
    """
    if not world.fleet.data_size.any():
        raise ConfigError("not a single device has any data", hint="check task.partition and its options")
    n = len(world.fleet)
    asked = rules.wanted if selector.probe is Probe.NONE else selector.probe_count(rules.candidates, rules.k)
    lent = world.some(np.arange(n) if n <= SAMPLE else np.sort(rng.choice(n, SAMPLE, replace=False)))
    found: list[dict[Accounting, RoundCost]] = []
    while len(found) < MOMENTS:
        try:
            now_ns, eligible = lent.check_in(len(found) * APART_NS)
        except NobodyLeft:
            if len(lent.fleet) == n:
                if not found:
                    raise
                break  # recordings that do not begin anew have an end
            eligible = np.empty(0, bool)
        if len(lent.fleet) < n and np.count_nonzero(eligible) < asked:
            lent = world.some(np.arange(n))  # so few may train that it takes the whole fleet
            continue
        found.append(_random_round(lent, rules, selector, np.flatnonzero(eligible), asked, now_ns, rng))
    return found


def _random_round(
    world: World,
    rules: RoundRules,
    selector: Selector,
    eligible: Ids,
    asked: int,
    now_ns: int,
    rng: np.random.Generator,
) -> dict[Accounting, RoundCost]:
    kind = selector.probe
    devices = np.sort(rng.choice(eligible, min(asked, len(eligible)), replace=False))
    if kind is Probe.NONE:
        timeline, places = Timeline(world, devices, now_ns), np.arange(len(devices))
        decision_ns = now_ns
    else:
        timeline = probe(world, rules, kind, devices, now_ns)
        decision_ns = int(timeline.t_ns.max(initial=now_ns))
        there = np.flatnonzero(timeline.under_way)
        places = np.sort(rng.choice(there, min(rules.wanted, len(there)), replace=False))
        timeline.end(np.setdiff1d(np.arange(len(devices)), places), Fate.REJECTED)
    epochs = np.full(len(places), rules.local_epochs)
    forward = kind is Probe.NONE and "global_loss" in selector.needs
    timeline = finish(timeline, rules, places, epochs, before=kind, forward=forward)
    end_ns = int(timeline.t_ns[places].max(initial=decision_ns))
    chosen = np.zeros(len(devices), bool)
    chosen[places] = True
    return round_costs(timeline.cost, chosen, (end_ns - now_ns) * 1e-9, probed=kind is not Probe.NONE)
