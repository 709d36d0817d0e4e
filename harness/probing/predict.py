"""What probing saves, predicted from profiles: rounds are drawn, counted both ways, and averaged.

A prediction is as good as its profiles. Their intervals are carried through by drawing them: in each of some
worlds every profile's times and energies are off by as much as they may be, and a part of the rounds is
counted anew. The interval of a saving is where 95 % of the worlds lie around the value, widened by what the
finite number of rounds leaves open. How much single rounds differ is stated as their standard deviation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from emulator import Accounting
from harness.probing.formula import Saving, both_ways, draw_worlds, mean_costs
from joulefleet.errors import ConfigError
from joulefleet.interval import Interval, Scale
from joulefleet.provenance import Origin, weakest
from joulefleet.seeds import generator
from power import DeviceProfile
from power.profile import EnergyKind, PhaseCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rule = Literal["random", "fastest", "cheapest"]

ROUNDS = 2000
"""Behind a value: the savings of a round scatter by some 15 points, their mean by a third of a point."""

WORLDS = 100
ROUNDS_PER_WORLD = 50
"""Behind an interval. They are the first of the others, so only what the world changes shows."""


@dataclass(frozen=True, slots=True)
class PredictedSaving(Saving[Interval]):
    """The same with the standard deviation of the shares between rounds."""

    time_saved_sd: float
    energy_saved_sd: float


@dataclass(frozen=True, slots=True)
class ExpectedCell:
    """What the formula gives for some rounds, on average. Waiting is beside the accountings, not in them."""

    vanilla_s: Interval
    vanilla_j: Interval
    vanilla_wait_j: Interval
    probing_wait_j: Interval
    savings: Mapping[Accounting, Saving[Interval]]


@dataclass(frozen=True, slots=True)
class PredictedCell(ExpectedCell):
    """One M and K."""

    savings: Mapping[Accounting, PredictedSaving]
    candidates: int
    chosen: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """All cells, and how much to believe them."""

    cells: tuple[PredictedCell, ...]
    origin: Origin
    local_epochs: int
    profiles: int
    energy: EnergyKind
    rule: Rule
    notes: tuple[str, ...]


def predict_savings(
    profiles: Sequence[DeviceProfile],
    *,
    candidates: Sequence[int],
    chosen: Sequence[int],
    local_epochs: int | None = None,
    rule: Rule = "random",
    energy: EnergyKind = "marginal",
    distinct: bool = True,
    seed: int = 1,
) -> Prediction:
    """What stopping after the first epoch saves, predicted for every M and K with K <= M.

    Args:
        profiles: Of the devices, or of classes of them.
        candidates: M, one or more.
        chosen: K, one or more.
        local_epochs: l_ep; that of the profiles if None.
        rule: Who goes on: anyone, the fastest or the cheapest probes.
        energy: Kind of energy.
        distinct: Whether a profile is one device, which takes part once in a round, or a class of them.
        seed: Of the draws.

    Examples:
        >>> phones = reference_fleet("mnist-lenet5")
        >>> found = predict_savings(phones, candidates=[15], chosen=[10], distinct=False)
        >>> found.cells[0].savings["honest"].energy_saved

    Raises:
        ConfigError: No profiles, profiles of different work, or more candidates than devices.
        DataQualityError: A profile lacks a cost that is needed.
    """
    if rule not in get_args(Rule) or energy not in get_args(EnergyKind):
        raise ConfigError(
            f"rule {rule!r}, energy {energy!r}: not known",
            hint=f"rules: {', '.join(get_args(Rule))}; energies: {', '.join(get_args(EnergyKind))}",
        )
    _require_same_work(profiles)
    epochs = local_epochs or profiles[0].local_epochs
    if epochs is None:
        raise ConfigError("the profiles do not say how many local epochs a round has", hint="give --epochs")
    pairs = [(m, k) for m in candidates for k in chosen if k <= m]
    if not pairs:
        raise ConfigError(
            "no M with a K that is not larger", hint="choose fewer devices than there are candidates"
        )
    if distinct:
        _require_enough_devices(profiles, max(m for m, _ in pairs))
    means, notes = mean_costs(profiles, energy)
    if warm := sum(bool(profile.warmup_epochs) for profile in profiles):
        notes.append(
            f"{warm} of {len(profiles)} profiles were measured after warm-up epochs, "
            "which rounds do not have: a real probe may take longer"
        )
    worlds = draw_worlds(profiles, means, energy, WORLDS, generator(seed, "worlds"))
    cells = []
    for m, k in pairs:
        rng = generator(seed, "rounds", m, k)
        rounds = [rng.choice(len(means), m, replace=not distinct) for _ in range(ROUNDS)]
        cells.append(_cell(means, worlds, rounds, k, epochs, rule))
    origin = weakest([Origin.SCALED, *(profile.origin for profile in profiles)])
    return Prediction(tuple(cells), origin, epochs, len(profiles), energy, rule, tuple(notes))


def _require_same_work(profiles: Sequence[DeviceProfile]) -> None:
    if not profiles:
        raise ConfigError("no profiles to predict from", hint="`joulefleet profile list` shows what there is")
    kinds = {(profile.task, profile.samples) for profile in profiles}
    if len(kinds) > 1:
        listed = ", ".join(f"{task} with {samples} samples" for task, samples in sorted(kinds))
        raise ConfigError(f"a round is one task: the profiles are of {listed}", hint="name one with --task")


def _require_enough_devices(profiles: Sequence[DeviceProfile], candidates: int) -> None:
    devices = Counter(profile.device for profile in profiles)
    device, count = devices.most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} profiles of {device}, which can take part once only",
            hint="name one backend with --backend; remove older profiles of the same work",
        )
    if candidates > len(devices):
        raise ConfigError(
            f"{candidates} candidates, but profiles of {len(devices)} devices",
            hint="ask for fewer candidates, or take the reference fleet: its profiles are classes of devices",
        )


def _cell(
    means: PhaseCosts,
    worlds: Sequence[PhaseCosts],
    rounds: Sequence[NDArray[np.int64]],
    k: int,
    epochs: int,
    rule: Rule,
) -> PredictedCell:
    def counted(costs: PhaseCosts, n: int) -> NDArray[np.float64]:
        of_rounds = [costs.taken(drawn) for drawn in rounds[:n]]
        return count_rounds([(one, _choose(one, k, rule)) for one in of_rounds], epochs)

    draws = CountedRounds(
        counted(means, ROUNDS), [counted(costs, ROUNDS_PER_WORLD) for costs in worlds], drawn=True
    )
    savings = {
        accounting: PredictedSaving(*draws.saving(accounting), *draws.saved_sds(accounting))
        for accounting in Accounting
    }
    return PredictedCell(*draws.totals(), savings, len(rounds[0]), k)


VANILLA_S, VANILLA_J = 0, 1
TOTALS = 4
"""Rows of what `count_rounds` counts: vanilla time and energy, waiting both ways, then each accounting's."""


