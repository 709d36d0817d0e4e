"""What the uncertainty of a window's energy is computed from, gathered from a recording.

Three things are asked of the samples themselves: how the energy changes when the window moves by the
clock's uncertainty, how much fast noise the integral carries, and how wrong straight lines across the gaps
may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.interval import NORMAL_95
from power.energy.index import EnergyIndex
from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy
from power.recording.channels import fast_noise
from power.recording.reader import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

POOL_BATCHES = 4
"""How many batches of a window are read to learn what its gaps may hide."""

FEW_GAPS = 32
"""The sum of so many errors is close enough to a normal distribution."""

DRAWN_SUMS = 4000
"""Sums of few errors that are drawn; their 95 % limit is then known to 0.4 % of its coverage."""


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """A window's energy and what limits its knowledge.

    Attributes:
        energy: The result of integrating.
        earlier_j: Change of the energy if the window lay one clock uncertainty earlier.
        later_j: The same for later.
        noise_j: Standard uncertainty from white noise and from sampling a jumping load.
        loss_j: Standard uncertainty from bridging gaps.
        beside_s: Time beside the window that may belong to it, for all that is known: it is at most so much
            longer.
        beside_j: Energy of that time.
    """

    energy: WindowEnergy
    earlier_j: float
    later_j: float
    noise_j: float
    loss_j: float
    beside_s: float = 0.0
    beside_j: float = 0.0


def measure_windows(
    recording: Recording,
    windows: Sequence[Window],
    *,
    sync_uncertainty_s: float,
    policy: GapPolicy = DEFAULT_POLICY,
) -> tuple[MeasuredWindow, ...]:
    """Integrate windows and collect what their uncertainty needs.

    Args:
        recording: The recording.
        windows: Any windows; an invalid one is returned as such.
        sync_uncertainty_s: Standard uncertainty of the windows' place in the recording's time.
        policy: How gaps are treated.
    """
    index = EnergyIndex(recording, policy)
    by_ns = round(sync_uncertainty_s * 1e9)
    energies = [index.integrate([w.moved(shift) for w in windows]) for shift in (0, -by_ns, by_ns)]
    noise = _FastNoise(index)
    return tuple(
        MeasuredWindow(
            energy=energy,
            earlier_j=_change(energy, earlier, sync_uncertainty_s),
            later_j=_change(energy, later, sync_uncertainty_s),
            noise_j=noise.of(window) if energy.energy_j is not None else 0.0,
            loss_j=_bridging_j(index, window) if energy.bridged_s > 0 else 0.0,
        )
        for window, energy, earlier, later in zip(windows, *energies, strict=True)
    )


def _change(energy: WindowEnergy, moved: WindowEnergy, by_s: float) -> float:
    """How much energy moving changes; all of the mean power where the move leaves the recording."""
    if energy.energy_j is None or energy.mean_power_w is None:
        return 0.0
    if moved.energy_j is None:
        return energy.mean_power_w * by_s
    return moved.energy_j - energy.energy_j


class _FastNoise:
    """Standard uncertainty of integrals from what happens between neighbouring samples.

    White noise of variance s^2 adds up to n (s dt)^2. A jump of the load by J at an unknown moment between
    two samples is integrated wrongly by up to J dt / 2 either way, a variance of (J dt)^2 / 12; the jumps
    are the steps that the noise does not explain.
    """

    def __init__(self, index: EnergyIndex) -> None:
        columns = index.recording.index
        self._index = index
        self._dt_s = 1 / index.recording.record.info.rate_hz
        variances = _variance(columns["step_w2"], columns["noise_w2"], columns["rows"])
        self._before = np.concatenate(([0.0], np.cumsum(variances)))

    def of(self, window: Window) -> float:
        """Whole batches from the index, those at the edges from their samples."""
        index = self._index
        low = int(np.searchsorted(index.first_ns, window.start_ns))
        high = int(np.searchsorted(index.last_ns, window.end_ns))
        if high <= low:
            return math.sqrt(self._of_samples(window.start_ns, window.end_ns)) * self._dt_s
        variance = float(self._before[high] - self._before[low])
        variance += self._of_samples(window.start_ns, int(index.first_ns[low]))
        variance += self._of_samples(int(index.last_ns[high - 1]) + 1, window.end_ns)
        return math.sqrt(variance) * self._dt_s

    def _of_samples(self, start_ns: int, end_ns: int) -> float:
        power_w = self._index.power_w(start_ns, end_ns)
        step_w2, noise_w2 = fast_noise(power_w)
        return float(_variance(np.array(step_w2), np.array(noise_w2), np.array(len(power_w))))


def _variance(
    step_w2: NDArray[np.float64], noise_w2: NDArray[np.float64], rows: NDArray[Any]
) -> NDArray[np.float64]:
    """Variance of a sum of samples; see `_FastNoise`."""
    noise = rows * noise_w2
    return np.asarray(noise + np.maximum(step_w2 - 2 * noise, 0.0) / 12)


def _bridging_j(index: EnergyIndex, window: Window) -> float:
    """Standard uncertainty of a window's energy from the straight lines across its gaps.

    The same straight lines are drawn where nothing was lost, in the longest batches of the window, and
    compared with what was measured there.
    """
    low = int(np.searchsorted(index.last_ns, window.start_ns, side="right"))
    high = int(np.searchsorted(index.first_ns, window.end_ns))
    inside = (index.last_ns[:-1] < window.end_ns) & (index.first_ns[1:] > window.start_ns) & (index.lost > 0)
    lost, gap_s = index.lost[inside], index.between_ns[inside] * 1e-9
    rows = index.recording.index["rows"]
    batches = sorted(range(low, max(high, low + 1)), key=lambda b: -int(rows[b]))[:POOL_BATCHES]
    pool = [index.power_w(int(index.first_ns[b]), int(index.last_ns[b]) + 1) for b in batches]
    averages = bool(index.recording.record.info.hold_ns)
    variance = 0.0
    for k in np.unique(lost).tolist():
        variance += _bridging_j2(pool, k, gap_s[lost == k], averages=averages)
    return float(np.sqrt(variance))


def _bridging_j2(
    pool: Sequence[NDArray[np.float64]], lost: int, gaps_s: NDArray[np.float64], *, averages: bool
) -> float:
    """Square of the standard uncertainty from gaps of ``lost`` samples each, from places without one.

    The errors of a load that comes in bursts are mostly nothing and sometimes large. Of few gaps 1.96
    standard deviations then hold less than 95 %, so sums of as many errors are drawn, and the limit that
    holds 95 % of them counts if it is wider. Where no stretch is long enough, the power in the gap may be
    anywhere in the range seen: a uniform distribution.
    """
    tried = [_errors(power, lost, averages=averages) for power in pool if len(power) >= lost + 2]
    if not tried:
        return float(np.ptp(np.concatenate(pool))) ** 2 / 12 * float(gaps_s @ gaps_s)
    errors = np.concatenate(tried)
    mean_square = float(np.mean(errors**2)) * float(gaps_s @ gaps_s)
    if len(gaps_s) > FEW_GAPS:
        return mean_square
    chosen = np.random.default_rng(0).integers(len(errors), size=(DRAWN_SUMS, len(gaps_s)))
    limit_j = float(np.quantile(np.abs(errors[chosen] @ gaps_s), 0.95))
    return max(mean_square, (limit_j / NORMAL_95) ** 2)


def _errors(power_w: NDArray[np.float64], lost: int, *, averages: bool) -> NDArray[np.float64]:
    """Mean power across a gap between samples j and j + lost + 1, by straight line minus as it is, for all j.

    The gap of instants reaches from one sample to the other. That of averages is as long as the lost ones.
    """
    line = (power_w[lost + 1 :] + power_w[: -lost - 1]) / 2
    if averages:
        up_to = np.cumsum(power_w)
        missing: NDArray[np.float64] = line - (up_to[lost:-1] - up_to[: -lost - 1]) / lost
        return missing
    whole = np.concatenate(([0.0], np.cumsum((power_w[1:] + power_w[:-1]) / 2)))
    errors: NDArray[np.float64] = line - (whole[lost + 1 :] - whole[: -lost - 1]) / (lost + 1)
    return errors
