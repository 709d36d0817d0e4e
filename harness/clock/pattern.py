"""The bursts a device played, and the power they make behind a regulator with a first-order lag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from device_agents.payload.sync_pattern import Pattern, unpack_lateness
from device_agents.protocol import EpochMarker, Phase
from joulefleet.errors import DataQualityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OTHER_VERSION = "is the agent on the device of the same version?"


@dataclass(frozen=True, slots=True)
class BurstRun:
    """One pattern that a device played.

    Attributes:
        start_ns: Device time at which its first bit was due.
        pattern: Its parameters.
        when: ``before`` or ``after`` the work.
        late_ns: How much later than due each change between busy and asleep happened, as far as the device
            kept it; empty if it did not.
    """

    start_ns: int
    pattern: Pattern
    when: str = ""
    late_ns: tuple[int, ...] = ()

    @property
    def middle_ns(self) -> int:
        """Device time of its middle, where its offset holds."""
        return self.start_ns + self.pattern.duration_ns // 2

    @property
    def bit_s(self) -> float:
        """Duration of a bit."""
        return self.pattern.bit_ns * 1e-9

    @property
    def duration_s(self) -> float:
        """Of the whole pattern."""
        return self.pattern.duration_ns * 1e-9

    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When the load changes, seconds after ``start_ns``, and by how much (+1 or -1).

        What follows the last bit is not part of the pattern, so its end is no edge.
        """
        change = np.diff(np.array(self.pattern.bits()), prepend=0)
        at = np.flatnonzero(change)
        late_s = np.array(self.late_ns or [0] * len(at)) * 1e-9
        return np.maximum.accumulate(at * self.bit_s + late_s), change[at].astype(np.float64)


def burst_runs(markers: Iterable[EpochMarker]) -> tuple[BurstRun, ...]:
    """The patterns that were played to their end, from the markers of any number of jobs.

    Raises:
        DataQualityError: A marker does not say which pattern it was.
    """
    runs = []
    start: EpochMarker | None = None
    for marker in markers:
        if marker.kind is not Phase.SYNC:
            continue
        if marker.edge == "start":
            start = marker
        elif start is not None:
            runs.append(_run(start, marker))
            start = None
    return tuple(runs)


def _run(start: EpochMarker, end: EpochMarker) -> BurstRun:
    try:
        run = BurstRun(
            start.t_dev_ns,
            Pattern.parse(start.extra),
            str(start.extra.get("when", "")),
            tuple(unpack_lateness(end.extra)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataQualityError(
            f"sync marker {start.seq}: not the parameters of a pattern ({error!r})", hint=_OTHER_VERSION
        ) from None
    edges = int(np.count_nonzero(np.diff(run.pattern.bits(), prepend=0)))
    if run.late_ns and len(run.late_ns) != edges:
        raise DataQualityError(
            f"sync marker {end.seq}: {len(run.late_ns)} edges of a pattern that has {edges}",
            hint=_OTHER_VERSION,
        )
    return run


def response(run: BurstRun, tau_s: float, t_s: NDArray[np.float64], width_s: float) -> NDArray[np.float64]:
    """The load of a pattern behind the regulator, averaged over ``width_s`` around each time.

    Args:
        run: The pattern.
        tau_s: Time constant.
        t_s: Seconds after the start of the pattern.
        width_s: What one value of the trace is an average of.

    Returns:
        0 for asleep to 1 for busy.
    """
    edge_s, change = run.edges()
    target = np.cumsum(change)
    level, area = _at_edges(edge_s, target, tau_s)
    upper = _antiderivative(t_s + width_s / 2, edge_s, target, level, area, tau_s)
    return (upper - _antiderivative(t_s - width_s / 2, edge_s, target, level, area, tau_s)) / width_s


def _at_edges(
    edge_s: NDArray[np.float64], target: NDArray[np.float64], tau_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Level of the lagged load at each edge, and its integral up to there."""
    level, area = np.zeros(len(edge_s)), np.zeros(len(edge_s))
    for k, dt_s in enumerate(np.diff(edge_s)):
        gone = -np.expm1(-dt_s / tau_s)
        level[k + 1] = level[k] + (target[k] - level[k]) * gone
        area[k + 1] = area[k] + target[k] * dt_s + (level[k] - target[k]) * tau_s * gone
    return level, area


def _antiderivative(
    t_s: NDArray[np.float64],
    edge_s: NDArray[np.float64],
    target: NDArray[np.float64],
    level: NDArray[np.float64],
    area: NDArray[np.float64],
    tau_s: float,
) -> NDArray[np.float64]:
    """Integral of the lagged load up to each time."""
    k = np.maximum(np.searchsorted(edge_s, t_s) - 1, 0)
    x_s = np.maximum(t_s - edge_s[k], 0.0)  # nothing before the first edge
    tail = (level[k] - target[k]) * tau_s * -np.expm1(-x_s / tau_s)
    return np.asarray(area[k] + target[k] * x_s + tail)
