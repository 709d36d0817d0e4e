"""Idle power before and after the work: its mean, how well the mean is known, and its drift.

Idle power fluctuates on all time scales, so its mean is known less well than independent samples would
make it. An idle interval is cut into equal parts, and `power.energy.noise` tells from them what averages out
and what does not. Two things are asked:

- How much does idle power move, for whatever reason? From the mean of each part. It limits a net energy.
- How much does the instrument move? From the median of each part, which the short bursts of a device that
  is not quite idle leave alone. It limits every energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from joulefleet.errors import DataQualityError
from power.energy.index import EnergyIndex
from power.energy.noise import PowerSeries, SlowNoise, Variance, flicker_factor, slow_noise, total
from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy
from power.recording.reader import Recording

IDLE_PARTS = 32
"""Into how many parts an idle interval is cut: five octaves of averaging time."""


@dataclass(frozen=True, slots=True)
class IdleInterval:
    """Idle power over one interval.

    Attributes:
        energy: The interval as a window.
        means: Mean power of each part.
        medians: Median power of each part.
    """

    energy: WindowEnergy
    means: PowerSeries
    medians: PowerSeries

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy.mean_power_w or 0.0

    @property
    def center_ns(self) -> int:
        """Middle of the interval."""
        return (self.energy.start_ns + self.energy.end_ns) // 2


@dataclass(frozen=True, slots=True)
class Baseline:
    """Idle power around some work. Without an interval after it, drift cannot be seen.

    Attributes:
        before: Idle before the work.
        after: Idle after it.
    """

    before: IdleInterval
    after: IdleInterval | None = None

    @property
    def intervals(self) -> tuple[IdleInterval, ...]:
        """Those that were measured."""
        return (self.before,) if self.after is None else (self.before, self.after)

    @property
    def drift_w(self) -> float | None:
        """Idle power after minus before; None if only one was measured."""
        return None if self.after is None else self.after.power_w - self.before.power_w

    def weights_at(self, t_ns: int) -> tuple[float, ...]:
        """How much each interval counts at a time between them: idle power is taken to drift linearly."""
        if self.after is None:
            return (1.0,)
        share = (t_ns - self.before.center_ns) / (self.after.center_ns - self.before.center_ns)
        share = min(max(share, 0.0), 1.0)
        return (1.0 - share, share)

    def power_at(self, t_ns: int) -> float:
        """Idle power at a time between the intervals."""
        return sum(w * i.power_w for w, i in zip(self.weights_at(t_ns), self.intervals, strict=True))

    def slow_noise_of(self, work: Sequence[WindowEnergy]) -> Variance:
        """Variance of the mean power over some windows from slow noise of the instrument.

        It is relative to the recording: the mean of the noise over all of it is an offset, for which the
        instrument's limits account.
        """
        idle = [interval.energy for interval in self.intervals]
        recording = (idle[0].start_ns * 1e-9, max(end for _, end in map(_seconds, (*work, *idle))))
        spans = [*map(_seconds, work), recording]
        instrument = slow_noise([interval.medians for interval in self.intervals])
        return instrument.flicker.scaled(flicker_factor(spans, [*[1 / len(work)] * len(work), -1.0]))

    def idle_variance(self, work: Sequence[WindowEnergy]) -> Variance:
        """Variance of what is taken for idle power during some windows."""
        weights = self.weights_at(_middle_ns(work))
        spans = [*map(_seconds, work), *(_seconds(interval.energy) for interval in self.intervals)]
        contrast = flicker_factor(spans, [*[1 / len(work)] * len(work), *(-w for w in weights)])
        noise = slow_noise([interval.means for interval in self.intervals])
        white = sum(w**2 / i.energy.duration_s for w, i in zip(weights, self.intervals, strict=True))
        return total(
            [noise.white.scaled(white), noise.flicker.scaled(contrast), Variance(self._bend_w2(noise))]
        )

    def _bend_w2(self, noise: SlowNoise) -> float:
        """Variance of idle power about the straight line between the intervals.

        Between them it may lie anywhere from one value to the other: a uniform distribution over the part
        of their difference that noise does not explain.
        """
        if self.drift_w is None:
            return 0.0
        slow = flicker_factor([_seconds(interval.energy) for interval in self.intervals], (1.0, -1.0))
        white = sum(1 / interval.energy.duration_s for interval in self.intervals)
        explained = noise.flicker.w2 * slow + noise.white.w2 * white
        return max(0.0, self.drift_w**2 - explained) / 12


def _seconds(window: WindowEnergy) -> tuple[float, float]:
    return window.start_ns * 1e-9, window.end_ns * 1e-9


def _middle_ns(windows: Sequence[WindowEnergy]) -> int:
    return sum((w.start_ns + w.end_ns) // 2 for w in windows) // len(windows)


def measure_baseline(
    recording: Recording, before: Window, after: Window | None = None, *, policy: GapPolicy = DEFAULT_POLICY
) -> Baseline:
    """Idle power of a recording before and after some work.

    Raises:
        DataQualityError: An idle interval is not in the recording, lost too much, or is too short.
    """
    if after is not None and after.start_ns < before.end_ns:
        raise DataQualityError("the idle interval after the work begins before the one before it ends")
    index = EnergyIndex(recording, policy)
    return Baseline(_idle(index, before), None if after is None else _idle(index, after))


def _idle(index: EnergyIndex, window: Window) -> IdleInterval:
    edges = np.linspace(window.start_ns, window.end_ns, IDLE_PARTS + 1).astype(np.int64).tolist()
    parts = [Window(a, b, window.label) for a, b in pairwise(edges)]
    whole, *measured = index.integrate([window, *parts])
    problems = _problems(whole, measured)
    if problems:
        raise DataQualityError(
            f"idle interval {window.label!r}: {'; '.join(problems)}",
            hint=f"an idle interval needs at least {2 * IDLE_PARTS} samples and the same care as a window",
        )
    means_w = np.array([part.mean_power_w for part in measured], np.float64)
    medians_w = np.array([np.median(index.power_w(part.start_ns, part.end_ns)) for part in parts])
    part_s = window.duration_s / IDLE_PARTS
    return IdleInterval(whole, PowerSeries(means_w, part_s), PowerSeries(medians_w, part_s))


def _problems(whole: WindowEnergy, parts: Sequence[WindowEnergy]) -> tuple[str, ...]:
    """Of the whole; a part may lose more than is allowed and still tell how the power moves."""
    if whole.problems:
        return whole.problems
    return next((part.problems for part in parts if part.energy_j is None), ())
