"""What devices tell at registration and check-in, and what only an oracle knows, read off the world."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import NEVER_NS
from emulator.fleet.world import World
from emulator.round.reports import Reported
from emulator.round.view import PRIVILEGED_FIELDS, Ids

CHUNK = 1 << 17
"""Devices that register at a time: bounds the memory of a large fleet."""


class Truth:
    """Fills the fields of `Reported` that do not come from a round.

    Args:
        world: Where the devices are.
        needs: Fields that the selector reads; nothing else is worked out.
        label_histogram: True share of each class on each device.
    """

    def __init__(
        self, world: World, needs: frozenset[str], label_histogram: NDArray[np.float64] | None
    ) -> None:
        self._world = world
        self._needs = needs
        self._histogram = label_histogram
        self.check_ins = np.zeros(len(world.fleet) if "check_ins" in needs else 0)

    def register(self, reported: Reported) -> None:
        """Registration: the device's class, and a speed test of its network."""
        n = len(self._world.fleet)
        for begin in range(0, n, CHUNK):
            self._register(reported, np.arange(begin, min(n, begin + CHUNK)))
        if "label_histogram" in self._needs and self._histogram is not None:
            reported.put(np.arange(n), {"label_histogram": self._histogram})

    def _register(self, reported: Reported, devices: Ids) -> None:
        fleet = self._world.fleet
        if "capability_s" in self._needs:
            # Of the device's class, and not exactly: not what this one device is slower or faster.
            class_s = fleet.epoch(devices)[0] / fleet.slowness[devices]
            if self._world.registration is not None:
                class_s *= self._world.registration.factors(devices)
            reported.put(devices, {"capability_s": class_s})
        if self._needs & {"comm_s", "comm_j"}:
            down, up = self._world.network.speed_test(np.zeros(len(devices), np.int64), devices)
            comm_s, comm_j = down.duration_s + up.duration_s, down.energy_j + up.energy_j
            reported.put(devices, {"comm_s": comm_s, "comm_j": comm_j})

    def refresh(self, reported: Reported, now_ns: int, eligible: NDArray[np.bool_], number: int) -> None:
        """Check-in for a round."""
        if "check_ins" in self._needs:
            self.check_ins += eligible
            np.divide(self.check_ins, number, out=reported.fields["check_ins"])
        if not self._needs & {"battery", *PRIVILEGED_FIELDS}:
            return
        ids = np.flatnonzero(eligible)
        if "battery" in self._needs:
            reported.put(ids, {"battery": self._world.batteries.level(now_ns, ids)})
        if "leaves_s" in self._needs:
            leaves_ns = self._world.conditions.leaves_at(now_ns, ids)
            never = leaves_ns == NEVER_NS
            reported.put(ids, {"leaves_s": np.where(never, np.inf, (leaves_ns - now_ns) * 1e-9)})
        if self._needs & {"true_epoch_s", "true_epoch_j"}:
            fleet = self._world.fleet
            profile, at_ns = fleet.profile[ids], np.full(len(ids), now_ns)
            now = self._world.conditions.segments(at_ns, at_ns + 1, ids)
            slowdown, factor = self._world.slowing.factors(profile, ids, now)
            time, power = self._world.computing(now_ns, ids)
            epoch_s, epoch_j = fleet.epoch(ids)
            base_j = fleet.costs.base_w[profile] * epoch_s
            true_j = ((epoch_j - base_j) * power * factor + base_j * slowdown) * time
            reported.put(ids, {"true_epoch_s": epoch_s * time * slowdown, "true_epoch_j": true_j})
        if self._needs & {"true_comm_s", "true_comm_j"}:
            at_ns = np.full(len(ids), now_ns)
            down, up = self._world.network.download(at_ns, ids), self._world.network.upload(at_ns, ids)
            comm_s, comm_j = down.duration_s + up.duration_s, down.energy_j + up.energy_j
            reported.put(ids, {"true_comm_s": comm_s, "true_comm_j": comm_j})
