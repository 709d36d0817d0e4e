"""Profiles as tables: one row per profile, so that a million devices need only the number of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin, weakest
from power.profile.model import DeviceProfile, EnergyKind, PhaseCost

Array = NDArray[np.float64]


CURVE_STEPS = 1024
"""Steps of the common grid of loads; linear between them, which is off by less than a millionth of the factor
for the smooth curves of `power.profile.load_curve`."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadCurves:
    """Slowdown and energy against background load, of every profile on one common grid of loads.

    Attributes:
        slowdown: Time relative to no load, one row per profile, one column per load from 0 to 1.
        energy_factor: Marginal energy relative to no load, likewise.
    """

    slowdown: Array
    energy_factor: Array

    def at(self, profile: NDArray[np.integer], load: NDArray[np.floating]) -> tuple[Array, Array]:
        """Slowdown and energy factor; where the load is unknown it counts as none."""
        place = np.nan_to_num(load.astype(np.float64)) * CURVE_STEPS
        left = np.minimum(place.astype(np.int64), CURVE_STEPS - 1)
        share = place - left

        def between(table: Array) -> Array:
            return np.asarray(table[profile, left] * (1.0 - share) + table[profile, left + 1] * share)

        return between(self.slowdown), between(self.energy_factor)


@dataclass(frozen=True, slots=True, eq=False)
class ProfileCosts:
    """What each profile's device takes, without background load.

    Attributes:
        names: What each profile is about.
        samples: Training samples behind ``first_*`` and ``epoch_*``.
        first_s: Duration of the first local epoch, seconds.
        first_j: Its energy, joules.
        epoch_s: Duration of any later local epoch.
        epoch_j: Its energy.
        download_s: Receiving the model; NaN if not measured.
        download_j: Its energy, likewise.
        upload_s: Sending the update, likewise.
        upload_j: Its energy, likewise.
        base_w: Power within ``first_j`` and ``epoch_j`` that is not the training's own, but drawn for as long
            as it takes: where a load slows the training, there is more of it.
        wait_w: Power while waiting awake, as ``energy`` counts it; 0 if not measured.
        idle_w: Power of the idle phone; 0 if not measured.
        capacity_j: Of the battery; infinite if there is none or it is not known.
        charge_w: Of the charger; 0 if there is none.
        curves: Under background load.
        energy: Which energy all of this is.
        origin: The weakest claim among the profiles.
        gaps: What was not measured, one sentence each.
    """

    names: tuple[str, ...]
    samples: Array
    first_s: Array
    first_j: Array
    epoch_s: Array
    epoch_j: Array
    download_s: Array
    download_j: Array
    upload_s: Array
    upload_j: Array
    base_w: Array
    wait_w: Array
    idle_w: Array
    capacity_j: Array
    charge_w: Array
    curves: LoadCurves
    energy: EnergyKind
    origin: Origin
    gaps: tuple[str, ...]

    @property
    def idle_within_w(self) -> Array:
        """Idle power that is in these energies: a battery loses it anyway."""
        return self.idle_w if self.energy == "gross" else np.zeros_like(self.idle_w)


def profile_costs(profiles: Sequence[DeviceProfile], energy: EnergyKind = "marginal") -> ProfileCosts:
    """Tabulate profiles.

    Raises:
        ConfigError: There is none, or one has no energy of the wanted kind.
    """
    if not profiles:
        raise ConfigError("a fleet needs at least one device profile", hint="`joulefleet demo` makes one")

    def column(phase: str, quantity: str) -> Array:
        return np.array([_mean(profile, phase, quantity, energy) for profile in profiles])

    return ProfileCosts(
        names=tuple(profile.label for profile in profiles),
        samples=np.array([float(profile.samples) for profile in profiles]),
        first_s=column("probe", "duration_s"),
        first_j=column("probe", "energy"),
        epoch_s=column("epoch", "duration_s"),
        epoch_j=column("epoch", "energy"),
        download_s=column("download", "duration_s"),
        download_j=column("download", "energy"),
        upload_s=column("upload", "duration_s"),
        upload_j=column("upload", "energy"),
        base_w=np.array([_base_w(profile, energy) for profile in profiles]),
        wait_w=np.array([_wait_w(profile, energy) for profile in profiles]),
        idle_w=np.array([p.idle_power_w.mean if p.idle_power_w else 0.0 for p in profiles]),
        capacity_j=np.array([p.battery.capacity_j if p.battery else np.inf for p in profiles]),
        charge_w=np.array([p.battery.charge_w if p.battery else 0.0 for p in profiles]),
        curves=_curves(profiles),
        energy=energy,
        origin=weakest(profile.origin for profile in profiles),
        gaps=tuple(gap for profile in profiles for gap in _gaps(profile)),
    )


def _mean(profile: DeviceProfile, phase: str, quantity: str, energy: EnergyKind) -> float:
    cost: PhaseCost | None = getattr(profile, phase)
    if cost is None:
        return float("nan")
    if quantity == "duration_s":
        return cost.duration_s.mean
    try:
        return cost.energy_j(energy).mean
    except DataQualityError as error:
        raise ConfigError(
            f"profile {profile.label} has no {energy} energy of its {phase}",
            hint='measure its idle power, or charge everything it draws with `energy = "gross"`',
        ) from error


def _base_w(profile: DeviceProfile, energy: EnergyKind) -> float:
    """What is drawn beside the training's own energy; matters only to a device that can be slowed down."""
    if energy == "marginal" or not profile.load_curve:
        return 0.0
    epoch = profile.epoch
    if epoch.marginal_j is None:
        raise ConfigError(
            f"profile {profile.label} has a load curve, but no marginal energy of its epoch: "
            f"how a load changes its {energy} energy cannot be told",
            hint="measure its idle power; the curve is about the energy beyond it",
        )
    beside_j = epoch.energy_j(energy).mean - epoch.marginal_j.mean
    return max(0.0, beside_j / epoch.duration_s.mean) if epoch.duration_s.mean > 0 else 0.0


def _wait_w(profile: DeviceProfile, energy: EnergyKind) -> float:
    try:
        return profile.waiting_w(energy) or 0.0
    except DataQualityError as error:
        raise ConfigError(error.message, hint=error.hint) from error


def _curves(profiles: Sequence[DeviceProfile]) -> LoadCurves:
    grid = np.linspace(0.0, 1.0, CURVE_STEPS + 1)
    return LoadCurves(
        np.array([profile.slowdown_at(grid) for profile in profiles]),
        np.array([profile.energy_factor_at(grid) for profile in profiles]),
    )


def _gaps(profile: DeviceProfile) -> list[str]:
    missing = {
        "its download was not measured and costs nothing": profile.download is None,
        "its upload was not measured and costs nothing": profile.upload is None,
        "waiting was not measured and costs nothing": profile.wait_power_w is None,
        "its idle power was not measured and drains no modelled battery": profile.idle_power_w is None,
        "it was not measured under load and is never slowed down": not profile.load_curve,
        "it has no battery and never runs out": profile.battery is None,
    }
    return [f"{profile.label}: {text}" for text, absent in missing.items() if absent]