def count_rounds(
    rounds: Sequence[tuple[PhaseCosts, NDArray[np.bool_]]], local_epochs: int
) -> NDArray[np.float64]:
    """Rounds as columns of numbers, each given by its candidates' costs and who of them goes on."""
    columns = []
    for costs, chosen in rounds:
        found = both_ways(costs, chosen, local_epochs)
        totals = [found.vanilla.time_s, found.vanilla.energy_j, found.vanilla_wait_j, found.probing_wait_j]
        columns.append(
            [*totals, *(n for cost in found.probing.values() for n in (cost.time_s, cost.energy_j))]
        )
    return np.array(columns).T


@dataclass(frozen=True, slots=True)
class CountedRounds:
    """Counted rounds: with the profiles' means, and in every world.

    Attributes:
        value: With the means.
        worlds: In each world, the first of these rounds or all of them.
        drawn: Whether the rounds are a sample of those that could be, so that luck widens intervals.
    """

    value: NDArray[np.float64]
    worlds: list[NDArray[np.float64]]
    drawn: bool = False

    def totals(self) -> tuple[Interval, Interval, Interval, Interval]:
        """Vanilla time and energy, and the energy of waiting, vanilla and probing."""
        vanilla_s, vanilla_j, vanilla_wait_j, probing_wait_j = (self._mean(row) for row in range(TOTALS))
        return vanilla_s, vanilla_j, vanilla_wait_j, probing_wait_j

    def saving(self, accounting: Accounting) -> tuple[Interval, Interval, Interval, Interval]:
        """Time and energy under an accounting, and the shares of them that are saved."""
        time_s, energy_j = _rows_of(accounting)
        saved = self._saved(time_s, VANILLA_S), self._saved(energy_j, VANILLA_J)
        return self._mean(time_s), self._mean(energy_j), *saved

    def saved_sds(self, accounting: Accounting) -> tuple[float, float]:
        """Standard deviation between rounds of the shares that are saved."""
        time_s, energy_j = _rows_of(accounting)
        return self._saved_sd(time_s, VANILLA_S), self._saved_sd(energy_j, VANILLA_J)

    def _mean(self, row: int) -> Interval:
        return self._interval(
            lambda rounds: float(rounds[row].mean()), lambda: float(self.value[row].std(ddof=1)), Scale.LOG
        )

    def _saved(self, row: int, vanilla: int) -> Interval:
        """Share of the vanilla rounds' total."""
        return self._interval(
            lambda rounds: float(1 - rounds[row].sum() / rounds[vanilla].sum()),
            lambda: self._saved_sd(row, vanilla),
            Scale.SAVED,
        )

    def _saved_sd(self, row: int, vanilla: int) -> float:
        return float((1 - self.value[row] / self.value[vanilla]).std(ddof=1))

    def _interval(
        self,
        statistic: Callable[[NDArray[np.float64]], float],
        round_sd: Callable[[], float],
        scale: Scale,
    ) -> Interval:
        value = statistic(self.value)
        here = statistic(self.value[:, : self.worlds[0].shape[1]])
        low, high = np.quantile([statistic(world) - here for world in self.worlds], [0.025, 0.975])
        luck = 1.96 * round_sd() / math.sqrt(self.value.shape[1]) if self.drawn else 0.0
        below, above = math.hypot(min(low, 0.0), luck), math.hypot(max(high, 0.0), luck)
        return Interval.uneven(value, below, above, scale)


def _rows_of(accounting: Accounting) -> tuple[int, int]:
    first = TOTALS + 2 * list(Accounting).index(accounting)
    return first, first + 1


def _choose(costs: PhaseCosts, k: int, rule: Rule) -> NDArray[np.bool_]:
    """Who goes on. Candidates come in random order, so the first ones are anyone."""
    chosen = np.zeros(len(costs), np.bool_)
    if rule == "random":
        chosen[:k] = True
    else:
        key = costs.probe_s if rule == "fastest" else costs.probe_j
        chosen[np.argsort(key, kind="stable")[:k]] = True
    return chosen
