"""The fit of edges against a second way: the same likelihood, with every template computed by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from device_agents.payload.sync_pattern import Pattern
from harness.clock.correlate import Trace
from harness.clock.pattern import BurstRun
from harness.clock.refine import _at_end, _cut, refine
from tests.harness.by_hand.edges import added_edges

JITTERS = (0.0001, 0.0005, 0.001, 0.002, 0.004)
SPOILT = (0.02, 0.1, 0.3, 0.6)


def pieces_of(run: BurstRun, t_s: np.ndarray) -> tuple[list[list[int]], list[int]]:
    """Which values belong together: 12 at least, from 0.35 bits before an edge to a bit after it."""
    edge_s = run.edges()[0].tolist()
    bit_s, end_s = run.bit_s, run.duration_s
    by_edge: list[list[int]] = [[] for _ in edge_s]
    for i, t in enumerate(t_s.tolist()):
        begun = [k for k, at in enumerate(edge_s) if at - 0.35 * bit_s <= t]
        if begun and t < end_s:
            by_edge[begun[-1]].append(i)
    groups: list[list[int]] = [[]]
    for edge in range(len(edge_s)):
        groups[-1].append(edge)
        if sum(len(by_edge[e]) for e in groups[-1]) >= 12:
            groups.append([])
    rest = groups.pop()
    if sum(len(by_edge[e]) for e in rest) and groups:
        groups[-1] += rest
    elif rest:
        groups.append(rest)
    found, edges = [], []
    for group in groups:
        values = [i for e in group for i in by_edge[e]]
        if len(group) == 1:
            values = [i for i in values if t_s[i] < edge_s[group[0]] + bit_s]
        if values:
            found.append(values)
            edges.append(len(group))
    return found, edges


@dataclass
class Slow:
    """One pattern, the slow way."""

    trace: Trace
    run: BurstRun
    lag_s: float

    def __post_init__(self) -> None:
        t_s = self.trace.t_s - self.lag_s
        self.pieces, self.edges = pieces_of(self.run, t_s)
        self.step_s = self.run.bit_s / 100
        # Times are rounded to half a step, from the first one on.
        first = t_s[self.pieces[0][0]]
        half = self.step_s / 2
        self.t_s = first + np.rint((t_s - first) / half) * half
        self.power = [self.trace.power_w[k] - self.trace.power_w[k].mean() for k in self.pieces]

    def templates(self, tau_s: float, share: float, moves: np.ndarray) -> list[np.ndarray]:
        """Of each piece: values by offsets."""
        found = []
        for values in self.pieces:
            t_s = (self.t_s[values][:, None] - moves * self.step_s).ravel()
            flat = added_edges(self.run, tau_s, t_s, share * self.trace.width_s)
            found.append(flat.reshape(len(values), len(moves)))
        return found

    def posterior(self, shapes: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray, float]:
        moves = np.arange(-90, 51)
        templates = [self.templates(*shape, moves) for shape in shapes]
        n = [len(values) for values in self.pieces]
        pp = [float(p @ p) for p in self.power]
        tp = np.array([[p @ t for p, t in zip(self.power, ts, strict=True)] for ts in templates])
        tt = np.array([[((t - t.mean(axis=0)) ** 2).sum(axis=0) for t in ts] for ts in templates])
        noise = []
        for k in range(len(n)):
            free = pp[k] - np.clip(tp[:, k], 0, None) ** 2 / np.maximum(tt[:, k], 1e-6)
            noise.append(max(float(free.min()), 1e-6 * pp[k]) / n[k])
        weight = [1 / max(x, 0.25 * float(np.median(noise))) for x in noise]
        steps = []
        for i in range(len(shapes)):
            a = sum(w * x for w, x in zip(weight, tp[i], strict=True))
            b = sum(w * np.maximum(x, 1e-6) for w, x in zip(weight, tt[i], strict=True))
            best = int(np.argmax(np.clip(a, 0, None) ** 2 / b))
            steps.append(max(float(a[best]), 1e-300) / float(b[best]))
        log = np.empty(tp.shape)
        for i, step in enumerate(steps):
            for k in range(len(n)):
                squares = pp[k] + step * (step * tt[i, k] - 2 * tp[i, k])
                log[i, k] = -0.5 * (n[k] - 1) * np.log(np.maximum(squares, (1e-3 * step) ** 2 * n[k]))
        best = int(np.argmax([log[i].sum(axis=0).max() for i in range(len(shapes))]))
        at = [int(np.argmax(log[best, k])) for k in range(len(n))]
        log /= self.dependence([t[:, j] for t, j in zip(templates[best], at, strict=True)], steps[best])
        log -= log.max(axis=(0, 2))[None, :, None]
        offsets_s = self.lag_s + moves * self.step_s
        found = []
        for jitter_s in JITTERS:
            for share in SPOILT:
                total = np.zeros((len(shapes), len(moves)))
                for k, edges in enumerate(self.edges):
                    likelihood = np.exp(log[:, k])
                    spread = np.exp(-((offsets_s[:, None] - offsets_s) ** 2) * edges / (2 * jitter_s**2))
                    near = likelihood @ (spread / spread.sum(axis=0))
                    mixed = (1 - share) * near + share * likelihood.mean(axis=1)[:, None]
                    total += np.log(np.maximum(mixed, 1e-300))
                found.append(total)
        return np.array(found), offsets_s, steps[best]

    def dependence(self, templates: list[np.ndarray], step: float) -> float:
        rests = [p - step * t for p, t in zip(self.power, templates, strict=True)]
        rests = [r - r.mean() for r in rests]
        variances = [float(r @ r) / len(r) for r in rests]
        middle = float(np.median(variances))
        quiet = [r for r, v in zip(rests, variances, strict=True) if v <= 2 * middle]
        scale = float(np.mean(np.concatenate(quiet) ** 2)) + 1e-300
        taken = 1 / float(np.median([len(r) for r in rests]))
        total = 0.0
        for lag in range(1, 7):
            products = np.concatenate([r[lag:] * r[:-lag] for r in quiet])
            if len(products):
                total += float(products.mean()) / scale + taken
        return max(1.0, 1 + 2 * total)


def slow_refine(traces: list[Trace], runs: list[BurstRun], lags_s: list[float]) -> dict[str, object]:
    parts = [Slow(*one) for one in zip(traces, runs, lags_s, strict=True)]
    shares = [1.0] if all(trace.averaged for trace in traces) else [1.0, 0.1]
    bit_s = min(run.bit_s for run in runs)
    low_s, high_s = 0.01 * bit_s, min(bit_s, 0.05)
    coarse = [(t, share) for share in shares for t in np.geomspace(low_s, high_s, 10).tolist()]
    evidence = sum(np.logaddexp.reduce(p.posterior(coarse)[0], axis=(0, 2)) for p in parts)
    likely = [tau for (tau, _), e in zip(coarse, evidence, strict=True) if e > max(evidence) - 10]
    step = (high_s / low_s) ** (1 / 9)
    ends = max(min(likely) / step, low_s), min(max(likely) * step, high_s)
    fine = [(t, share) for share in shares for t in np.geomspace(*ends, 13).tolist()]
    found = [p.posterior(fine) for p in parts]
    # Everything at once: a probability of every scatter and shape, and offsets within each.
    total = sum(np.logaddexp.reduce(log, axis=2) for log, _, _ in found)
    weight = np.exp(total - np.logaddexp.reduce(total, axis=None))
    means, variances = [], []
    for log, at, _ in found:
        inside = np.exp(log - np.logaddexp.reduce(log, axis=2)[:, :, None])
        mean = (inside * at).sum(axis=2)
        means.append(mean)
        variances.append((inside * (at - mean[:, :, None]) ** 2).sum(axis=2) + (at[1] - at[0]) ** 2 / 12)
    offsets = [float((weight * mean).sum()) for mean in means]
    covariance = np.array(
        [
            [
                float((weight * ((a - x) * (b - y) + (v if i == j else 0))).sum())
                for j, (b, y) in enumerate(zip(means, offsets, strict=True))
            ]
            for i, (a, x, v) in enumerate(zip(means, offsets, variances, strict=True))
        ]
    )
    tau_s = float((weight.sum(axis=0) * [tau for tau, _ in fine]).sum())
    jitter_s = float((weight.sum(axis=1).reshape(5, 4).sum(axis=1) * JITTERS).sum())
    end = tau_s > min(0.6 * bit_s, 0.9 * high_s)
    for (_, at, _), offset in zip(found, offsets, strict=True):
        near = 0.05 * (at[-1] - at[0])
        end = end or offset <= at[0] + near or offset >= at[-1] - near
    return {
        "offset_s": offsets, "covariance": covariance, "tau_s": tau_s, "jitter_s": jitter_s,
        "step_w": [step for _, _, step in found], "at_limit": end,
    }  # fmt: skip


def made(
    run: BurstRun, lag_s: float, *, seed: int, width_s: float = 0.004, tau_s: float = 0.006,
    noise: float = 0.15, averaged: bool = True, step_w: float = 1.3, memory: float = 0.0,
    spike_w: float = 1.5,
) -> Trace:  # fmt: skip
    rng = np.random.default_rng(seed)
    length_s = 2.2
    t_s = np.arange(0.0013, length_s, width_s)
    power = 2 + step_w * added_edges(run, tau_s, t_s - lag_s, width_s if averaged else width_s / 10)
    shaken = rng.normal(0, noise, len(t_s))
    for i in range(1, len(shaken)):
        shaken[i] += memory * shaken[i - 1]
    power += shaken
    power += spike_w * ((t_s > 0.62) & (t_s < 0.66))
    return Trace(0, length_s, t_s, power, width_s, averaged)


ORDER_4 = Pattern(order=4, bit_ns=40_000_000)
LATE = (400_000, 0, 1_100_000, 300_000, 2_000_000, 0, 700_000, 100_000)


def check(traces: list[Trace], runs: list[BurstRun], lags_s: list[float]) -> tuple[object, dict[str, object]]:
    found, expected = refine(traces, runs, lags_s), slow_refine(traces, runs, lags_s)
    assert found.offset_s.tolist() == pytest.approx(expected["offset_s"], rel=1e-9)
    assert found.covariance_s2 == pytest.approx(expected["covariance"], rel=1e-5, abs=1e-14)
    assert found.tau_s == pytest.approx(expected["tau_s"], rel=1e-7)
    assert found.jitter_s == pytest.approx(expected["jitter_s"], rel=1e-7)
    assert found.step_w == pytest.approx(expected["step_w"], rel=1e-7)
    assert found.at_limit == expected["at_limit"]
    return found, expected


def test_two_patterns_of_different_bits_share_a_regulator() -> None:
    runs = [BurstRun(0, Pattern(order=3, bit_ns=50_000_000)), BurstRun(0, ORDER_4, late_ns=LATE)]
    traces = [made(runs[0], 0.31, seed=2, width_s=0.005, step_w=0.9), made(runs[1], 0.4, seed=1)]
    found, _ = check(traces, runs, [0.312, 0.403])
    assert found.offset_s == pytest.approx([0.31, 0.4], abs=0.003)  # type: ignore[attr-defined]
    assert not found.at_limit  # type: ignore[attr-defined]


def test_samples_that_may_be_instants() -> None:
    run = BurstRun(0, ORDER_4)
    check([made(run, 0.4, seed=3, averaged=False, tau_s=0.002)], [run], [0.402])


def test_noise_that_remembers_and_pieces_of_several_edges() -> None:
    """Five values to a bit: a piece has several edges."""
    run = BurstRun(0, ORDER_4, late_ns=LATE)
    check([made(run, 0.4, seed=4, width_s=0.008, memory=0.8)], [run], [0.398])
    few = BurstRun(0, Pattern(order=3, bit_ns=40_000_000))
    check([made(few, 0.4, seed=5, width_s=0.02)], [few], [0.4])  # one piece of all


def test_time_constants_are_unlikely_from_a_ratio_of_22_000_on() -> None:
    """Of this trace the third is 10.8 below the best in logarithms: exp(10) is the limit."""
    run = BurstRun(0, ORDER_4)
    check([made(run, 0.4, seed=30)], [run], [0.4])


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_step_that_drowns_in_noise(seed: int) -> None:
    """Where the template is flat, nothing is said about noise either."""
    run = BurstRun(0, ORDER_4)
    check([made(run, 0.4, seed=seed, noise=1.2)], [run], [0.398])


def test_a_piece_of_which_nothing_was_recorded_is_none() -> None:
    """The first run has four bits: what is left of it lies too long after its edge."""
    run = BurstRun(0, ORDER_4)
    whole = made(run, 0.4, seed=11)
    kept = (whole.t_s < 0.38) | (whole.t_s > 0.445)
    trace = Trace(0, whole.length_s, whole.t_s[kept], whole.power_w[kept], whole.width_s, averaged=True)
    assert pieces_of(run, trace.t_s - 0.4)[1] == [1, 2, 1, 2, 1]  # of eight edges
    check([trace], [run], [0.401])


def test_a_trace_without_noise_meets_the_floor() -> None:
    """Its lag and its time constant are on the grid, and the noise is a tenth of the floor."""
    run = BurstRun(0, ORDER_4)
    tau_s = 0.0004 * 100 ** (5 / 9)
    check([made(run, 0.4, seed=6, noise=0.002, tau_s=tau_s, step_w=20.0)], [run], [0.4004])


def test_a_likelihood_beyond_the_largest_number() -> None:
    """A hundred exact values to a bit: logarithms differ by more than 709."""
    run = BurstRun(0, Pattern(order=3, bit_ns=40_000_000))
    found = refine(
        [made(run, 0.4, seed=12, noise=0.0, width_s=0.0003, step_w=0.01, spike_w=0.0)], [run], [0.401]
    )
    assert found.offset_s.tolist() == pytest.approx([0.4], abs=3e-4)
    assert found.tau_s == pytest.approx(0.006, rel=0.05)
    assert np.isfinite(found.covariance_s2).all()


def test_an_exact_trace_on_the_grid_is_no_division_by_zero() -> None:
    run = BurstRun(0, ORDER_4)
    tau_s = 0.0004 * 100 ** (5 / 9)
    found = refine([made(run, 0.4, seed=6, noise=0.0, tau_s=tau_s, step_w=20.0)], [run], [0.4004])
    assert found.offset_s.tolist() == pytest.approx([0.4], abs=2e-4)
    assert found.step_w == pytest.approx((20.0,), rel=0.01)


def test_a_slow_supply_and_a_lag_that_is_far_off_are_at_the_limit() -> None:
    run = BurstRun(0, ORDER_4)
    slow, _ = check([made(run, 0.4, seed=7, tau_s=0.03, noise=0.05)], [run], [0.41])
    assert slow.at_limit  # type: ignore[attr-defined]
    off, _ = check([made(run, 0.4, seed=8, noise=0.05)], [run], [0.4 + 0.89 * 0.04])
    assert off.at_limit  # type: ignore[attr-defined]
    other, _ = check([made(run, 0.4, seed=9, noise=0.05)], [run], [0.4 - 0.47 * 0.04])
    assert other.at_limit  # type: ignore[attr-defined]
    long = BurstRun(0, Pattern(order=3, bit_ns=150_000_000))
    beyond, _ = check([made(long, 0.4, seed=10, tau_s=0.049, noise=0.02)], [long], [0.41])
    assert beyond.at_limit  # type: ignore[attr-defined]


def test_the_ends_of_a_grid() -> None:
    grid = np.linspace(1.0, 3.0, 21)
    assert [_at_end(grid, at) for at in (1.05, 1.1, 1.11, 2.89, 2.9, 2.95)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("per_bit", [3, 5, 10, 13, 30])
def test_pieces(per_bit: int) -> None:
    for order, extra in ((3, 0.0), (4, 0.11), (5, 0.0)):
        run = BurstRun(0, Pattern(order=order, bit_ns=40_000_000))
        t_s = np.arange(-0.05 + extra * 1e-3, run.duration_s + 0.05, 0.04 / per_bit)
        piece, edges = _cut(run, t_s)
        groups, expected = pieces_of(run, t_s)
        assert [np.flatnonzero(piece == k).tolist() for k in range(len(groups))] == groups
        assert edges.tolist() == expected
        assert piece.max() == len(groups) - 1
        assert math.isclose(sum(edges), len(run.edges()[0]))
        # Of the last edges nothing was recorded.
        short = t_s[t_s < 0.7 * run.duration_s]
        piece, edges = _cut(run, short)
        groups, expected = pieces_of(run, short)
        used = sorted(set(piece[piece >= 0].tolist()))
        assert [np.flatnonzero(piece == k).tolist() for k in used] == groups
        assert edges[used].tolist() == expected
        # Exactly where a piece begins, where it ends, and where the pattern does.
        edge_s = run.edges()[0]
        exact = np.concatenate((edge_s - 0.35 * run.bit_s, edge_s + run.bit_s, [run.duration_s]))
        t_s = np.sort(np.concatenate((t_s, exact)))
        piece, _ = _cut(run, t_s)
        groups, _ = pieces_of(run, t_s)
        assert [np.flatnonzero(piece == k).tolist() for k in range(len(groups))] == groups


def test_a_long_trace_with_a_clear_step_stays_finite() -> None:
    """Hundreds of values to a bit: the worst offset is exp(1000) times less likely than the best."""
    run = BurstRun(0, ORDER_4)
    trace = made(run, 0.4, seed=8, width_s=0.0002, noise=0.02, step_w=5.0, spike_w=0.0)
    found = refine([trace], [run], [0.401])
    assert found.offset_s.tolist() == pytest.approx([0.4], abs=2e-4)
    assert 0 < found.covariance_s2[0, 0] < 1e-7
    assert found.step_w == pytest.approx([5.0], rel=0.05)


def test_a_pattern_without_noise_is_no_number_too_large() -> None:
    """At 20 kHz a right offset is more than e^700 times as likely as a wrong one; floats end there."""
    run = BurstRun(0, ORDER_4)
    found = refine([made(run, 0.4, seed=6, width_s=0.00005, noise=0.05, spike_w=0.0)], [run], [0.4])
    assert found.offset_s == pytest.approx([0.4], abs=2e-4)
    assert found.step_w == pytest.approx([1.3], rel=0.01)
    assert np.isfinite(found.covariance_s2).all()
