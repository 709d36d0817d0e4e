"""What candidates cost, from their profiles: the means, and values that are off by the profiles' errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.profiles.scale import relative_sd
from power import DeviceProfile
from power.profile import EnergyKind, PhaseCost, PhaseCosts, Quantity, missing_costs, phase_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = Quantity(mean=0.0)


def mean_costs(profiles: Sequence[DeviceProfile], kind: EnergyKind) -> tuple[PhaseCosts, list[str]]:
    """Means of all profiles as arrays, and what counts as nothing because it is not in them."""
    notes = [
        f"{part} is not in all profiles and counts as nothing where it is not"
        for part in missing_costs(profiles)
    ]
    return phase_costs(profiles, kind, missing="costs_nothing"), notes


def draw_worlds(
    profiles: Sequence[DeviceProfile],
    means: PhaseCosts,
    kind: EnergyKind,
    worlds: int,
    rng: np.random.Generator,
) -> list[PhaseCosts]:
    """Costs that are off by as much as the profiles say they may be, some times over."""
    training = _Errors.of([profile.epoch for profile in profiles], kind)
    down = _Errors.of([profile.download for profile in profiles], kind)
    up = _Errors.of([profile.upload for profile in profiles], kind)
    found = []
    for _ in range(worlds):
        train_s, train_j = training.draw(rng)
        down_s, down_j = down.draw(rng)
        up_s, up_j = up.draw(rng)
        found.append(
            PhaseCosts(
                download_s=means.download_s * down_s,
                probe_s=means.probe_s * train_s,
                epoch_s=means.epoch_s * train_s,
                upload_s=means.upload_s * up_s,
                download_j=means.download_j * down_j,
                probe_j=means.probe_j * train_j,
                epoch_j=means.epoch_j * train_j,
                upload_j=means.upload_j * up_j,
                wait_w=means.wait_w,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Errors:
    """How far one phase of each profile may be off: standard deviations of logarithms.

    Profiles that were predicted from the same basis are wrong together, so their errors are common to all
    devices; measured ones are wrong each by itself. Time and energy of a profile go wrong together as far as
    the energy's error is one of time.
    """

    time_sd: NDArray[np.float64]
    energy_sd: NDArray[np.float64]
    common: NDArray[np.bool_]

    @classmethod
    def of(cls, costs: Sequence[PhaseCost | None], kind: EnergyKind) -> _Errors:
        """A phase that a profile lacks has no error."""
        times = [cost.duration_s if cost else NOTHING for cost in costs]
        energies = [cost.energy_j(kind) if cost else NOTHING for cost in costs]
        return cls(
            np.array([relative_sd(time) for time in times]),
            np.array([relative_sd(energy) for energy in energies]),
            np.array([energy.factor_95 is not None for energy in energies]),
        )

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factors of time and of energy for every profile."""
        each = rng.normal(size=(2, len(self.time_sd)))
        both = rng.normal(size=(2, 1))
        of_time, own = np.where(self.common, both, each)
        shared = np.minimum(self.time_sd, self.energy_sd)
        rest = np.sqrt(np.maximum(self.energy_sd**2 - shared**2, 0.0))
        return np.exp(self.time_sd * of_time), np.exp(shared * of_time + rest * own)
