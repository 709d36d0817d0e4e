"""Does the 95 % interval cover the truth 95 % of the time? Over synthetic captures with a known truth."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from power.energy import GapPolicy, Window
from power.energy.baseline import measure_baseline
from power.energy.measurement import measure_windows
from power.energy.uncertainty import EnergyBudget, MeasuredRecording, gross_energy, net_energy
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase
from tests.power.synthetic_captures import RANGE_BOUND_A, RATE_HZ, WORK_S, SyntheticCapture, draw

PERIOD_NS = 10**9 // RATE_HZ
# Far more loss than is allowed by default, so that it shows; where clusters meet, gaps are long.
POLICY = GapPolicy(bridge_up_to_s=0.5, max_lost_fraction=0.2)


def store(capture: SyntheticCapture, folder: Path) -> Recording:
    """The capture as a driver would have recorded it: a block for every tenth of a second without loss."""
    folder.mkdir()
    limits = capture.limits
    info = InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=RATE_HZ,
        tick_hz=RATE_HZ,
        uniform_ticks=True,
        accuracy=Accuracy(
            current=(
                RangeAccuracy(
                    name="fine", up_to_a=RANGE_BOUND_A, gain_rel=limits.gain[0], offset_a=limits.offset_a[0]
                ),
                RangeAccuracy(name="coarse", gain_rel=limits.gain[1], offset_a=limits.offset_a[1]),
            ),
            voltage_gain_rel=limits.voltage_gain,
            voltage_offset_v=limits.voltage_offset_v,
            source="synthetic",
        ),
    )
    writer = RecordingWriter(folder, info, None, started_ns=0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], capture.kept, [False]))))
    end = 0
    blocks = [
        (at, min(at + RATE_HZ // 10, stop))
        for start, stop in edges.reshape(-1, 2).tolist()
        for at in range(start, stop, RATE_HZ // 10)
    ]
    for start, stop in blocks:
        ticks = np.arange(start, stop)
        writer.append(
            SampleBlock(
                t_ns=ticks * PERIOD_NS,
                ticks=ticks,
                current_a=capture.current_a[start:stop],
                voltage_v=capture.voltage_v[start:stop],
                first_index=start,
                dropped_before=start - end,
            )
        )
        end = stop
    n = len(capture.kept)
    writer.close(Timebase(ticks=(0, n), host_ns=(0, n * PERIOD_NS)), ())
    return open_recording(folder)


def window(span_s: tuple[float, float], label: str = "") -> Window:
    return Window(round(span_s[0] * 1e9), round(span_s[1] * 1e9), label)


def estimates(capture: SyntheticCapture, folder: Path) -> Iterator[tuple[str, EnergyBudget, float, float]]:
    """Name, interval, truth and the oracle's half width (0 where there is no oracle)."""
    recording = store(capture, folder)
    windows = [window(span, f"work {i}") for i, span in enumerate(capture.windows_s)]
    evidence = measure_windows(
        recording, windows, sync_uncertainty_s=capture.sync_uncertainty_s, policy=POLICY
    )
    baseline = measure_baseline(
        recording, window(capture.idle_before_s), window(capture.idle_after_s), policy=POLICY
    )
    accuracy = recording.record.info.accuracy
    repeats, single = (
        MeasuredRecording(evidence, accuracy, baseline),
        MeasuredRecording(evidence[:1], accuracy, baseline),
    )
    truth_j = capture.true_window_j[0]
    yield "gross, repeats", gross_energy([repeats]), capture.expected_j, capture.oracle_gross_j
    yield "net, repeats", net_energy([repeats]), capture.expected_net_j, capture.oracle_net_j
    yield "gross, one window", gross_energy([single]), truth_j, 0.0
    net_j = truth_j - capture.true_idle_w[0] * windows[0].duration_s
    yield "net, one window", net_energy([single]), net_j, 0.0


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("errors", ["normal", "uniform"])
def test_interval_covers_the_truth(
    errors: str,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """``normal``: limits mean what they are defined to mean. ``uniform``: errors fill the limits evenly."""
    count = campaign_count(40 if errors == "normal" else 16, 1000)
    covered: defaultdict[str, list[bool]] = defaultdict(list)
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    for i in range(count):
        capture = draw(np.random.default_rng([20, i]), uniform_errors=errors == "uniform")
        for name, interval, truth_j, oracle_j in estimates(capture, tmp_path / "capture"):
            off_j = abs(interval.value_j - truth_j)
            covered[name].append(off_j <= interval.half_width_j)
            for part in interval.parts:
                covered[f"{name}, without {part}"].append(off_j <= interval.without(part).half_width_j)
            if oracle_j:
                ratios[name].append(interval.half_width_j / oracle_j)
        shutil.rmtree(tmp_path / "capture")
    record_property("captures", count)
    for name, hits in covered.items():
        record_property(f"covered: {name}", round(float(np.mean(hits)), 4))
    for name, values in ratios.items():
        record_property(f"median half width over the oracle's: {name}", round(float(np.median(values)), 3))

    for name in ("gross, repeats", "net, repeats", "gross, one window", "net, one window"):
        hits = covered[name]
        if count >= 1000 and errors == "normal":
            assert 0.93 <= np.mean(hits) <= 0.97, name
        else:  # too few to tell 93 from 97 %: inside what 95 % would give in 99.9 % of cases
            assert binomtest(sum(hits), len(hits), 0.95).pvalue > 0.001, name
    # Coverage tells little in a few captures; widths tell much. Who must estimate the errors cannot know the
    # energy better than the oracle, who is told them; and an interval that is far wider would cover anything.
    for name, values in ratios.items():
        assert 1.0 <= np.median(values) <= 1.3, name
    # Each part is there for a reason: without it, fewer intervals hold the truth.
    assert np.mean(covered["gross, repeats, without repeats"]) < 0.9
    assert np.mean(covered["gross, one window, without instrument"]) < 0.9


def test_the_generator_knows_its_own_truth() -> None:
    """Windows scatter about the expectation, and samples add up to the true energy but for the errors."""
    scatter, relative = [], []
    for i in range(40):
        capture = draw(np.random.default_rng([21, i]))
        scatter.append(np.mean(capture.true_window_j) / capture.expected_j - 1)
        first, last = (round(t * RATE_HZ) for t in capture.windows_s[2])
        sampled_j = float(np.mean(capture.current_a[first:last] * capture.voltage_v[first:last])) * WORK_S
        relative.append(sampled_j / capture.true_window_j[2] - 1)
    assert abs(np.mean(scatter)) < 4 * np.std(scatter) / math.sqrt(40)
    assert np.max(np.abs(relative)) < 0.06  # gain and offset limits of 2 %, a clock up to 0.15 s off
