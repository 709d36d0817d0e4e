"""Nothing arrives for a while: what was lost is counted where it was lost, or the stretch is an error."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import MeterSilent
from power.emulated.options import EmulatorOptions
from power.emulated.service import in_thread
from power.energy.index import integrate_recording
from power.energy.windows import Window
from power.meter import MeterConfig, open_meter
from power.meters.streaming import StreamingMeter
from power.model import Finding, Severity
from power.recording import open_recording
from power.recording.recorder import record
from power.wire.decoder import Decoded
from power.wire.lvpm import LvpmDecoder
from tests.power.lvpm_link import KEPT_SAMPLES, NUMBERS, RATE_HZ, Link, Stall
from tests.power.lvpm_reference import STEP_V

LENGTHS_S = (0.3, 0.9, 1.1, 2.1)


def decoded(link: Link) -> tuple[list[Decoded], tuple[Finding, ...]]:
    unit = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=RATE_HZ)
    blocks = [block for arrival_ns, data in link.portions() for block in unit.feed(data, arrival_ns)]
    return blocks + unit.finish(), unit.findings


def wrong_numbers(blocks: list[Decoded]) -> np.ndarray:
    """Ticks of the samples whose number is not the true one."""
    ticks = np.concatenate([block.ticks for block in blocks])
    told = np.rint(np.concatenate([block.voltage_v for block in blocks]) / STEP_V / 4).astype(int)
    return ticks[ticks % NUMBERS != told]


def losses(blocks: list[Decoded]) -> list[tuple[int, int]]:
    return [(b.first_index, b.dropped_before) for b in blocks if b.dropped_before]


@pytest.mark.parametrize("cause", ["device", "host"])
@pytest.mark.parametrize("at_s", [0.02, 0.3, 2.0])
@pytest.mark.parametrize("seconds", [0.07, *LENGTHS_S])
def test_a_loss_is_counted_where_it_was(cause: str, at_s: float, seconds: float) -> None:
    """Also one of more than the 256 samples that the instrument's counter counts."""
    link = Link(at_s + seconds + 0.5, (Stall(at_s, seconds, cause),), seed=round(1000 * seconds))
    blocks, findings = decoded(link)
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == link.lost
    assert [finding.code for finding in findings] == []


