"""Repeated values as a `Quantity`: mean, n, standard deviation, 95 % interval.

A repetition is a capture. Epochs of one capture resemble each other (temperature, frequency), so they are
averaged first; with a single capture there is nothing better than to take its epochs for repetitions.

Up to nine captures the interval is Student's. From ten on the scatter is bootstrapped, which makes no
assumption about its shape; with fewer, resampling cannot show tails that were not seen. Systematic parts
(instrument, clock, baseline) come from `power.energy.uncertainty` and are added in squares either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.interval import NORMAL_95, student_factor, student_half_width
from power.energy import EnergyBudget, MeasuredRecording, combined_half_width_j, gross_energy, net_energy
from power.profile import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOOTSTRAP_FROM = 10
RESAMPLES = 4000
BOOTSTRAP_SEED = 20240607
"""Any number: the same data must give the same interval."""


def energy(sessions: Sequence[MeasuredRecording], *, net: bool) -> Quantity:
    """Gross or net energy over the sessions that have windows."""
    used = [session for session in sessions if session.windows]
    interval = net_energy(used) if net else gross_energy(used)
    return Quantity(
        mean=interval.value_j,
        n=interval.sessions if interval.sessions > 1 else interval.n,
        sd=interval.sd_j,
        half_width_95=_half_width_j(interval, used, net=net),
    )


def power(sessions: Sequence[MeasuredRecording]) -> Quantity:
    """Mean power over windows of any length: energy over time, and its interval."""
    used = [session for session in sessions if session.windows]
    interval = gross_energy(used)
    rest = {name: part for name, part in interval.parts.items() if name != "repeats"}
    mean_s = float(np.mean([_durations_s(session).mean() for session in used]))
    systematic_w = combined_half_width_j(rest) / mean_s
    single = used[0] if len(used) == 1 else None
    values_w = _powers_w(single) if single else np.array([_mean_power_w(session) for session in used])
    n = len(values_w)
    return Quantity(
        mean=_mean_power_w(single) if single else float(values_w.mean()),
        n=n,
        sd=float(values_w.std(ddof=1)) if n > 1 else None,
        half_width_95=math.hypot(systematic_w, _scatter(values_w, len(used))),
    )


def scattered(by_capture: Sequence[Sequence[float]]) -> Quantity:
    """Values of which only the scatter matters, such as durations between markers of one clock."""
    used = [np.array(values) for values in by_capture if len(values)]
    values = np.array([values.mean() for values in used]) if len(used) > 1 else used[0]
    n = len(values)
    if n < 2:
        return Quantity(mean=float(values.mean()), n=n)
    return Quantity(
        mean=float(values.mean()),
        n=n,
        sd=float(values.std(ddof=1)),
        half_width_95=_scatter(values, len(used)),
    )


def _half_width_j(interval: EnergyBudget, sessions: Sequence[MeasuredRecording], *, net: bool) -> float:
    if len(sessions) < BOOTSTRAP_FROM:
        return interval.half_width_j
    means_j = np.array([_values_j(session, net=net).mean() for session in sessions])
    rest = {name: part for name, part in interval.parts.items() if name != "repeats"}
    return math.hypot(combined_half_width_j(rest), _scatter(means_j, len(sessions)))


def _scatter(values: NDArray[np.float64], captures: int) -> float:
    """Half width of the 95 % interval of the mean, from the values' own scatter; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    if captures < BOOTSTRAP_FROM:
        return student_half_width(values)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    means = rng.choice(values, (RESAMPLES, n)).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    # Resampling has the variance of n values, not of n - 1, and a normal's tails, not Student's.
    return float(high - low) / 2 * math.sqrt(n / (n - 1)) * student_factor(n - 1) / NORMAL_95


def _values_j(session: MeasuredRecording, *, net: bool) -> NDArray[np.float64]:
    values = np.array([e.energy.energy_j or 0.0 for e in session.windows])
    if not net or session.baseline is None:
        return values
    middles_ns = [(e.energy.start_ns + e.energy.end_ns) // 2 for e in session.windows]
    idle_w = np.array([session.baseline.power_at(middle_ns) for middle_ns in middles_ns])
    result: NDArray[np.float64] = values - idle_w * _durations_s(session)
    return result


def _durations_s(session: MeasuredRecording) -> NDArray[np.float64]:
    return np.array([window.energy.duration_s for window in session.windows])


def _powers_w(session: MeasuredRecording) -> NDArray[np.float64]:
    return np.array([e.energy.energy_j or 0.0 for e in session.windows]) / _durations_s(session)


def _mean_power_w(session: MeasuredRecording) -> float:
    total_j = math.fsum(window.energy.energy_j or 0.0 for window in session.windows)
    return total_j / float(_durations_s(session).sum())
