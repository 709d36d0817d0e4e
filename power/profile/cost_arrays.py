"""Profiles as arrays: one entry per profile, so that a million devices need only the number of theirs.

A cost that a profile lacks is refused, unless the caller says that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin, weakest
from power.profile.model import Cores, DeviceProfile, EnergyKind, PhaseCost

Array = NDArray[np.float64]

Missing = Literal["refuse", "costs_nothing"]
"""What to do about a transfer or a waiting power that a profile lacks."""

CURVE_STEPS = 1024
"""Steps of the common grid of loads; linear between them, which is off by less than a millionth of the factor
for the smooth curves of `power.profile.model`."""


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


CORES: tuple[Cores, ...] = get_args(Cores)


@dataclass(frozen=True, slots=True, eq=False)
class Spreads:
    """How much profiles vary: standard deviations of logarithms; 0 where nothing is known.

    Attributes:
        cores: Number in `CORES` of the published interference that applies; -1: its own load curve does.
        time: Of a device's time between sessions.
        power: Of its power between sessions.
        kind: Of what is known of its speed at registration, the same for all devices of the profile.
        unit: Of the same, for each device.
    """

    cores: NDArray[np.int8]
    time: Array
    power: Array
    kind: Array
    unit: Array


@dataclass(frozen=True, slots=True, eq=False)
class PhaseCosts:
    """Seconds and joules of each device's phases without background load, and its watts while it waits.

    Attributes:
        probe_s: The first local epoch.
        epoch_s: Any later one.
        wait_w: Power while waiting awake, as the kind of energy counts it.
    """

    download_s: Array
    probe_s: Array
    epoch_s: Array
    upload_s: Array
    download_j: Array
    probe_j: Array
    epoch_j: Array
    upload_j: Array
    wait_w: Array

    def __len__(self) -> int:
        return len(self.probe_s)

    def taken(self, which: NDArray[np.int64]) -> PhaseCosts:
        """Some of the devices, in that order; one may come several times."""
        return PhaseCosts(**{field.name: getattr(self, field.name)[which] for field in fields(PhaseCosts)})


@dataclass(frozen=True, slots=True, eq=False)
class ProfileCosts(PhaseCosts):
    """All that an emulation asks of profiles.

    Attributes:
        names: What each profile is about.
        samples: Training samples behind ``probe_*`` and ``epoch_*``.
        base_w: Power within ``probe_j`` and ``epoch_j`` that is not the training's own, but drawn for as long
            as it takes: where a load slows the training, there is more of it.
        idle_w: Power of the idle phone; 0 if not measured.
        capacity_j: Of the battery; infinite if there is none or it is not known.
        charge_w: Of the charger; 0 if there is none.
        curves: Under background load.
        spreads: How much they vary.
        energy: Which energy all of this is.
        origin: The weakest claim among the profiles.
        gaps: What was not measured, one sentence each.
    """

    names: tuple[str, ...]
    samples: Array
    base_w: Array
    idle_w: Array
    capacity_j: Array
    charge_w: Array
    curves: LoadCurves
    spreads: Spreads
    energy: EnergyKind
    origin: Origin
    gaps: tuple[str, ...]

    @property
    def idle_within_w(self) -> Array:
        """Idle power that is in these energies: a battery loses it anyway."""
        return self.idle_w if self.energy == "gross" else np.zeros_like(self.idle_w)


def phase_costs(
    profiles: Sequence[DeviceProfile], energy: EnergyKind = "marginal", *, missing: Missing = "refuse"
) -> PhaseCosts:
    """The phases of some profiles.

    Raises:
        DataQualityError: A profile has no energy of the wanted kind, or lacks a cost that may not be missing.
    """
    return PhaseCosts(**_phases(profiles, energy, missing))


def profile_costs(
    profiles: Sequence[DeviceProfile], energy: EnergyKind = "marginal", *, missing: Missing = "refuse"
) -> ProfileCosts:
    """Everything of some profiles.

    Raises:
        ConfigError: There is none.
        DataQualityError: As in `phase_costs`, or how a load changes the wanted energy is not known.
    """
    if not profiles:
        raise ConfigError("a fleet needs at least one device profile", hint="`joulefleet demo` makes one")
    return ProfileCosts(
        **_phases(profiles, energy, missing),
        names=tuple(profile.label for profile in profiles),
        samples=np.array([float(profile.samples) for profile in profiles]),
        base_w=np.array([_base_w(profile, energy) for profile in profiles]),
        idle_w=np.array([p.idle_power_w.mean if p.idle_power_w else 0.0 for p in profiles]),
        capacity_j=np.array([p.battery.capacity_j if p.battery else np.inf for p in profiles]),
        charge_w=np.array([p.battery.charge_w if p.battery else 0.0 for p in profiles]),
        curves=_curves(profiles),
        spreads=_spreads(profiles),
        energy=energy,
        origin=weakest(profile.origin for profile in profiles),
        gaps=tuple(gap for profile in profiles for gap in _gaps(profile)),
    )


def missing_costs(profiles: Sequence[DeviceProfile]) -> tuple[str, ...]:
    """What some of the profiles lack and `Missing` is about, in words."""
    parts = {"download": "download", "upload": "upload", "wait_power_w": "power while waiting"}
    return tuple(text for name, text in parts.items() if any(getattr(p, name) is None for p in profiles))


def _phases(profiles: Sequence[DeviceProfile], energy: EnergyKind, missing: Missing) -> dict[str, Array]:
    columns = {}
    for phase in ("download", "probe", "epoch", "upload"):
        costs = [_phase(profile, phase, energy, missing) for profile in profiles]
        columns[f"{phase}_s"] = np.array([duration_s for duration_s, _ in costs])
        columns[f"{phase}_j"] = np.array([energy_j for _, energy_j in costs])
    columns["wait_w"] = np.array([_wait_w(profile, energy, missing) for profile in profiles])
    return columns


def _phase(profile: DeviceProfile, phase: str, energy: EnergyKind, missing: Missing) -> tuple[float, float]:
    cost: PhaseCost | None = getattr(profile, phase)
    if cost is None:
        nothing = _nothing(profile, phase, missing)
        return nothing, nothing
    try:
        return cost.duration_s.mean, cost.energy_j(energy).mean
    except DataQualityError as error:
        raise DataQualityError(
            f"profile {profile.label} has no {energy} energy of its {phase}",
            hint='measure its idle power, or charge everything it draws with `energy = "gross"`',
        ) from error


def _wait_w(profile: DeviceProfile, energy: EnergyKind, missing: Missing) -> float:
    wait_w = profile.waiting_w(energy)
    return _nothing(profile, "power while waiting", missing) if wait_w is None else wait_w


def _nothing(profile: DeviceProfile, part: str, missing: Missing) -> float:
    """0, if the caller said so."""
    if missing == "refuse":
        raise DataQualityError(
            f"profile {profile.label} has no {part}", hint="measure it, or say that it costs nothing"
        )
    return 0.0


def _base_w(profile: DeviceProfile, energy: EnergyKind) -> float:
    """What is drawn beside the training's own energy; matters only to a device that can be slowed down."""
    if energy == "marginal" or not profile.load_curve:
        return 0.0
    epoch = profile.epoch
    if epoch.marginal_j is None:
        raise DataQualityError(
            f"profile {profile.label} has a load curve, but no marginal energy of its epoch: "
            f"how a load changes its {energy} energy is not known",
            hint="measure its idle power; the curve is about the energy beyond it",
        )
    beside_j = epoch.energy_j(energy).mean - epoch.marginal_j.mean
    return max(0.0, beside_j / epoch.duration_s.mean) if epoch.duration_s.mean > 0 else 0.0


