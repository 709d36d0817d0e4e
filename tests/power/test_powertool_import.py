from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError
from joulefleet.provenance import Origin
from power.energy import GapPolicy, Window, integrate, integrate_recording, measure_energy
from power.importers.files import import_recording
from power.importers.powertool_csv import KIND
from power.model import Accuracy, Loss, RangeAccuracy, SampleClock
from power.recording import Recording, open_recording

import_powertool_csv = partial(import_recording, form="powertool-csv")

HEADER = "Time (s),Main Avg Current (A),Main Avg Power (W),Main Avg Voltage (V)"
ROWS = [f"{i * 0.2:.4f},{0.5 + i * 0.01:.4f},{(0.5 + i * 0.01) * 4.1:.4f},4.1000" for i in range(20)]


def write(folder: Path, rows: list[str], header: str = HEADER, end: str = "\n") -> Path:
    path = folder / "export.csv"
    path.write_bytes((end.join([header, *rows]) + end).encode())
    return path


def imported(path: Path, folder: Path, **options: object) -> Recording:
    import_powertool_csv(path, folder, **options)
    return open_recording(folder)


def currents(recording: Recording) -> np.ndarray:
    return np.concatenate([block.current_a for block in recording.blocks()])


def codes(recording: Recording) -> dict[str, int]:
    return {finding.code: finding.count for finding in recording.record.findings}


def test_a_file_becomes_a_recording_that_says_it_is_imported(tmp_path: Path) -> None:
    recording = imported(write(tmp_path, ROWS), tmp_path / "r")
    record = recording.record
    assert (record.info.kind, record.info.emulated) == (KIND, False)
    assert (record.info.timing, record.info.loss) == (SampleClock.INSTRUMENT, Loss.UNKNOWN)
    assert record.info.rate_hz == pytest.approx(5.0)
    assert record.info.facts["source_file"] == "export.csv"
    assert record.provenance("x").origin is Origin.IMPORTED
    assert record.n_samples == 20
    assert currents(recording) == pytest.approx(0.5 + np.arange(20) * 0.01)
    assert codes(recording) == {"accuracy_unknown": 1}
    # 20 averages of 0.2 s: 4 s, at a mean of 0.5 A + 9.5 x 0.01 A
    (energy,) = integrate_recording(recording, [Window(0, 4_000_000_000, "all")])
    assert energy.valid
    assert energy.energy_j == pytest.approx((0.5 + 0.095) * 4.1 * 4.0, rel=1e-6)
    assert energy.notes == ("the instrument cannot tell whether samples were lost",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1e10,0.5,2.05,4.1", r"export\.csv:22: time 1e\+10 s is more than"),
        ("1e30,0.5,2.05,4.1", r"export\.csv:22: time 1e\+30 s is more than"),
        ("3.8000001,0.5,2.05,4.1", r"export\.csv:22: .* less than 1 us after the row before"),
    ],
)
def test_times_that_a_recording_cannot_hold(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataQualityError, match=message) as caught:
        import_powertool_csv(write(tmp_path, [*ROWS, row]), tmp_path / "r")
    assert "seconds" in caught.value.hint
    assert not (tmp_path / "r").exists()


MILLI = [f"{i * 0.2:.4f},{500 + i * 10},{(500 + i * 10) * 4.1:.0f},4.1000" for i in range(20)]


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("Time (s),Main Avg Current (mA),Main Avg Power (mW),Main Avg Voltage (V)", MILLI),
        ("time (s), main avg current (MA), main avg power (MW), main avg voltage (V)", MILLI),
        ('"Time (s)","Main Avg Current (A)","Main Avg Power (W)","Main Avg Voltage (V)"', ROWS),
        (
            "Time (s),Main Max Current (mA),Main Avg Voltage (V),Main Avg Current (A)",
            [f"{i * 0.2:.4f},999,4.1,{0.5 + i * 0.01:.4f}" for i in range(20)],
        ),
        (
            "Time (s),USB Avg Current (mA),USB Avg Voltage (V),Main Avg Current (mA),Main Avg Voltage (V)",
            [f"{i * 0.2:.4f},7,5.0,{500 + i * 10},4.1" for i in range(20)],
        ),
        (HEADER, [row.replace(",", '","').join('""') for row in ROWS]),
    ],
    ids=["milli", "case-and-spaces", "quoted-header", "order-and-more", "usb-too", "quoted-rows"],
)
def test_header_variants(tmp_path: Path, header: str, rows: list[str]) -> None:
    recording = imported(write(tmp_path, rows, header), tmp_path / "r")
    assert currents(recording) == pytest.approx(0.5 + np.arange(20) * 0.01)
    assert "power_disagrees" not in codes(recording)


