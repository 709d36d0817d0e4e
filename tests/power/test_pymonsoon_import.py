from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError, JoulefleetError
from joulefleet.provenance import Origin
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.energy import measure_energy
from power.importers.files import import_recording
from power.importers.pymonsoon_csv import KIND
from power.recording import Recording, open_recording
from tests.conftest import REPOSITORY

PEER = REPOSITORY / "tests" / "peers" / "pymonsoon_csv.py"

HEADER = "Time(ms),Main(mA),Main Voltage(V),"
PERIOD_S = 1 / (5000 * (1 - 1246e-6))  # the firmware's clock with its calibrations left out


def arrivals(rows: int, *, packet: int = 3, every: int = 64, start_s: float = 0.4) -> np.ndarray:
    """When a host has read each row: packets of three, some twenty of them at a read, half a ms late."""
    sampled_s = start_s + np.arange(rows) * PERIOD_S
    last_of_read = np.minimum((np.arange(rows) // every + 1) * every - 1, rows - 1)
    return sampled_s[last_of_read] + 0.0005 + (np.arange(rows) % every // packet) * 1e-6


def write(
    folder: Path, t: np.ndarray, current_ma: np.ndarray, *, header: str = HEADER, form: str = "{!r}"
) -> Path:
    path = folder / "Main Example.csv"
    lines = [
        ",".join(form.format(float(x)) for x in (t[i], current_ma[i], 4.0)) + ",\n" for i in range(len(t))
    ]
    path.write_text(header + "\n" + "".join(lines))
    return path


def imported(path: Path, folder: Path, **options: object) -> Recording:
    import_recording(path, folder, **options)
    return open_recording(folder)


def codes(recording: Recording) -> dict[str, int]:
    return {finding.code: finding.count for finding in recording.record.findings}


def test_rows_are_placed_on_the_instruments_clock(tmp_path: Path) -> None:
    t = arrivals(50_000)
    recording = imported(write(tmp_path, t, np.full(50_000, 250.0)), tmp_path / "r")
    record = recording.record
    assert (record.info.kind, record.n_samples, record.dropped) == (KIND, 50_000, 0)
    assert record.provenance("x").origin is Origin.IMPORTED
    assert codes(recording) == {"accuracy_unknown": 1}
    assert record.timebase.tick_hz == pytest.approx(5000 * (1 - 1246e-6), rel=2e-5)
    measured = measure_energy(recording)
    # 49,999 periods of 200.249 us at 0.25 A and 4 V: 10.0125 J
    assert measured.energy.duration_s == pytest.approx(49_999 * PERIOD_S, rel=2e-5)
    assert measured.energy.energy_j == pytest.approx(10.0122, rel=5e-5)
    steps_ns = np.concatenate([np.diff(block.t_ns) for block in recording.blocks()])
    assert np.ptp(steps_ns) <= 1  # although rows of one read share their time


@pytest.mark.parametrize("form", ["{!r}", "np.float64({!r})"], ids=["numpy 1", "numpy 2"])
def test_numbers_as_versions_write_them(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, arrivals(10_000), np.arange(10_000) / 10, form=form)
    recording = imported(path, tmp_path / "r")
    assert "bad_rows" not in codes(recording)
    current_a = np.concatenate([block.current_a for block in recording.blocks()])
    assert current_a == pytest.approx(np.arange(10_000) / 10_000, abs=1e-7)
    # The first row was sampled at 0.4 s, and reads come half a millisecond late.
    assert int(recording.block(0).t_ns[0]) == pytest.approx(400_520_000, abs=10_000)


def test_all_channels_and_which_is_taken(tmp_path: Path) -> None:
    header = "Time(ms),Main(mA),USB(mA),Aux(mA),Main Voltage(V),USB Voltage(V),\n"
    rows = "".join(f"{t!r},250.0,7.5,1.0,4.0,5.0,\n" for t in arrivals(6000).tolist())
    path = tmp_path / "all.csv"
    path.write_text(header + rows)
    for channel, watts in (("main", 1.0), ("usb", 0.0375)):
        recording = imported(path, tmp_path / channel, channel=channel)
        assert measure_energy(recording).energy.mean_power_w == pytest.approx(watts, rel=1e-6)
    with pytest.raises(DataQualityError, match="no voltage column for channel 'aux'") as caught:
        import_recording(path, tmp_path / "aux", channel="aux")
    assert "aux" in caught.value.hint


@pytest.mark.parametrize("at", [12_345, 8192], ids=["inside a chunk", "between chunks"])
def test_a_leap_that_is_never_made_up_is_a_gap(tmp_path: Path, at: int) -> None:
    t = np.delete(arrivals(30_000), slice(at, at + 2000))  # 0.4 s are missing
    recording = imported(write(tmp_path, t, np.full(len(t), 250.0)), tmp_path / "r")
    assert recording.record.dropped == pytest.approx(2000, abs=80)  # a read holds 64 rows
    (gap,) = (f for f in recording.record.findings if f.code == "gap")
    assert gap.first_index == pytest.approx(at + 2000, abs=80)
    measured = measure_energy(recording)
    assert measured.energy.duration_s == pytest.approx(30_000 * PERIOD_S, abs=0.02)
    assert measured.energy.energy_j is None  # as with every gap that is too long to bridge
    assert measure_energy(recording, 0, 1.5).energy.valid


@pytest.mark.parametrize("seconds", [1.0, 30.0])
def test_a_gap_among_the_first_rows_is_no_other_rate(tmp_path: Path, seconds: float) -> None:
    rows = round(seconds / PERIOD_S)
    t = np.delete(arrivals(20_000 + rows), slice(5000, 5000 + rows))
    recording = imported(write(tmp_path, t, np.full(len(t), 250.0)), tmp_path / "r")
    assert recording.record.dropped == pytest.approx(rows, rel=0.02, abs=80)


@pytest.mark.parametrize("at", [12_000, 8100, 16_383], ids=["inside", "near the end of a chunk", "at it"])
def test_a_late_read_that_catches_up_is_no_gap(tmp_path: Path, at: int) -> None:
    t = arrivals(30_000)
    late = t[at] + 0.17 + np.arange(2600) / 8000  # 170 ms late, then read at 8 kHz
    t[at : at + 2600] = np.maximum(t[at : at + 2600], late)
    recording = imported(write(tmp_path, t, np.full(len(t), 250.0)), tmp_path / "r")
    assert recording.record.dropped == 0


def test_a_leap_near_the_end_cannot_be_judged(tmp_path: Path) -> None:
    t = arrivals(20_000)
    t[19_800:] += 0.1
    recording = imported(write(tmp_path, t, np.full(len(t), 250.0)), tmp_path / "r")
    assert recording.record.dropped == 0
    (finding,) = (f for f in recording.record.findings if f.code == "late_end")
    assert finding.first_index == pytest.approx(19_800, abs=64)


@pytest.mark.usefixtures("real_time")
def test_a_file_that_the_vendors_package_wrote(peer_python: str, tmp_path: Path) -> None:
    options = EmulatorOptions(signal="constant:current=0.25,voltage=4.0", variant="patient,hv,main")
    path = tmp_path / "vendor.csv"
    with EmulatorProcess("monsoon-hvpm", options) as unit:
        subprocess.run(
            [peer_python, str(PEER), unit.address, str(path), "10000"],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            timeout=60,
            check=True,
        )
        unit.close()
    recording = imported(path, tmp_path / "r")
    assert (recording.record.n_samples, recording.record.dropped) == (10_000, 0)
    assert "bad_rows" not in codes(recording)
    energy = measure_energy(recording).energy
    assert energy.duration_s == pytest.approx(2.0, rel=0.02)  # 9,999 periods of 0.2 ms
    assert energy.mean_power_w == pytest.approx(1.0, rel=1e-3)  # 0.25 A at 4 V


def test_whole_seconds_since_1970(tmp_path: Path) -> None:
    t = np.floor(1_700_000_000.3 + arrivals(60_000))
    recording = imported(write(tmp_path, t, np.full(60_000, 250.0)), tmp_path / "r")
    assert recording.record.info.facts["whole_seconds"] is True
    assert recording.record.dropped == 0
    assert measure_energy(recording).energy.duration_s == pytest.approx(60_000 * PERIOD_S, rel=0.01)


def test_steadily_lost_rows_make_an_error(tmp_path: Path) -> None:
    t = np.delete(arrivals(120_000), slice(None, None, 20))  # one in twenty: 5 %, over 24 s
    recording = imported(write(tmp_path, t, np.full(len(t), 250.0)), tmp_path / "r")
    (finding,) = (f for f in recording.record.findings if f.code == "rate_offset")
    assert finding.severity == "error"
    assert not measure_energy(recording).energy.valid


@pytest.mark.parametrize(
    ("header", "t", "message"),
    [
        ("Time(ms),Main(mA),", arrivals(100), "no voltage column for channel 'main'"),
        (HEADER, arrivals(5000)[::10], "the instrument makes 5000 a second"),
        (HEADER, arrivals(5_000_000)[::1000], "the instrument makes 5000 a second"),  # not 5 in a millisecond
        (HEADER, np.full(100, 3.5), "the instrument makes 5000 a second"),
        (HEADER, np.concatenate((arrivals(9000), arrivals(100))), r"csv:9002: time 0\.4\d* s goes back"),
        (HEADER, arrivals(1), "fewer than two rows"),
    ],
)
def test_what_cannot_be_placed_is_refused(tmp_path: Path, header: str, t: np.ndarray, message: str) -> None:
    path = write(tmp_path, t, np.full(len(t), 1.0), header=header)
    with pytest.raises(DataQualityError, match=message) as caught:
        import_recording(path, tmp_path / "r")
    assert caught.value.hint
    assert not (tmp_path / "r").exists()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutilated_files_import_or_fail_clearly(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    folder = tmp_path_factory.mktemp("mutilated")
    path = write(folder, arrivals(40), np.arange(40.0))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=12))
    path.write_bytes(content)
    failure = None
    try:
        import_recording(path, folder / "r", form="pymonsoon-csv")
    except JoulefleetError as error:
        failure = error
    if failure is not None:
        assert failure.message.isprintable()
        assert not (folder / "r").exists()
        return
    recording = open_recording(folder / "r")
    assert recording.record.n_samples >= 2
    assert all(np.isfinite(block.current_a).all() for block in recording.blocks())
