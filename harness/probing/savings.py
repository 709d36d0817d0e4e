"""Measured rounds as numbers with intervals: what a round takes, what early exit saves.

Vanilla and probing rounds of one repetition have the same candidates and data, so their difference is taken
repetition by repetition. The 95 % interval of its mean is Student's; errors that are the same in all
repetitions are added in squares, as in `power.energy.uncertainty`: those of an instrument move both rounds,
so only what they do to the difference counts. The share that is saved is a ratio of means, 1 - P / V, with
the interval of the linearised ratio. One repetition has no interval: what another would give is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from emulator import Accounting
from emulator.round import ClientCost, counted, honest_time_s, round_costs, vanilla_cost
from harness.rounds.measured import MeasuredPart, client_cost
from harness.rounds.record import ProbingRoundRecord
from joulefleet.errors import DataQualityError
from joulefleet.interval import student_factor
from power.profile import Quantity, quantity_from_sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RoundEnergy:
    """An energy counted in a round.

    Attributes:
        value_j: The energy.
        limits_j: By instrument, how far each of its errors may move it (95 % limits), with sign.
        clock_j: Standard uncertainty from the clocks; taken to be wrong in the same direction everywhere.
    """

    value_j: float
    limits_j: dict[str, NDArray[np.float64]]
    clock_j: float


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One round and its parts, in the order of its candidates."""

    record: ProbingRoundRecord
    parts: tuple[MeasuredPart, ...]

    def mask(self, chosen: Iterable[str]) -> NDArray[np.bool_]:
        """Who is among them."""
        wanted = set(chosen)
        return np.array([part.device in wanted for part in self.parts])

    def seconds(self, name: str) -> NDArray[np.float64]:
        """Duration of one phase by candidate."""
        return np.array([part.readings[name].duration_s for part in self.parts])

    def client_cost(self) -> ClientCost:
        """As the emulator's accounting takes it."""
        return client_cost(self.parts, probed=True)

    def vanilla_s(self, chosen: NDArray[np.bool_]) -> float:
        """Slowest candidate through all epochs, then the slowest upload of the chosen."""
        return vanilla_cost(self.client_cost(), chosen).time_s

    def probing_s(self) -> dict[Accounting, float]:
        """Duration of a probing round by accounting."""
        chosen, cost = self.mask(self.record.chosen), self.client_cost()
        costs = round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True)
        return {accounting: cost.time_s for accounting, cost in costs.items()}

    def energy(self, weights: dict[str, NDArray[np.float64]]) -> RoundEnergy:
        """Energy of some phases of some candidates."""
        limits_j: dict[str, NDArray[np.float64]] = {}
        value_j = clock_j = 0.0
        for name, of_part in weights.items():
            for part, weight in zip(self.parts, of_part, strict=True):
                reading = part.readings[name]
                value_j += weight * reading.energy_j
                clock_j += weight * reading.clock_j
                moved_j = weight * reading.limits_j
                limits_j[part.instrument] = limits_j.get(part.instrument, 0.0) + moved_j
        return RoundEnergy(value_j, limits_j, clock_j)

    def elapsed_s(self, chosen: NDArray[np.bool_]) -> float:
        """As it happened, with all that no accounting counts: loading the task, messages, waiting.

        On the bench a candidate of a vanilla round uploads when it is done. In a round it would wait for the
        choice, so the uploads of the chosen are put after the slowest candidate.
        """
        began_ns = min(part.began_ns for part in self.parts)
        if self.record.k is None:
            trained_s = (max(part.trained_ns for part in self.parts) - began_ns) * 1e-9
            return trained_s + float(self.seconds("upload")[chosen].max())
        ended_ns = [part.ended_ns for part, is_chosen in zip(self.parts, chosen, strict=True) if is_chosen]
        return (max(ended_ns) - began_ns) * 1e-9


