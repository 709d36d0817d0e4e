"""`FleetState`: the truth about every device, as arrays. Only the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedjoule.errors import ConfigError
from fedjoule.provenance import Origin, weakest
from power.profile import DeviceProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FleetState:
    """N devices, one array entry each.

    Attributes:
        profile_index: Which profile the device has.
        epoch_s: Duration of one local epoch, seconds.
        epoch_j: Energy of one local epoch, joules.
        comm_s: Duration of download and upload together, seconds.
        comm_j: Energy of download and upload together, joules.
        data_size: Training samples on the device.
        origin: The weakest provenance among the numbers in use.
    """

    profile_index: NDArray[np.int32]
    epoch_s: NDArray[np.float64]
    epoch_j: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    comm_j: NDArray[np.float64]
    data_size: NDArray[np.int64]
    origin: Origin

    def __len__(self) -> int:
        return len(self.epoch_s)


def fleet_from_profiles(
    profiles: Sequence[DeviceProfile],
    data_size: NDArray[np.int64],
    *,
    speed_spread: float,
    rng: np.random.Generator,
) -> FleetState:
    """Spread profiles over devices, each scaled to its own number of samples.

    Args:
        profiles: At least one; devices get them in turn.
        data_size: Training samples of each device.
        speed_spread: Standard deviation of the logarithm of a device's speed; 0 makes all alike. A value
            above 0 invents devices that nobody measured, so the fleet is at most ``scaled``.
        rng: Draws the speeds.
    """
    if not profiles:
        raise ConfigError("a fleet needs at least one device profile", hint="`fedjoule demo` makes one")
    n = len(data_size)
    index = np.arange(n, dtype=np.int32) % len(profiles)
    work = data_size / np.array([p.samples for p in profiles])[index]
    slowness = np.exp(rng.normal(0.0, speed_spread, n)) if speed_spread > 0 else np.ones(n)
    origins = [p.origin for p in profiles]
    if speed_spread > 0 or not np.all(work == 1.0):
        origins.append(Origin.SCALED)
    return FleetState(
        profile_index=index,
        epoch_s=_means(profiles, "epoch", "duration_s")[index] * work * slowness,
        # A slower device of the same kind draws the same power for longer.
        epoch_j=_means(profiles, "epoch", "gross_j")[index] * work * slowness,
        comm_s=(_means(profiles, "download", "duration_s") + _means(profiles, "upload", "duration_s"))[index],
        comm_j=(_means(profiles, "download", "gross_j") + _means(profiles, "upload", "gross_j"))[index],
        data_size=data_size,
        origin=weakest(origins),
    )


def _means(profiles: Sequence[DeviceProfile], phase: str, quantity: str) -> NDArray[np.float64]:
    costs = [getattr(profile, phase) for profile in profiles]
    return np.array([0.0 if cost is None else getattr(cost, quantity).mean for cost in costs])