def test_another_channel_can_be_taken(tmp_path: Path) -> None:
    header = "Time (s),USB Avg Current (mA),USB Avg Voltage (V),Main Avg Current (mA),Main Avg Voltage (V)"
    path = write(tmp_path, ["0.0,7,5.0,500,4.1", "0.2,8,5.0,500,4.1"], header)
    assert currents(imported(path, tmp_path / "r", channel="usb")) == pytest.approx([0.007, 0.008])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_a_byte_order_mark(tmp_path: Path, end: str) -> None:
    path = write(tmp_path, [*ROWS, "", ""], "\ufeff" + HEADER, end)
    recording = imported(path, tmp_path / "r")
    assert recording.record.n_samples == 20
    assert "bad_rows" not in codes(recording)


def steps(tmp_path: Path, missing: frozenset[int] = frozenset()) -> Recording:
    """39 rows of 8 V: 1/8 A, 2/8 A, 3/8 A, and so on: 1 W, 2 W, 3 W."""
    rows = [f"{i * 0.2:.1f},{(i + 1) / 8},{i + 1},8" for i in range(39) if i not in missing]
    return imported(write(tmp_path, rows), tmp_path / "r")


def test_39_rows_are_averages_over_7_8_seconds(tmp_path: Path) -> None:
    recording = steps(tmp_path)
    whole = measure_energy(recording)
    assert whole.window.duration_s == pytest.approx(7.8, abs=1e-9)
    assert whole.energy.n_samples == 39
    assert whole.energy.energy_j == pytest.approx(
        39 * 40 / 2 * 0.2, rel=1e-9
    )  # (1 + ... + 39) W x 0.2 s = 156 J
    assert measure_energy(recording, 0, 7.8).energy.energy_j == whole.energy.energy_j
    assert measure_energy(recording, 7.6, 7.8).energy.energy_j == pytest.approx(39 * 0.2)


@pytest.mark.parametrize(
    ("start_s", "end_s", "joules", "rows"),
    [
        (0.2, 0.4, 2 * 0.2, 1),  # one row
        (0.0, 0.6, (1 + 2 + 3) * 0.2, 3),
        (0.1, 0.5, 1 * 0.1 + 2 * 0.2 + 3 * 0.1, 2),  # halves of the first and the third row
        (7.5, 7.8, 38 * 0.1 + 39 * 0.2, 1),
    ],
)
def test_a_row_holds_up_to_the_next(
    tmp_path: Path, start_s: float, end_s: float, joules: float, rows: int
) -> None:
    recording = steps(tmp_path)
    window = Window(round(start_s * 1e9), round(end_s * 1e9))
    info, blocks = recording.record.info, list(recording.blocks())
    for (energy,) in (integrate_recording(recording, [window]), integrate(blocks, [window], info)):
        assert energy.energy_j == pytest.approx(joules, rel=1e-9)
        assert energy.n_samples == rows
        assert energy.valid


def test_a_window_beyond_the_end_of_the_last_row(tmp_path: Path) -> None:
    (energy,) = integrate_recording(steps(tmp_path), [Window(0, 7_900_000_000)])
    assert energy.problems == ("ends 0.1 s after the last sample",)


