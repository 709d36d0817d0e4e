"""Paired repetitions as numbers with intervals: what a round takes, what early exit saves.

Vanilla and probing rounds of one repetition have the same candidates and data, so their difference is taken
repetition by repetition. The 95 % interval of its mean is Student's; errors that are the same in all
repetitions are added in squares, as in `power.energy.uncertainty`: those of an instrument move both rounds,
so only what they do to the difference counts. The share that is saved is a ratio of means, 1 - P / V, with
the interval of the linearised ratio. One repetition has no interval: what another would give is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from harness.rounds.measured import Energy
from joulefleet.errors import DataQualityError
from power.energy.uncertainty import UncertaintyPart
from power.profile.model import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Series:
    """One number in every repetition.

    Attributes:
        values: By repetition.
        limits: By instrument, how far each of its errors may move the mean (95 % limits), with sign.
        clock: Standard uncertainty of the mean from the clocks.
    """

    values: NDArray[np.float64]
    limits: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    clock: float = 0.0

    @classmethod
    def of_times(cls, seconds: Sequence[float]) -> Self:
        """Durations; between markers of one clock only the scatter matters."""
        return cls(np.array(seconds))

    @classmethod
    def of_energies(cls, energies: Sequence[Energy]) -> Self:
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
        )

    @property
    def mean(self) -> float:
        """Over the repetitions."""
        return float(self.values.mean())

    def plus(self, factor: float, other: Series) -> Series:
        """``self + factor * other``, repetition by repetition."""
        limits = dict(self.limits)
        for instrument, moved in other.limits.items():
            limits[instrument] = limits.get(instrument, 0.0) + factor * moved
        # How the clocks of two rounds err together is not known.
        clock = math.hypot(self.clock, factor * other.clock)
        return Series(self.values + factor * other.values, limits, clock)

    def quantity(self) -> Quantity:
        """The mean and its interval; none with a single repetition."""
        n = len(self.values)
        if n < 2:
            return Quantity(mean=self.mean, n=n)
        sd = float(self.values.std(ddof=1))
        repeats = UncertaintyPart(standard_j=sd / math.sqrt(n), dof=float(n - 1))
        instruments = [float(np.linalg.norm(moved)) for moved in self.limits.values()]
        clock = UncertaintyPart(standard_j=self.clock)
        half_width = math.hypot(repeats.half_width_j, clock.half_width_j, *instruments)
        return Quantity(mean=self.mean, n=n, sd=sd, half_width_95=half_width)


def saved(vanilla: Series, probing: Series) -> Quantity:
    """How much less a probing round takes."""
    return vanilla.plus(-1.0, probing).quantity()


def saved_share(vanilla: Series, probing: Series) -> Quantity:
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
    return Quantity(
        mean=1.0 - ratio,
        n=off.n,
        sd=None if off.sd is None else off.sd / vanilla.mean,
        half_width_95=None if off.half_width_95 is None else off.half_width_95 / vanilla.mean,
    )
