"""The index of a recording against every sample of it: batches, gaps, bends and edges of windows."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from power.energy.index import EnergyIndex, integrate_recording
from power.energy.windows import GapPolicy, Window
from power.model import AVERAGES_FACT, Accuracy, RangeAccuracy, SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase
from tests.power.synthetic import START_NS, config, info

TWO = Accuracy(
    current=(
        RangeAccuracy(name="fine", up_to_a=0.5, gain_rel=0.01, offset_a=1e-4),
        RangeAccuracy(name="coarse", gain_rel=0.01, offset_a=1e-3),
    ),
    voltage_gain_rel=0.0, voltage_offset_v=0.0, source="test",
)  # fmt: skip

# First sample, samples, lost before (None: nobody knows): a gap that is bridged, one that is too long, one
# of unknown loss that is bridged, one of unknown loss that is too long, a pause without a loss, one sample.
LAYOUT = ((0, 40, 0), (43, 30, 3), (143, 21, 70), (168, 25, None), (260, 40, None), (390, 1, 0), (393, 58, 2))
TICKS = 5
"""Ticks to a sample, where they are even."""

KNOTS = (0, 900, 1400, 2400)


class Made:
    """A recording and its samples, each with its time, as plain arrays."""

    def __init__(self, folder: Path, *, uniform: bool, averages: bool = False, bent: bool = True) -> None:
        rng = np.random.default_rng(9)
        facts = {AVERAGES_FACT: True} if averages else {}
        rate = {"rate_hz": 1000.0, "tick_hz": 1000.0 * TICKS, "uniform_ticks": uniform}
        folder.mkdir()
        writer = RecordingWriter(
            folder, info(accuracy=TWO, facts=facts, **rate), config(), started_ns=START_NS
        )
        # 0.2 ms a tick, 100 ppm slower or faster from the second knot on.
        skews = (1.0, 1.0001, 0.9999) if bent else (1.0, 1.0, 1.0)
        steps = [200_000 * s * (b - a) for s, a, b in zip(skews, KNOTS, KNOTS[1:], strict=False)]
        host_ns = (START_NS + np.concatenate(([0], np.cumsum(steps)))).astype(np.int64)
        self.base = Timebase(ticks=KNOTS, host_ns=tuple(host_ns.tolist()))
        self.batches: list[tuple[np.ndarray, np.ndarray]] = []
        for first, n, lost in LAYOUT:
            ticks = TICKS * (first + np.arange(n))
            if not uniform:
                ticks = ticks + rng.integers(0, 3, n)
            current, volts = (
                rng.gamma(2.0, 0.3, n).astype(np.float32),
                rng.normal(4, 0.1, n).astype(np.float32),
            )
            t_ns = self.base.to_host_ns(ticks)
            writer.append(SampleBlock(t_ns, ticks, current, volts, first, lost))
            values = np.stack([current.astype(float) * volts, current.astype(float)])
            whole = host_ns[0] + np.interp(ticks, KNOTS, host_ns - host_ns[0])  # not rounded
            self.batches.append((whole, values))
        writer.close(self.base, ())
        self.recording: Recording = open_recording(folder)

    def joules_and_coulombs(self, window: Window, hold_ns: int = 0) -> np.ndarray:
        """Trapezoids between samples, or steps of averages, clipped to the window, one after the other."""
        pieces = []
        for k, (t, v) in enumerate(self.batches):
            for i in range(len(t)):
                last = i + 1 == len(t)
                if hold_ns:
                    pieces.append((t[i], t[i] + hold_ns if last else t[i + 1], v[:, i], v[:, i]))
                elif not last:
                    pieces.append((t[i], t[i + 1], v[:, i], v[:, i + 1]))
            if k + 1 < len(self.batches):
                after, w = self.batches[k + 1]
                pieces.append((t[-1] + hold_ns, after[0], v[:, -1], w[:, 0]))
        total = np.zeros(2)
        for a, b, left, right in pieces:
            low, high = max(a, window.start_ns), min(b, window.end_ns)
            if high > low:
                at_low, at_high = (left + (right - left) * (x - a) / (b - a) for x in (low, high))
                total += (at_low + at_high) / 2 * (high - low) * 1e-9
        return total


def edges() -> list[int]:
    """On samples, at ends of batches, in gaps, a nanosecond beside."""
    ms = [0, 5, 17, 19, 20, 31, 38, 39, 40.5, 43, 50.3, 58, 71.7, 72, 72.5, 143, 150, 163, 165, 168, 180, 192]
    ms += [192.5, 260, 279, 280, 281, 299, 300, 389.9, 390, 390.5, 391, 400.2, 420, 421, 422, 449.6, 450]
    return [START_NS + round(x * 1e6) + off for x in ms for off in (0, 1)]


@pytest.mark.parametrize("kind", ["even", "bent", "uneven", "averages"])
def test_every_pair_of_edges(tmp_path: Path, kind: str) -> None:
    averages = kind == "averages"
    made = Made(tmp_path / "r", uniform=kind != "uneven", averages=averages, bent=kind != "even")
    hold_ns = 1_000_000 if averages else 0
    last_ns = int(made.recording.block(len(made.recording) - 1).t_ns[-1]) + hold_ns
    first_ns = int(made.recording.block(0).t_ns[0])
    at = [t for t in edges() if first_ns <= t <= last_ns]
    rng = np.random.default_rng(2)
    pairs = [tuple(sorted(rng.choice(at, 2, replace=False).tolist())) for _ in range(250)]
    windows = [Window(*pair) for pair in pairs]
    windows += [Window(a, b) for a, b in itertools.pairwise(at)]
    windows += [Window(first_ns, b) for b in at[1:]]
    policy = GapPolicy(bridge_up_to_s=0.2, max_lost_fraction=1.0)
    times = [np.rint(t).astype(np.int64) for t, _ in made.batches]
    every = np.concatenate(times)
    found = integrate_recording(made.recording, windows, policy=policy)
    for window, one in zip(windows, found, strict=True):
        inside = (every >= window.start_ns) & (every < window.end_ns)
        assert one.n_samples == np.count_nonzero(inside), window
        if not inside.any():
            assert one.problems[0] == "no sample lies inside"
            continue
        joules, coulombs = made.joules_and_coulombs(window, hold_ns)
        # Times are rounded to a nanosecond: of a few watts, a few nanojoules for each edge.
        assert one.energy_j == pytest.approx(joules, abs=4e-9, rel=2e-8), window
        assert one.charge_c == pytest.approx(coulombs, abs=2e-9, rel=2e-8), window
        assert sum(one.range_energy_j) == pytest.approx(one.energy_j)
        gaps = [(int(t[-1]) + hold_ns, int(after[0])) for t, after in itertools.pairwise(times)]
        lost = [lost for _, _, lost in LAYOUT[1:]]
        overlap_s = [max(0, min(b, window.end_ns) - max(a, window.start_ns)) * 1e-9 for a, b in gaps]
        bridged = sum(s for s, n in zip(overlap_s, lost, strict=True) if n)
        assert one.bridged_s == pytest.approx(bridged, abs=1e-9)
        share = sum(s * (1 if averages else n / (n + 1)) for s, n in zip(overlap_s, lost, strict=True) if n)
        assert one.lost_fraction == pytest.approx(share / window.duration_s, abs=1e-9)
        assert one.loss_known == (not any(s > 0 for s, n in zip(overlap_s, lost, strict=True) if n is None))


@pytest.mark.parametrize("uniform", [True, False])
def test_which_windows_a_long_gap_breaks(tmp_path: Path, uniform: bool) -> None:
    made = Made(tmp_path / "r", uniform=uniform, bent=False)
    times = [np.rint(t).astype(np.int64) for t, _ in made.batches]
    gaps = [(int(t[-1]), int(after[0])) for t, after in itertools.pairwise(times)]
    # Of 4, 71, 5, 68, 91 and 3 ms; nothing was lost in the fifth.
    index = EnergyIndex(made.recording, GapPolicy())
    assert index.broken.tolist() == [False, True, False, True, False, False]
    assert index.lost.tolist() == [3, 70, -1, -1, 0, 2]
    assert index.between_ns.tolist() == [b - a for a, b in gaps]
    windows, broken = [], []
    for number, (a, b) in enumerate(gaps):
        for start, end in (
            (a - 5, a),
            (a - 5, a + 1),
            (a + 7, b - 7),
            (b - 1, b + 5),
            (b, b + 5),
            (a - 9, b + 9),
        ):
            windows.append(Window(start, end))
            broken.append(number in (1, 3) and start < b and end > a)
    found = index.sums(windows)
    assert found.broken.tolist() == broken
    exact = GapPolicy(bridge_up_to_s=float(index.between_ns[1]) * 1e-9)
    assert not EnergyIndex(made.recording, exact).broken.any()
    # The energy up to a break and from it on is known.
    (before, after) = integrate_recording(
        made.recording, [Window(times[0][0], gaps[1][0]), Window(gaps[1][1], gaps[3][0])]
    )
    for one in (before, after):
        joules, _ = made.joules_and_coulombs(Window(one.start_ns, one.end_ns))
        assert one.energy_j == pytest.approx(joules, rel=1e-7)


def test_power_of_samples_and_their_numbers(tmp_path: Path) -> None:
    made = Made(tmp_path / "r", uniform=True, bent=False)
    index = EnergyIndex(made.recording)
    whole = np.concatenate([v[0] for _, v in made.batches])
    times = np.concatenate([np.rint(t) for t, _ in made.batches]).astype(np.int64)
    for start, end in (
        (0, 1),
        (3, 3),
        (5, 41),
        (39, 40),
        (40, 70),
        (69, 92),
        (100, 160),
        (150, len(times) - 1),
    ):
        found = index.power_w(int(times[start]), int(times[end]))
        assert found.tolist() == pytest.approx(whole[start:end].tolist())
    assert index.power_w(int(times[0]) - 99, int(times[-1]) + 99).tolist() == pytest.approx(whole.tolist())
    numbers = np.concatenate([first + np.arange(n) for first, n, _ in LAYOUT])
    windows = [
        Window(int(times[a]), int(times[b])) for a, b in ((0, 1), (5, 41), (39, 71), (60, 130), (160, 200))
    ]
    sums = index.sums(windows)
    assert sums.first_index.tolist() == [numbers[a] for a in (0, 5, 39, 60, 160)]
    assert sums.last_index.tolist() == [numbers[b - 1] for b in (1, 41, 71, 130, 200)]
    assert sums.span_ns == (times[0], times[-1])
    none = index.sums([])
    assert (none.integrals.shape, none.span_ns) == ((5, 0), None)


def test_a_recording_without_samples(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    writer = RecordingWriter(tmp_path / "r", info(accuracy=TWO), config(), started_ns=START_NS)
    writer.close(Timebase(ticks=(0, 1), host_ns=(0, 1)), ())
    (found,) = integrate_recording(open_recording(tmp_path / "r"), [Window(3, 4)])
    assert found.problems == ("the recording holds no sample",)


def test_averages_of_batches_that_touch_leave_nothing_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 1 ms, the next batch begins where the last one ends: 0 ns between, which is not backwards."""
    monkeypatch.setattr(f"{__name__}.LAYOUT", ((0, 10, 0), (10, 7, 0), (17, 4, 0)))
    monkeypatch.setattr("power.recording.writer.BATCH_SAMPLES", 5)
    made = Made(tmp_path / "r", uniform=True, averages=True, bent=False)
    index = EnergyIndex(made.recording, GapPolicy())
    assert len(index.between_ns) >= 2
    assert not index.between_ns.any()
    assert not index.broken.any()
    whole = Window(START_NS, START_NS + 21_000_000)
    (found,) = integrate_recording(made.recording, [whole])
    assert (found.n_samples, found.bridged_s, found.lost_fraction) == (21, 0.0, 0.0)
    assert found.energy_j == pytest.approx(made.joules_and_coulombs(whole, 1_000_000)[0], rel=1e-9)
