"""How fast batteries drain and fill, from recorded levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from traces.intervals import time_between, union
from traces.model import InteractionTrace
from traces.synth.fit.periods import HOUR_NS, wall_hours
from traces.synth.model import BatteryModel, ModelSource

Array = NDArray[np.float64]
LONGEST_STEP_NS = HOUR_NS
"""Readings further apart than this say little about the time between them."""
NEARLY_FULL = 0.9
"""Above this, chargers slow down."""
LEAST_H = 2.0
"""A person's rate counts if it was watched this long."""
MIDDLE = np.linspace(0.05, 0.95, 10)
"""Levels of the quantiles over people: the middle nine tenths, so that no number is one person's."""


def fit_battery(
    traces: Iterable[InteractionTrace], evidence: ModelSource, fewest_people: int = 3
) -> BatteryModel | None:
    """Rates of the people whose level and charger are on record; None if there are too few."""
    drain: list[float] = []
    fill: list[float] = []
    midnight: list[Array] = []
    for trace in traces:
        steps = _steps(trace)
        if steps is None:
            continue
        hours, change, plugged, level = steps
        out, into = ~plugged, plugged & (level < NEARLY_FULL)
        for chosen, sign, found in ((out, -1.0, drain), (into, 1.0, fill)):
            watched = float(hours[chosen].sum())
            rate = sign * float(change[chosen].sum()) / watched if watched >= LEAST_H else 0.0
            if rate > 0:
                found.append(rate)
        midnight.append(_at_midnight(trace))
    levels = np.concatenate([*midnight, np.empty(0)])
    if min(len(drain), len(fill), len(levels)) < fewest_people:
        return None
    return BatteryModel(
        drain_per_h=_quantiles(drain),
        fill_per_h=_quantiles(fill),
        level_at_midnight=_quantiles(levels),
        evidence=evidence.model_copy(update={"users": len(drain)}),
    )


def screen_factor(screen: InteractionTrace, battery: InteractionTrace) -> float:
    """How many times faster a level falls with the screen on; by least squares on one person's readings."""
    steps = _steps(battery)
    if steps is None or battery.battery is None or screen.screen is None:
        raise ValueError("needs the screen and the battery of one person")
    hours, change, plugged, _ = steps
    begin, end = battery.battery.t_ns[:-1], battery.battery.t_ns[1:]
    lit = time_between(union(screen.screen.on), begin, end) / HOUR_NS
    known = time_between(union(screen.known(screen.screen)), begin, end) == end - begin
    use = ~plugged & (hours > 0) & known
    design = np.stack([hours[use], lit[use]], axis=1)
    dark, more = np.linalg.lstsq(design, -change[use], rcond=None)[0]
    return float(max(1.0, (dark + more) / dark))


def _steps(trace: InteractionTrace) -> tuple[Array, Array, NDArray[np.bool_], Array] | None:
    """Hours, change of level, charger and level of each step; hours are 0 where the step tells nothing."""
    if trace.battery is None or trace.plugged is None or len(trace.battery) < 2:
        return None
    begin, end = trace.battery.t_ns[:-1], trace.battery.t_ns[1:]
    length = end - begin
    on = time_between(union(trace.plugged.on), begin, end)
    known = time_between(union(trace.known(trace.plugged), trace.plugged.on), begin, end)
    clear = (length > 0) & (length <= LONGEST_STEP_NS) & (known == length) & ((on == 0) | (on == length))
    hours = np.where(clear, length / HOUR_NS, 0.0)
    change = np.where(clear, np.diff(trace.battery.level), 0.0)
    return hours, change, on > 0, trace.battery.level[:-1]


def _at_midnight(trace: InteractionTrace) -> Array:
    """Levels read in the first half hour of a day, one per day."""
    if trace.battery is None:
        return np.empty(0)
    hour = wall_hours(trace, trace.battery.t_ns)
    soon = np.flatnonzero(hour % 24 < 0.5)
    _, first = np.unique(hour[soon] // 24, return_index=True)
    return np.asarray(trace.battery.level[soon[first]])


def _quantiles(values: Sequence[float] | Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in np.quantile(np.asarray(values), MIDDLE))
