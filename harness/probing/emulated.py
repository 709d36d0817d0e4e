"""The rounds of a probing run as the emulator plays them: the same devices, candidates and chosen.

Beside the formula (`harness.probing.expected`) this shows whether the emulator counts a round as the paper
does. It knows no intervals: the emulator plays profiles' means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator import Accounting
from emulator.round import RoundCost, honest_time_s, round_costs, vanilla_cost
from harness.probing.expected import RunRound
from harness.probing.replay import ReplayedRound, replay
from power import DeviceProfile
from power.profile import EnergyKind

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class EmulatedSaving:
    """Under one accounting; shares of the vanilla round are saved."""

    time_s: float
    energy_j: float
    time_saved: float
    energy_saved: float


@dataclass(frozen=True, slots=True)
class EmulatedCell:
    """What the emulator gives for some rounds, on average."""

    vanilla_s: float
    vanilla_j: float
    savings: dict[Accounting, EmulatedSaving]


def emulate_rounds(
    profiles: Sequence[DeviceProfile], rounds: Sequence[RunRound], local_epochs: int, energy: EnergyKind
) -> EmulatedCell:
    """Play rounds both ways, each with its own candidates and chosen, and average.

    Args:
        profiles: One per device, of the work that the rounds did.
        rounds: Who took part and who went on.
        local_epochs: Of a round, the probe included.
        energy: Kind of energy.
    """
    by_device = {profile.device: profile for profile in profiles}
    vanilla: list[RoundCost] = []
    probing: list[dict[Accounting, RoundCost]] = []
    for played in rounds:
        mine = [by_device[device] for device in played.candidates]
        chosen = np.array([device in played.chosen for device in played.candidates])
        everybody = np.ones_like(chosen)
        whole = replay(_round(mine, everybody, local_epochs, probed=False), energy)
        vanilla.append(vanilla_cost(whole, chosen))
        cost = replay(_round(mine, chosen, local_epochs, probed=True), energy)
        probing.append(round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True))
    vanilla_s, vanilla_j = _mean(vanilla)

    def saving(accounting: Accounting) -> EmulatedSaving:
        time_s, energy_j = _mean([costs[accounting] for costs in probing])
        return EmulatedSaving(time_s, energy_j, 1 - time_s / vanilla_s, 1 - energy_j / vanilla_j)

    return EmulatedCell(vanilla_s, vanilla_j, {accounting: saving(accounting) for accounting in Accounting})


def _round(
    profiles: Sequence[DeviceProfile], chosen: NDArray[np.bool_], local_epochs: int, *, probed: bool
) -> ReplayedRound:
    n = len(profiles)
    return ReplayedRound(
        profiles=profiles,
        samples=np.array([profile.samples for profile in profiles]),
        epochs=np.full(n, local_epochs),
        chosen=chosen,
        load=np.zeros(n),
        link_bps=np.full(n, np.nan),
        model_bytes=0,  # transfers take what they took when they were profiled
        probed=probed,
    )


def _mean(costs: Sequence[RoundCost]) -> tuple[float, float]:
    return float(np.mean([c.time_s for c in costs])), float(np.mean([c.energy_j for c in costs]))
