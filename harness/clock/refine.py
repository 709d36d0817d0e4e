"""Offsets to a fraction of a sample: edges of the pattern, with the regulator's lag and the jitter unknown.

The edge of a burst reaches the meter late and rounded (the supply's regulator, time constant tau), and is
itself a little off its schedule (the device's scheduler). A late clock and a slow regulator look much alike,
so neither may be guessed. Every piece of the trace around an edge says how likely each (offset, tau) is, with
its own level and its own noise, so that a background load in one piece costs that piece only. The jitter is
integrated out, an unusable piece is allowed for, and what all pieces of all patterns say together is a
probability over offsets, tau and jitter on a grid: its mean is the answer and its spread the uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from harness.clock.correlate import Trace
from harness.clock.pattern import BurstRun, response

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS_PER_BIT = 100
"""Resolution of the offset's grid."""

OFFSET_BITS = (-0.9, 0.5)
"""Range of the offset around the found peak, which assumed some tau: a slower regulator moves it far."""

TAU_BITS = (0.01, 1.0)
MAX_TAU_S = 0.05
"""Time constants considered; the lag seen in power traces of bursts is 8 to 10 ms."""

TRUSTED_TAU_BITS = 0.6
"""Beyond, no bit reaches its level, and the size of the step, tau and the offset look alike."""

COARSE_TAUS = 10
"""First a few time constants, ..."""

FINE_TAUS = 13
"""... then as many around the likely ones."""

TABLE_STEPS = 2
"""Templates are tabulated this much finer than the offsets."""

INSTANT = 0.1
"""A sample may be a mean over all of its period or an instant of it (some share): the trace tells which."""

JITTER_S = (0.0001, 0.0005, 0.001, 0.002, 0.004)
"""Standard deviations of a burst's edge around its schedule; 2 ms is a busy scheduler."""

SPOILT = (0.02, 0.1, 0.3, 0.6)
"""Shares of pieces that a background load may spoil."""

UNLIKELY = 10.0
"""Time constants whose log likelihood is this far below the best are not looked at again."""

LEAD_BITS = 0.35
"""A piece begins this long before its edge, ..."""

TAIL_BITS = 1.0
"""... and ends at the latest this long after it: beyond, there is nothing to see."""

MIN_VALUES = 12
"""Values in a piece: a slow meter needs several edges to get there."""

NOISE_LAGS = 6
"""Values over which noise may depend on itself; slower noise is part of a piece's level."""

_FLOOR = 1e-3  # of the step: no trace is more exact, and a logarithm needs something
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Refined:
    """What all patterns say together.

    Attributes:
        offset_s: Of each pattern: host time of its start after the origin of its trace.
        covariance_s2: Of the offsets; they share the regulator.
        tau_s: Time constant of the regulator.
        jitter_s: Standard deviation of the edges around their schedule.
        step_w: Extra power of a burst, for each pattern.
        at_limit: Whether the answer lies at the edge of what was considered.
    """

    offset_s: NDArray[np.float64]
    covariance_s2: NDArray[np.float64]
    tau_s: float
    jitter_s: float
    step_w: tuple[float, ...]
    at_limit: bool


