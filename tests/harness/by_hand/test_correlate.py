"""The search for a pattern against loops over cells."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from device_agents.payload.sync_pattern import Pattern
from harness.clock.correlate import Peak, Trace, find_peak, read_trace
from harness.clock.pattern import BurstRun
from tests.harness.by_hand.edges import added_edges
from tests.power.synthetic import START_NS, block, write_recording

MS = 1_000_000
RUN = BurstRun(0, Pattern(order=4, bit_ns=50 * MS))
CELL_S = 0.005


def test_a_trace_of_means_of_three_samples(tmp_path: Path) -> None:
    """20 samples, 5 lost, 12 more; at 4 V, the power is 4 times the number of the sample."""
    number = np.arange(37.0)
    parts = [block(number[:20]), block(number[25:], first_index=25, dropped_before=5)]
    recording = write_recording(tmp_path, parts)
    found = read_trace(recording, START_NS + 2 * MS, START_NS + 34 * MS, width_s=0.003)
    # Samples 2 to 19 by threes, then 25 to 33, the second after the first.
    middles = [3, 6, 9, 12, 15, 18, 26, 29, 32]
    assert found.t_s == pytest.approx(np.array([m - 2 for m in middles]) * 1e-3)
    assert found.power_w == pytest.approx([4.0 * m for m in middles])
    assert (found.origin_ns, found.length_s) == (START_NS + 2 * MS, pytest.approx(0.032))
    assert (found.width_s, found.averaged) == (pytest.approx(0.003), True)
    # Seven samples, 3 to 9: the last is left over.
    few = read_trace(recording, START_NS + 3 * MS, START_NS + 10 * MS, width_s=0.003)
    assert few.power_w.tolist() == pytest.approx([16.0, 28.0])
    each = read_trace(recording, START_NS + 18 * MS, START_NS + 27 * MS, width_s=0.0001)
    assert each.power_w.tolist() == pytest.approx([72.0, 76.0, 100.0, 104.0])
    assert each.t_s == pytest.approx([0.0, 0.001, 0.007, 0.008])
    assert (each.width_s, each.averaged) == (pytest.approx(0.001), False)
    two = read_trace(recording, START_NS, START_NS + 4 * MS, width_s=0.002)
    assert (two.width_s, two.averaged) == (pytest.approx(0.002), True)
    nothing = read_trace(recording, START_NS + 20 * MS, START_NS + 24 * MS, width_s=0.002)
    assert (len(nothing.t_s), nothing.length_s) == (0, pytest.approx(0.004))
    last = read_trace(recording, START_NS + 36 * MS, START_NS + 99 * MS, width_s=0.0001)
    assert last.power_w.tolist() == pytest.approx([144.0])


def test_chance_is_that_of_tosses() -> None:
    def chance(right: int, edges: int) -> float:
        return Peak(0.0, 1.0, 2.0, right, edges).by_chance

    assert chance(4, 4) == pytest.approx(1 / 16)
    assert chance(3, 4) == pytest.approx(5 / 16)
    assert chance(27, 32) == pytest.approx(sum(math.comb(32, k) for k in range(27, 33)) / 2**32)
    assert chance(0, 4) == chance(0, 0) == 1.0


def slow_peak(trace: Trace, run: BurstRun) -> tuple[float, float, float] | None:
    """Lag, correlation and ratio to the next, cell by cell."""
    cell_s = run.bit_s / 10
    n = int(trace.length_s / cell_s) + 1
    cells: list[list[float]] = [[] for _ in range(n)]
    for t, p in zip(trace.t_s.tolist(), trace.power_w.tolist(), strict=True):
        cells[int(t / cell_s)].append(p)
    level = [sum(c) / len(c) if c else None for c in cells]
    q: list[float | None] = []
    for i, p in enumerate(level):
        near = [x for x in level[max(0, i - 40) : i + 40] if x is not None]
        q.append(None if p is None else p - sum(near) / len(near))
    limit = 4 * 1.4826 * median([abs(x) for x in q if x is not None]) if trace.t_s.size else 0.0
    clipped = [None if x is None else min(max(x, -limit), limit) for x in q]
    m = 10 * len(run.pattern.bits())
    raw = added_edges(run, 0.2 * run.bit_s, (np.arange(m) + 0.5) * cell_s, cell_s).tolist()
    base = [sum(raw[min(max(k, 0), m - 1)] for k in range(i - 40, i + 40)) / 80 for i in range(m)]
    template = [a - b for a, b in zip(raw, base, strict=True)]
    scores: dict[int, float] = {}
    for lag in range(n - m + 1):
        pairs = [(clipped[lag + k], template[k]) for k in range(m) if clipped[lag + k] is not None]
        if len(pairs) < 0.5 * min(1.0, cell_s / trace.width_s) * m:
            continue
        match = sum(a * b for a, b in pairs if a is not None)
        scale = math.sqrt(sum(b * b for _, b in pairs) * sum(a * a for a, _ in pairs if a is not None))
        scores[lag] = match / scale if scale > 0 else 0.0
    if not scores:
        return None
    best = max(scores, key=lambda lag: scores[lag])
    away = [score for lag, score in scores.items() if abs(lag - best) > 15]
    return best * cell_s, scores[best], scores[best] / max(max(away, default=1.0), 1e-9)


def slow_edges(trace: Trace, run: BurstRun, lag_s: float) -> tuple[int, int]:
    """Means of the bits, each a fifth of a bit late, and the steps between them."""
    bits = [0, *run.pattern.bits()]
    means = []
    for i in range(len(bits)):
        low, high = lag_s + (i - 1 + 0.2) * run.bit_s, lag_s + (i + 0.2) * run.bit_s
        inside = [
            p for t, p in zip(trace.t_s.tolist(), trace.power_w.tolist(), strict=True) if low <= t < high
        ]
        means.append(sum(inside) / len(inside) if inside else None)
    right = judged = 0
    for i in range(1, len(bits)):
        one, two = means[i - 1], means[i]
        if bits[i] != bits[i - 1] and one is not None and two is not None:
            judged += 1
            right += (two - one) * (bits[i] - bits[i - 1]) > 0
    return right, judged


def made(
    width_s: float,
    lag_s: float,
    length_s: float,
    *,
    noise: float = 0.3,
    gaps: tuple[tuple[float, float], ...] = (),
) -> Trace:
    """The pattern at a lag, a slow load, a burst that is far above everything, and noise."""
    rng = np.random.default_rng(round(1e4 * width_s) + 1)
    t_s = np.arange(width_s * 0.6, length_s, width_s)
    for low, high in gaps:
        t_s = t_s[(t_s < low) | (t_s >= high)]
    power = 2 + 0.5 * np.sin(3 * t_s) + added_edges(RUN, 0.01, t_s - lag_s, width_s)
    power += 30.0 * ((t_s > 0.31) & (t_s < 0.36)) + rng.normal(0, noise, len(t_s))
    return Trace(0, length_s, t_s, power, width_s, averaged=True)


CASES = {
    "fine": made(0.001, 0.37, 1.6, noise=0.1),
    "as wide as a cell": made(0.005, 0.2213, 1.5),
    "slow": made(0.02, 0.4, 1.7),
    "gaps": made(0.002, 0.4, 1.6, gaps=((0.5, 0.62), (0.9, 1.2))),
    "only half": made(0.001, 0.4, 1.6, gaps=((0.795, 1.6),)),
    "exactly half": made(0.001, 0.3, 1.6, gaps=((0.0, 0.3), (0.675, 2.0))),
    "too little": made(0.001, 0.3, 1.6, gaps=((0.0, 0.3), (0.67, 2.0))),
    "nothing": made(0.001, 0.4, 1.6, gaps=((0.0, 2.0),)),
    "no room": made(0.001, 0.02, 0.79),
    "noise": made(0.001, 0.3, 1.9, noise=3.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_where_loops_find_it(name: str) -> None:
    trace = CASES[name]
    found, expected = find_peak(trace, RUN), slow_peak(trace, RUN)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.lag_s, found.correlation, found.peak_to_sidelobe) == pytest.approx(expected, rel=1e-9)
    assert (found.right_edges, found.edges) == slow_edges(trace, RUN, found.lag_s)


def test_which_cases_are_found() -> None:
    found = {name: find_peak(trace, RUN) for name, trace in CASES.items()}
    assert [name for name, peak in found.items() if peak is None] == ["too little", "nothing"]
    fine, no_room, gaps = found["fine"], found["no room"], found["gaps"]
    assert fine is not None
    assert fine.edges == 8
    assert no_room is not None
    assert no_room.peak_to_sidelobe == no_room.correlation  # there is nothing beside it
    assert gaps is not None
    assert gaps.edges < 8


def test_a_flat_trace_with_a_pattern_in_it() -> None:
    """Nothing elsewhere: the next best is 0, and far from it there is no correlation at all."""
    t_s = np.arange(0.0005, 4.0, 0.001)
    trace = Trace(0, 4.0, t_s, 2 + added_edges(RUN, 0.01, t_s - 2.5, 0.001), 0.001, averaged=True)
    found, expected = find_peak(trace, RUN), slow_peak(trace, RUN)
    assert found is not None
    assert expected is not None
    assert (found.lag_s, found.correlation, found.peak_to_sidelobe) == pytest.approx(expected, rel=1e-6)
    # With less room there is nothing but the opposite beside it.
    close_s = t_s[t_s < 0.9]
    power = 2 + added_edges(RUN, 0.01, close_s - 0.1, 0.001)
    peak = find_peak(Trace(0, 0.9, close_s, power, 0.001, averaged=True), RUN)
    assert peak is not None
    assert peak.peak_to_sidelobe == pytest.approx(peak.correlation * 1e9)
    flat = Trace(0, 1.0, t_s[:1000], np.full(1000, 2.0), 0.001, averaged=True)
    peak = find_peak(flat, RUN)
    assert peak is not None
    assert (peak.correlation, peak.peak_to_sidelobe, peak.right_edges, peak.edges) == (0.0, 0.0, 0, 8)
