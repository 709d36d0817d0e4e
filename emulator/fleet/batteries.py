"""What is left in the batteries: the recorded level minus what training took and has not been paid back.

The recorded level already holds what apps and idling draw. Training adds a debt in joules, of what it takes
beyond idling, which is paid back while the phone is on a charger, at the charger's power. Where no level was
recorded but the charger was, the level is modelled: full minus the debt, and the idle power adds to the debt
off the charger (what apps draw is not known there and not counted). Where neither was recorded, or the
profile has no battery, the battery never ends.

A debt is brought up to date only when its device is asked about, so the cost does not grow with the fleet.
"""

from __future__ import annotations

import copy
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.battery_debt import between, cut_at_chargers, run_up
from emulator.fleet.conditions import NEVER_NS, Conditions, Ids, Times
from emulator.fleet.state import FleetState

Array = NDArray[np.float64]

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
LOOKED = 1000
"""Batteries that stand for the fleet's."""
LEVELS = {"battery_low": 0.1, "battery_median": 0.5}
"""Columns of the table of rounds: quantiles of the batteries' levels at the check-in."""
CHUNK = 1 << 17
"""Batteries that are looked at at a time: bounds the memory of a large fleet."""
LARGE_BYTES = 1 << 24
"""Arrays from here on, of two million devices, hold their zeros outside memory."""
_FOR_EVER_NS = 2.0**62
"""More than any wait, and still a time when it is added to one."""


def zeros(n: int, kind: type[np.generic]) -> NDArray[Any]:
    """Zeros of which only those take memory that are written; in steps of a small page, not a huge one."""
    size = n * np.dtype(kind).itemsize
    if size < LARGE_BYTES or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(n, kind)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind)


