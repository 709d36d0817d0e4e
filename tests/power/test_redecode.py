from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import ConfigError, StorageError
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import open_meter
from power.recording import OPENING_FILE, RECORDING_FILE, open_recording, salvage_recording
from power.recording.recorder import record
from power.recording.redecode import DECODERS, compare_with_raw, raw_portions
from tests.power.synthetic import block, config, write_recording

LOAD = "square:low=0.02,high=0.5,period=0.3,voltage=4.0"

INSTRUMENTS = {
    "lvpm": ("monsoon-lvpm", {"noise_a": 0.001}, {}),
    "lvpm-faults": (
        "monsoon-lvpm",
        {"faults": ("lost_packets@0.5:16", "bad_checksum@0.7:3", "truncated_frame@0.9:2", "recalibrate@1.1")},
        {},
    ),
    "hvpm": ("monsoon-hvpm", {"noise_a": 0.001}, {"calibration_ms": 100}),
    "ina219": ("ina219", {"noise_a": 0.001, "faults": ("lost_packets@0.5:4", "bad_checksum@0.7:2")}, {}),
    "ina219-csv": ("ina219-csv", {"variant": "millis-all", "noise_a": 0.001}, {}),
    "ina219-csv-arrival": ("ina219-csv", {"variant": "all", "noise_a": 0.001, "rate_hz": 100}, {}),
    "ina219-csv-shunt": ("ina219-csv", {"variant": "millis-load", "noise_a": 0.001}, {"shunt_ohm": 0.1}),
}
"""Kind of meter, options of its emulator, options of its driver."""


def capture(
    folder: Path, kind: str, emulated: dict[str, object], options: dict[str, object], seconds: float
) -> None:
    emulator = EmulatorOptions(signal=LOAD, **emulated)
    with EmulatorProcess(kind.removesuffix("-csv"), emulator) as instrument:
        chosen = config(kind=kind, port=instrument.address, options=options)
        with open_meter(chosen) as meter:
            record(meter, folder, config=chosen, seconds=seconds)


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_raw_bytes_give_the_stored_samples_bit_for_bit(tmp_path: Path, name: str) -> None:
    capture(tmp_path, *INSTRUMENTS[name], seconds=1.2)
    recording = open_recording(tmp_path)
    again = compare_with_raw(recording)
    assert again.first_difference is None
    assert again.n_decoded == again.n_stored > 50
    # The decoder notices the same things, too: they are part of the record.
    stored = {finding.code for finding in recording.record.findings}
    assert {finding.code for finding in again.findings} <= stored


@pytest.fixture(scope="module")
def lvpm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lvpm")
    capture(folder, *INSTRUMENTS["lvpm"], seconds=1.0)
    return folder


def copy(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())
    return target


def test_a_changed_byte_is_found(tmp_path: Path, lvpm: Path) -> None:
    folder = copy(lvpm, tmp_path / "changed")
    raw = bytearray((folder / "raw.bin").read_bytes())
    calibration = 100 * 119  # bytes before the first sample
    raw[(calibration + len(raw)) // 2] ^= 0x10
    (folder / "raw.bin").write_bytes(raw)
    recording = open_recording(folder)
    difference = compare_with_raw(recording).first_difference
    assert difference is not None
    assert 0.4 < difference / recording.record.n_samples < 0.6


def test_a_changed_sample_is_found_where_it_is(tmp_path: Path, lvpm: Path) -> None:
    folder = copy(lvpm, tmp_path / "changed")
    samples = bytearray((folder / "samples.arrows").read_bytes())
    wanted = next(open_recording(folder).blocks()).current_a[:100].tobytes()
    at = samples.index(wanted)
    samples[at + 4 * 42] ^= 1  # the lowest bit of sample 42
    (folder / "samples.arrows").write_bytes(samples)
    recording = open_recording(folder)
    first = next(recording.blocks()).first_index
    assert compare_with_raw(recording).first_difference == first + 42


def test_raw_bytes_that_are_cut_short(tmp_path: Path, lvpm: Path) -> None:
    folder = copy(lvpm, tmp_path / "cut")
    raw = (folder / "raw.bin").read_bytes()
    (folder / "raw.bin").write_bytes(raw[:-1000])
    with pytest.raises(StorageError, match="ends at byte"):
        compare_with_raw(open_recording(folder))


def test_a_salvaged_recording_has_more_in_its_bytes_than_in_its_samples(tmp_path: Path, lvpm: Path) -> None:
    """Arrivals and samples reach the disk up to a second after the bytes."""
    folder = copy(lvpm, tmp_path / "killed")
    (folder / RECORDING_FILE).unlink()
    for name in ("samples", "blocks", "arrivals"):
        _keep_half(folder, name)
    assert (folder / OPENING_FILE).exists()
    assert salvage_recording(folder) is not None
    recording = open_recording(folder)
    again = compare_with_raw(recording)
    assert again.first_difference is None
    assert again.n_decoded > again.n_stored == recording.record.n_samples


def _keep_half(folder: Path, name: str) -> None:
    """What a killed writer leaves: a stream without an end. One batch of samples, half of the arrivals."""
    from joulefleet.runstore.table import iter_batches, table_path

    path = table_path(folder, name)
    first = next(iter_batches(path))
    kept = {"samples": len(first), "blocks": 1, "arrivals": len(first) // 2}[name]
    path.unlink()
    with (folder / f"{name}.arrows").open("wb") as file:
        file.write(first.schema.serialize())
        file.write(first.slice(0, kept).serialize())


def test_portions_are_the_ones_that_were_decoded(lvpm: Path) -> None:
    recording = open_recording(lvpm)
    portions = list(raw_portions(recording))
    assert b"".join(data for data, _ in portions) == (lvpm / "raw.bin").read_bytes()
    arrivals = [arrival_ns for _, arrival_ns in portions]
    assert arrivals == sorted(arrivals)
    assert len(portions) > 5


def test_a_recording_without_raw_bytes(tmp_path: Path) -> None:
    facts = {"voltage_step_v": 1e-4}
    recording = write_recording(tmp_path, [block(np.full(10, 0.5))], kind="monsoon-lvpm", facts=facts)
    with pytest.raises(StorageError, match="no raw bytes"):
        compare_with_raw(recording)


def test_an_instrument_without_a_decoder(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, [block(np.full(10, 0.5))])
    with pytest.raises(ConfigError, match="no decoder of raw bytes called 'synthetic'"):
        compare_with_raw(recording)


def test_every_instrument_with_bytes_has_a_decoder() -> None:
    from power.meter import METERS

    assert set(METERS.builtin) - {"replay"} == set(DECODERS.builtin)