def refine(traces: Sequence[Trace], runs: Sequence[BurstRun], lags_s: Sequence[float]) -> Refined:
    """Offsets of patterns that were found at about ``lags_s`` in their traces."""
    pieces = [_Pieces(*item) for item in zip(traces, runs, lags_s, strict=True)]
    shares = (1.0,) if all(trace.averaged for trace in traces) else (1.0, INSTANT)
    bit_s = min(run.bit_s for run in runs)
    low_s, high_s = TAU_BITS[0] * bit_s, min(TAU_BITS[1] * bit_s, MAX_TAU_S)
    coarse = _shapes(low_s, high_s, COARSE_TAUS, shares)
    evidence = sum(np.logaddexp.reduce(piece.posterior(coarse).log, axis=(0, 2)) for piece in pieces)
    likely_s = [
        shape.tau_s for shape, log in zip(coarse, evidence, strict=True) if log > max(evidence) - UNLIKELY
    ]
    step = (high_s / low_s) ** (1 / (COARSE_TAUS - 1))
    fine = _shapes(max(min(likely_s) / step, low_s), min(max(likely_s) * step, high_s), FINE_TAUS, shares)
    trusted_s = min(TRUSTED_TAU_BITS * bit_s, 0.9 * high_s)
    return _combine([piece.posterior(fine) for piece in pieces], fine, trusted_s)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How an edge looks: behind a regulator, averaged over some share of the time between two values."""

    tau_s: float
    share: float


def _shapes(low_s: float, high_s: float, count: int, shares: Sequence[float]) -> list[_Shape]:
    """Time constants that are evenly likely in their logarithm."""
    return [_Shape(tau_s, share) for share in shares for tau_s in np.geomspace(low_s, high_s, count).tolist()]


@dataclass(frozen=True, slots=True)
class _Posterior:
    """Of one pattern: log likelihood by scatter (jitter, spoilt share), shape and offset; the offsets."""

    log: NDArray[np.float64]
    offset_s: NDArray[np.float64]
    step_w: float


def _combine(parts: Sequence[_Posterior], shapes: Sequence[_Shape], max_tau_s: float) -> Refined:
    """Offsets are independent of each other once shape and scatter are given."""
    total = np.zeros(parts[0].log.shape[:2])
    means, variances = [], []
    for part in parts:
        evidence = np.logaddexp.reduce(part.log, axis=2)
        share = np.exp(part.log - evidence[:, :, None])
        mean = share @ part.offset_s
        step_s = part.offset_s[1] - part.offset_s[0]
        means.append(mean)
        variances.append(share @ part.offset_s**2 - mean**2 + step_s**2 / 12)
        total += evidence
    weight = np.exp(total - np.logaddexp.reduce(total, axis=None))
    offset_s = np.array([np.sum(weight * mean) for mean in means])
    off = [mean - at for mean, at in zip(means, offset_s, strict=True)]
    covariance = np.array([[np.sum(weight * a * b) for a in off] for b in off])
    covariance += np.diag([np.sum(weight * variance) for variance in variances])
    tau_s = float(weight.sum(axis=0) @ np.array([shape.tau_s for shape in shapes]))
    return Refined(
        offset_s=offset_s,
        covariance_s2=covariance,
        tau_s=tau_s,
        jitter_s=float(weight.sum(axis=1) @ np.repeat(JITTER_S, len(SPOILT))),
        step_w=tuple(part.step_w for part in parts),
        at_limit=tau_s > max_tau_s
        or any(_at_end(part.offset_s, at) for part, at in zip(parts, offset_s, strict=True)),
    )


def _at_end(grid_s: NDArray[np.float64], at_s: float) -> bool:
    near_s = 0.05 * (grid_s[-1] - grid_s[0])
    return not grid_s[0] + near_s < at_s < grid_s[-1] - near_s


class _Pieces:
    """The trace of one pattern, cut into pieces around its edges."""

    def __init__(self, trace: Trace, run: BurstRun, lag_s: float) -> None:
        self._run = run
        self._width_s = trace.width_s
        self._step_s = run.bit_s / STEPS_PER_BIT
        low, high = (round(bits * STEPS_PER_BIT) for bits in OFFSET_BITS)
        self._moves = np.arange(low, high + 1)
        self._lag_s = lag_s
        t_s = trace.t_s - lag_s
        piece, self._edges_in = _cut(run, t_s)
        inside = piece >= 0
        self._t_s, self._power_w = t_s[inside], trace.power_w[inside]
        self._starts = np.flatnonzero(np.diff(piece[inside], prepend=-1))
        self._n = np.diff(self._starts, append=len(self._t_s))
        self._edges_in = self._edges_in[piece[inside][self._starts]]
        mean = np.add.reduceat(self._power_w, self._starts) / self._n
        self._power_w = self._power_w - np.repeat(mean, self._n)
        self._pp = np.add.reduceat(self._power_w**2, self._starts)

    def posterior(self, shapes: Sequence[_Shape]) -> _Posterior:
        """How likely each scatter, shape and offset is."""
        sums = [self._sums(shape) for shape in shapes]
        tp, tt = (np.stack(part) for part in zip(*sums, strict=True))  # shape, piece, offset
        step_w = self._steps(tp, tt)
        squares = self._pp[:, None] + step_w[:, None, None] * (step_w[:, None, None] * tt - 2 * tp)
        floor = (_FLOOR * step_w) ** 2
        squares = np.maximum(squares, floor[:, None, None] * self._n[:, None])
        log = -0.5 * (self._n[:, None] - 1) * np.log(squares)
        best = int(np.argmax(log.sum(axis=1).max(axis=1)))
        log /= self._dependence(shapes[best], float(step_w[best]), np.argmax(log[best], axis=1))
        log -= log.max(axis=(0, 2), keepdims=True)
        offset_s = np.asarray(self._lag_s + self._moves * self._step_s, np.float64)
        return _Posterior(self._without_jitter(np.exp(log), offset_s), offset_s, float(step_w[best]))

    def _template(self, shape: _Shape) -> NDArray[np.float64]:
        """The pattern at each time of the trace, for every offset."""
        step_s = self._step_s / TABLE_STEPS
        row = np.rint((self._t_s - self._t_s[0]) / step_s).astype(np.int64)
        n_table = TABLE_STEPS * (len(self._moves) - 1) + 1
        first_s = self._t_s[0] - self._moves[-1] * self._step_s
        grid_s = first_s + np.arange(row[-1] + n_table) * step_s
        table = response(self._run, shape.tau_s, grid_s, shape.share * self._width_s)
        # Each time has its row of the table, which is read from its end: the smallest offset comes first.
        return np.asarray(sliding_window_view(table, n_table)[:, ::-TABLE_STEPS][row])

    def _sums(self, shape: _Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Template times power and template squared, by piece and offset, both about their means."""
        template = self._template(shape)
        tp, tt = np.empty((2, len(self._n), template.shape[1]))
        for k, (start, n) in enumerate(zip(self._starts, self._n, strict=True)):
            part = template[start : start + n]
            part = part - part.mean(axis=0)
            tp[k] = self._power_w[start : start + n] @ part
            tt[k] = np.einsum("ij,ij->j", part, part)
        return tp, tt

    def _dependence(self, shape: _Shape, step_w: float, move: NDArray[np.int64]) -> float:
        """How many values of the trace count as one, because its noise is not white."""
        template = self._template(shape)[np.arange(len(self._t_s)), np.repeat(move, self._n)]
        rest = self._power_w - step_w * template
        rest -= np.repeat(np.add.reduceat(rest, self._starts) / self._n, self._n)
        variance = np.add.reduceat(rest**2, self._starts) / self._n
        quiet = variance <= 2 * np.median(variance)  # the others have a load of their own in them
        piece = np.where(np.repeat(quiet, self._n), np.repeat(np.arange(len(self._n)), self._n), -1)
        scale = float(np.mean(rest[piece >= 0] ** 2)) + _TINY
        taken = 1 / float(np.median(self._n))  # a piece's mean takes some of its noise along
        total = 0.0
        for lag in range(1, NOISE_LAGS + 1):
            pairs = (piece[lag:] == piece[:-lag]) & (piece[lag:] >= 0)
            if pairs.any():
                total += float(np.mean((rest[lag:] * rest[:-lag])[pairs])) / scale + taken
        return max(1.0, 1.0 + 2.0 * total)

    def _steps(self, tp: NDArray[np.float64], tt: NDArray[np.float64]) -> NDArray[np.float64]:
        """Extra power of a burst for each shape, from the pieces that follow the pattern."""
        # A template that is flat there shows nothing but its own rounding.
        free = self._pp[:, None] - np.maximum(tp, 0.0) ** 2 / np.maximum(tt, _FLOOR**2)
        # Of an exact trace rounding leaves less than nothing.
        noise = np.maximum(free.min(axis=(0, 2)), _FLOOR**2 * self._pp) / self._n
        weight = np.reciprocal(np.maximum(noise, 0.25 * np.median(noise)))
        all_tp, all_tt = (np.einsum("k,ikx->ix", weight, part) for part in (tp, np.maximum(tt, _FLOOR**2)))
        best = np.argmax(np.maximum(all_tp, 0.0) ** 2 / all_tt, axis=1)[:, None]
        chosen = [np.take_along_axis(part, best, axis=1)[:, 0] for part in (all_tp, all_tt)]
        step_w: NDArray[np.float64] = np.maximum(chosen[0], _TINY) / chosen[1]
        return step_w

    def _without_jitter(
        self, likelihood: NDArray[np.float64], offset_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Log likelihood of all pieces by jitter and spoilt share, shape, and offset."""
        flat = likelihood.mean(axis=2, keepdims=True)
        found = np.zeros((len(JITTER_S) * len(SPOILT), len(likelihood), len(offset_s)))
        for edges in np.unique(self._edges_in):
            some = self._edges_in == edges
            for j, jitter_s in enumerate(JITTER_S):
                # The mean of several edges scatters less.
                spread = np.exp(-0.5 * ((offset_s[:, None] - offset_s) / jitter_s) ** 2 * edges)
                near = likelihood[:, some] @ (spread / spread.sum(axis=0))
                for i, share in enumerate(SPOILT):
                    mixed = (1 - share) * near + share * flat[:, some]
                    found[j * len(SPOILT) + i] += np.log(np.maximum(mixed, _TINY)).sum(axis=1)
        return found


def _cut(run: BurstRun, t_s: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of the piece that each time belongs to (-1: none), and how many edges each piece has."""
    edge_s, _ = run.edges()
    lead_s, tail_s = LEAD_BITS * run.bit_s, TAIL_BITS * run.bit_s
    k = np.searchsorted(edge_s - lead_s, t_s, side="right") - 1
    inside = (k >= 0) & (t_s < run.duration_s)
    values = np.bincount(k[inside], minlength=len(edge_s))
    piece_of = np.zeros(len(edge_s), np.int64)
    piece = filled = 0
    for edge, n in enumerate(values):
        piece_of[edge] = piece
        filled += int(n)
        if filled >= MIN_VALUES:
            piece, filled = piece + 1, 0
    if filled and piece:  # what is left over at the end goes to the piece before it
        piece_of[piece_of == piece] = piece - 1
    edges_in = np.bincount(piece_of).astype(np.float64)
    alone = edges_in[piece_of[k]] == 1
    inside &= ~alone | (t_s < edge_s[k] + tail_s)
    return np.where(inside, piece_of[k], -1), edges_in