def test_a_missing_row_is_a_gap_of_its_length(tmp_path: Path) -> None:
    recording = steps(tmp_path, frozenset({9}))  # from 1.8 s to 2.0 s, between 9 W and 11 W
    (gap,) = (f for f in recording.record.findings if f.code == "gap")
    assert (gap.count, gap.first_index) == (1, 10)
    windows = [Window(0, 1_800_000_000), Window(0, 7_800_000_000), Window(1_900_000_000, 2_000_000_000)]
    info, blocks = recording.record.info, list(recording.blocks())
    for before, whole, _ in (integrate_recording(recording, windows), integrate(blocks, windows, info)):
        assert before.valid
        assert before.energy_j == pytest.approx(45 * 0.2)
        # A straight line from 9 W to 11 W over the 0.2 s holds what the row did.
        assert whole.energy_j == pytest.approx(156, rel=1e-9)
        assert whole.bridged_s == pytest.approx(0.2)
        assert whole.lost_fraction == pytest.approx(0.2 / 7.8)
        assert not whole.valid  # 2.6 % lost


def test_one_missing_row_does_not_condemn_a_file_of_hours(tmp_path: Path) -> None:
    rows = [f"{i * 0.2:.1f},0.5,2,4" for i in range(36_000) if i != 12_345]  # two hours of 2 W
    recording = imported(write(tmp_path, rows), tmp_path / "r")
    measured = measure_energy(recording)
    assert measured.energy.valid
    assert measured.energy.duration_s == pytest.approx(7200)
    assert measured.energy.energy_j == pytest.approx(14_400, rel=1e-9)
    assert measured.energy.lost_fraction == pytest.approx(0.2 / 7200)
    assert codes(recording)["gap"] == 1


def test_missing_rows_are_counted_as_lost(tmp_path: Path) -> None:
    rows = [*ROWS[:5], *ROWS[6:12], *ROWS[15:]]
    recording = imported(write(tmp_path, rows), tmp_path / "r")
    assert recording.record.dropped == 4
    assert codes(recording)["gap"] == 4
    assert [(b.first_index, b.dropped_before) for b in recording.blocks()] == [(0, 0), (6, 1), (15, 3)]
    (all_of_it,) = integrate_recording(recording, [Window(0, 3_800_000_000)], policy=GapPolicy())
    assert all_of_it.energy_j is None  # 0.6 s without a row
    (part,) = integrate_recording(recording, [Window(0, 2_000_000_000)], policy=GapPolicy())
    assert part.energy_j is not None
    assert not part.valid


def test_more_rows_than_one_chunk(tmp_path: Path) -> None:
    rows = [f"{i * 0.0002:.4f},{i % 7 / 10:.1f},{i % 7 / 10 * 4:.1f},4.0" for i in range(20_000)]
    del rows[8190:8195]  # lost across the edge of the first chunk
    recording = imported(write(tmp_path, rows), tmp_path / "r")
    assert recording.record.info.rate_hz == pytest.approx(5000)
    assert (recording.record.n_samples, recording.record.dropped) == (19_995, 5)
    kept = [i for i in range(20_000) if not 8190 <= i < 8195]
    assert currents(recording) == pytest.approx([i % 7 / 10 for i in kept], abs=1e-7)
    assert "power_disagrees" not in codes(recording)


BAD_ROWS = [
    "=cmd|' /C calc'!A0,1,1,1",
    "nan,0.5,2,4.1",
    "1.0,inf,2,4.1",
    "1.0,0.5,2",
    "1.0,0.5,2,4.1,9",
    "1_0,0.5,2,4.1",
    "0x1p3,0.5,2,4.1",
    "\x1b[2J,0.5,2,4.1",
    "1.0,,2,4.1",
    '1.0,"0.5,2,4.1',
    "\x00\x00",
]


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_is_left_out_and_named(tmp_path: Path, bad: str) -> None:
    recording = imported(write(tmp_path, [*ROWS[:5], bad, *ROWS[5:]]), tmp_path / "r")
    assert recording.record.n_samples == 20
    (finding,) = (f for f in recording.record.findings if f.code == "bad_rows")
    assert finding.count == 1
    assert "line 7: " in finding.message
    assert finding.message.isprintable()


