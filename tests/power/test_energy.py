from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError, StorageError
from power.energy import GapPolicy, Window, WindowEnergy, integrate, integrate_recording
from power.model import (
    Accuracy,
    Finding,
    FindingLog,
    InstrumentInfo,
    Loss,
    RangeAccuracy,
    SampleBlock,
    Severity,
)
from power.recording import Recording, RecordingWriter, open_recording, salvage_recording
from power.timebase import Timebase

START_NS = 10**15
LENIENT = GapPolicy(bridge_up_to_s=10.0, max_lost_fraction=1.0)

TWO_RANGES = Accuracy(
    current=(
        RangeAccuracy(name="fine", up_to_a=0.3, gain_rel=0.01, offset_a=1e-4),
        RangeAccuracy(name="coarse", gain_rel=0.01, offset_a=1e-3),
    ),
    voltage_gain_rel=0.001,
    voltage_offset_v=0.001,
    source="test",
)


def info_of(rate_hz: int = 1000, *, uniform: bool = True, **more: Any) -> InstrumentInfo:
    return InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=rate_hz,
        tick_hz=rate_hz if uniform else 1_000_000,
        uniform_ticks=uniform,
        accuracy=TWO_RANGES,
        **more,
    )


def block_of(
    current_a: Any, voltage_v: Any = 4.0, *, first: int = 0, dropped: int | None = 0, rate_hz: int = 1000
) -> SampleBlock:
    """Samples at a whole rate from tick ``first`` on."""
    current = np.asarray(current_a, np.float32)
    ticks = np.arange(first, first + len(current))
    return SampleBlock(
        t_ns=START_NS + ticks * (10**9 // rate_hz),
        ticks=ticks,
        current_a=current,
        voltage_v=np.broadcast_to(np.float32(voltage_v), current.shape),
        first_index=first,
        dropped_before=dropped,
    )


def record(
    folder: Path,
    blocks: list[SampleBlock],
    info: InstrumentInfo,
    timebase: Timebase | None = None,
    findings: tuple[Finding, ...] = (),
) -> Recording:
    folder.mkdir(parents=True, exist_ok=True)
    writer = RecordingWriter(folder, info, None, started_ns=START_NS)
    for block in blocks:
        writer.append(block)
    period_ns = 10**9 // round(info.tick_hz)
    straight = Timebase(ticks=(0, 10**6), host_ns=(START_NS, START_NS + 10**6 * period_ns))
    writer.close(timebase or straight, findings)
    return open_recording(folder)


def at(second: float) -> int:
    return START_NS + round(second * 1e9)


def both(
    recording: Recording, windows: list[Window], policy: GapPolicy = LENIENT
) -> list[tuple[WindowEnergy, WindowEnergy]]:
    """The same windows from the index and from the stream."""
    by_index = integrate_recording(recording, windows, policy=policy)
    by_stream = integrate(
        recording.blocks(),
        windows,
        recording.record.info,
        policy=policy,
        findings=recording.record.findings,
    )
    return list(zip(by_index, by_stream, strict=True))


def test_a_ramp_between_samples_is_integrated_exactly(tmp_path: Path) -> None:
    recording = record(tmp_path, [block_of(np.arange(5001) * 1e-4, 2.0)], info_of())  # P = 0.2 t watts
    spans = [(1.0, 2.0), (0.0, 5.0), (1.23456789, 4.0001234), (2.0007, 2.0016)]
    pairs = both(recording, [Window(at(a), at(b), f"{a}") for a, b in spans])
    for (a, b), found in zip(spans, pairs, strict=True):
        for energy in found:
            assert energy.energy_j == pytest.approx(0.1 * (b**2 - a**2), rel=1e-6)  # samples are 32 bit
            assert energy.charge_c == pytest.approx(0.05 * (b**2 - a**2), rel=1e-6)
            assert energy.mean_power_w == pytest.approx(0.1 * (a + b), rel=1e-6)


def test_power_is_volts_times_amperes_of_each_sample(tmp_path: Path) -> None:
    # Voltage drops while current flows: the product of the means would be 4 % too high.
    current = np.tile([0.0, 0.0, 1.0, 1.0], 500)
    recording = record(tmp_path, [block_of(current, 5.0 - 0.4 * current)], info_of())
    for energy in both(recording, [Window(at(0.1), at(1.1))])[0]:
        assert energy.energy_j == pytest.approx(0.5 * 4.6, rel=1e-3)


def brute_force_j(recording: Recording, window: Window) -> float:
    """Independent of the code under test: every sample in memory, edges interpolated, one trapezoid."""
    blocks = list(recording.blocks())
    t_ns = np.concatenate([b.t_ns for b in blocks])
    power = np.concatenate([b.current_a.astype(float) * b.voltage_v.astype(float) for b in blocks])
    x = (t_ns - window.start_ns) * 1e-9
    inside = (x > 0) & (x < window.duration_s)
    grid = np.concatenate(([0.0], x[inside], [window.duration_s]))
    return float(np.trapezoid(np.interp(grid, x, power), grid))


def awkward_recording(folder: Path, seed: int, *, uniform: bool) -> Recording:
    """Noisy blocks of all lengths with gaps, on a timebase that bends inside batches."""
    rng = np.random.default_rng(seed)
    info = info_of(5000, uniform=uniform)
    step = round(info.tick_hz / info.rate_hz)
    blocks, index, tick = [], 0, 1234
    while index < 40_000:
        n = int(rng.integers(1, 700))
        dropped = int(rng.integers(1, 30)) if rng.random() < 0.05 else 0
        index, tick = index + dropped, tick + dropped * step
        steps = np.full(n, step) if uniform else rng.integers(step // 2, 3 * step // 2, n)
        ticks = tick + np.concatenate(([0], np.cumsum(steps[:-1])))
        blocks.append(
            SampleBlock(
                t_ns=START_NS + ticks * (10**9 // round(info.tick_hz)),
                ticks=ticks,
                current_a=rng.gamma(2, 0.15, n).astype(np.float32),
                voltage_v=rng.normal(4, 0.05, n).astype(np.float32),
                first_index=index,
                dropped_before=dropped,
            )
        )
        index, tick = index + n, int(ticks[-1]) + step
    knots = np.linspace(0, tick, 6).astype(np.int64)
    host_ns = START_NS + np.cumsum(np.diff(knots, prepend=0) * 1e9 / info.tick_hz * rng.normal(1, 1e-4, 6))
    timebase = Timebase(ticks=tuple(knots.tolist()), host_ns=tuple(host_ns.astype(np.int64).tolist()))
    return record(folder, blocks, info, timebase)


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_index_and_stream_agree(tmp_path: Path, seed: int, uniform: bool) -> None:
    recording = awkward_recording(tmp_path, seed, uniform=uniform)
    rng = np.random.default_rng(seed)
    times = np.concatenate([b.t_ns for b in recording.blocks()])
    low, high = int(times[0]) - 10**8, int(times[-1]) + 10**8
    edges = np.sort(rng.integers(low, high, (600, 2)), axis=1)
    edges[::3, 1] = edges[::3, 0] + rng.integers(0, 3_000_000, 200)  # a few samples, or none
    edges[::7] = np.sort(rng.choice(times, (len(edges[::7]), 2)), axis=1)  # exactly on samples
    windows = [Window(int(a), int(b), str(i)) for i, (a, b) in enumerate(edges)]
    compared = 0
    for by_index, by_stream in both(recording, windows, GapPolicy()):
        assert by_index.problems == by_stream.problems
        assert by_index.n_samples == by_stream.n_samples
        assert by_index.bridged_s == pytest.approx(by_stream.bridged_s, abs=1e-9)
        assert by_index.lost_fraction == pytest.approx(by_stream.lost_fraction, abs=1e-9)
        if by_index.energy_j is None or by_stream.energy_j is None:
            assert by_index.energy_j is by_stream.energy_j is None
            continue
        compared += 1
        assert by_index.energy_j == pytest.approx(by_stream.energy_j, rel=1e-9)
        assert by_index.charge_c == pytest.approx(by_stream.charge_c, rel=1e-9)
        assert by_index.range_energy_j == pytest.approx(by_stream.range_energy_j, rel=1e-9, abs=1e-12)
        assert sum(by_index.range_energy_j) == pytest.approx(by_index.energy_j, rel=1e-12)
    assert compared > 300


@pytest.mark.parametrize("uniform", [True, False])
def test_both_agree_with_brute_force(tmp_path: Path, uniform: bool) -> None:
    recording = awkward_recording(tmp_path, 4, uniform=uniform)
    rng = np.random.default_rng(4)
    windows = []
    for _ in range(50):
        start, length = rng.uniform(0.1, 3), rng.uniform(0.2, 4)
        windows.append(Window(at(start), at(start + length)))
    for window, found in zip(windows, both(recording, windows), strict=True):
        # Brute force sees times rounded to nanoseconds: half of one per step of the noisy power.
        expected = brute_force_j(recording, window)
        assert [e.energy_j for e in found] == pytest.approx([expected] * 2, rel=1e-7)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_stream_does_not_depend_on_block_size_or_window_order(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    current = rng.random(2000)
    cuts = sorted({0, 2000, *data.draw(st.lists(st.integers(1, 1999), max_size=8))})
    pieces = [block_of(current[a:b], first=a) for a, b in itertools.pairwise(cuts)]
    edges = np.sort(rng.uniform(0, 1.999, (20, 2)), axis=1)
    windows = [Window(at(a), at(b), str(i)) for i, (a, b) in enumerate(edges)]
    order = data.draw(st.permutations(range(20)))
    whole = integrate([block_of(current)], windows, info_of())
    cut = integrate(pieces, [windows[i] for i in order], info_of())
    for i, energy in zip(order, cut, strict=True):
        assert energy.label == whole[i].label
        assert (energy.n_samples, energy.problems) == (whole[i].n_samples, whole[i].problems)
        if energy.energy_j is not None:
            assert energy.energy_j == pytest.approx(whole[i].energy_j, rel=1e-9)


def test_a_short_gap_is_bridged_by_a_straight_line(tmp_path: Path) -> None:
    # 20 samples lost between 1 W and 3 W: 21 periods at 2 W on average.
    blocks = [block_of(np.full(1000, 0.25)), block_of(np.full(1000, 0.75), first=1020, dropped=20)]
    recording = record(tmp_path, blocks, info_of())
    policy = GapPolicy(max_lost_fraction=0.02)
    for energy in both(recording, [Window(at(0.5), at(1.5))], policy)[0]:
        assert energy.energy_j == pytest.approx(0.499 * 1 + 0.021 * 2 + 0.480 * 3, rel=1e-9)
        assert energy.bridged_s == pytest.approx(0.021)
        assert energy.lost_fraction == pytest.approx(0.020)
        assert energy.valid


def test_a_window_that_lost_more_than_allowed_is_invalid(tmp_path: Path) -> None:
    blocks = [block_of(np.full(1000, 0.25)), block_of(np.full(9000, 0.25), first=1011, dropped=11)]
    recording = record(tmp_path, blocks, info_of())
    windows = [Window(at(0), at(10)), Window(at(2), at(10))]
    for lossy, clean in zip(*both(recording, windows, GapPolicy()), strict=True):
        assert lossy.problems == ("0.110% of the samples were lost, 0.100% are allowed",)
        assert lossy.energy_j == pytest.approx(10.0)
        assert clean.valid
        assert clean.lost_fraction == 0.0


def test_a_long_gap_is_not_bridged(tmp_path: Path) -> None:
    blocks = [block_of(np.full(1000, 0.25)), block_of(np.full(1000, 0.25), first=1100, dropped=100)]
    recording = record(tmp_path, blocks, info_of())
    policy = GapPolicy(bridge_up_to_s=0.05, max_lost_fraction=1.0)
    windows = [Window(at(0.5), at(1.5)), Window(at(0.5), at(0.999)), Window(at(1.05), at(2))]
    for broken, before, from_inside in zip(*both(recording, windows, policy), strict=True):
        assert broken.energy_j is None
        assert broken.charge_c is None
        assert broken.mean_power_w is None
        assert broken.problems == ("a gap longer than 0.05 s lies inside",)
        assert before.valid
        assert from_inside.energy_j is None


def test_one_lost_sample_is_bridged_at_any_rate(tmp_path: Path) -> None:
    info = info_of(5)
    blocks = [
        block_of(np.full(50, 0.25), rate_hz=5),
        block_of(np.full(50, 0.25), first=51, dropped=1, rate_hz=5),
    ]
    recording = record(tmp_path, blocks, info)
    (found,) = both(recording, [Window(at(1), at(19))], GapPolicy())
    for energy in found:
        assert energy.energy_j == pytest.approx(18.0)
        assert energy.problems == ("1.111% of the samples were lost, 0.100% are allowed",)


def test_unknown_loss_is_stated_and_a_long_pause_breaks(tmp_path: Path) -> None:
    info = info_of(loss=Loss.UNKNOWN)
    blocks = [
        block_of(np.full(500, 0.25), dropped=None),
        block_of(np.full(500, 0.25), first=500, dropped=None),
        block_of(np.full(500, 0.25), first=1300, dropped=None),
    ]
    recording = record(tmp_path, blocks, info)
    windows = [Window(at(0.1), at(0.9)), Window(at(0.6), at(1.4))]
    for usable, broken in zip(*both(recording, windows, GapPolicy()), strict=True):
        assert usable.valid
        assert not usable.loss_known
        assert usable.notes == ("the instrument cannot tell whether samples were lost",)
        assert usable.energy_j == pytest.approx(0.8)
        assert broken.energy_j is None


def test_windows_outside_the_recording_are_no_number(tmp_path: Path) -> None:
    recording = record(tmp_path, [block_of(np.full(1001, 0.25))], info_of())
    windows = [
        Window(at(-0.5), at(0.5)),
        Window(at(0.5), at(1.25)),
        Window(at(2), at(3)),
        Window(at(-3), at(-2)),
        Window(at(0.5), at(0.5)),
        Window(at(0.6), at(0.5)),
        Window(at(0.5001), at(0.5009)),
        Window(at(0), at(1)),
    ]
    expected = [
        ("starts 0.5 s before the first sample",),
        ("ends 0.25 s after the last sample",),
        ("ends 2 s after the last sample",),
        ("starts 3 s before the first sample",),
        ("the window does not end after it starts",),
        ("the window does not end after it starts",),
        ("no sample lies inside",),
        (),
    ]
    for found in zip(*both(recording, windows), strict=True):
        assert [energy.problems for energy in found] == expected
        assert [energy.energy_j is None for energy in found] == [True] * 7 + [False]


def test_no_blocks_and_no_windows() -> None:
    assert integrate([], [], info_of()) == ()
    (empty,) = integrate([], [Window(0, 10)], info_of())
    assert empty.problems == ("the recording holds no sample",)
    assert integrate([block_of([0.1, 0.2])], [], info_of()) == ()


@pytest.mark.parametrize(
    ("place", "touched"),
    [((500, 500), [True, False]), ((900, 1500), [True, True]), ((None, None), [True, True])],
)
def test_an_error_finding_spoils_the_windows_it_touches(
    tmp_path: Path, place: tuple[int | None, int | None], touched: list[bool]
) -> None:
    finding = Finding(
        code="over_current",
        severity=Severity.ERROR,
        message="the supply shut down",
        first_index=place[0],
        last_index=place[1],
    )
    warning = Finding(code="clipping", severity=Severity.WARNING, message="at the end of the range")
    blocks = [block_of(np.full(2000, 0.25))]
    recording = record(tmp_path, blocks, info_of(), findings=(finding, warning))
    windows = [Window(at(0.1), at(0.95)), Window(at(1.0), at(1.9))]
    for found in zip(*both(recording, windows), strict=True):
        assert [not energy.valid for energy in found] == touched
        spoiled = next(energy for energy in found if not energy.valid)
        assert spoiled.problems == ("over_current: the supply shut down",)
        assert spoiled.energy_j is not None


def test_errors_at_both_ends_do_not_spoil_what_lies_between(tmp_path: Path) -> None:
    log = FindingLog()
    for index in (50, 1950):  # one sample while it boots, one while it shuts down
        log.add("clipping", Severity.ERROR, "the converter was at its limit", index=index)
    recording = record(tmp_path, [block_of(np.full(2000, 0.25))], info_of(), findings=log.as_tuple())
    windows = [Window(at(0), at(0.2)), Window(at(0.2), at(1.8)), Window(at(1.8), at(1.999))]
    for found in zip(*both(open_recording(recording.folder), windows), strict=True):
        assert [energy.valid for energy in found] == [False, True, False]


def test_energy_is_told_apart_by_range(tmp_path: Path) -> None:
    recording = record(tmp_path, [block_of([0.1] * 1000 + [0.5] * 1001)], info_of())
    for energy in both(recording, [Window(at(0), at(2))])[0]:
        assert energy.range_energy_j == pytest.approx((0.4, 2.0), rel=2e-3)
        assert energy.range_volt_s == pytest.approx((4.0, 4.0), rel=2e-3)


def test_a_provisional_time_that_steps_back_counts_as_no_time() -> None:
    first, second = block_of(np.full(1000, 0.25)), block_of(np.full(1000, 0.25), first=1000)
    earlier = SampleBlock(
        t_ns=second.t_ns - 5_000_000,
        ticks=second.ticks,
        current_a=second.current_a,
        voltage_v=second.voltage_v,
        first_index=1000,
        dropped_before=0,
    )
    (energy,) = integrate([first, earlier], [Window(at(0.5), at(1.5))], info_of())
    assert energy.energy_j == pytest.approx(1.0)


def test_stored_times_that_run_backwards_are_refused(tmp_path: Path) -> None:
    again = block_of(np.full(1000, 0.25), first=500, dropped=1)
    blocks = [block_of(np.full(1000, 0.25)), replace(again, first_index=1000)]
    recording = record(tmp_path / "ticks", blocks, info_of())
    with pytest.raises(DataQualityError, match="run backwards after batch 0"):
        integrate_recording(recording, [Window(at(0.1), at(0.2))])
    with pytest.raises(StorageError, match="column 'first_index' has values in another order"):
        record(tmp_path / "numbers", [blocks[0], again], info_of())


def test_a_salvaged_recording_gives_the_same_energy(tmp_path: Path) -> None:
    blocks = [block_of(np.full(700, 0.1 + i / 100), first=700 * i) for i in range(20)]
    writer = RecordingWriter(tmp_path, info_of(), None, started_ns=START_NS)
    for block in blocks:
        writer.append(block)
    writer.abandon()
    salvage_recording(tmp_path)
    recording = open_recording(tmp_path)
    window = Window(at(0.55), at(12.345))
    (expected,) = integrate(blocks, [window], info_of())
    for energy in both(recording, [window])[0]:
        assert energy.energy_j == pytest.approx(expected.energy_j, rel=1e-6)


def test_samples_that_do_not_match_the_index_are_refused(tmp_path: Path) -> None:
    recording = record(tmp_path, [block_of(np.full(5000, 0.25))], info_of())
    samples = tmp_path / "samples.arrows"
    samples.write_bytes(samples.read_bytes()[: samples.stat().st_size // 2])
    with pytest.raises(StorageError, match="batch 0"):
        integrate_recording(recording, [Window(at(0.5), at(1.0))])


def test_missing_samples_are_a_clear_error(tmp_path: Path) -> None:
    recording = record(tmp_path, [block_of(np.full(5000, 0.25))], info_of())
    (tmp_path / "samples.arrows").unlink()
    with pytest.raises(StorageError, match=r"samples\.arrows"):
        integrate_recording(recording, [Window(at(0.5), at(1.0))])
