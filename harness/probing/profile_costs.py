"""What candidates cost, from their profiles: the means, and values that are off by the profiles' errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.probing.formula import CandidateCosts
from harness.profiles.scale import relative_sd
from power.profile.model import DeviceProfile, EnergyKind, PhaseCost, Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = Quantity(mean=0.0)


def mean_costs(profiles: Sequence[DeviceProfile], kind: EnergyKind) -> tuple[CandidateCosts, list[str]]:
    """Means of all profiles as arrays, and what had to be left out."""
    notes = []

    def transfer(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        costs: list[PhaseCost | None] = [getattr(profile, name) for profile in profiles]
        if any(cost is None for cost in costs):
            notes.append(f"{name} is not in all profiles and counts as nothing where it is not")
        return (
            np.array([cost.duration_s.mean if cost else 0.0 for cost in costs]),
            np.array([cost.energy_j(kind).mean if cost else 0.0 for cost in costs]),
        )

    download_s, download_j = transfer("download")
    upload_s, upload_j = transfer("upload")
    return CandidateCosts(
        download_s=download_s,
        probe_s=np.array([profile.probe.duration_s.mean for profile in profiles]),
        epoch_s=np.array([profile.epoch.duration_s.mean for profile in profiles]),
        upload_s=upload_s,
        download_j=download_j,
        probe_j=np.array([profile.probe.energy_j(kind).mean for profile in profiles]),
        epoch_j=np.array([profile.epoch.energy_j(kind).mean for profile in profiles]),
        upload_j=upload_j,
        wait_w=np.array([_wait_w(profile, kind, notes) for profile in profiles]),
    ), list(dict.fromkeys(notes))


def _wait_w(profile: DeviceProfile, kind: EnergyKind, notes: list[str]) -> float:
    waiting_w = profile.waiting_w(kind)
    if waiting_w is None:
        notes.append("power while waiting is not in all profiles and counts as nothing where it is not")
        return 0.0
    return waiting_w


def draw_worlds(
    profiles: Sequence[DeviceProfile],
    means: CandidateCosts,
    kind: EnergyKind,
    worlds: int,
    rng: np.random.Generator,
) -> list[CandidateCosts]:
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
            CandidateCosts(
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
