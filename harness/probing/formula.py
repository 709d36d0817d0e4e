"""One round both ways, from what each candidate's phases cost. Pure arithmetic.

*Vanilla*: every candidate receives the model and trains all epochs; then the server chooses, and the chosen
upload. *Probing*: every candidate receives the model and trains one epoch; then the server chooses, the
others stop, and the chosen train on and upload. Whose probes count is the accounting, as in the emulator
(`emulator.round.accounting`); vanilla is always counted in full, because all of it happens.

Waiting for the server's choice is stated beside the accountings: the paper's formulas leave it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from emulator import Accounting
from emulator.round import ClientCost, RoundCost, honest_time_s, round_costs, vanilla_cost
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


V = TypeVar("V")

COUNTED = {
    "vanilla": "download and all epochs of every candidate, upload of the chosen",
    Accounting.HONEST: "download and probe of every candidate; the other epochs and upload of the chosen",
    Accounting.SELECTED_ONLY: "the slowest candidate's probe in the time; energy of the chosen only",
    Accounting.FREE: "nothing of the probe: download, the other epochs and upload of the chosen",
}
"""What is in the numbers, for people."""


@dataclass(frozen=True, slots=True)
class Saving(Generic[V]):
    """What probing rounds take under one accounting, and the shares of the vanilla rounds that they save."""

    time_s: V
    energy_j: V
    time_saved: V
    energy_saved: V


@dataclass(frozen=True, slots=True)
class RoundBothWays:
    """What one round costs.

    Attributes:
        vanilla: Without early exit.
        probing: With it, by accounting.
        vanilla_wait_j: Spent waiting for the slowest candidate before the choice; in no other number.
        probing_wait_j: The same with early exit.
    """

    vanilla: RoundCost
    probing: dict[Accounting, RoundCost]
    vanilla_wait_j: float
    probing_wait_j: float


def both_ways(costs: PhaseCosts, chosen: NDArray[np.bool_], local_epochs: int) -> RoundBothWays:
    """One round with ``local_epochs`` epochs, the probe included."""
    later = local_epochs - 1
    probed_s = costs.download_s + costs.probe_s
    trained_s = probed_s + later * costs.epoch_s
    everybody = np.ones_like(chosen)
    vanilla = vanilla_cost(_client_cost(costs, everybody, later), chosen)
    cost = _client_cost(costs, chosen, later)
    probing = round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True)
    return RoundBothWays(
        vanilla=vanilla,
        probing=probing,
        vanilla_wait_j=float(costs.wait_w @ (_longest(trained_s) - trained_s)),
        probing_wait_j=float(costs.wait_w @ (_longest(probed_s) - probed_s)),
    )


def _client_cost(costs: PhaseCosts, going_on: NDArray[np.bool_], later: int) -> ClientCost:
    """The round as the emulator sees it: who does not go on neither trains on nor uploads."""
    probed_s = costs.download_s + costs.probe_s
    wait_s = _longest(probed_s) - probed_s
    return ClientCost(
        download_s=costs.download_s,
        probe_s=costs.probe_s,
        wait_s=wait_s,
        train_s=np.where(going_on, later * costs.epoch_s, 0.0),
        upload_s=np.where(going_on, costs.upload_s, 0.0),
        download_j=costs.download_j,
        probe_j=costs.probe_j,
        wait_j=costs.wait_w * wait_s,
        train_j=np.where(going_on, later * costs.epoch_j, 0.0),
        upload_j=np.where(going_on, costs.upload_j, 0.0),
    )


def _longest(seconds: NDArray[np.float64]) -> float:
    return float(seconds.max(initial=0.0))
