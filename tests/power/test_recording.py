import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulefleet.errors import StorageError
from joulefleet.provenance import Origin
from joulefleet.runstore import RunStore, salvage_run
from power.energy import Window, integrate_recording
from power.model import SampleBlock
from power.recording import (
    BATCH_SAMPLES,
    OPENING_FILE,
    RECORDING_FILE,
    RecordingWriter,
    open_recording,
    salvage_recording,
    verify_hashes,
)
from power.recording.recorder import record
from power.recording.redecode import DECODERS
from power.timebase import QUARTZ_TOLERANCE_PPM, TOLERANCE_FACT
from power.wire.decoder import Decoded
from tests.power.lvpm_reference import FINE_ZERO, STEP_V, packet, reference_packet, zero_packet
from tests.power.synthetic import (
    START_NS,
    BytesMeter,
    block,
    config,
    frames,
    info,
    samples_of,
    timebase,
    write_recording,
)

NOISE = np.random.default_rng(4).normal(0.5, 0.01, 100_000).astype(np.float32)


LENGTHS_AND_LOSSES = st.lists(
    st.tuples(st.integers(1, 40_000), st.sampled_from([0, 0, 1, 500])), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=LENGTHS_AND_LOSSES)
def test_what_is_written_is_read_back(tmp_path_factory, parts: list[tuple[int, int]]) -> None:
    blocks, index = [], 0
    for length, lost in parts:
        index += lost
        blocks.append(block(NOISE[:length], first_index=index, dropped_before=lost))
        index += length
    recording = write_recording(tmp_path_factory.mktemp("r"), blocks)
    for one_by_one in (recording.blocks(), (recording.block(i) for i in range(len(recording)))):
        stored = samples_of(one_by_one)
        for name, values in samples_of(blocks).items():
            np.testing.assert_array_equal(stored[name], values)
    assert recording.record.dropped == sum(lost for _, lost in parts)
    assert max(len(b) for b in recording.blocks()) <= BATCH_SAMPLES
    # Losses stand where they were, and nowhere else.
    assert {b.first_index: b.dropped_before for b in recording.blocks() if b.dropped_before} == {
        b.first_index: b.dropped_before for b in blocks if b.dropped_before
    }


def test_ticks_that_are_not_uniform_are_kept(tmp_path: Path) -> None:
    part = block(NOISE[:1000])
    part.ticks[:] = np.cumsum(np.random.default_rng(1).integers(900, 1100, 1000))
    recording = write_recording(tmp_path, [part], uniform_ticks=False, tick_hz=1e6)
    np.testing.assert_array_equal(samples_of(recording.blocks())["ticks"], part.ticks)


def test_a_hole_in_which_nothing_was_lost_keeps_its_place(tmp_path: Path) -> None:
    """An HVPM calibrates in the place of measurements: ticks pass, no sample is dropped."""
    parts = [block(NOISE[:100]), block(NOISE[:100], first_index=103), block(NOISE[:100], first_index=203)]
    recording = write_recording(tmp_path, parts)
    np.testing.assert_array_equal(samples_of(recording.blocks())["ticks"], samples_of(parts)["ticks"])
    assert recording.record.dropped == 0


def test_an_unknown_loss_stays_unknown(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, [block(NOISE[:10], dropped_before=None)])
    assert recording.record.dropped is None
    assert next(recording.blocks()).dropped_before is None
    assert recording.record.provenance("x").loss_fraction is None


@pytest.mark.parametrize(
    ("kind", "emulated", "origin"),
    [
        ("monsoon-lvpm", False, Origin.MEASURED),
        ("import:powertool-csv", False, Origin.IMPORTED),
        ("replay:monsoon-lvpm", False, Origin.IMPORTED),
        ("monsoon-lvpm", True, Origin.EMULATED),
        ("replay:monsoon-lvpm", True, Origin.EMULATED),
    ],
)
def test_what_may_be_claimed(tmp_path: Path, kind: str, emulated: bool, origin: Origin) -> None:
    recording = write_recording(tmp_path, [block(NOISE[:10])], kind=kind, emulated=emulated)
    assert recording.record.provenance("job-1").origin is origin


@pytest.mark.parametrize("name", ["samples.arrows", "blocks.parquet"])
def test_an_edit_of_the_data_is_seen(tmp_path: Path, name: str) -> None:
    recording = write_recording(tmp_path, [block(NOISE[:1000])])
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    assert verify_hashes(recording) == [name]