def _curves(profiles: Sequence[DeviceProfile]) -> LoadCurves:
    grid = np.linspace(0.0, 1.0, CURVE_STEPS + 1)
    return LoadCurves(
        np.array([profile.slowdown_at(grid) for profile in profiles]),
        np.array([profile.energy_factor_at(grid) for profile in profiles]),
    )


def _spreads(profiles: Sequence[DeviceProfile]) -> Spreads:
    known = [_spread(profile) for profile in profiles]
    cores = [CORES.index(p.published.cores) if p.published else -1 for p in profiles]
    return Spreads(np.array(cores, np.int8), *np.array(known, np.float64).T)


def _spread(profile: DeviceProfile) -> tuple[float, float, float, float]:
    """Of time, of power, at registration for the kind and for the unit."""
    stated = profile.published
    if stated is not None:
        return stated.time_log_sd, stated.power_log_sd, stated.class_log_sd, stated.unit_log_sd
    time, energy = (
        (q.session_sd or 0.0) / abs(q.mean) if q is not None and q.mean else 0.0
        for q in (profile.epoch.duration_s, profile.epoch.marginal_j)
    )
    # Energy is power times time, and what the two share is not known: power has what time does not explain.
    power = max(0.0, energy**2 - time**2) ** 0.5
    # A server that measures once at registration meets one session.
    return time, power, 0.0, time


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
