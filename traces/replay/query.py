"""Questions to a single trace: a fleet of one device, asked at many times."""

from __future__ import annotations

import numpy as np

from traces.model import InteractionTrace, Intervals
from traces.replay.devices import one_device_per_user
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet
from traces.replay.intensity import IntensityTable
from traces.replay.policy import Policy


class TraceQuery(TraceFleet):
    """One trace, prepared once and asked as often as wanted; times are arrays.

    Outside ``[start_ns, end_ns)`` everything is unknown.

    Args:
        trace: Without errors (`traces.quality.checks`), else `DataQualityError`.
        table: Intensities of apps; by default the one that ships with joulefleet.
    """

    def __init__(self, trace: InteractionTrace, table: IntensityTable | None = None) -> None:
        flat = flatten([trace], table)
        super().__init__(flat, one_device_per_user(flat))
        self.trace = trace

    @property
    def apps(self) -> tuple[str, ...]:
        """Names behind the numbers in ``TraceState.app``."""
        return self.flat.apps

    def eligible_intervals(self, policy: Policy | str) -> Intervals:
        """When the phone may train, within the recording."""
        rule = self.eligibility(policy)
        on = np.flatnonzero(rule.yes[:-1])
        edges = rule.steps.t_ns + self.trace.start_ns
        return Intervals(edges[on], edges[on + 1])