def test_too_many_bad_rows_fail_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, [*ROWS[:3], *["what"] * 11, *ROWS[3:]])
    with pytest.raises(DataQualityError, match=r"more than 10 rows are not 4 numbers: line 5: 'what"):
        import_powertool_csv(path, tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert import_powertool_csv(path, tmp_path / "r", max_bad_rows=11).n_samples == 20


def test_a_file_cut_inside_its_last_row(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    path.write_bytes(path.read_bytes()[:-4])
    recording = imported(path, tmp_path / "r")
    assert recording.record.n_samples == 19
    assert codes(recording)["truncated"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no time and no current and no voltage column"),
        (b"a,b,c\n1,2,3\n", "no time and no current and no voltage column"),
        (f"{HEADER}\n".encode(), "fewer than two rows"),
        (f"{HEADER}\n0.0,1,4,4\n".encode(), "fewer than two rows"),
        ("\n".join([HEADER, *ROWS]).encode("utf-16"), "UTF-16 text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, "no CSV text"),
        ("Zeit (s),Strom (A),Leistung (W),Größe (V)\n".encode("latin-1"), "no CSV text"),
        (f"{HEADER}\n".encode() + b"1" * 100_000, "a line of more than 4096 bytes"),
        (f"{HEADER}\n-0.2,1,4,4\n0.0,1,4,4\n".encode(), r":2: time is negative \(-0.2 s\)"),
        (f"{HEADER}\n0.0,1,4,4\n0.4,1,4,4\n0.2,1,4,4\n".encode(), r":4: time does not increase \(0.2 s\)"),
        (f"{HEADER}\n0.0,1,4,4\n0.0,1,4,4\n".encode(), r":3: time does not increase \(0 s\)"),
        (HEADER.replace("(A)", "(kA)").encode() + b"\n0,1,4,4\n1,1,4,4\n", "no current column"),
        (HEADER.replace("(V)", "(A)").encode() + b"\n0,1,4,4\n1,1,4,4\n", "no voltage column"),
    ],
)
def test_what_is_no_powertool_export_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "export.csv"
    path.write_bytes(content)
    with pytest.raises(DataQualityError, match=message):
        import_powertool_csv(path, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_files_and_folders_that_are_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        import_powertool_csv(tmp_path / "nowhere.csv", tmp_path / "r")
    path = write(tmp_path, ROWS)
    import_powertool_csv(path, tmp_path / "r")
    before = sorted((tmp_path / "r").iterdir())
    with pytest.raises(StorageError, match="exists already"):
        import_powertool_csv(path, tmp_path / "r")
    assert sorted((tmp_path / "r").iterdir()) == before


def test_a_power_column_that_does_not_fit_is_noted(tmp_path: Path) -> None:
    rows = [f"{i * 0.2:.4f},0.5000,2.0600,4.1000" for i in range(20)]  # 0.5 % above volts times amperes
    recording = imported(write(tmp_path, rows), tmp_path / "r")
    (finding,) = (f for f in recording.record.findings if f.code == "power_disagrees")
    assert "2.05 W" in finding.message
    assert "2.06 W" in finding.message


def test_a_known_accuracy_is_kept(tmp_path: Path) -> None:
    accuracy = Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0.01, offset_a=1e-3),),
        voltage_gain_rel=0.01,
        voltage_offset_v=0.01,
        source="calibration",
    )
    recording = imported(write(tmp_path, ROWS), tmp_path / "r", accuracy=accuracy)
    kept = recording.record.info.accuracy
    assert (kept.source, kept.voltage_gain_rel, kept.voltage_offset_v) == ("calibration", 0.01, 0.01)
    assert (kept.current[0].gain_rel, kept.current[0].offset_a) == (0.01, 1e-3)
    # What the text rounds away no calibration brings back: four decimals of A and of V.
    assert (kept.current[0].step_a, kept.voltage_step_v) == pytest.approx((1e-4, 1e-4))
    assert "accuracy_unknown" not in codes(recording)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutilated_files_import_or_fail_clearly(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    content = bytearray("\n".join([HEADER, *ROWS, ""]).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 30))
        content[at : at + length] = data.draw(st.binary(max_size=12))
    folder = tmp_path_factory.mktemp("mutilated")
    (folder / "export.csv").write_bytes(content)
    failure = None
    try:
        import_powertool_csv(folder / "export.csv", folder / "r")
    except JoulefleetError as error:
        failure = error
    if failure is not None:
        assert failure.message.isprintable()
        assert not (folder / "r").exists()
        return
    recording = open_recording(folder / "r")
    assert recording.record.n_samples == len(currents(recording)) >= 2
    assert np.isfinite(currents(recording)).all()