def many_stalls(seed: int, apart_s: float) -> Link:
    """Stalls of up to 0.45 s by a clock that is off, seen by a busy host."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.uniform(apart_s, apart_s + 1.0, 10))
    lengths_s, causes = rng.uniform(0.05, 0.45, 10), rng.choice(["device", "host"], 10)
    stalls = (Stall(*each) for each in zip(at_s.tolist(), lengths_s.tolist(), causes.tolist(), strict=True))
    skew_ppm = float(rng.uniform(-500, 500))
    return Link(float(at_s[-1]) + 1.5, tuple(stalls), skew_ppm=skew_ppm, jitter_s=0.004, seed=seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_several_stalls_are_each_counted(seed: int) -> None:
    link = many_stalls(seed, 0.9)
    blocks, findings = decoded(link)
    assert sum(count % 256 > 0 for _, count in link.lost) == len(link.lost) > 5
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == link.lost
    assert [finding.code for finding in findings] == []


@pytest.mark.parametrize("seed", range(3))
def test_stalls_in_quick_succession_are_counted_or_errors(seed: int) -> None:
    link = many_stalls(seed, 0.46)
    blocks, findings = decoded(link)
    assert {finding.code for finding in findings} <= {"unplaced_gap"}
    marked = [finding.touches(int(tick), int(tick)) for tick in wrong_numbers(blocks) for finding in findings]
    assert all(marked)
    assert marked or losses(blocks) == link.lost


@pytest.mark.parametrize(("turns", "at_s"), [(1, 1.0), (2, 0.3), (41, 1.0)])
def test_a_loss_that_leaves_no_trace_is_an_error_where_it_lies(turns: int, at_s: float) -> None:
    """Whole turns of the counter: only time shows them. Behind the stretch every number is right."""
    for extra in range(-16, 16):  # until it is just that many
        link = Link(at_s + 6.5, (Stall(at_s, (KEPT_SAMPLES + 256 * turns + extra) / RATE_HZ),))
        if [count for _ in link.reads() for _, count in link.lost[:1]][-1:] == [256 * turns]:
            break
    link.lost.clear()
    blocks, findings = decoded(link)
    assert [count for _, count in link.lost] == [256 * turns]
    (error,) = findings
    assert (error.code, error.severity, error.count) == ("unplaced_gap", Severity.ERROR, 256 * turns)
    assert error.first_index is not None
    assert error.last_index is not None
    assert error.first_index <= link.lost[0][0] <= error.last_index
    assert error.last_index - error.first_index < 0.3 * RATE_HZ + 256 * turns
    wrong = wrong_numbers(blocks)
    assert ((wrong >= error.first_index) & (wrong <= error.last_index)).all()
    assert sum(count for _, count in losses(blocks)) == 256 * turns


def test_the_end_of_a_recording_behind_a_stall_is_an_error_if_its_loss_is_not_certain() -> None:
    link = Link(3.1, (Stall(2.0, 1.05),))
    blocks, findings = decoded(link)
    wrong = wrong_numbers(blocks)
    assert [finding.code for finding in findings] == ["unplaced_gap"]
    assert findings[0].touches(int(blocks[-1].ticks[-1]), int(blocks[-1].ticks[-1]))
    assert all(findings[0].touches(int(tick), int(tick)) for tick in wrong)


@pytest.mark.parametrize("late_s", [0.03, 0.08, 0.3])
def test_reads_that_are_late_lose_nothing(late_s: float) -> None:
    """A host that is away for less than the kernel keeps, again and again."""
    stalls = tuple(Stall(0.5 + 0.4 * i, min(late_s, 0.09), "host") for i in range(8))
    blocks, findings = decoded(Link(5.0, stalls, jitter_s=0.002))
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == []
    assert findings == ()


@pytest.mark.parametrize(("late_s", "ends_s"), [(0.026, 9.0), (0.029, 9.0), (0.029, 2.0)])
def test_a_link_that_stays_late_by_less_than_a_turn_has_lost_nothing(late_s: float, ends_s: float) -> None:
    """An overloaded machine: from some moment on no read is on time. A whole turn would be later still."""
    rng = np.random.default_rng(3)
    unit = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=RATE_HZ)
    blocks: list[Decoded] = []
    portions = list(Link(ends_s).portions())
    began_ns, waiting, read_ns = portions[0][0], b"", 0
    for arrival_ns, data in portions:
        waiting += data
        if arrival_ns < began_ns + 1.5e9:
            blocks += unit.feed(data, arrival_ns)
            waiting = b""
        elif arrival_ns > read_ns:  # everything that had come until a while ago, then nothing for 60 ms
            blocks += unit.feed(b"", arrival_ns + round(late_s * 1e9))
            blocks += unit.feed(waiting, arrival_ns + round((late_s + rng.exponential(0.003)) * 1e9))
            waiting, read_ns = b"", arrival_ns + 60_000_000
    blocks += unit.finish()
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == []
    assert unit.findings == ()


def starved(
    link: Link, late_s: Iterable[tuple[float, float]], spread_s: float, seed: int
) -> tuple[list[Decoded], tuple[Finding, ...]]:
    """A link whose reads are late, without losing more for it: by how much at least, up to each moment.

    So an emulated instrument looks that does not get the processor, or a guest that falls behind.
    """
    rng = np.random.default_rng(seed)
    unit = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=RATE_HZ)
    blocks: list[Decoded] = []
    waiting, free_s = b"", 0.0
    for arrival_ns, data in link.portions():
        at_s, waiting = arrival_ns * 1e-9 - 1000, waiting + data
        if at_s < free_s:
            continue
        late = next((late for until_s, late in late_s if at_s < until_s), 0.0)
        if late:
            late += float(rng.uniform(0, spread_s))
            blocks += unit.feed(b"", arrival_ns + round(late * 1e9))
        blocks += unit.feed(waiting, arrival_ns + round(late * 1e9))
        waiting, free_s = b"", at_s + late
    return blocks + unit.finish(), unit.findings


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("late_s", [0.03, 0.2])
def test_a_link_that_is_late_in_the_beginning_has_nothing_too_many(late_s: float, seed: int) -> None:
    """What was taken for the shortest delay was none."""
    blocks, findings = starved(Link(4.0), [(1.4, late_s)], 0.02, seed)
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == []
    assert [finding for finding in findings if finding.severity is not Severity.INFO] == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("late_s", [0.04, 0.1])
def test_a_loss_at_the_end_of_a_late_beginning_is_believed(late_s: float, seed: int) -> None:
    """It comes sooner than the delays so far allow for; these were too long."""
    link = Link(2.5, (Stall(0.86, 0.05),), seed=seed)
    blocks, findings = starved(link, [(0.9, late_s)], 0.02, seed)
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == link.lost != []
    assert findings == ()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("seconds", [2.2, 8.0])
@pytest.mark.parametrize("late_s", [0.04, 0.11, 0.3])
def test_a_link_that_stays_late_by_more_than_a_turn_has_lost_nothing(
    late_s: float, seconds: float, seed: int
) -> None:
    """Its delays vary; behind a loss they are as even as before. Also at the end, where none is on time."""
    blocks, findings = starved(Link(seconds), [(1.5, 0.0), (99.0, late_s)], 0.06, seed)
    assert len(wrong_numbers(blocks)) == 0
    assert losses(blocks) == []
    assert {(finding.code, finding.severity) for finding in findings} <= {("late_data", Severity.INFO)}


# In real time, through the driver: a finding, and windows that are right or invalid.


def away(meter: StreamingMeter, at_s: float, seconds: float) -> None:
    """Let the reader sleep once, as a busy or suspended host does."""
    read, began_s, slept = meter.read_bytes, time.monotonic(), itertools.count()

    def sleepy() -> bytes:
        if time.monotonic() - began_s > at_s and not next(slept):
            time.sleep(seconds)
        return read()

    meter.read_bytes = sleepy  # type: ignore[method-assign]


def limits(kind: str, port: str) -> MeterConfig:
    values = {"kind": kind, "port": port, "voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 3.0}
    return MeterConfig.model_validate(values)


def recorded(folder: Path, kind: str, seconds: float, cause: str, stall_s: float, at_s: float) -> None:
    faults = (f"stall@{at_s}:{stall_s}",) if cause == "device" else ()
    options = EmulatorOptions(signal="square:low=0.1,high=0.5,period=0.2", faults=faults)
    with in_thread(kind, options) as unit, open_meter(limits(kind, unit.address)) as meter:
        assert isinstance(meter, StreamingMeter)
        if cause == "host":
            away(meter, at_s, stall_s)
        record(meter, folder, config=meter.config, seconds=seconds)


def pause_of(folder: Path) -> Finding | None:
    """The pause; of an INA219 the kernel may have kept everything."""
    findings = open_recording(folder).record.findings
    severities = {"pause": Severity.WARNING, "late_data": Severity.INFO}
    found = [f for f in findings if f.code in severities]
    assert all(f.severity is severities[f.code] for f in found)
    return max(found, key=lambda f: f.code, default=None)


CASES = [
    ("monsoon-lvpm", "device", 0.7),
    # The kernel keeps some 0.45 s. At 0.5 s about 256 samples are lost, a whole turn of the counter: then an
    # error marks what lies behind instead (`test_a_loss_that_leaves_no_trace_is_an_error_where_it_lies`).
    ("monsoon-lvpm", "host", 0.58),
    ("monsoon-hvpm", "device", 0.3),
    ("monsoon-hvpm", "host", 0.6),
    ("ina219", "host", 0.3),
]


@pytest.mark.usefixtures("real_time")
@pytest.mark.parametrize(("kind", "cause", "stall_s"), CASES)
def test_a_pause_is_a_finding_at_its_place_and_times_behind_it_are_right(
    tmp_path: Path, kind: str, cause: str, stall_s: float
) -> None:
    recorded(tmp_path, kind, 2.1 + stall_s, cause, stall_s, 1.0)
    pause = pause_of(tmp_path)
    assert pause is not None
    assert pause.first_index is not None
    recording = open_recording(tmp_path)
    first_ns = int(recording.block(0).t_ns[0])
    blocks = list(recording.blocks())
    t_s = (np.concatenate([b.t_ns for b in blocks]) - first_ns) * 1e-9
    index = np.concatenate([b.first_index + np.arange(len(b)) for b in blocks])
    around = index[(t_s > 0.9) & (t_s < 1.4 + stall_s)]
    assert pause.touches(int(around[0]), int(around[-1]))
    # The square wave is a clock of its own: the times of its edges, before and behind the pause.
    current_a = np.concatenate([b.current_a for b in blocks])
    edges_s = t_s[1:][np.diff((current_a > 0.3).astype(int)) > 0]
    edges_s = edges_s[(edges_s < 0.9) | (edges_s > 1.5 + stall_s)]
    # (Where a busy machine loses samples too, an edge may be missed.)
    turn = np.exp(2j * np.pi * edges_s / 0.2)
    off_s = np.angle(turn / np.mean(turn)) / (2 * np.pi) * 0.2
    # (A loss of a whole turn of the counter, which a busy machine may cause, is an error where it lies.)
    untold = [f for f in recording.record.findings if f.code == "unplaced_gap"]
    if not any(f.severity is Severity.ERROR and f.touches(int(around[0]), int(index[-1])) for f in untold):
        for some in (edges_s < 0.9, edges_s > 1.5 + stall_s):
            assert np.sum(some) > 0
            assert np.median(np.abs(off_s[some])) < 0.01
    touched = Window(first_ns + round(0.8e9), first_ns + round((1.3 + stall_s) * 1e9), "touched")
    (energy,) = integrate_recording(recording, [touched])
    assert not energy.valid or any("nothing arrived" in note for note in energy.notes)


@pytest.mark.parametrize("kind", ["monsoon-lvpm", "ina219"])
def test_silence_at_the_end_is_a_finding(tmp_path: Path, kind: str) -> None:
    recorded(tmp_path, kind, 1.6, "host", 0.8, 1.2)
    pause = pause_of(tmp_path)
    assert pause is not None
    assert "nothing arrived" in pause.message


# Nothing but what is no sample


def first_bytes(kind: str, folder: Path) -> bytes:
    """What an emulated instrument sends first."""
    recorded(folder, kind, 0.3, "host", 0.0, 9.0)
    return (folder / "raw.bin").read_bytes()


@pytest.mark.parametrize(
    ("kind", "size", "words"),
    [
        ("monsoon-lvpm", 119 * 20, "20 calibration packets"),
        ("monsoon-hvpm", 40 * 22, r"1 invalid observations, \d+ calibrations"),
        ("ina219", 0, "1 headers"),
    ],
)
def test_bytes_without_a_sample_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int, words: str
) -> None:
    """It calibrates, or says who it is, and then falls silent."""
    data = first_bytes(kind, tmp_path / "first")
    data = data[: size or data.index(b"\n") + 1]
    monkeypatch.setattr("power.meters.streaming.STALL_S", 0.4)
    with in_thread(kind, EmulatorOptions()) as unit, open_meter(limits(kind, unit.address)) as meter:
        assert isinstance(meter, StreamingMeter)
        left = [data]
        meter.read_bytes = lambda: left.pop() if left else (time.sleep(0.01), b"")[1]  # type: ignore[method-assign]
        said = rf"no data for .*; {len(data)} bytes arrived, but not a single sample \(.*{words}"
        with pytest.raises(MeterSilent, match=said):
            record(meter, tmp_path / "r", config=meter.config)
