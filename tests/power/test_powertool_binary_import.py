from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError
from joulefleet.provenance import Origin
from power.energy import measure_energy
from power.importers.files import import_recording
from power.model import Loss
from power.recording import Recording, open_recording

MASK = {"main": 0x1000, "usb": 0x2000, "aux": 0x4000}


def header(
    version: int = 4,
    channels: tuple[str, ...] = ("main",),
    *,
    count: int = 0,
    missing: int = 0,
    vout: float = 4.0,
    khz: int = 5,
    hardware_hz: int = 5000,
    revision: int = 4,
    leds: int = 0,
    calibration: int = 0,
    sample_size: int | None = None,
) -> bytearray:
    """The first 1024 bytes, laid out by hand from the table of fields."""
    raw = bytearray(1024)
    struct.pack_into("<i", raw, 0, 144)
    raw[4:24] = bytes([19]) + b"Power Tool".ljust(19)
    struct.pack_into("<iQ", raw, 24, 1000, 2 << 62 | 634_346_707_186_200_000)
    raw[36:56] = bytes([19]) + b"2911".ljust(19)
    struct.pack_into("<iifif", raw, 56, calibration, 0, vout, hardware_hz, hardware_hz)
    raw[118:128] = bytes([9]) + b"4.0.3e".ljust(9)
    size = 2 + (2 if version == 4 else 4) * len(channels) if sample_size is None else sample_size
    mask = 0x0777 | sum(MASK[name] for name in channels)
    struct.pack_into(
        "<8H", raw, 144, 272, 60 if version == 4 else 96, 1024, size, 32_000, 40_000, 8_000, mask
    )
    struct.pack_into("<QQ", raw, 160, count, missing)
    length = 60 if version == 4 else 96
    raw[272:276] = bytes([length - 1, 0x10, 19, 17])
    raw[272 + 24], raw[272 + 28], raw[272 + 44] = leds, khz, revision
    raw[272 + length - 1] = sum(raw[272 : 272 + length - 1]) % 256
    return raw


def pt4(folder: Path, rows: list[tuple[int, ...]], name: str = "x.pt4", **fields: object) -> Path:
    fields.setdefault("count", len(rows))
    body = b"".join(struct.pack(f"<{len(row) - 1}hH", *row) for row in rows)
    return write(folder / name, bytes(header(4, **fields)) + body)


def pt5(folder: Path, rows: list[tuple[int, ...]], name: str = "x.pt5", **fields: object) -> Path:
    fields.setdefault("count", len(rows))
    body = b"".join(struct.pack(f"<{len(row) - 1}iH", *row) for row in rows)
    return write(folder / name, bytes(header(5, **fields)) + body)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def imported(path: Path, folder: Path, **options: object) -> Recording:
    import_recording(path, folder, **options)
    return open_recording(folder)


def codes(recording: Recording) -> dict[str, int]:
    return {finding.code: finding.count for finding in recording.record.findings}


