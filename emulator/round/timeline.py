"""`Timeline`: the participants of a round, followed from stage to stage as far as each of them gets."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import NEVER_NS, Ids, Times
from emulator.fleet.network import Transfer
from emulator.fleet.slowdown import Computation, Progress, compute, steady
from emulator.fleet.world import LONGEST_WAIT_NS, World
from emulator.round.outcome import COSTS, ClientCost, Fate

Array = NDArray[np.float64]
Places = NDArray[np.int64]
"""Positions in the list of participants."""

FATES = tuple(Fate)
_CODE = {fate: code for code, fate in enumerate(FATES)}
_UNDER_WAY = len(FATES)

CHUNK = 1 << 14
"""Devices whose work is integrated at a time: bounds the memory of a round with the whole fleet."""

FORWARD_SHARE = 1.0 / 3.0
"""A forward pass against a training step: the backward pass is counted as twice the forward pass, as in
FedScale, Oort and FederatedScope (their factor 3 on the inference time)."""


class Timeline:
    """Moves participants on; each stage is charged as far as it went.

    Args:
        world: Where it takes place.
        devices: Participants, ascending.
        start_ns: Begin of the round.
        deadline_ns: When the round is closed; `NEVER_NS` for never.
        held: Nobody may leave.

    Attributes:
        loaded_s: How long each computed beside something else, so far.
    """

    def __init__(
        self,
        world: World,
        devices: Ids,
        start_ns: int,
        deadline_ns: int = NEVER_NS,
        *,
        held: bool = False,
    ) -> None:
        self._world = world
        self.devices = devices
        self.start_ns = start_ns
        self.t_ns: Times = np.full(len(devices), start_ns)
        leaves_ns = np.full(len(devices), NEVER_NS) if held else world.conditions.leaves_at(start_ns, devices)
        # A transfer that never ends is given up after a year, like a wait for somebody to be there.
        self._leaves_ns: Times = np.minimum(leaves_ns, start_ns + LONGEST_WAIT_NS)
        self._limit_ns = self._leaves_ns.copy()
        self._limit_fate = np.full(len(devices), _CODE[Fate.LEFT])
        self._fate = np.full(len(devices), _UNDER_WAY)
        self._debt_j = world.batteries.debts(start_ns, devices)
        self._cost = {name: np.zeros(len(devices)) for name in COSTS}
        self.loaded_s = np.zeros(len(devices))
        self._varies = None if world.variation is None else world.computing(start_ns, devices)
        self.close_at(deadline_ns, Fate.DEADLINE)
        self._set(world.batteries.exhausted(start_ns, devices), Fate.BATTERY)

    def fork(self) -> Self:
        """A copy that can be moved on without moving this one."""
        other = copy.copy(self)
        for name in ("t_ns", "_limit_ns", "_limit_fate", "_fate", "_debt_j", "loaded_s"):
            setattr(other, name, getattr(self, name).copy())
        other._cost = {name: values.copy() for name, values in self._cost.items()}
        return other

    @property
    def under_way(self) -> NDArray[np.bool_]:
        """Who is still there."""
        return np.asarray(self._fate == _UNDER_WAY)

    @property
    def cost(self) -> ClientCost:
        """What it has cost so far."""
        return ClientCost(**self._cost)

    def fates(self) -> tuple[Fate, ...]:
        """How it ended for each; everybody must have been given a fate."""
        return tuple(FATES[code] for code in self._fate)

    def had(self, fate: Fate) -> NDArray[np.bool_]:
        """For whom it ended so."""
        return np.asarray(self._fate == _CODE[fate])

    def close_at(self, t_ns: int, fate: Fate) -> None:
        """Whoever is still at work then is sent home with this fate."""
        earlier = self._limit_ns > t_ns
        self._limit_ns[earlier] = t_ns
        self._limit_fate[earlier] = _CODE[fate]

    def reopen(self, fate: Fate) -> None:
        """Take back a `close_at`: what limits is the trace again."""
        undone = self._limit_fate == _CODE[fate]
        self._limit_ns[undone] = self._leaves_ns[undone]
        self._limit_fate[undone] = _CODE[Fate.LEFT]

    def end(self, places: NDArray[np.bool_] | Places, fate: Fate) -> None:
        """Give those of ``places`` who are still there their fate."""
        mask = np.zeros(len(self.devices), bool)
        mask[places] = True
        self._set(mask & self.under_way, fate)

    def download(self, places: Places) -> None:
        """Receive the model."""
        self._transfer(places, "download")

    def upload(self, places: Places) -> None:
        """Send the update."""
        self._transfer(places, "upload")

    def forward(self, places: Places, stage: str, *, samples: int | None = None) -> None:
        """One forward pass over the own data, or over so many samples of it, charged to ``stage``."""
        places = self._there(places)
        devices = self.devices[places]
        share = np.full(len(places), FORWARD_SHARE)
        if samples is not None:
            share *= np.minimum(1.0, samples / np.maximum(self._world.fleet.data_size[devices], 1))
        duration_s, energy_j = self._world.fleet.epoch(devices)
        self._work(places, duration_s * share, energy_j * share, stage)

    def first_epoch(self, places: Places, stage: str) -> None:
        """The first local epoch, charged to ``stage``."""
        places = self._there(places)
        self._work(places, *self._world.fleet.first_epoch(self.devices[places]), stage)

    def epochs(self, places: Places, count: NDArray[np.int64], stage: str) -> None:
        """So many further local epochs, one number per participant, charged to ``stage``."""
        places = self._there(places)
        duration_s, energy_j = self._world.fleet.epoch(self.devices[places])
        self._work(places, duration_s * count[places], energy_j * count[places], stage)

    def wait_until(self, t_ns: int, places: Places) -> None:
        """Wait awake; charged like the rest, in full or beyond idling."""
        places = self._there(places)
        duration_s = np.asarray((t_ns - self.t_ns[places]) * 1e-9, np.float64)
        fleet = self._world.fleet
        wait_w = fleet.costs.wait_w[fleet.profile[self.devices[places]]]
        self._steady(places, duration_s, duration_s * wait_w, "wait")

    def settle(self) -> None:
        """Charge the batteries; once, at the end."""
        ran_out = self.had(Fate.BATTERY)
        self._world.batteries.set_debts(self.devices, self._debt_j, self.t_ns, ran_out)

    def _transfer(self, places: Places, stage: str) -> None:
        places = self._there(places)
        found: Transfer = getattr(self._world.network, stage)(self.t_ns[places], self.devices[places])
        moving_s, moving_j = found.moving_s, found.moving_j
        if found.stalled_s.any():
            self._steady(places, found.stalled_s, found.stalled_j, stage)
            there = self.under_way[places]
            places, moving_s, moving_j = places[there], moving_s[there], moving_j[there]
        self._steady(places, moving_s, moving_j, stage)

    def _steady(self, places: Places, duration_s: Array, energy_j: Array, stage: str) -> None:
        self._advance(places, steady(self.t_ns[places], duration_s, energy_j, self._limit_ns[places]), stage)

    def _work(self, places: Places, duration_s: Array, energy_j: Array, stage: str) -> None:
        for begin in range(0, len(places), CHUNK):
            part = slice(begin, begin + CHUNK)
            self._work_part(places[part], duration_s[part], energy_j[part], stage)

    def _work_part(self, places: Places, duration_s: Array, energy_j: Array, stage: str) -> None:
        fleet = self._world.fleet
        ids = self.devices[places]
        profile = fleet.profile[ids]
        base_w = fleet.costs.base_w[profile]
        if self._varies is not None:
            time, power = (factor[places] for factor in self._varies)
            own_j = (energy_j - base_w * duration_s) * power
            duration_s = duration_s * time
            energy_j = own_j * time + base_w * duration_s
        work = Computation(ids, profile, duration_s, energy_j, base_w)
        limit_ns = self._limit_ns[places]
        progress = compute(work, self.t_ns[places], limit_ns, self._world.conditions, self._world.slowing)
        self._advance(places, progress, stage)

    def _there(self, places: Places) -> Places:
        """Those who are still there; who is past its limit is not."""
        places = places[self.under_way[places]]
        # At the limit itself what takes no time is still done, such as an upload that was not measured.
        late = self.t_ns[places] > self._limit_ns[places]
        self._fate[places[late]] = self._limit_fate[places[late]]
        return places[~late]

    def _advance(self, places: Places, progress: Progress, stage: str) -> None:
        """Charge a stage and move on, or stop where the battery or the limit ends it."""
        if not len(places):
            return
        now_ns = self.t_ns[places]
        end_ns, energy_j = progress.end_ns, progress.total_j
        empty_ns, self._debt_j[places] = self._world.batteries.drain(
            self.devices[places],
            self._debt_j[places],
            np.column_stack([now_ns, progress.t_ns]),
            np.column_stack([np.zeros(len(places)), progress.energy_j]),
        )
        ran_out = empty_ns < end_ns
        if ran_out.any():
            end_ns = np.where(ran_out, empty_ns, end_ns)
            energy_j = np.where(ran_out, progress.energy_at(empty_ns, now_ns), energy_j)
        self.t_ns[places] = end_ns
        self._cost[f"{stage}_s"][places] += (end_ns - now_ns) * 1e-9
        self._cost[f"{stage}_j"][places] += energy_j
        if progress.loaded_s is not None:
            self.loaded_s[places] += np.minimum(progress.loaded_s, (end_ns - now_ns) * 1e-9)
        stopped = ~progress.completed & ~ran_out
        self._fate[places[stopped]] = self._limit_fate[places[stopped]]
        self._fate[places[ran_out]] = _CODE[Fate.BATTERY]

    def _set(self, mask: NDArray[np.bool_], fate: Fate) -> None:
        self._fate[mask] = _CODE[fate]
