"""Windows and idle intervals with the numbers that a test gives them, and flicker noise by its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from power.energy.baseline import IdleInterval
from power.energy.measurement import MeasuredWindow
from power.energy.noise import PowerSeries
from power.energy.windows import WindowEnergy


def energy_of(start_s: float, end_s: float, energy_j: float | None, **more: Any) -> WindowEnergy:
    """A window of a recording in which nothing is wrong."""
    facts: dict[str, Any] = {
        "label": "work", "charge_c": None if energy_j is None else energy_j / 4, "n_samples": 10,
        "lost_fraction": 0.0, "loss_known": True, "bridged_s": 0.0,
        "range_energy_j": (0.0, energy_j), "range_volt_s": (0.0, 4 * (end_s - start_s)),
    }  # fmt: skip
    return WindowEnergy(
        start_ns=round(start_s * 1e9), end_ns=round(end_s * 1e9), energy_j=energy_j, **(facts | more)
    )


def measured(start_s: float, end_s: float, energy_j: float | None, **more: Any) -> MeasuredWindow:
    """The same with what limits its knowledge; all of it nothing unless given."""
    own = ("earlier_j", "later_j", "noise_j", "loss_j", "beside_s", "beside_j")
    limits = {name: more.pop(name, 0.0) for name in own}
    return MeasuredWindow(energy_of(start_s, end_s, energy_j, **more), **limits)


def idle_of(
    start_s: float,
    end_s: float,
    power_w: float,
    means: Sequence[float] = (),
    medians: Sequence[float] = (),
    **more: Any,
) -> IdleInterval:
    """An idle interval of this power; its parts are constant unless given."""
    parts = [np.array(values or [power_w] * 32) for values in (means, medians)]
    series = [PowerSeries(values, (end_s - start_s) / len(values)) for values in parts]
    return IdleInterval(energy_of(start_s, end_s, power_w * (end_s - start_s), **more), *series)


def flicker(spans: Sequence[tuple[float, float]], weights: Sequence[float]) -> float:
    """Variance of a weighted sum of averages of flicker noise of Allan variance 1.

    The mean of ln|s - t| over both intervals, by the integral of (ln|x| + ...) in closed form.
    """

    def second(x: float) -> float:
        return 0.0 if x == 0 else x**2 * math.log(abs(x)) / 2 - 0.75 * x**2

    found = 0.0
    for (a, b), u in zip(spans, weights, strict=True):
        for (c, d), v in zip(spans, weights, strict=True):
            mean_log = (second(d - a) - second(c - a) - second(d - b) + second(c - b)) / ((b - a) * (d - c))
            found -= u * v * mean_log
    return found / (2 * math.log(2))