def columns(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(recording.blocks())
    return np.concatenate([b.current_a for b in blocks]), np.concatenate([b.voltage_v for b in blocks])


def test_a_pt4_file_in_both_ranges(tmp_path: Path) -> None:
    # 10,000 uA fine; 1000 x 250 uA = 250 mA with the coarse bit; 32,000 x 125 uV = 4 V under two markers
    rows = [(10_000, 32_000), (1001, 32_003), (-2, 32_001), (10_000, 32_002)]
    recording = imported(pt4(tmp_path, rows), tmp_path / "r")
    current_a, voltage_v = columns(recording)
    assert current_a == pytest.approx([0.01, 0.25, -2e-6, 0.01], abs=1e-9)
    assert voltage_v == pytest.approx([4.0] * 4, abs=1e-6)
    info = recording.record.info
    assert (info.kind, info.serial, info.firmware) == ("import:powertool-pt4", "2911", "19")
    assert (info.rate_hz, info.loss, info.emulated) == (5000, Loss.COUNTED, False)
    assert str(info.facts["captured"]).startswith("2011-")
    assert recording.record.provenance("x").origin is Origin.IMPORTED
    assert codes(recording) == {"accuracy_unknown": 1}


def test_the_energy_of_a_pt4_file(tmp_path: Path) -> None:
    rows = [
        (401, 32_000)
    ] * 100_001  # 400 x 250 uA = 0.1 A at 4 V over 100,000 periods of 0.2 ms: 8 J in 20 s
    measured = measure_energy(imported(pt4(tmp_path, rows), tmp_path / "r"))
    assert measured.energy.duration_s == pytest.approx(20)
    assert measured.energy.energy_j == pytest.approx(8.0, rel=1e-6)
    assert (measured.energy.valid, measured.energy.loss_known) == (True, True)


def test_missing_samples_are_gaps(tmp_path: Path) -> None:
    rows = [(10_000, 32_000)] * 12_000
    for i in (0, 1, 5000, 5001, 11_999):
        rows[i] = (-32767, 32_000)
    rows[70] = (10_000, 0xFFFF)
    recording = imported(pt4(tmp_path, rows, missing=6), tmp_path / "r")
    assert [(b.first_index, b.dropped_before) for b in recording.blocks() if b.dropped_before != 0] == [
        (71, 1),
        (5002, 2),
    ]
    assert recording.record.n_samples == 12_000 - 6
    assert recording.block(0).first_index == 2  # nothing is known to lie before it
    assert codes(recording) == {"accuracy_unknown": 1, "gap": 3}
    assert measure_energy(recording).energy.valid


def test_missing_samples_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.importers.powertool_binary.CHUNK_SAMPLES", 10)
    rows = [(-32767, 32_000) if 5 <= i < 35 else (i * 2, 32_000) for i in range(60)]
    recording = imported(pt4(tmp_path, rows, missing=30), tmp_path / "r")
    assert recording.record.dropped == 30
    assert columns(recording)[0] == pytest.approx([i * 2e-6 for i in range(60) if not 5 <= i < 35], abs=1e-9)


def test_channels_and_their_voltage(tmp_path: Path) -> None:
    path = pt4(tmp_path, [(10_000, 2000, 3000, 32_000)] * 10, channels=("main", "usb", "aux"))
    usb = imported(path, tmp_path / "usb", channel="usb")
    current_a, voltage_v = columns(usb)
    assert current_a == pytest.approx([0.002] * 10)
    assert voltage_v == pytest.approx([5.0] * 10)  # 40,000 x 125 uV, as at the start
    assert codes(usb)["voltage_constant"] == 1
    assert "voltage_constant" not in codes(imported(path, tmp_path / "main"))
    of_aux = pt4(tmp_path, [(10_000, 3000, 16_000)] * 10, "aux.pt4", channels=("main", "aux"), leds=8)
    assert columns(imported(of_aux, tmp_path / "aux", channel="aux"))[1] == pytest.approx([2.0] * 10)
    with pytest.raises(DataQualityError, match="no channel 'usb'") as caught:
        import_recording(of_aux, tmp_path / "none", channel="usb")
    assert "main and aux" in caught.value.hint


def test_revision_a_has_half_the_voltage(tmp_path: Path) -> None:
    recording = imported(pt4(tmp_path, [(10_000, 64_000)] * 10, revision=1), tmp_path / "r")
    assert columns(recording)[1] == pytest.approx([4.0] * 10)


@pytest.mark.parametrize(("raw", "step_uv"), [(32_000, 125), (16_000, 250), (8_000, 500)])
def test_the_voltage_step_of_a_pt5_file_is_inferred(tmp_path: Path, raw: int, step_uv: int) -> None:
    recording = imported(pt5(tmp_path, [(610_934, raw), (-28, raw)] * 5), tmp_path / "r")
    current_a, voltage_v = columns(recording)
    assert current_a == pytest.approx([0.610934, -28e-6] * 5, rel=1e-6)
    assert voltage_v == pytest.approx([4.0] * 10)
    assert recording.record.info.facts["volt_step_v"] == pytest.approx(step_uv * 1e-6)
    assert recording.record.info.kind == "import:powertool-pt5"


@pytest.mark.parametrize("raw", [24_000, 0, 60_000])
def test_a_pt5_file_without_a_scale_is_refused(tmp_path: Path, raw: int) -> None:
    with pytest.raises(DataQualityError, match=r"scale of its voltages is not known.*set to 4 V") as caught:
        import_recording(pt5(tmp_path, [(1000, raw)] * 10), tmp_path / "r")
    assert "CSV" in caught.value.hint
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("missing", "lost"), [(3, 3), (1, 1)], ids=["marks", "is a current"])
def test_the_count_of_missing_samples_settles_what_a_marker_is(
    tmp_path: Path, missing: int, lost: int
) -> None:
    rows = [(1000, 32_000)] * 20
    rows[3], rows[5], rows[9] = (-32767, 32_000), (-32767, 32_000), (1000, 0xFFFF)
    recording = imported(pt5(tmp_path, rows, missing=missing), tmp_path / "r")
    assert recording.record.dropped == lost
    assert bool((columns(recording)[0] < -0.03).any()) == (lost == 1)