def vanilla_weights(chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What a vanilla round counts: everything, but uploads of the chosen only."""
    everybody = np.ones(len(chosen))
    return {
        "download": everybody,
        "probe": everybody,
        "train": everybody,
        "upload": chosen.astype(float),
    }


def probing_weights(accounting: Accounting, chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What a probing round counts; the same as `emulator.round.accounting`, by phase."""
    return {phase: who.astype(float) for phase, who in counted(accounting, chosen).items()}


@dataclass(frozen=True, slots=True)
class PairedSeries:
    """One number in every repetition.

    Attributes:
        values: By repetition.
        limits: By instrument, how far each of its errors may move the mean (95 % limits), with sign.
        clock: Standard uncertainty of the mean from the clocks.
        sessions: Of each repetition; all of one if empty.
    """

    values: NDArray[np.float64]
    limits: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    clock: float = 0.0
    sessions: tuple[int, ...] = ()

    @classmethod
    def of_times(cls, seconds: Sequence[float], sessions: Sequence[int] = ()) -> Self:
        """Durations; between markers of one clock only the scatter matters."""
        return cls(np.array(seconds), sessions=tuple(sessions))

    @classmethod
    def of_energies(cls, energies: Sequence[RoundEnergy], sessions: Sequence[int] = ()) -> Self:
        """Energies with their systematic parts."""
        n = len(energies)
        limits: dict[str, NDArray[np.float64]] = {}
        for energy in energies:
            for instrument, moved_j in energy.limits_j.items():
                limits[instrument] = limits.get(instrument, 0.0) + moved_j / n
        return cls(
            np.array([energy.value_j for energy in energies]),
            limits,
            math.fsum(energy.clock_j for energy in energies) / n,
            tuple(sessions),
        )

    @property
    def mean(self) -> float:
        """Over the sessions, each counting once."""
        return quantity_from_sessions(self._by_session()).mean

    def plus(self, factor: float, other: PairedSeries) -> PairedSeries:
        """``self + factor * other``, repetition by repetition."""
        limits = dict(self.limits)
        for instrument, moved in other.limits.items():
            limits[instrument] = limits.get(instrument, 0.0) + factor * moved
        # How the clocks of two rounds err together is not known.
        clock = math.hypot(self.clock, factor * other.clock)
        return PairedSeries(self.values + factor * other.values, limits, clock, self.sessions)

    def quantity(self) -> Quantity:
        """The mean and its interval; none with a single repetition."""
        if len(self.values) < 2:
            return quantity_from_sessions(self._by_session())
        instruments = [float(np.linalg.norm(moved)) for moved in self.limits.values()]
        systematic = math.hypot(student_factor(None) * self.clock, *instruments)
        return quantity_from_sessions(self._by_session(), systematic_half_width=systematic)

    def _by_session(self) -> list[list[float]]:
        found: dict[int, list[float]] = {}
        for session, value in zip(self.sessions or [1] * len(self.values), self.values, strict=True):
            found.setdefault(session, []).append(float(value))
        return list(found.values())


def saved(vanilla: PairedSeries, probing: PairedSeries) -> Quantity:
    """How much less a probing round takes."""
    return vanilla.plus(-1.0, probing).quantity()


def saved_share(vanilla: PairedSeries, probing: PairedSeries) -> Quantity:
    """The same as a share of the vanilla round.

    Raises:
        DataQualityError: The vanilla round took nothing, so there is no share of it.
    """
    if vanilla.mean <= 0:
        raise DataQualityError(
            f"the vanilla rounds took {vanilla.mean:.3g} on average: nothing to save from",
            hint="train longer than the noise of idle power hides, or choose gross energy",
        )
    ratio = probing.mean / vanilla.mean
    # d(P/V) = (dP - ratio dV) / V; its mean over the repetitions is 0 by construction.
    off = probing.plus(-ratio, vanilla).quantity()
    spreads = {
        name: None if (found := getattr(off, name)) is None else found / vanilla.mean
        for name in ("sd", "half_width_95", "session_sd")
    }
    return off.model_copy(update={"mean": 1.0 - ratio, **spreads})
