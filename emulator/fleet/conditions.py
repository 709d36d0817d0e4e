"""What happens to devices over time: whether they may train, who uses them, what the network gives.

Everything is a pure function of time (`traces.replay.fleet.TraceFleet`), or constant where there are no
traces.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traces.replay import NEVER_NS, NetworkRates, Policy, Segments, TraceFleet, battery_terms, parse_policy

__all__ = ["NEVER_NS", "AlwaysThere", "Conditions", "Replayed"]

Ids = NDArray[np.int64]
Times = NDArray[np.int64]
CHARGING = "charging"


class Conditions(Protocol):
    """N devices over virtual time, in integer nanoseconds."""

    def some(self, devices: Ids) -> Conditions:
        """What happens to these devices, numbered from 0 on."""

    @property
    def has_charger(self) -> NDArray[np.bool_]:
        """Whose charger was ever seen."""

    @property
    def has_level(self) -> NDArray[np.bool_]:
        """Whose battery level was ever read."""

    def lowest_level(self, devices: Ids) -> NDArray[np.float64]:
        """The lowest level that was ever read of each; infinite where none was."""

    @property
    def has_rates(self) -> bool:
        """Whether anybody's throughput was ever read, in one direction or both."""

    def eligible(self, t_ns: int) -> NDArray[np.bool_]:
        """Which devices may train."""

    @property
    def asks_level(self) -> bool:
        """Whether the battery level decides who may train."""

    def eligible_at_level(self, t_ns: int, devices: Ids, level: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which devices may train if their batteries were at other levels than recorded."""

    def leaves_at(self, t_ns: int, devices: Ids) -> Times:
        """When each device that may train now no longer may; `NEVER_NS` for never."""

    def next_arrival(self, t_ns: int) -> int:
        """The first later time at which a device that may not train now may; `NEVER_NS` if none ever does."""

    def segments(self, t0_ns: Times, t1_ns: Times, devices: Ids) -> Segments:
        """Background load in each device's window, segment by segment."""

    def load(self, t_ns: int, devices: Ids | None = None) -> NDArray[np.float32]:
        """Background load at a time, NaN where unknown."""

    def rates(self, t_ns: Times, devices: Ids) -> NetworkRates | None:
        """Network throughput; ``None`` if it was never recorded."""

    def level(self, t_ns: Times, devices: Ids) -> NDArray[np.float64]:
        """Recorded battery level, NaN where unknown."""

    def charging(self, t_ns: Times, devices: Ids) -> tuple[NDArray[np.bool_], Times]:
        """Whether each is on a charger, and when that changes."""


class AlwaysThere:
    """Devices that nobody uses: always eligible, never loaded, no record of battery or network."""

    has_rates = False

    def __init__(self, devices: int) -> None:
        self._n = devices
        self.has_charger = self.has_level = np.broadcast_to(np.False_, devices)

    def some(self, devices: Ids) -> AlwaysThere:
        """As many."""
        return AlwaysThere(len(devices))

    def lowest_level(self, devices: Ids) -> NDArray[np.float64]:
        """None was read."""
        return np.full(len(devices), np.inf)

    def eligible(self, t_ns: int) -> NDArray[np.bool_]:
        """All of them."""
        return np.ones(self._n, bool)

    @property
    def asks_level(self) -> bool:
        """No."""
        return False

    def eligible_at_level(self, t_ns: int, devices: Ids, level: NDArray[np.float64]) -> NDArray[np.bool_]:
        """All of them."""
        return np.ones(len(devices), bool)

    def leaves_at(self, t_ns: int, devices: Ids) -> Times:
        """Never."""
        return np.full(len(devices), NEVER_NS)

    def next_arrival(self, t_ns: int) -> int:
        """They are all there already: nobody ever arrives."""
        return NEVER_NS

    def segments(self, t0_ns: Times, t1_ns: Times, devices: Ids) -> Segments:
        """One segment each."""
        n = len(devices)
        nothing = np.zeros(n, np.float32)
        return Segments(np.arange(n + 1), np.asarray(t0_ns), np.asarray(t1_ns), nothing, nothing)

    def load(self, t_ns: int, devices: Ids | None = None) -> NDArray[np.float32]:
        """None."""
        return np.zeros(self._n if devices is None else len(devices), np.float32)

    def rates(self, t_ns: Times, devices: Ids) -> NetworkRates | None:
        """Not recorded."""
        return None

    def level(self, t_ns: Times, devices: Ids) -> NDArray[np.float64]:
        """Not recorded."""
        return np.full(len(devices), np.nan)

    def charging(self, t_ns: Times, devices: Ids) -> tuple[NDArray[np.bool_], Times]:
        """Not recorded."""
        return np.zeros(len(devices), bool), np.full(len(devices), NEVER_NS)


class Replayed:
    """Devices that replay recorded users.

    Args:
        traces: The recordings.
        policy: When a device may train.
        start_ns: Time in the recordings at which the virtual clock shows 0.
        by_use: Whether segments tell which app runs.
    """

    def __init__(
        self, traces: TraceFleet, policy: Policy | str, *, start_ns: int = 0, by_use: bool = False
    ) -> None:
        self.traces = traces
        self._policy = parse_policy(policy) if isinstance(policy, str) else policy
        self._charging = parse_policy(CHARGING)
        self._start_ns = start_ns
        self._by_use = by_use

    def some(self, devices: Ids) -> Replayed:
        """Those who replay the same users at the same times."""
        traces, start_ns = self.traces.some(devices), self._start_ns
        return Replayed(traces, self._policy, start_ns=start_ns, by_use=self._by_use)

    @cached_property
    def has_charger(self) -> NDArray[np.bool_]:
        """Whose charger was ever seen."""
        return self.traces.ever_eligible(self._charging)

    @cached_property
    def has_level(self) -> NDArray[np.bool_]:
        """Whose level was ever read."""
        return np.isfinite(self.traces.lowest_level_of_users)[self.traces.users(slice(None))]

    def lowest_level(self, devices: Ids) -> NDArray[np.float64]:
        """The lowest level that was ever read of each."""
        return self.traces.lowest_level_of_users[self.traces.users(devices)]

    @property
    def has_rates(self) -> bool:
        """Whether anybody's throughput was ever read, in one direction or both."""
        return self.traces.has_throughput

    def eligible(self, t_ns: int) -> NDArray[np.bool_]:
        """Whom the policy lets train."""
        return self.traces.eligible(self._start_ns + t_ns, self._policy)

    @property
    def asks_level(self) -> bool:
        """Whether the policy speaks of the battery."""
        return bool(battery_terms(self._policy))

    def eligible_at_level(self, t_ns: int, devices: Ids, level: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whom the policy would let train at these levels."""
        return self.traces.eligible_at_level(self._start_ns + t_ns, self._policy, level, devices)

    def leaves_at(self, t_ns: int, devices: Ids) -> Times:
        """When the policy's answer changes."""
        return self._own(self.traces.next_change(self._start_ns + t_ns, devices, policy=self._policy))

    def next_arrival(self, t_ns: int) -> int:
        """When the policy's answer first changes to yes for somebody."""
        away = ~self.eligible(t_ns)
        changes = self.traces.next_change(self._start_ns + t_ns, policy=self._policy)
        return int(self._own(changes).min(initial=NEVER_NS, where=away))

    def segments(self, t0_ns: Times, t1_ns: Times, devices: Ids) -> Segments:
        """As recorded."""
        start = self._start_ns
        window = (np.asarray(t0_ns) + start, np.asarray(t1_ns) + start)
        found = self.traces.segments(*window, devices, by_use=self._by_use)
        return replace(found, start_ns=found.start_ns - start, end_ns=found.end_ns - start)

    @property
    def app_categories(self) -> tuple[str, ...]:
        """Of the apps in the segments, by number."""
        return self.traces.flat.categories

    def load(self, t_ns: int, devices: Ids | None = None) -> NDArray[np.float32]:
        """As recorded."""
        return self.traces.state_at(self._start_ns + t_ns, devices).cpu

    def rates(self, t_ns: Times, devices: Ids) -> NetworkRates | None:
        """As last read."""
        if not self.has_rates:
            return None
        return self.traces.throughput_at(np.asarray(t_ns) + self._start_ns, devices)

    def level(self, t_ns: Times, devices: Ids) -> NDArray[np.float64]:
        """As recorded."""
        return self.traces.battery_at(np.asarray(t_ns) + self._start_ns, devices)

    def charging(self, t_ns: Times, devices: Ids) -> tuple[NDArray[np.bool_], Times]:
        """As recorded; unknown counts as no."""
        at_ns = np.asarray(t_ns) + self._start_ns
        plugged = self.traces.eligible(at_ns, self._charging, devices)
        return plugged, self._own(self.traces.next_change(at_ns, devices, policy=self._charging))

    def _own(self, t_ns: Times) -> Times:
        return np.where(t_ns == NEVER_NS, NEVER_NS, t_ns - self._start_ns)