def test_a_marker_with_two_readings_is_refused(tmp_path: Path) -> None:
    rows = [(1000, 32_000)] * 20
    rows[3], rows[5] = (-32767, 32_000), (-32767, 32_000)
    with pytest.raises(DataQualityError, match=r"2 samples of -32\.767 mA .* count of 1 .* fits neither"):
        import_recording(pt5(tmp_path, rows, missing=1), tmp_path / "r")


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    assert imported(pt4(tmp_path, [(2, 32_000)] * 4, "a.pt5"), tmp_path / "a").record.info.kind.endswith(
        "pt4"
    )
    assert imported(pt5(tmp_path, [(2, 32_000)] * 4, "b.csv"), tmp_path / "b").record.info.kind.endswith(
        "pt5"
    )


def test_what_the_header_says_otherwise_is_noted(tmp_path: Path) -> None:
    path = pt4(tmp_path, [(2, 32_000)] * 10, count=11, missing=2, calibration=1)
    write(path, path.read_bytes() + b"\0")
    assert codes(imported(path, tmp_path / "r")) == {
        "truncated": 1, "sample_count": 1, "missing_count": 1, "calibration_failed": 1, "accuracy_unknown": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"khz": 2}, "2 kHz by its status packet, at 5000 Hz by its header"),
        ({"khz": 0, "hardware_hz": 0}, "0 kHz"),
        ({"sample_size": 6}, "neither .pt4 nor .pt5: 6 bytes a sample of 1 channels, a status packet of 60"),
        ({"sample_size": 7}, "neither .pt4 nor .pt5"),
        ({"channels": ()}, "no channel of current"),
    ],
)
def test_headers_that_contradict_themselves(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataQualityError, match=message):
        import_recording(pt4(tmp_path, [(2, 32_000)] * 4, **fields), tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("vout", [float("nan"), float("inf"), -4.0])
def test_an_output_voltage_that_is_none(tmp_path: Path, vout: float) -> None:
    assert imported(pt4(tmp_path, [(2, 32_000)] * 4, vout=vout), tmp_path / "r").record.n_samples == 4
    with pytest.raises(DataQualityError, match="scale of its voltages is not known"):
        import_recording(pt5(tmp_path, [(2, 32_000)] * 4, vout=vout), tmp_path / "r5")


def test_damage_is_refused(tmp_path: Path) -> None:
    whole = pt4(tmp_path, [(2, 32_000)] * 4).read_bytes()
    damaged = bytearray(whole)
    damaged[280] ^= 1
    with pytest.raises(DataQualityError, match="wrong checksum"):
        import_recording(write(tmp_path / "d", bytes(damaged)), tmp_path / "r")
    with pytest.raises(DataQualityError, match="fewer than two samples"):
        import_recording(write(tmp_path / "d", whole[:1028]), tmp_path / "r")
    with pytest.raises(DataQualityError, match="none of the formats") as caught:
        import_recording(write(tmp_path / "d", whole[:1000]), tmp_path / "r")
    assert "begins with" in caught.value.hint
    with pytest.raises(DataQualityError, match="lack the status packet"):
        import_recording(tmp_path / "d", tmp_path / "r", form="powertool-binary")
    with pytest.raises(ConfigError, match="no format 'pt6'"):
        import_recording(tmp_path / "d", tmp_path / "r", form="pt6")
    all_missing = pt4(tmp_path, [(-32767, 0xFFFF)] * 4)
    with pytest.raises(DataQualityError, match="no sample"):
        import_recording(all_missing, tmp_path / "r")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutilated_files_import_or_fail_clearly(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    folder = tmp_path_factory.mktemp("mutilated")
    make = data.draw(st.sampled_from([pt4, pt5]))
    content = bytearray(make(folder, [(1000, 32_000)] * 30).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)) | st.integers(24, 332))
        new = data.draw(st.binary(max_size=12))
        content[at : at + data.draw(st.sampled_from([len(new), 0, 5]))] = new
    if len(content) > 400 and data.draw(st.booleans()):
        length = content[272]
        content[272 + length] = sum(content[272 : 272 + length]) % 256
    failure = None
    try:
        import_recording(write(folder / "x", bytes(content)), folder / "r", form="powertool-binary")
    except JoulefleetError as error:
        failure = error
    if failure is not None:
        assert failure.message.isprintable()
        assert not (folder / "r").exists()
        return
    recording = open_recording(folder / "r")
    assert recording.record.n_samples == len(columns(recording)[0])
    assert all(np.isfinite(column).all() for column in columns(recording))
