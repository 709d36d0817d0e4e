"""A round of the bench replayed by the emulator: the same devices, load and links, costs from profiles.

This is the emulator's own arithmetic (`emulator.round.timeline`), not another: what it gets wrong about these
rounds, it gets wrong about a fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator import Accounting
from emulator.fleet import AlwaysThere, Batteries, FleetState, Network, TransferSource, World
from emulator.round import ClientCost, RoundCost, Timeline, honest_time_s, round_costs, vanilla_cost
from harness.probing.expected import RunRound
from harness.probing.formula import Saving
from joulefleet.provenance import Origin, weakest
from power import DeviceProfile
from power.profile import EnergyKind, profile_costs
from traces.replay import NetworkRates, Segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Times = NDArray[np.int64]
    Array = NDArray[np.float64]


class Steady(AlwaysThere):
    """Devices under a load and with a link that do not change during a round.

    Args:
        load: Background load of each device, 0 to 1.
        link_bps: What each device's link carries; NaN where it is as it was profiled.
    """

    def __init__(self, load: Array, link_bps: Array) -> None:
        super().__init__(len(load))
        self._load = load.astype(np.float32)
        self._link_bps = link_bps

    def segments(self, t0_ns: Times, t1_ns: Times, devices: Ids) -> Segments:
        """One stretch each, with the load."""
        cpu = self._load[devices]
        return Segments(
            np.arange(len(devices) + 1), np.asarray(t0_ns), np.asarray(t1_ns), cpu, np.zeros_like(cpu)
        )

    def load(self, t_ns: int, devices: Ids | None = None) -> NDArray[np.float32]:
        """As it was."""
        return self._load if devices is None else self._load[devices]

    def rates(self, t_ns: Times, devices: Ids) -> NetworkRates | None:
        """As it was, the same in both directions."""
        bps = self._link_bps[devices]
        return NetworkRates(bps, bps)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedRound:
    """What is replayed, one entry per participant.

    Attributes:
        profiles: Of the participants.
        samples: They train on.
        epochs: Local epochs of those who are chosen, the first included.
        chosen: Who trains on after the choice.
        load: Background load, 0 to 1.
        link_bps: What the links carry; NaN where they are as profiled.
        model_bytes: Size of the model on the wire.
        probed: Whether the choice came after the first epoch.
    """

    profiles: Sequence[DeviceProfile]
    samples: NDArray[np.int64]
    epochs: NDArray[np.int64]
    chosen: NDArray[np.bool_]
    load: NDArray[np.float64]
    link_bps: NDArray[np.float64]
    model_bytes: int
    probed: bool


def replay(wanted: ReplayedRound, energy: EnergyKind) -> ClientCost:
    """What the emulator charges for a round."""
    everybody = np.arange(len(wanted.profiles))
    timeline = Timeline(_world(wanted, energy), everybody, 0)
    timeline.download(everybody)
    timeline.first_epoch(everybody, "probe" if wanted.probed else "train")
    if wanted.probed:
        timeline.wait_until(int(timeline.t_ns.max(initial=0)), everybody)
    going_on = np.flatnonzero(wanted.chosen)
    timeline.epochs(going_on, wanted.epochs - 1, "train")
    timeline.upload(going_on)
    return timeline.cost


def replayed_origin(profiles: Sequence[DeviceProfile]) -> Origin:
    """What may be claimed of a replay: a prediction is scaled at best."""
    return weakest([Origin.SCALED, *(profile.origin for profile in profiles)])


def _world(wanted: ReplayedRound, energy: EnergyKind) -> World:
    n = len(wanted.profiles)
    origin = replayed_origin(wanted.profiles)
    index = np.arange(n, dtype=np.int16)
    costs = profile_costs(wanted.profiles, energy, missing="costs_nothing")
    fleet = FleetState(costs, index, np.ones(n), wanted.samples, origin)
    conditions = Steady(wanted.load, wanted.link_bps)
    network = Network(fleet, conditions, TransferSource.TRACE, wanted.model_bytes)
    return World(fleet, conditions, Batteries(fleet, conditions), network)


@dataclass(frozen=True, slots=True)
class EmulatedCell:
    """What the emulator gives for some rounds, on average."""

    vanilla_s: float
    vanilla_j: float
    savings: dict[Accounting, Saving[float]]


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
        whole = replay(_replayed(mine, everybody, local_epochs, probed=False), energy)
        vanilla.append(vanilla_cost(whole, chosen))
        cost = replay(_replayed(mine, chosen, local_epochs, probed=True), energy)
        probing.append(round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True))
    vanilla_s, vanilla_j = _mean_cost(vanilla)

    def saving(accounting: Accounting) -> Saving[float]:
        time_s, energy_j = _mean_cost([costs[accounting] for costs in probing])
        return Saving(time_s, energy_j, 1 - time_s / vanilla_s, 1 - energy_j / vanilla_j)

    return EmulatedCell(vanilla_s, vanilla_j, {accounting: saving(accounting) for accounting in Accounting})


def _replayed(
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


def _mean_cost(costs: Sequence[RoundCost]) -> tuple[float, float]:
    return float(np.mean([c.time_s for c in costs])), float(np.mean([c.energy_j for c in costs]))