def test_samples_that_are_missing_are_not_passed_over(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, [block(NOISE[:50_000])])
    whole = (tmp_path / "samples.arrows").read_bytes()
    (tmp_path / "samples.arrows").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match="are not readable"):
        list(recording.blocks())


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no recording here"):
        open_recording(tmp_path)
    assert salvage_recording(tmp_path) is None


RECORD_UNTIL_KILLED = """
import sys
from pathlib import Path
from joulefleet.runstore import RunStore
from power.recording.recorder import record
from tests.power.test_recorder import BytesMeter, endless

def tell(block):
    print(block.first_index, len(block), flush=True)

if sys.argv[2] == "run":
    run = RunStore(Path(sys.argv[1])).create("killed", kind="test").__enter__()
    folder = run.subfolder("jobs/0001")
else:
    folder = Path(sys.argv[1]) / "alone"
with BytesMeter(endless()) as meter:
    record(meter, folder, on_block=tell)
"""


@pytest.mark.parametrize("place", ["run", "alone"])
def test_a_killed_recording_loses_at_most_its_last_second(tmp_path: Path, place: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", RECORD_UNTIL_KILLED, str(tmp_path), place], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    seen = largest = 0
    for line in child.stdout:
        first, length = map(int, line.split())
        seen, largest = first + length, max(largest, length)
        if seen > 2500:
            os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    (opening,) = tmp_path.rglob(OPENING_FILE)
    folder = opening.parent
    with pytest.raises(StorageError, match="was not finished") as caught:
        open_recording(folder)
    assert "meter salvage" in caught.value.hint
    if place == "run":
        (run,) = RunStore(tmp_path).list()
        salvage_run(run.path)
    record = salvage_recording(folder)
    assert record is not None
    assert record.n_samples > seen - 1000 - 2 * largest  # a second, and blocks still on their way
    # Nobody else can decode the bytes of this instrument.
    assert [finding.code for finding in record.findings] == ["salvaged", "driver_findings_lost"]
    recording = open_recording(folder)
    stored = samples_of(recording.blocks())
    np.testing.assert_array_equal(stored["ticks"], np.arange(record.n_samples))
    assert verify_hashes(recording) == []
    assert (folder / "raw.bin").stat().st_size >= 16 * record.n_samples
    assert salvage_recording(folder) is None  # nothing more to do


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples_kept=st.floats(0, 1), blocks_kept=st.floats(0, 1))
def test_a_power_cut_keeps_what_both_tables_have(
    tmp_path_factory, samples_kept: float, blocks_kept: float
) -> None:
    """The disk may have any part of either file: what belongs together is recovered, the rest is cut."""
    folder = tmp_path_factory.mktemp("cut")
    writer = RecordingWriter(folder, info(), None, started_ns=START_NS)
    for i in range(5):
        writer.append(block(NOISE[: 1000 + i], first_index=2000 * i, dropped_before=i))
    writer.abandon()
    for name, kept in (("samples.arrows", samples_kept), ("blocks.arrows", blocks_kept)):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: round(kept * len(data))])
    record = salvage_recording(folder)
    if record is None:
        assert not (folder / RECORDING_FILE).exists()
        assert min(samples_kept, blocks_kept) < 0.5
        return
    recording = open_recording(folder)
    stored = list(recording.blocks())
    assert len(stored) == len(recording)
    np.testing.assert_array_equal(recording.block(len(stored) - 1).current_a, stored[-1].current_a)
    assert record.n_samples == sum(map(len, stored))
    for i, part in enumerate(stored):
        np.testing.assert_array_equal(part.current_a, NOISE[: 1000 + i])
        assert (part.first_index, part.dropped_before) == (2000 * i, i)


def test_salvaged_times_come_from_the_best_of_the_provisional_ones(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, info(), None, started_ns=START_NS)
    for i in range(10):  # the fit starts 20 ms late and gets better
        part = block(NOISE[:1001], first_index=1001 * i)
        part.t_ns[:] += round(20e6 / (1 + i))
        writer.append(part)
    writer.abandon()
    assert salvage_recording(tmp_path) is not None
    error_ns = samples_of(open_recording(tmp_path).blocks())["t_ns"] - (
        START_NS + np.arange(10_010) * 1_000_000
    )
    assert np.abs(error_ns).max() < 10e6  # a line through the first and the last would be 20 ms off


