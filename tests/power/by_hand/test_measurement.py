"""What limits the knowledge of a window's energy, by a second way: loops over plain lists."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from joulefleet.errors import ConfigError, DataQualityError
from power.energy.measurement import _bridging_j2, _errors, measure_windows
from power.energy.recorded import measure_energy
from power.energy.windows import GapPolicy, Window
from power.model import AVERAGES_FACT, SampleBlock
from power.recording import Recording
from tests.power.synthetic import START_NS, block, write_recording

MS = 1_000_000
ANY_LOSS = GapPolicy(bridge_up_to_s=1.0, max_lost_fraction=1.0)
STEPS = [(0, 60, 0.2), (63, 40, 0.1), (108, 90, 0.4), (199, 75, 0.05), (276, 50, 0.3), (340, 60, 0.15)]
"""First sample, number of samples and noise of each batch: gaps of 3, 5, 1, 2 and 14 samples."""


def span(start_ms: float, end_ms: float) -> Window:
    return Window(START_NS + round(start_ms * MS), START_NS + round(end_ms * MS))


def batches() -> list[SampleBlock]:
    rng, end, found = np.random.default_rng(5), 0, []
    for first, n, noise in STEPS:
        current = 1.0 + rng.normal(0, noise, n) + (np.arange(n) > n // 3) * 0.7
        found.append(block(current, first_index=first, dropped_before=first - end))
        end = first + n
    return found


def powers() -> list[list[float]]:
    """Of each batch, watts: 32-bit amperes at 4 V."""
    return [(4.0 * part.current_a.astype(float)).tolist() for part in batches()]


def noise_variance(power: list[float]) -> float:
    """White noise of every sample, and a twelfth of the squared steps that it does not explain."""
    steps = [b - a for a, b in itertools.pairwise(power)]
    bends = [abs(b - a) for a, b in itertools.pairwise(steps)]
    white = (median(bends) / 0.6745) ** 2 / 6 if bends else 0.0
    squares = sum(step**2 for step in steps)
    return len(power) * white + max(0.0, squares - 2 * len(power) * white) / 12


def test_noise_of_whole_batches_and_of_parts_of_them(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, batches())
    a, b, c, d, *_ = powers()
    cases = {
        (10, 50): [a[10:50]],
        (0, 60): [a],
        (0, 59): [a[:59]],  # the last sample is its end
        (0.5, 59.5): [a[1:]],
        (20, 150): [a[20:], b, c[:42]],
        (63, 150): [b, c[:42]],
        (62.5, 102): [b[:39]],
        (64, 198): [b[1:], c],
        (0, 230): [a, b, c, d[:31]],
    }
    found = measure_windows(
        recording, [span(*case) for case in cases], sync_uncertainty_s=0.0, policy=ANY_LOSS
    )
    for one, (case, parts) in zip(found, cases.items(), strict=True):
        expected = math.sqrt(sum(noise_variance(part) for part in parts)) * 1e-3
        assert one.noise_j == pytest.approx(expected, rel=1e-9), case
    (outside,) = measure_windows(recording, [span(-5, 20)], sync_uncertainty_s=0.0)
    assert (outside.noise_j, outside.earlier_j, outside.later_j, outside.loss_j) == (0, 0, 0, 0)
    assert (outside.beside_s, outside.beside_j) == (0, 0)


def test_jumps_alone_and_noise_alone(tmp_path: Path) -> None:
    """One jump of 2 W: a twelfth of its square. Steps up and down by 1 W: noise, and no jump is left."""
    jump = write_recording(tmp_path / "a", [block([0.5] * 10 + [1.0] * 10)])
    (found,) = measure_windows(jump, [span(0, 19)], sync_uncertainty_s=0.0)
    assert found.noise_j == pytest.approx(math.sqrt(4 / 12) * 1e-3)
    shaken = write_recording(tmp_path / "b", [block([0.5, 0.75] * 10)])
    (found,) = measure_windows(shaken, [span(0, 19)], sync_uncertainty_s=0.0)
    white = (2 / 0.6745) ** 2 / 6  # second differences of 2 W
    assert found.noise_j == pytest.approx(math.sqrt(19 * white) * 1e-3)


def test_what_a_moved_window_gains(tmp_path: Path) -> None:
    """1 W, then 3 W from 50 ms on; moved by 4 ms."""
    recording = write_recording(tmp_path / "fast", [block([0.25] * 50 + [0.75] * 51)])
    rising, flat, first, last = measure_windows(
        recording, [span(20, 51), span(60, 80), span(2, 40), span(70, 98)], sync_uncertainty_s=0.004
    )
    # The line from 1 to 3 W is between 49 and 50 ms.
    assert rising.energy.energy_j == pytest.approx((29 + 2 + 3) * 1e-3)
    assert rising.earlier_j == pytest.approx((31 - 34) * 1e-3)
    assert rising.later_j == pytest.approx((25 + 2 + 15 - 34) * 1e-3)
    assert (flat.earlier_j, flat.later_j) == pytest.approx((0, 0), abs=1e-12)
    assert first.earlier_j == pytest.approx(4e-3)  # leaves the recording: all of its power
    assert first.later_j == pytest.approx(0.0, abs=1e-12)
    assert last.later_j == pytest.approx(12e-3)
    # By a second, to the nanosecond.
    slow = write_recording(tmp_path / "slow", [block(np.arange(3001) / 1000)])
    (moved,) = measure_windows(slow, [span(1000, 2000)], sync_uncertainty_s=1.0)
    assert (moved.earlier_j, moved.later_j) == pytest.approx((-4.0, 4.0), rel=1e-10)


def test_errors_of_straight_lines() -> None:
    power = np.array([1.0, 2.0, 4.0, 8.0])
    assert _errors(power, 1, averages=False).tolist() == pytest.approx([2.5 - 2.25, 5.0 - 4.5])
    assert _errors(power, 1, averages=True).tolist() == pytest.approx([2.5 - 2.0, 5.0 - 4.0])
    assert _errors(power, 2, averages=False).tolist() == pytest.approx([4.5 - 10.5 / 3])
    assert _errors(power, 2, averages=True).tolist() == pytest.approx([4.5 - 3.0])


def slow_errors(power: list[float], lost: int, *, averages: bool) -> list[float]:
    found = []
    for j in range(len(power) - lost - 1):
        inside = power[j : j + lost + 2]
        line = (inside[0] + inside[-1]) / 2
        mean = sum(inside[1:-1]) / lost
        if not averages:
            mean = (sum(inside) - line) / (lost + 1)
        found.append(line - mean)
    return found


def slow_loss_j2(pool: list[list[float]], lost: int, gaps_s: list[float], *, averages: bool = False) -> float:
    errors = [e for power in pool for e in slow_errors(power, lost, averages=averages)]
    squares = sum(gap**2 for gap in gaps_s)
    if not errors:
        values = [value for power in pool for value in power]
        return (max(values) - min(values)) ** 2 / 12 * squares
    spread = sum(e**2 for e in errors) / len(errors) * squares
    if len(gaps_s) > 32:
        return spread
    drawn = np.random.default_rng(0).integers(len(errors), size=(4000, len(gaps_s))).tolist()
    sums = [abs(sum(errors[i] * gap for i, gap in zip(row, gaps_s, strict=True))) for row in drawn]
    return max(spread, (float(np.quantile(sums, 0.95)) / 1.959963984540054) ** 2)


RARE = [0.0] * 20 + [9.0] + [0.0] * 12
"""One burst: few sums of errors have it, and those that have are large."""


@pytest.mark.parametrize("averages", [False, True])
@pytest.mark.parametrize("pool", [powers(), [RARE, RARE[8:]]])
def test_what_gaps_may_hide_by_a_second_way(pool: list[list[float]], averages: bool) -> None:
    lengths = [0.002 + 0.0001 * i for i in range(33)]
    for lost, n in ((1, 1), (1, 3), (2, 32), (2, 33), (4, 12), (3, 2)):
        found = _bridging_j2([np.array(p) for p in pool], lost, np.array(lengths[:n]), averages=averages)
        assert found == pytest.approx(slow_loss_j2(pool, lost, lengths[:n], averages=averages), rel=1e-9)


def test_a_stretch_that_is_just_long_enough() -> None:
    gaps = np.array([0.004, 0.003])
    short = [[1.0, 2.0, 4.0], [7.0, 3.0]]
    arrays = [np.array(p) for p in short]
    assert _bridging_j2(arrays, 1, gaps, averages=False) == pytest.approx(0.25**2 * 25e-6)
    # None is long enough for two: anywhere from 1 to 7 W.
    assert _bridging_j2(arrays, 2, gaps, averages=False) == pytest.approx(36 / 12 * 25e-6)


def test_the_loss_of_a_window_is_that_of_its_gaps_and_of_its_longest_batches(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, batches())
    a, b, c, d, _, f = powers()
    gap_s = [0.004, 0.006, 0.002, 0.003, 0.015]
    cases = {
        (0, 100): ([a, b], {3: gap_s[:1]}),
        (10, 180): ([c, a, b], {3: gap_s[:1], 5: gap_s[1:2]}),
        (10, 399): ([c, d, a, f], dict(zip((3, 5, 1, 2, 14), ([g] for g in gap_s), strict=True))),
        (61, 62.5): ([b], {3: gap_s[:1]}),
        (59, 63): ([b], {3: gap_s[:1]}),
        (59, 64): ([b], {3: gap_s[:1]}),
        (58.5, 63.5): ([a, b], {3: gap_s[:1]}),
        (62.5, 150): ([c, b], {3: gap_s[:1], 5: gap_s[1:2]}),
        (63, 150): ([c, b], {5: gap_s[1:2]}),
    }
    found = measure_windows(
        recording, [span(*case) for case in cases], sync_uncertainty_s=0.0, policy=ANY_LOSS
    )
    for one, (case, (pool, gaps)) in zip(found, cases.items(), strict=True):
        expected = math.sqrt(sum(slow_loss_j2(pool, lost, g) for lost, g in gaps.items()))
        assert one.loss_j == pytest.approx(expected, rel=1e-9), case
    (clean,) = measure_windows(recording, [span(5, 50)], sync_uncertainty_s=0.0)
    assert clean.loss_j == 0.0


def test_gaps_of_equal_length_are_summed_and_averages_have_their_own_rule(tmp_path: Path) -> None:
    rng, parts, end = np.random.default_rng(8), [], 0
    for first in range(0, 200, 22):
        parts.append(block(rng.gamma(1.0, 0.3, 20), first_index=first, dropped_before=first - end))
        end = first + 20
    parts.append(block([0.3, 0.4, 0.2, 0.3, 0.1], first_index=end + 4))  # a pause, in which nothing is lost
    recording = write_recording(tmp_path, parts, facts={AVERAGES_FACT: True})
    pool = [(4.0 * part.current_a.astype(float)).tolist() for part in parts[:4]]
    for end_ms, gaps in ((196, 8), (226, 9)):
        (found,) = measure_windows(recording, [span(0, end_ms)], sync_uncertainty_s=0.0, policy=ANY_LOSS)
        expected = math.sqrt(slow_loss_j2(pool, 2, [0.002] * gaps, averages=True))
        assert found.loss_j == pytest.approx(expected, rel=1e-9)


def ramp(folder: Path, **facts: bool) -> Recording:
    """From 0 to 4 W in a second."""
    return write_recording(folder, [block(np.arange(1001) / 1000)], facts=facts)


def test_a_stretch_of_a_recording(tmp_path: Path) -> None:
    recording = ramp(tmp_path / "r")
    for given in (recording, tmp_path / "r", str(tmp_path / "r")):
        whole = measure_energy(given)
        assert whole.energy.energy_j == pytest.approx(2.0)
        assert (whole.window.start_ns, whole.window.end_ns) == (START_NS, START_NS + 1000 * MS)
    part = measure_energy(recording, 0.25, 0.75)
    assert part.energy.energy_j == pytest.approx(2 * (0.75**2 - 0.25**2))
    assert (part.window.start_ns, part.window.end_ns) == (START_NS + 250 * MS, START_NS + 750 * MS)
    assert part.budget is not None
    assert part.interval.mean == pytest.approx(1.0)
    assert part.interval.high - 1.0 == pytest.approx(part.budget.half_width_j)
    assert part.budget.parts["clock"].standard_j == 0.0
    assert measure_energy(recording, None, 0.5).energy.energy_j == pytest.approx(0.5)
    assert measure_energy(recording, 0.5).energy.energy_j == pytest.approx(1.5)
    assert measure_energy(recording, 0.75).window.start_ns == START_NS + 750 * MS
    assert measure_energy(recording, 0.0, 1.0).energy.energy_j == pytest.approx(2.0)


def test_what_is_known_of_the_readings_is_told(tmp_path: Path) -> None:
    recording = ramp(tmp_path)
    vars(recording)["notes"] = ("calibrated long ago",)
    budget = measure_energy(recording).budget
    assert budget is not None
    assert "calibrated long ago" in budget.notes


def test_averages_last_until_their_end(tmp_path: Path) -> None:
    whole = measure_energy(ramp(tmp_path, **{AVERAGES_FACT: True}))
    assert whole.window.end_ns == START_NS + 1001 * MS
    assert whole.energy.energy_j == pytest.approx(4 * 1e-6 * 1000 * 1001 / 2)


@pytest.mark.parametrize(
    ("start_s", "end_s", "said"),
    [
        (-0.25, 0.5, "-0.25 s to 0.5 s"),
        (0.5, 1.25, "0.5 s to 1.25 s"),
        (0.5, 0.5, "0.5 s to 0.5 s"),
        (None, -0.5, "0 s to -0.5 s"),
        (2.0, None, "2 s to 1 s"),
        (math.nan, None, "nan s to 1 s"),
        (None, math.inf, "0 s to inf s"),
        (0.25, math.nan, "0.25 s to nan s"),
        (-math.inf, 0.5, "-inf s to 0.5 s"),
    ],
)
def test_no_such_stretch(tmp_path: Path, start_s: float | None, end_s: float | None, said: str) -> None:
    with pytest.raises(ConfigError, match=f"no time from {said}") as error:
        measure_energy(ramp(tmp_path), start_s, end_s)
    assert error.value.hint == "it lasts 1.000 s"


def test_a_stretch_that_must_not_be_used_has_no_interval(tmp_path: Path) -> None:
    parts = [block([0.5] * 100), block([0.5] * 100, first_index=150, dropped_before=50)]
    found = measure_energy(write_recording(tmp_path / "a", parts))
    assert found.budget is None
    assert math.isnan(found.interval.mean)
    assert not found.energy.valid
    with pytest.raises(DataQualityError, match="holds no samples"):
        measure_energy(write_recording(tmp_path / "b", []))