class Batteries:
    """The debts of all devices; the only part of the fleet that changes.

    Args:
        fleet: Capacities and chargers.
        conditions: Recorded levels and chargers.
        floor: Level at which a phone switches itself off.
        restart: Level at which a phone that did so takes part again.
        initial: Level at time 0 where it is modelled.
    """

    def __init__(
        self,
        fleet: FleetState,
        conditions: Conditions,
        *,
        floor: float = 0.0,
        restart: float = 0.05,
        initial: float = 1.0,
    ) -> None:
        self._fleet = fleet
        self._conditions = conditions
        self._floor = floor
        self._restart = max(floor, restart)
        n = len(fleet)
        recorded = conditions.has_level
        # A board without a battery has no level and owes nothing, whatever was recorded of its user's phone.
        self._has_battery = np.isfinite(fleet.costs.capacity_j)[fleet.profile]
        self._modelled = conditions.has_charger & ~recorded & self._has_battery
        self.active = bool((self._modelled | recorded & self._has_battery).any())
        self._debt_j = zeros(n, np.float64)
        ids = np.flatnonzero(self._modelled)
        self._debt_j[ids] = self._capacity_j(ids) * (1.0 - initial)
        self._since_ns = zeros(n, np.int64)
        # How long before never each may run low: 0 for most.
        self._low_ns = zeros(n, np.int64)
        self._empty = np.empty(0, np.int64)
        self._look_ahead(np.flatnonzero(self._has_battery))

    def some(self, devices: Ids, fleet: FleetState, conditions: Conditions) -> Batteries:
        """Those of these devices as they are now, numbered from 0 on."""
        own = copy.copy(self)
        own._fleet, own._conditions = fleet, conditions
        for name in ("_has_battery", "_modelled", "_debt_j", "_since_ns", "_low_ns"):
            setattr(own, name, getattr(self, name)[devices])
        own._empty = np.flatnonzero(np.isin(devices, self._empty))
        return own

    def level(self, t_ns: int, devices: Ids) -> Array:
        """State of charge, 0 to 1; NaN where it is unknown."""
        if not self.active:
            return np.full(len(devices), np.nan)
        base = self._base(np.full(len(devices), t_ns), devices)
        return np.maximum(base - self.debts(t_ns, devices) / self._capacity_j(devices), 0.0)

    def glance(self, t_ns: int) -> dict[str, float]:
        """How full the batteries of the fleet are, by the names in `LEVELS`; NaN where nobody's is known.

        Of many devices some, evenly spaced, stand for all. Nothing is brought up to date by it: debts are
        sums of floats, and those of a run must not depend on who looked at them.
        """
        if not self.active:
            return dict.fromkeys(LEVELS, np.nan)
        some = np.arange(0, len(self._fleet), max(1, len(self._fleet) // LOOKED))
        held = (self._debt_j, self._since_ns, self._low_ns)
        before = [values[some] for values in held]
        level = self.level(t_ns, some)
        for values, was in zip(held, before, strict=True):
            moved = values[some] != was
            values[some[moved]] = was[moved]
        known = level[np.isfinite(level)]
        found = np.quantile(known, tuple(LEVELS.values())) if len(known) else np.full(len(LEVELS), np.nan)
        return dict(zip(LEVELS, found.tolist(), strict=True))

    def debts(self, t_ns: int, devices: Ids) -> Array:
        """What each owes, in joules."""
        if self.active:
            self._settle(t_ns, devices)
        return self._debt_j[devices]

    def indebted(self, devices: NDArray[np.bool_]) -> Ids:
        """Those of the devices whose level is not the recorded one."""
        return np.flatnonzero(devices & (self._debt_j > 0)) if self.active else np.empty(0, np.int64)

    @property
    def empty(self) -> Ids:
        """Who was switched off when that was last asked."""
        return self._empty

    def exhausted(self, t_ns: int, devices: Ids) -> NDArray[np.bool_]:
        """Who has nothing left."""
        return self.level(t_ns, devices) <= self._floor

    def switched_off(self, t_ns: int, devices: NDArray[np.bool_]) -> Ids:
        """Who ran out at work, or is one of ``devices`` and has nothing left; until charged enough."""
        if not self.active:
            return self._empty
        doubtful = np.flatnonzero(devices & (self._low_ns >= NEVER_NS - t_ns))
        # Where levels are recorded a debt only falls without training: as it was last seen, it is the most.
        possible = self._modelled[doubtful]
        recorded = doubtful[~possible]
        owed = self._debt_j[recorded] / self._capacity_j(recorded)
        possible[~possible] = self._base(np.full(len(recorded), t_ns), recorded) - owed <= self._floor
        doubtful = doubtful[possible]
        asked = np.union1d(self._empty, doubtful)
        needed = np.where(np.isin(asked, self._empty), self._restart, self._floor)
        self._empty = asked[self.level(t_ns, asked) <= needed]
        return self._empty

    def recovers_at(self, t_ns: int, barred: Ids) -> int:
        """When to ask again, since a device that is out may have been charged enough; `NEVER_NS` for never.

        Args:
            t_ns: Now.
            barred: Devices that are out because of their debt, beside those that are switched off.
        """
        ids = np.concatenate([self._empty, barred])
        if not len(ids):
            return NEVER_NS
        plugged, change_ns = self._conditions.charging(np.full(len(ids), t_ns), ids)
        missing = self._restart - self.level(t_ns, self._empty)
        missing_j = np.concatenate([missing * self._capacity_j(self._empty), self._debt_j[barred]])
        # A charger pays back what training took; what the recording itself lacks it cannot add.
        payable_j = np.minimum(missing_j, self._debt_j[ids])
        charge_w = self._fleet.costs.charge_w[self._fleet.profile[ids]]
        with np.errstate(all="ignore"):  # next to no charger, or none
            wait_ns = np.fmin(payable_j / charge_w * 1e9, _FOR_EVER_NS)
        charged_ns = t_ns + wait_ns.astype(np.int64) + 1
        helps = plugged & (payable_j > 0)
        until_ns = np.where(helps, np.minimum(charged_ns, change_ns), change_ns)
        # How much of the debt the policy wants back, only the policy can tell, and what the recorded level
        # adds meanwhile, only the recording: both are asked again, soon where a charger helps.
        again_ns = t_ns + np.where(helps, MINUTE_NS, HOUR_NS)
        return int(np.minimum(until_ns, again_ns).min())

    def drain(self, devices: Ids, debt_j: Array, t_ns: Times, energy_j: Array) -> tuple[Times, Array]:
        """Work on the battery: when each ends (`NEVER_NS` if it lasts), and what is owed then or at the end.

        Args:
            devices: At work.
            debt_j: What each owes when the work begins.
            t_ns: Moments of the work, ascending, one row per device; between them all is taken as linear.
            energy_j: Energy that was charged for it up to each of them.
        """
        if not self.active:
            return np.full(len(devices), NEVER_NS), debt_j
        cut = cut_at_chargers(self._conditions, devices, t_ns, energy_j)
        costs, profile = self._fleet.costs, self._fleet.profile[devices][:, None]
        seconds = np.diff(cut.t_ns) * 1e-9
        # Idling is in the recorded level, or in the model, already.
        own_j = np.maximum(np.diff(cut.energy_j) - costs.idle_within_w[profile] * seconds, 0.0)
        owed_j = run_up(debt_j, own_j + self._idle_w(devices[:, None], cut.plugged) * seconds)
        many = np.repeat(devices, cut.t_ns.shape[1])
        base = self._base(cut.t_ns.ravel(), many).reshape(cut.t_ns.shape)
        # Where the level is unknown for a while, the battery is not said to end.
        left = np.nan_to_num(base, nan=np.inf) - owed_j / self._capacity_j(devices)[:, None]
        ends_ns, end_ns = self._crossing(cut.t_ns, left), cut.t_ns[:, -1]
        if not (ends_ns < end_ns).any():
            return ends_ns, owed_j[:, -1]
        return ends_ns, between(cut.t_ns, owed_j, np.minimum(ends_ns, end_ns)[:, None])[:, 0]

    def set_debts(self, devices: Ids, debt_j: Array, t_ns: Times, ran_out: NDArray[np.bool_]) -> None:
        """What each owes when it was done, each at its own time; and who ran out."""
        if not self.active:
            return
        owed_j = np.minimum(debt_j, self._capacity_j(devices))
        self._debt_j[devices] = np.where(self._has_battery[devices], owed_j, 0.0)
        self._since_ns[devices] = t_ns
        self._look_ahead(devices)
        self._empty = np.union1d(self._empty, devices[ran_out])

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        held = {"debt_j": self._debt_j, "since_ns": self._since_ns, "empty": self._empty}
        return {name: values.copy() for name, values in held.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self._debt_j, self._since_ns, self._empty = (state[k].copy() for k in ("debt_j", "since_ns", "empty"))
        self._look_ahead(np.flatnonzero(self._has_battery))

    def _crossing(self, t_ns: Times, left: Array) -> Times:
        """When each level first meets the floor; `NEVER_NS` if it does not."""
        below = left <= self._floor
        first = below.argmax(1)
        row = np.arange(len(left))
        before = np.maximum(first - 1, 0)
        high, low = left[row, before] - self._floor, left[row, first] - self._floor
        with np.errstate(all="ignore"):  # who is below from the first moment on, between itself and itself
            share = np.nan_to_num(high / (high - low), nan=1.0)  # unknown before: it ends when it is known
        gap_ns = t_ns[row, first] - t_ns[row, before]
        return np.where(below.any(1), t_ns[row, before] + (share * gap_ns).astype(np.int64), NEVER_NS)

    def _base(self, t_ns: Times, devices: Ids) -> Array:
        recorded = np.where(self._has_battery[devices], self._conditions.level(t_ns, devices), np.nan)
        return np.where(self._modelled[devices], 1.0, recorded)

    def _capacity_j(self, devices: Ids) -> Array:
        return self._fleet.costs.capacity_j[self._fleet.profile[devices]]

    def _idle_w(self, devices: Ids, plugged: NDArray[np.bool_]) -> Array:
        """By how much a debt grows while nothing is trained; negative on a charger."""
        costs, profile = self._fleet.costs, self._fleet.profile[devices]
        drained_w = np.where(self._modelled[devices], costs.idle_w[profile], 0.0)
        return np.where(plugged, -costs.charge_w[profile], drained_w)

    def _changes(self, devices: Ids) -> NDArray[np.bool_]:
        """Whose debt can change without training."""
        return np.asarray(self._modelled[devices] | (self._debt_j[devices] > 0))

    def _settle(self, t_ns: int, devices: Ids) -> None:
        """Bring debts up to date: one step per time that a charger was connected or taken off."""
        changing = devices[self._changes(devices) & (self._since_ns[devices] < t_ns)]
        ids, now_ns = changing, self._since_ns[changing]
        while len(ids):
            plugged, change_ns = self._conditions.charging(now_ns, ids)
            until_ns = np.minimum(change_ns, t_ns)
            added_j = self._idle_w(ids, plugged) * ((until_ns - now_ns) * 1e-9)
            self._debt_j[ids] = np.clip(self._debt_j[ids] + added_j, 0.0, self._capacity_j(ids))
            going = (until_ns < t_ns) & self._changes(ids)
            ids, now_ns = ids[going], until_ns[going]
        self._since_ns[changing] = t_ns
        self._look_ahead(changing)

    def _look_ahead(self, devices: Ids) -> None:
        """Note until when each surely has something left, so that check-in asks only about the others.

        Without training a debt grows by idling at most, and no recorded level is below the lowest.
        """
        if not self.active:
            return
        for begin in range(0, len(devices), CHUNK):
            self._look_ahead_of(devices[begin : begin + CHUNK])

    def _look_ahead_of(self, devices: Ids) -> None:
        full = np.where(self._modelled[devices], 1.0, self._conditions.lowest_level(devices))
        off_charger = np.zeros(len(devices), bool)
        with np.errstate(all="ignore"):  # no battery, a level that was never read, no idle power
            spare_j = (full - self._floor) * self._capacity_j(devices) - self._debt_j[devices]
            lasts_ns = np.fmin(spare_j / self._idle_w(devices, off_charger) * 1e9, _FOR_EVER_NS)
            safe_ns = np.where(spare_j > 0, self._since_ns[devices] + lasts_ns.astype(np.int64), 0)
        never = (lasts_ns == _FOR_EVER_NS) & (spare_j > 0) | ~self._has_battery[devices]
        low_ns = np.where(never, 0, NEVER_NS - safe_ns)
        fresh = low_ns != self._low_ns[devices]
        self._low_ns[devices[fresh]] = low_ns[fresh]
