"""Pictures of recordings: against every sample, and while they grow."""

from pathlib import Path

import numpy as np
import pytest

from power.energy import integrate_recording
from power.energy.windows import Window
from power.recording import GrowingRecording, RecordingWriter, extremes_w, recording_envelope, view
from power.recording.envelope import CELL_SAMPLES
from tests.power.synthetic import START_NS, block, config, info, samples_of, timebase, write_recording

RNG = np.random.default_rng(7)
CURRENT = RNG.gamma(2.0, 0.2, 9_000)


def blocks() -> list:
    """Three, 40 samples lost before the last."""
    return [
        block(CURRENT[:2_000], 4.0),
        block(CURRENT[2_000:5_000], 3.8, first_index=2_000),
        block(CURRENT[5_000:], 4.1, first_index=5_040, dropped_before=40),
    ]


@pytest.mark.parametrize("most", [1, 7, 300, 100_000])
@pytest.mark.parametrize(("start", "end"), [(0.0, 9.1), (0.5, 0.6), (1.9, 5.2), (4.9, 5.03), (8.0, 8.0005)])
def test_a_view_has_the_extremes_of_what_it_shows(
    tmp_path: Path, start: float, end: float, most: int
) -> None:
    recording = write_recording(tmp_path / "r", blocks())
    start_ns, end_ns = START_NS + round(start * 1e9), START_NS + round(end * 1e9)
    seen = view(recording, recording_envelope(recording), start_ns, end_ns, most)
    samples = samples_of(recording.blocks())
    power = samples["current_a"].astype(np.float64) * samples["voltage_v"]
    inside = (samples["t_ns"] >= start_ns) & (samples["t_ns"] <= end_ns)
    assert 0 < len(seen) <= most
    # A view made of cells may show up to a cell more at either end.
    reach_ns = CELL_SAMPLES * 1_000_000 if len(seen) == most else 0
    around = (samples["t_ns"] >= start_ns - reach_ns) & (samples["t_ns"] <= end_ns + reach_ns)
    assert power[around].min() * (1 - 1e-6) <= seen.low_w.min() <= power[inside].min() * (1 + 1e-6)
    assert power[inside].max() * (1 - 1e-6) <= seen.high_w.max() <= power[around].max() * (1 + 1e-6)
    assert (np.diff(seen.first_ns) > 0).all()
    assert (seen.last_ns[:-1] < seen.first_ns[1:]).all()
    if most == 100_000:
        assert len(seen) == inside.sum(), "samples, where there are few"


@pytest.mark.parametrize(("start", "end"), [(0.0, 9.1), (0.5, 0.6), (1.9, 5.2), (4.9, 5.03), (8.0, 8.0005)])
def test_extremes_are_those_of_the_samples_inside(tmp_path: Path, start: float, end: float) -> None:
    recording = write_recording(tmp_path / "r", blocks())
    envelope = recording_envelope(recording)
    start_ns, end_ns = START_NS + round(start * 1e9), START_NS + round(end * 1e9)
    samples = samples_of(recording.blocks())
    power = samples["current_a"].astype(np.float64) * samples["voltage_v"]
    inside = power[(samples["t_ns"] >= start_ns) & (samples["t_ns"] <= end_ns)]
    assert extremes_w(recording, envelope, start_ns, end_ns) == pytest.approx(
        (inside.min(), inside.max()), rel=1e-6
    )
    assert extremes_w(recording, envelope, START_NS - 10, START_NS - 5) is None


def test_a_view_of_nothing_is_empty(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "r", blocks())
    gap_ns = START_NS + 5_010_000_000
    assert len(view(recording, recording_envelope(recording), gap_ns, gap_ns + 1000, 10)) == 0


def test_a_recording_is_followed_while_it_grows(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, info(), config(), started_ns=START_NS)
    growing = GrowingRecording(tmp_path)
    assert not growing.refresh()
    assert (growing.power_w, growing.last_ns, growing.energy_j) == (None, None, 0.0)
    seen = []
    for part in blocks():
        writer.append(part)
        writer.flush()
        assert growing.refresh()
        assert not growing.refresh(), "nothing is read twice"
        power = part.current_a.astype(np.float64) * part.voltage_v
        assert growing.power_w == pytest.approx(power.mean())
        assert growing.last_ns == part.t_ns[-1]
        seen.append(growing.n_samples)
    assert seen == [2_000, 5_000, 9_000]
    assert growing.lost == 40
    writer.close(timebase(9_040), ())
    assert not growing.refresh(), "what was closed has nothing new"
    late = GrowingRecording(tmp_path)
    while late.refresh():
        pass
    assert (late.n_samples, late.energy_j) == (9_000, pytest.approx(growing.energy_j))
    recording = write_recording(tmp_path / "whole", blocks())
    windows = [
        Window(START_NS, START_NS + 4_999_000_000),
        Window(START_NS + 5_040_000_000, START_NS + 9_039_000_000),
    ]
    whole = sum(one.energy_j or 0.0 for one in integrate_recording(recording, windows))
    assert growing.energy_j == pytest.approx(whole, rel=1e-9), "without the gap"
    seen_ns = growing.envelope.last_ns - growing.envelope.first_ns
    assert seen_ns.max() == 49_000_000, "fifty samples of a millisecond"
    assert growing.envelope.low_w.min() == recording_envelope(recording).low_w.min()
    assert growing.envelope.high_w.max() == recording_envelope(recording).high_w.max()


def test_a_torn_batch_is_waited_for(tmp_path: Path) -> None:
    first, second, _ = blocks()
    writer = RecordingWriter(tmp_path, info(), config(), started_ns=START_NS)
    writer.append(first)
    writer.flush()
    growing = GrowingRecording(tmp_path)
    assert growing.refresh()
    writer.append(second)
    writer.flush()
    index = (tmp_path / "blocks.arrows").read_bytes()
    (tmp_path / "blocks.arrows").write_bytes(index[:-20])
    assert not growing.refresh()
    (tmp_path / "blocks.arrows").write_bytes(index)
    assert growing.refresh()
    assert growing.n_samples == 5_000


def test_losses_that_nobody_counted_are_unknown(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, info(), config(), started_ns=START_NS)
    writer.append(block([0.5] * 100, dropped_before=None))
    writer.flush()
    growing = GrowingRecording(tmp_path)
    assert growing.refresh()
    assert growing.lost is None
