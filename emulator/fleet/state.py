"""`FleetState`: what N devices are, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin, weakest
from power import DeviceProfile
from power.profile import EnergyKind, ProfileCosts, profile_costs


@dataclass(frozen=True, slots=True, eq=False)
class FleetState:
    """N devices, one array entry each.

    Attributes:
        costs: What a device of each profile takes.
        profile: Which of them the device has.
        slowness: Time of the device relative to its profile.
        data_size: Training samples on the device.
        origin: The weakest provenance among the numbers in use.
    """

    costs: ProfileCosts
    profile: NDArray[np.int16]
    slowness: NDArray[np.float64]
    data_size: NDArray[np.int64]
    origin: Origin

    def __len__(self) -> int:
        return len(self.profile)

    def some(self, devices: NDArray[np.int64]) -> FleetState:
        """These devices, numbered from 0 on."""
        columns = {name: getattr(self, name)[devices] for name in ("profile", "slowness", "data_size")}
        return replace(self, **columns)

    def work(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many measured epochs one local epoch of a device is worth."""
        samples = self.costs.samples[self.profile[devices]]
        return self.data_size[devices] / samples * self.slowness[devices]

    def first_epoch(self, devices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds and joules of the first local epoch without background load."""
        work, profile = self.work(devices), self.profile[devices]
        # A slower device of the same kind draws the same power for longer.
        return work * self.costs.probe_s[profile], work * self.costs.probe_j[profile]

    def epoch(self, devices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds and joules of a later local epoch without background load."""
        work, profile = self.work(devices), self.profile[devices]
        return work * self.costs.epoch_s[profile], work * self.costs.epoch_j[profile]


def fleet_from_profiles(
    profiles: Sequence[DeviceProfile],
    data_size: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    speed_spread: float = 0.0,
    mix: Mapping[str, float] | None = None,
    energy: EnergyKind = "marginal",
) -> FleetState:
    """Spread profiles over devices, each scaled to its own number of samples.

    Args:
        profiles: At least one.
        data_size: Training samples of each device.
        rng: Draws who gets which profile, and the speeds.
        speed_spread: Standard deviation of the logarithm of a device's speed; 0 makes all alike. A value
            above 0 invents devices that nobody measured, so the fleet is at most ``scaled``.
        mix: Share of each device name; without it all profiles are equally frequent, up to one;
            of more profiles than devices, some from all over the list.
        energy: Which energy is charged.
    """
    costs = profile_costs(profiles, energy, missing="costs_nothing")
    n = len(data_size)
    counts = _counts([profile.device for profile in profiles], n, mix)
    index = rng.permutation(np.repeat(np.arange(len(profiles), dtype=np.int16), counts))
    slowness = np.exp(rng.normal(0.0, speed_spread, n)) if speed_spread > 0 else np.broadcast_to(1.0, n)
    origins = [profile.origin for profile, count in zip(profiles, counts, strict=True) if count]
    if speed_spread > 0 or not np.array_equal(data_size, costs.samples[index]):
        origins.append(Origin.SCALED)
    return FleetState(costs, index, slowness, data_size, weakest(origins))


def _counts(devices: list[str], n: int, mix: Mapping[str, float] | None) -> NDArray[np.int64]:
    """How many devices get each profile: shares by the largest remainder."""
    if mix:
        unknown = sorted(set(mix) - set(devices))
        if unknown:
            raise ConfigError(
                f"fleet.mix names {', '.join(unknown)}, of which there is no profile",
                hint=f"profiles are of {', '.join(sorted(set(devices)))}",
            )
    shares = np.array([mix.get(name, 0.0) / devices.count(name) if mix else 1.0 for name in devices])
    if shares.sum() <= 0:
        raise ConfigError("fleet.mix gives no device any share", hint="make one of its numbers positive")
    exact = shares / shares.sum() * n
    counts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left = n - int(counts.sum())
    order = np.argsort(-(exact - counts), kind="stable")
    if not mix and n < len(devices):
        # A few of many: from all over the list, which may be in order of speed.
        order = ((np.arange(n) + 0.5) * len(devices) / n).astype(np.int64)
    counts[order[:left]] += 1
    return counts
