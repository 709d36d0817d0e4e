"""`Floors`: what a fleet allows. No choice costs less than its cheapest devices, or beats its fastest.

From what a whole round takes each device by itself and without load; transfers count, waiting does not. Means
over all equally likely draws are worked out, not drawn: the i-th smallest of N values is the j-th smallest of
a random M of them with probability C(i - 1, j - 1) C(N - i, M - j) / C(N, M).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from emulator.fleet.world import World
from emulator.round.budgets import LoneRounds, lone_rounds
from emulator.round.rules import RoundRules

Array = NDArray[np.float64]
SAMPLE = 100_000
"""Devices that are looked at."""
MOST = 10_000
"""Of more devices, so many evenly spaced by rank stand for all: the means then differ in the fourth digit."""


@dataclass(frozen=True, slots=True)
class Floors:
    """Shares are of what K random devices take; ``None`` where that is nothing.

    Attributes:
        devices: N, those with data.
        candidates: M.
        k: K.
        random_s: Mean time of a round with K random devices: that of the slowest of them.
        random_j: Mean energy of K random devices.
        speed_spread: The slowest tenth begins at so many times the time at which the fastest tenth ends.
        energy_spread: The same for energy.
        comm_time: Share of transfers in the time of a mean device.
        comm_energy: Share of transfers in the energy.
        cheapest_of_all: Energy of the K cheapest of all N.
        cheapest_of_candidates: Mean energy of the K cheapest of M random candidates, without probes.
        fastest_of_all: Time of the K fastest of all N.
        fastest_of_candidates: Mean time of the K fastest of M random candidates, likewise.
    """

    devices: int
    candidates: int
    k: int
    random_s: float
    random_j: float
    speed_spread: float | None
    energy_spread: float | None
    comm_time: float | None
    comm_energy: float | None
    cheapest_of_all: float | None
    cheapest_of_candidates: float | None
    fastest_of_all: float | None
    fastest_of_candidates: float | None

    def facts(self) -> dict[str, Any]:
        """As a record holds them."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """For people."""
        fleet = (
            f"a round of {self.k} random idle devices takes {self.random_s:.4g} s and {self.random_j:.4g} J; "
            f"devices differ {_times(self.speed_spread)} in time and {_times(self.energy_spread)} in energy "
            f"(slowest against fastest tenth); transfers are {_percent(self.comm_time)} of a device's time "
            f"and {_percent(self.comm_energy)} of its energy"
        )
        floor = (
            f"against that, the cheapest {self.k} of {self.devices:,} take {_percent(self.cheapest_of_all)} "
            f"of the energy and the fastest {_percent(self.fastest_of_all)} of the time; of "
            f"{self.candidates:,} random candidates {_percent(self.cheapest_of_candidates)} and "
            f"{_percent(self.fastest_of_candidates)}, without their probes: no choice can show less"
        )
        return [fleet, floor]


def floors_of(world: World, rules: RoundRules) -> Floors:
    """What a fleet allows at the start of a run; of a large one, evenly many of its devices stand for all.

    Who has which profile is random, so these are a random sample.
    """
    have = world.fleet.data_size > 0
    # The numbers of 15 million devices are 120 MB, at a moment at which everything else is in memory.
    with_data = range(len(have)) if have.all() else np.flatnonzero(have)
    some = np.asarray(with_data[:: max(1, len(with_data) // SAMPLE)], np.int64)
    return floors(lone_rounds(world, rules.local_epochs, 0, some), rules.k, rules.candidates)


def floors(rounds: LoneRounds, k: int, candidates: int) -> Floors:
    """What devices with these costs allow."""
    n = len(rounds.duration_s)
    k, m = min(k, n), min(candidates, n)
    time_s, energy_j = np.sort(rounds.duration_s), np.sort(rounds.energy_j)
    random_s, random_j = float(ranked(time_s, k, [k])[0]), k * float(energy_j.mean())
    return Floors(
        devices=n,
        candidates=m,
        k=k,
        random_s=random_s,
        random_j=random_j,
        speed_spread=_spread(time_s),
        energy_spread=_spread(energy_j),
        comm_time=_share(rounds.comm_s.mean(), time_s.mean()),
        comm_energy=_share(rounds.comm_j.mean(), energy_j.mean()),
        cheapest_of_all=_share(energy_j[:k].sum(), random_j),
        cheapest_of_candidates=_share(ranked(energy_j, m, range(1, k + 1)).sum(), random_j),
        fastest_of_all=_share(time_s[k - 1], random_s),
        fastest_of_candidates=_share(ranked(time_s, m, [k])[0], random_s),
    )


def ranked(values: Array, m: int, ranks: Sequence[int]) -> Array:
    """Means of the j-th smallest, j of ``ranks``, of m random ones of some ascending values."""
    if len(values) > max(MOST, m):
        values = values[np.linspace(0, len(values) - 1, max(MOST, m)).round().astype(np.int64)]
    n = len(values)
    below = np.arange(n)  # how many are smaller than each
    means = np.empty(len(ranks))
    for place, rank in enumerate(ranks):
        j = rank - 1
        # Only values with j below and m - 1 - j above them can be the one: the others have no logarithm.
        can = slice(j, n - (m - 1 - j))
        log_p = _log_choose(below[can], j) + _log_choose(n - 1 - below[can], m - 1 - j)
        # Some value is it: dividing by the sum takes the rounding of large factorials out.
        p = np.exp(log_p - log_p.max())
        means[place] = float(values[can] @ p) / float(p.sum())
    return means


def _log_choose(n: NDArray[np.int64], k: int) -> Array:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def _spread(ascending: Array) -> float | None:
    low, high = np.quantile(ascending, (0.1, 0.9))
    return _share(high, low)


def _share(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole > 0 else None


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def _times(ratio: float | None) -> str:
    return "by an unknown factor" if ratio is None else f"{ratio:.2g}-fold"
