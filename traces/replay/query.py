"""Questions to a single trace, as pure functions of time. A trace is a fleet of one device.

Outside ``[start_ns, end_ns)`` everything is unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.model import InteractionTrace, Intervals
from traces.replay.devices import one_device_per_user
from traces.replay.flat import flatten
from traces.replay.fleet import MeanIntensity, NetworkRates, Segments, TraceFleet, TraceState
from traces.replay.intensity import IntensityTable
from traces.replay.policy import Policy


class TraceQuery:
    """One trace, prepared once and asked as often as wanted; times are arrays.

    Args:
        trace: Without errors (`traces.quality.checks`), else `DataQualityError`.
        table: Intensities of apps; by default the one that ships with joulefleet.
    """

    def __init__(self, trace: InteractionTrace, table: IntensityTable | None = None) -> None:
        self.trace = trace
        flat = flatten([trace], table)
        self._fleet = TraceFleet(flat, one_device_per_user(flat))

    @property
    def apps(self) -> tuple[str, ...]:
        """Names behind the numbers in ``TraceState.app``."""
        return self._fleet.flat.apps

    def state_at(self, t_ns: NDArray[np.int64]) -> TraceState:
        """Everything known at each time."""
        return self._fleet.state_at(t_ns, self._self(t_ns))

    def next_change(
        self, t_ns: NDArray[np.int64], *, policy: Policy | str | None = None
    ) -> NDArray[np.int64]:
        """The first time after each at which the state (or a policy's answer) is different."""
        return self._fleet.next_change(t_ns, self._self(t_ns), policy=policy)

    def eligible(self, t_ns: NDArray[np.int64], policy: Policy | str) -> NDArray[np.bool_]:
        """Whether the phone may train at each time; unknown counts as no."""
        return self._fleet.eligible(t_ns, policy, self._self(t_ns))

    def intensity(self, t0_ns: NDArray[np.int64], t1_ns: NDArray[np.int64]) -> MeanIntensity:
        """Mean app intensity over each window ``[t0, t1)``, exact."""
        return self._fleet.intensity(t0_ns, t1_ns, self._self(t0_ns))

    def segments(self, t0_ns: NDArray[np.int64], t1_ns: NDArray[np.int64]) -> Segments:
        """The app intensities inside each window ``[t0, t1)``, stretch by stretch."""
        return self._fleet.segments(t0_ns, t1_ns, self._self(t0_ns))

    def battery_at(self, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Battery level, 0 to 1, at each time; NaN where unknown."""
        return self._fleet.battery_at(t_ns, self._self(t_ns))

    def throughput_at(self, t_ns: NDArray[np.int64]) -> NetworkRates:
        """Network throughput at each time; NaN where unknown."""
        return self._fleet.throughput_at(t_ns, self._self(t_ns))

    def eligible_intervals(self, policy: Policy | str) -> Intervals:
        """When the phone may train, within the recording."""
        rule = self._fleet.eligibility(policy)
        on = np.flatnonzero(rule.yes[:-1])
        edges = rule.steps.t_ns + self.trace.start_ns
        return Intervals(edges[on], edges[on + 1])

    @staticmethod
    def _self(t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros(len(t_ns), np.int64)
