import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import DataQualityError, MeterDisconnected, MeterSilent, StorageError
from joulefleet.runstore.run import is_locked
from power.meters.replay import ReplayMeter
from power.model import SampleBlock, Severity
from power.recording import open_recording, salvage_recording, verify_hashes
from power.recording.recorder import record
from tests.power.synthetic import BytesMeter, config, frames, samples_of, write_recording

NOISE = np.random.default_rng(3).normal(0.5, 0.01, 20_000).astype(np.float32)


def portions(samples: int, step: int = 100) -> list[bytes]:
    return [frames(i, NOISE[i : i + step]) for i in range(0, samples, step)]


def endless() -> Iterator[bytes]:
    for i in itertools.count():
        time.sleep(0.01)
        yield frames(10 * i, NOISE[i % 1000 : i % 1000 + 10])


def codes(folder: Path) -> dict[str, Severity]:
    return {f.code: f.severity for f in open_recording(folder).record.findings}


def test_everything_that_arrives_is_on_disk(tmp_path: Path) -> None:
    sent = portions(5000)
    shown: list[int] = []
    with BytesMeter(sent) as meter:
        done = record(meter, tmp_path / "r", config=config(), on_block=lambda b: shown.append(len(b)))
    recording = open_recording(tmp_path / "r")
    stored = samples_of(recording.blocks())
    assert (tmp_path / "r" / "raw.bin").read_bytes() == b"".join(sent)
    np.testing.assert_array_equal(stored["current_a"], NOISE[:5000])
    np.testing.assert_array_equal(stored["ticks"], np.arange(5000))
    assert (done.n_samples, done.dropped, sum(shown)) == (5000, 0, 5000)
    assert done == recording.record
    assert done.config == config()
    assert verify_hashes(recording) == []
    assert not is_locked(tmp_path / "r")


def test_a_gap_is_counted_once_although_driver_and_checks_both_see_it(tmp_path: Path) -> None:
    with BytesMeter([frames(0, NOISE[:50]), frames(57, NOISE[:50])]) as meter:
        done = record(meter, tmp_path)
    assert done.dropped == 7
    assert [(f.code, f.count, f.first_index) for f in done.findings] == [("gap", 7, 57)]


def test_it_stops_by_the_time_of_the_samples(tmp_path: Path) -> None:
    source = write_recording(tmp_path / "source", blocks_of_a_second(10))
    with ReplayMeter(source, speed=0) as meter:
        done = record(meter, tmp_path / "r", seconds=3.5)
    assert done.n_samples == 4000  # whole blocks of a second, and no wait of 3.5 s


def blocks_of_a_second(count: int) -> list[SampleBlock]:
    from tests.power.synthetic import block

    return [block(NOISE[:1000], first_index=1000 * i) for i in range(count)]


def test_it_stops_when_told_to_from_another_thread(tmp_path: Path) -> None:
    stop = threading.Event()
    with BytesMeter(endless()) as meter:
        done = record(meter, tmp_path, stop=stop, on_block=lambda b: b.first_index < 200 or stop.set())
    assert done.n_samples > 200
    assert "interrupted" not in {finding.code for finding in done.findings}


def test_it_stops_by_the_host_clock(tmp_path: Path) -> None:
    # By their own clock the samples hardly move: a microsecond each.
    with BytesMeter(endless(), tick_hz=1e6, rate_hz=1e6) as meter:
        done = record(meter, tmp_path, seconds=0.3)
    assert done.n_samples > 0


def slow() -> Iterator[bytes]:
    """A reading every 0.4 s, which is a long silence between them."""
    for i in range(3):
        for _ in range(8):
            time.sleep(0.05)
            yield b""
        yield frames(i, NOISE[i : i + 1])


def test_a_slow_instrument_is_not_a_silent_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.meters.streaming.STALL_S", 0.1)
    monkeypatch.setattr("power.recording.recorder.FIRST_SAMPLE_S", 0.1)
    with BytesMeter(slow(), rate_hz=2.5) as meter:
        assert record(meter, tmp_path / "slow").n_samples == 3
    with BytesMeter(slow()) as meter, pytest.raises(MeterSilent):  # a thousand readings per second
        record(meter, tmp_path / "silent")


def test_a_disconnect_keeps_every_sample_and_says_where(tmp_path: Path) -> None:
    lost = MeterDisconnected("unplugged", hint="plug it in")
    with (
        BytesMeter([*portions(3000), lost]) as meter,
        pytest.raises(
            MeterDisconnected, match=r"unplugged; the 3000 samples before it are in .*/r"
        ) as caught,
    ):
        record(meter, tmp_path / "r")
    assert caught.value.hint == "plug it in"
    recording = open_recording(tmp_path / "r")
    np.testing.assert_array_equal(samples_of(recording.blocks())["current_a"], NOISE[:3000])
    (finding,) = recording.record.findings
    assert (finding.code, finding.severity, finding.last_index) == ("disconnected", Severity.ERROR, 2999)