def test_real_files_import_and_agree_with_their_own_power_column(
    real_file: Callable[[str], Path], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    archive = real_file("device-profiles/monsoon_smartphone_measurements.zip")
    worst_rel, files, missing = 0.0, 0, 0
    with zipfile.ZipFile(archive) as zipped:
        for name in sorted(n for n in zipped.namelist() if n.endswith(".csv")):
            content = zipped.read(name)
            path = tmp_path / f"{files}.csv"
            path.write_bytes(content)
            recording = imported(path, tmp_path / f"r{files}")
            table = np.array([line.split(",") for line in content.decode().splitlines()[1:]], float)
            power = np.concatenate([b.current_a.astype(float) * b.voltage_v for b in recording.blocks()])
            assert len(power) == len(table)
            # Four decimals are printed: half a step of power, plus half a step of current times some 4 V
            # and of voltage times some 1 A, is 3e-4 W; below, 32-bit storage does not matter.
            bound_w = 0.5e-4 * (1 + table[:, 3].mean() + table[:, 1].mean())
            assert abs(power.mean() - table[:, 2].mean()) <= bound_w
            assert "power_disagrees" not in codes(recording)
            assert "bad_rows" not in codes(recording)
            assert recording.record.provenance(name).origin is Origin.IMPORTED
            lost = recording.record.dropped or 0
            energy = measure_energy(recording).energy
            assert energy.duration_s == pytest.approx((len(table) + lost) * 0.2, abs=1e-6)
            assert energy.valid
            assert any("are missing" in note for note in energy.notes) == (lost > 0)
            if not lost:
                assert energy.energy_j == pytest.approx(table[:, 1] @ table[:, 3] * 0.2, rel=1e-6)
            worst_rel = max(worst_rel, abs(power.mean() / table[:, 2].mean() - 1))
            missing += recording.record.dropped or 0
            files += 1
    record_property("files", files)
    record_property("worst relative difference of mean power", worst_rel)
    record_property("rows missing by their times", missing)
    assert files == 51


@pytest.mark.parametrize(
    ("row", "counted"),
    [("4.0,500,2050,4.1", 1), ("4.0,0.5,2.05,4100", 1), ("4.0,-30,-123,4.1", 1), ("4.0,6,24.6,4.1", 0)],
)
def test_readings_that_no_monsoon_gives_spoil_their_windows_only(
    tmp_path: Path, row: str, counted: int
) -> None:
    """A column in other units than its header says, or a row that something garbled."""
    recording = imported(write(tmp_path, [*ROWS, row]), tmp_path / "r")
    assert codes(recording).get("impossible_reading", 0) == counted
    assert measure_energy(recording).energy.valid == (counted == 0)
    assert measure_energy(recording, 0.0, 3.0).energy.valid


@pytest.mark.parametrize("separated", [";", "\t"])
def test_a_file_that_a_spreadsheet_saved_gets_a_hint(tmp_path: Path, separated: str) -> None:
    path = tmp_path / "export.csv"
    rows = [row.replace(",", separated).replace(".", ",") for row in ROWS]
    path.write_text("\n".join([HEADER.replace(",", separated), *rows, ""]))
    for form in ("auto", "powertool-csv"):
        with pytest.raises(DataQualityError) as caught:
            import_recording(path, tmp_path / "r", form=form)
        assert "semicolons or decimal commas" in caught.value.hint
    assert not (tmp_path / "r").exists()


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "export.csv").touch()
    with pytest.raises(DataQualityError, match=r"export\.csv: the file is empty"):
        import_recording(tmp_path / "export.csv", tmp_path / "r")


@pytest.mark.parametrize("start_s", [float("nan"), float("inf"), -1.0, 99.0])
def test_a_stretch_that_is_not_there_is_refused(tmp_path: Path, start_s: float) -> None:
    recording = imported(write(tmp_path, ROWS), tmp_path / "r")
    for start, end in ((start_s, None), (None, start_s)):
        with pytest.raises(ConfigError, match="no time from"):
            measure_energy(recording, start, end)
