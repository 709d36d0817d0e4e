"""Finding a pattern in a power trace: where it matches best, and whether that is a match at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.special import bdtrc

from harness.clock.pattern import BurstRun, response
from power.recording import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trace:
    """Mean power of short stretches; where samples are missing there is none.

    Attributes:
        origin_ns: Host time from which ``t_s`` counts.
        length_s: What was asked for, recorded or not.
        t_s: Middle of each stretch, seconds, increasing.
        power_w: Mean power in it.
        width_s: Length of each.
        averaged: Whether each is the mean of several samples; if not, whether the meter itself averages
            over the time between samples is not known.
    """

    origin_ns: int
    length_s: float
    t_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    width_s: float
    averaged: bool


def read_trace(recording: Recording, start_ns: int, end_ns: int, *, width_s: float) -> Trace:
    """Read only the batches between two times, averaged over ``width_s`` where samples come faster.

    Samples are grouped by their number, never across a gap.
    """
    record, index = recording.record, recording.index
    together = max(1, round(width_s * record.info.rate_hz))
    first_ns = record.timebase.to_host_ns(index["first_tick"])
    last_ns = record.timebase.to_host_ns(index["last_tick"])
    times, powers = [np.empty(0)], [np.empty(0)]
    for i in range(int(np.searchsorted(last_ns, start_ns)), int(np.searchsorted(first_ns, end_ns))):
        block = recording.block(i)
        low, high = np.searchsorted(block.t_ns, (start_ns, end_ns))
        high -= (high - low) % together
        since_s = (block.t_ns[low:high] - start_ns) * 1e-9
        times.append(since_s.reshape(-1, together).mean(axis=1))
        power_w = block.power_w[low:high].astype(np.float64)
        powers.append(power_w.reshape(-1, together).mean(axis=1))
    return Trace(
        origin_ns=start_ns,
        length_s=(end_ns - start_ns) * 1e-9,
        t_s=np.concatenate(times),
        power_w=np.concatenate(powers),
        width_s=together / record.info.rate_hz,
        averaged=together > 1,
    )


CELLS_PER_BIT = 10
"""Resolution of the search; the edges are measured later."""

BASELINE_BITS = 8
"""The mean over this many bits is taken off: longer than any run of the default pattern (6), so that the
pattern stays, and short against a slow load, which goes."""

SEARCH_TAU_BITS = 0.2
"""Time constant assumed in the search: 10 ms of 50, the middle of what was seen (8 to 10 ms)."""

CLIP_SD = 4.0
"""A load far above everything else counts no more than this many robust standard deviations."""

MIN_COVERAGE = 0.5
"""At least this share of the pattern must have been recorded."""

_MAD_TO_SD = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class Peak:
    """Where a pattern fits best.

    Attributes:
        lag_s: Host time of the pattern's start after the origin of the trace, as if the regulator had the
            assumed time constant.
        correlation: Between the pattern and the trace there, at most 1.
        peak_to_sidelobe: Over the best correlation more than a bit and a half away.
        right_edges: How many of the pattern's edges go the right way there.
        edges: How many were recorded.
    """

    lag_s: float
    correlation: float
    peak_to_sidelobe: float
    right_edges: int
    edges: int

    @property
    def by_chance(self) -> float:
        """Probability of that many right edges if each were a toss: whatever the loads, however large."""
        return float(bdtrc(self.right_edges - 1, self.edges, 0.5))


def find_peak(trace: Trace, run: BurstRun) -> Peak | None:
    """The lag at which a pattern correlates best with a trace; None if too little of it was recorded."""
    cell_s = run.bit_s / CELLS_PER_BIT
    q, weight = _on_cells(trace, cell_s)
    length = CELLS_PER_BIT * len(run.pattern.bits())
    t_s = np.arange(0.5, length) * cell_s
    template = response(run, SEARCH_TAU_BITS * run.bit_s, t_s, cell_s)
    template -= uniform_filter1d(template, BASELINE_BITS * CELLS_PER_BIT, mode="nearest")
    score = _normalised(q, weight, template, filled=min(1.0, cell_s / trace.width_s))
    usable = np.isfinite(score)
    if not usable.any():
        return None
    best = int(np.nanargmax(score))
    away = usable & (np.abs(np.arange(len(score)) - best) > 1.5 * CELLS_PER_BIT)
    sidelobe = float(score[away].max()) if away.any() else 1.0
    lag_s, correlation = best * cell_s, float(score[best])
    return Peak(lag_s, correlation, correlation / max(sidelobe, 1e-9), *_right_edges(trace, run, lag_s))


def _right_edges(trace: Trace, run: BurstRun, lag_s: float) -> tuple[int, int]:
    """How many edges go the right way, bit by bit, and how many have samples on both sides."""
    bits = np.array([0, *run.pattern.bits()])
    at = np.floor((trace.t_s - lag_s) / run.bit_s - SEARCH_TAU_BITS).astype(np.int64) + 1
    inside = (at >= 0) & (at < len(bits))
    count = np.bincount(at[inside], minlength=len(bits))
    total = np.bincount(at[inside], trace.power_w[inside], minlength=len(bits))
    mean = np.divide(total, count, out=np.full(len(bits), np.nan), where=count > 0)
    expected, step = np.diff(bits), np.diff(mean)
    judged = (expected != 0) & np.isfinite(step)
    return int(np.count_nonzero(step[judged] * expected[judged] > 0)), int(np.count_nonzero(judged))


def _on_cells(trace: Trace, cell_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trace on even cells without its slow part, and 1 where a cell has a value, 0 where not."""
    cell = (trace.t_s / cell_s).astype(np.int64)
    n = int(trace.length_s / cell_s) + 1
    count = np.bincount(cell, minlength=n)
    total = np.bincount(cell, trace.power_w, minlength=n)
    known = count > 0
    power_w = np.divide(total, count, out=np.zeros(n), where=known)
    weight = known.astype(np.float64)
    span = BASELINE_BITS * CELLS_PER_BIT
    near = uniform_filter1d(weight, span, mode="constant")
    slow = np.divide(
        uniform_filter1d(power_w * weight, span, mode="constant"), near, out=np.zeros(n), where=near > 0
    )
    q = (power_w - slow) * weight
    limit = CLIP_SD * _MAD_TO_SD * float(np.median(np.abs(q[known]))) if known.any() else 0.0
    return np.clip(q, -limit, limit), weight


def _normalised(
    q: NDArray[np.float64],
    weight: NDArray[np.float64],
    template: NDArray[np.float64],
    *,
    filled: float,
) -> NDArray[np.float64]:
    """Correlation coefficient at every lag; not a number where too little was recorded."""
    # Not by FFT, which leaves something where there is nothing: flat stretches have no correlation.
    ones = np.ones(len(template))
    of_template = np.correlate(weight, template**2, mode="valid")
    scale = np.sqrt(of_template * np.correlate(q**2, ones, mode="valid"))
    match = np.correlate(q, template, mode="valid")
    score = np.divide(match, scale, out=np.zeros(len(match)), where=scale > 0)
    # A slow meter fills only some of the cells.
    enough = np.correlate(weight, ones, mode="valid") >= MIN_COVERAGE * filled * len(template)
    return np.where(enough, score, np.nan)