def test_a_clock_that_leapt_leaves_a_recording_that_can_be_salvaged(tmp_path: Path) -> None:
    """As if this machine's clock had stood still for half an hour of the instrument's."""

    def leaping() -> Iterator[bytes]:
        yield from portions(1000)
        time.sleep(0.3)
        for tick in range(1_801_000, 2_201_000, 100_000):  # long enough to count as a segment of its own
            yield frames(tick, NOISE[:100])
            time.sleep(0.1)

    with (
        BytesMeter(leaping()) as meter,
        pytest.raises(DataQualityError, match="one has leapt") as caught,
    ):
        record(meter, tmp_path)
    assert "salvage" in caught.value.hint
    assert not is_locked(tmp_path)
    salvaged = salvage_recording(tmp_path)
    assert salvaged is not None
    stored = samples_of(open_recording(tmp_path).blocks())["current_a"]
    np.testing.assert_array_equal(stored[:1000], NOISE[:1000])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(tmp_path: Path, bad: float) -> None:
    values = NOISE[:2000].copy()
    values[1234] = bad
    with (
        BytesMeter([frames(0, values)]) as meter,
        pytest.raises(DataQualityError, match="sample 1234 is not"),
    ):
        record(meter, tmp_path)
    np.testing.assert_array_equal(samples_of(open_recording(tmp_path).blocks())["current_a"], NOISE[:1234])
    assert codes(tmp_path) == {"not_finite": Severity.ERROR}


def test_ctrl_c_finishes_the_recording(tmp_path: Path) -> None:
    def interrupt(_: SampleBlock) -> None:
        raise KeyboardInterrupt

    with BytesMeter(portions(1000)) as meter, pytest.raises(KeyboardInterrupt):
        record(meter, tmp_path, on_block=interrupt)
    assert open_recording(tmp_path).record.n_samples > 0
    assert codes(tmp_path) == {"interrupted": Severity.INFO}


def test_a_display_that_fails_does_not_cost_the_data(tmp_path: Path) -> None:
    def broken(_: SampleBlock) -> None:
        raise ZeroDivisionError("in the display")

    with BytesMeter(portions(1000)) as meter, pytest.raises(ZeroDivisionError) as caught:
        record(meter, tmp_path, on_block=broken)
    assert str(tmp_path) in caught.value.__notes__[0]
    assert open_recording(tmp_path).record.n_samples > 0
    assert codes(tmp_path) == {"capture_failed": Severity.ERROR}


def test_no_sample_at_all_is_an_error_and_the_bytes_are_kept(tmp_path: Path) -> None:
    with BytesMeter([b"half a frame"]) as meter, pytest.raises(MeterSilent, match="not a single sample"):
        record(meter, tmp_path)
    assert (tmp_path / "raw.bin").read_bytes() == b"half a frame"
    with pytest.raises(StorageError, match="was not finished"):
        open_recording(tmp_path)
    assert salvage_recording(tmp_path) is None


def test_no_sample_at_all_says_what_the_driver_saw(tmp_path: Path) -> None:
    with BytesMeter([b"half a frame"]) as meter:
        meter._own_findings.add("odd", Severity.WARNING, "once", count=1)
        meter._own_findings.add("noise", Severity.WARNING, "lines of noise", count=70)
        with pytest.raises(MeterSilent, match=r"not a single sample \(lines of noise, 70 times\)"):
            record(meter, tmp_path)


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    before = write_recording(tmp_path, blocks_of_a_second(1)).record
    with BytesMeter(portions(100)) as meter, pytest.raises(StorageError, match="holds a recording already"):
        record(meter, tmp_path)
    assert open_recording(tmp_path).record == before


def test_a_living_recording_cannot_be_salvaged(tmp_path: Path) -> None:
    refused: list[str] = []

    def salvage(_: SampleBlock) -> None:
        try:
            salvage_recording(tmp_path)
        except StorageError as error:
            refused.append(error.message)

    with BytesMeter(portions(500)) as meter:
        record(meter, tmp_path, on_block=salvage)
    assert refused
    assert open_recording(tmp_path).record.n_samples == 500


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from joulefleet.errors import StorageFull
from power.recording.recorder import record
from tests.power.test_recorder import BytesMeter, portions
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    with BytesMeter(portions(20_000)) as meter:
        record(meter, Path(sys.argv[1]))
except StorageFull as error:
    print(json.dumps([error.message, error.hint]))
"""


@pytest.mark.parametrize("limit", [20_000, 75_000, 100_000, 319_900])
def test_a_full_disk_keeps_what_was_written(tmp_path: Path, limit: int) -> None:
    # A limit on the size of a file is refused at the same place as a full disk, without needing one.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    message, hint = json.loads(done.stdout)
    assert "no space left" in message
    assert "salvage" in hint
    salvaged = salvage_recording(tmp_path)
    if (tmp_path / "recording.json").exists():  # what came before the disk was full may have been finished
        salvaged = open_recording(tmp_path).record
    if salvaged is None:
        assert not samples_on_disk(tmp_path)
        return
    stored = samples_of(open_recording(tmp_path).blocks())["current_a"]
    assert salvaged.n_samples == len(stored)
    np.testing.assert_array_equal(stored, NOISE[: len(stored)])


def samples_on_disk(folder: Path) -> int:
    from joulefleet.runstore import table_rows

    return table_rows(folder / "samples.arrows")