def test_salvaged_times_keep_to_the_tolerance_of_the_clock(tmp_path: Path) -> None:
    quartz = info(facts={TOLERANCE_FACT: QUARTZ_TOLERANCE_PPM})
    writer = RecordingWriter(tmp_path, quartz, None, started_ns=START_NS)
    for i in range(20):  # a second each, by a host that falls behind by 2 ms
        part = block(NOISE[:1001], first_index=1001 * i)
        part.t_ns[:] += 2_000_000 * i
        writer.append(part)
    writer.abandon()
    salvaged = salvage_recording(tmp_path)
    assert salvaged is not None
    assert salvaged.timebase.tick_hz == pytest.approx(1000, rel=501e-6)


def test_a_salvaged_recording_still_knows_its_errors(tmp_path: Path) -> None:
    """What the samples show, and what the instrument's bytes say: windows there must not become valid."""
    reading = (FINE_ZERO + 1000 & ~1, 0, 0, round(4.0 / STEP_V))
    stream = [zero_packet(0), reference_packet(1)]
    stream += [packet(i, 0, [reading] * 7, flags=0x30 if i == 1000 else 0x20) for i in range(2, 2000)]
    facts = {"voltage_step_v": STEP_V}
    known = info(kind="monsoon-lvpm", rate_hz=5000.0, tick_hz=5000.0, facts=facts)
    writer = RecordingWriter(tmp_path, known, config(current_limit_a=1.0), started_ns=START_NS)
    decoder = DECODERS.load("monsoon-lvpm")(known)
    for i in range(0, len(stream), 100):
        data, arrival_ns = b"".join(stream[i : i + 100]), START_NS + (i + 100) * 1_400_000
        writer.write(data, arrival_ns)
        for part in decoder.feed(data, arrival_ns):
            part.current_a[part.ticks == 5000] = 1.5
            t_ns = START_NS + part.ticks * 200_000
            writer.append(SampleBlock(t_ns=t_ns, **{name: getattr(part, name) for name in Decoded.__slots__}))
    writer.abandon()
    salvaged = salvage_recording(tmp_path)
    assert salvaged is not None
    errors = {f.code: (f.first_index, f.last_index) for f in salvaged.findings if f.severity == "error"}
    assert errors == {"over_current": (6986, 6992), "above_current_limit": (5000, 5000)}
    windows = [Window(START_NS + a * 10**8, START_NS + (a + 2) * 10**8) for a in (4, 9, 13)]
    found = integrate_recording(open_recording(tmp_path), windows)
    assert [energy.valid for energy in found] == [True, False, False]


def test_a_raw_file_survives_a_failing_table(tmp_path: Path) -> None:
    """After a batch could not be written, closing refuses: it would store half of it twice."""
    writer = RecordingWriter(tmp_path, info(), None, started_ns=START_NS)
    writer.append(block(NOISE[:1500]))
    writer.write(frames(0, NOISE[:1500]), START_NS)
    os.close(writer._blocks._fd)
    writer.append(block(NOISE[:10], first_index=1500))
    with pytest.raises(StorageError):
        writer.flush()
    writer._blocks._fd = -1
    with pytest.raises(StorageError, match="could not be written"):
        writer.close(timebase(1500), ())
    writer.abandon()
    assert salvage_recording(tmp_path).n_samples == 1500
    assert (tmp_path / "raw.bin").read_bytes() == frames(0, NOISE[:1500])


def test_a_recorded_meter_refits_the_same_times_from_its_own_bytes(tmp_path: Path) -> None:
    """The stored arrivals are those the fit used, so the whole capture can be computed again."""
    from joulefleet.runstore import read_table
    from power.timebase import TimebaseFitter
    from tests.power.synthetic import FRAME, FrameDecoder

    sent = [frames(100 * i, NOISE[:100]) for i in range(50)]
    with BytesMeter(sent) as meter:
        done = record(meter, tmp_path)
    raw = (tmp_path / "raw.bin").read_bytes()
    fitter, decoder, start = TimebaseFitter(1000.0), FrameDecoder(), 0
    for row in read_table(tmp_path, "arrivals").to_pylist():
        decoded = decoder.feed(raw[start : row["end_offset"]], row["arrival_ns"])
        fitter.add(int(decoded[-1].ticks[-1]), row["arrival_ns"])
        start = row["end_offset"]
    assert start == 5000 * FRAME.itemsize
    assert fitter.fit() == done.timebase
