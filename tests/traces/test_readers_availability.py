"""Availability matrices, as ``.npz`` and as CSV."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from joulefleet.errors import ConfigError, DataQualityError
from tests.traces.importing import imported, seconds


def written(tmp_path: Path, text: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def matrix(path: Path, available: Any, **members: Any) -> Path:
    np.savez(path, available=available, **{"start": "2020-01-29T00:00:00", "step_minutes": 30, **members})
    return path


def test_availability_matrix(tmp_path: Path) -> None:
    cells = np.array([[1, 0, 255], [1, 255, 255], [0, 1, 255], [1, 1, 255]], np.uint8)
    source = matrix(tmp_path / "m.npz", cells)
    with pytest.raises(ConfigError, match="starts at a wall-clock time: the time zone must be given"):
        imported("availability", source)
    traces, report = imported("availability", source, time_zone="Asia/Shanghai")
    assert list(traces) == ["m-00000", "m-00001"]
    begin = datetime(2020, 1, 29, tzinfo=ZoneInfo("Asia/Shanghai")).timestamp()

    def steps(first: int, last: int) -> tuple[float, float]:
        return begin + 1800 * first, begin + 1800 * last

    one, two = traces["m-00000"].available, traces["m-00001"].available
    assert one is not None
    assert two is not None
    assert seconds(one.on) == [steps(0, 2), steps(3, 4)]
    assert seconds(one.known) == [steps(0, 4)]
    assert seconds(two.on) == [steps(2, 4)]
    assert seconds(two.known) == [steps(0, 1), steps(2, 4)]
    assert report.notes["devices that are unknown all the time, left out"] == 1
    assert report.rows == cells.size
    named = matrix(
        tmp_path / "n.npz", cells[:, :2] == 1, devices=["a", "b"], start="2020-01-29T00:00:00+08:00"
    )
    assert list(imported("availability", named)[0]) == ["a", "b"]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u8", "i8"])
def test_a_matrix_of_any_integers(tmp_path: Path, dtype: str) -> None:
    unknown = -1 if dtype == "i1" else 255
    source = matrix(tmp_path / "m.npz", np.array([[1], [unknown], [0], [1]], dtype))
    available = imported("availability", source, time_zone="UTC")[0]["m-00000"].available
    assert available is not None
    begin = datetime(2020, 1, 29, tzinfo=UTC).timestamp()
    assert seconds(available.on) == [(begin, begin + 1800), (begin + 5400, begin + 7200)]
    assert seconds(available.known) == [(begin, begin + 1800), (begin + 3600, begin + 7200)]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"available": np.zeros((2, 2, 2), np.uint8)}, "not a matrix"),
        ({"available": np.zeros((2, 2))}, "not a matrix of integers"),
        ({"available": np.full((2, 2), 7, np.uint8)}, "'available' holds 7"),
        ({"available": np.array([[0, 1], [-1, -2]], np.int8)}, "'available' holds -2"),
        ({"available": np.zeros((2, 2), np.uint8), "start": "noon"}, "not an ISO 8601 time"),
        ({"available": np.zeros((2, 2), np.uint8), "start": "9999-01-01"}, "not an ISO 8601 time"),
        ({"available": np.zeros((9999, 1), np.uint8), "step_minutes": 99999}, "do not end in this century"),
        ({"available": np.zeros((2, 2), np.uint8), "step_minutes": -1}, "not a positive number"),
        ({"available": np.zeros((2, 2), np.uint8), "devices": ["a", "a"]}, "not 2 different names"),
        ({"available": np.array([[{}]], object)}, "plain arrays"),
    ],
)
def test_matrices_that_are_none(tmp_path: Path, members: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataQualityError, match=problem):
        imported("availability", matrix(tmp_path / "m.npz", **members), time_zone="UTC")


def test_npz_cut_or_incomplete(tmp_path: Path) -> None:
    path = matrix(tmp_path / "m.npz", np.zeros((99, 99), np.uint8))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataQualityError, match="not a whole npz"):
        imported("availability", path, time_zone="UTC")
    np.savez(path, available=np.zeros((2, 2), np.uint8))
    with pytest.raises(DataQualityError, match="has no array 'start'"):
        imported("availability", path, time_zone="UTC")


def header_that_lies(path: Path) -> Path:
    """An array of a terabyte, by its header; the member has a few bytes."""
    matrix(path, np.zeros((2, 2), np.uint8))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    whole = members["available.npy"]
    members["available.npy"] = whole.replace(b"(2, 2)", b"(1000000, 1000000)").replace(b" " * 12, b"", 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def member_of_bytes(path: Path) -> Path:
    matrix(path, np.zeros((2, 2), np.uint8))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | {"available.npy": b"no array"}).items():
            archive.writestr(name, data)
    return path


def damaged_deflate(path: Path) -> Path:
    np.savez_compressed(path, available=np.zeros((99, 99), np.uint8), start="2020-01-29", step_minutes=30)
    raw = bytearray(path.read_bytes())
    raw[60:90] = b"\xff" * 30
    path.write_bytes(raw)
    return path


def plain_array(path: Path) -> Path:
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 2), np.uint8))
    return path


@pytest.mark.parametrize("make", [header_that_lies, member_of_bytes, damaged_deflate, plain_array])
def test_archives_that_are_none(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(DataQualityError, match=r"m\.npz: is not a whole npz archive of plain arrays"):
        imported("availability", make(tmp_path / "m.npz"), time_zone="UTC")


def test_the_arrays_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = matrix(tmp_path / "m.npz", np.zeros((50, 2), np.uint8), devices=["a", "b" * 20])
    np.savez(tmp_path / "other.npz", **np.load(path), unused=np.zeros(10_000))
    monkeypatch.setattr("traces.readers.availability.MAX_BYTES", 400)
    assert list(imported("availability", tmp_path / "other.npz", time_zone="UTC")[0]) == ["a", "b" * 20]
    monkeypatch.setattr("traces.readers.availability.MAX_BYTES", 250)  # each array alone would fit
    with pytest.raises(DataQualityError, match="more than 250 bytes"):
        imported("availability", path, time_zone="UTC")


def test_a_device_of_several_files_is_one_trace(tmp_path: Path) -> None:
    matrix(tmp_path / "a.npz", np.array([[1]], np.uint8), devices=["phone"])
    matrix(tmp_path / "b.npz", np.array([[1]], np.uint8), devices=["phone"], start="2020-01-30T00:00:00")
    (tmp_path / ".hidden.csv").write_text("not,a,table\n")
    (tmp_path / "c.csv").write_text("time,phone\n1580428800,0\n")
    traces, _ = imported("availability", tmp_path, time_zone="UTC", settings={"hold_s": "1800"})
    begin = datetime(2020, 1, 29, tzinfo=UTC).timestamp()
    half_hours = [(begin + day * 86400, begin + day * 86400 + 1800) for day in range(3)]
    assert list(traces) == ["phone"]
    assert seconds(traces["phone"].coverage) == half_hours
    assert seconds(traces["phone"].available.on) == half_hours[:2]  # type: ignore[union-attr]
    assert seconds(traces["phone"].available.known) == half_hours  # type: ignore[union-attr]


def test_files_of_one_device_that_is_always_on_do_not_fill_the_time_between(tmp_path: Path) -> None:
    matrix(tmp_path / "a.npz", np.array([[1]], np.uint8), devices=["phone"])
    matrix(tmp_path / "b.npz", np.array([[1]], np.uint8), devices=["phone"], start="2020-01-30T00:00:00")
    trace = imported("availability", tmp_path, time_zone="UTC")[0]["phone"]
    assert trace.available is not None
    assert len(trace.covered) == len(trace.known(trace.available)) == 2


def test_availability_as_csv(tmp_path: Path) -> None:
    source = written(tmp_path, "time,a,b\n0,1,\n1800,0,1\n3600,1,2\n7200,1,1\n")
    with pytest.raises(ConfigError, match="how long a row holds must be given"):
        imported("availability", source)
    traces, report = imported("availability", source, settings={"hold_s": "1800"}, max_bad_rows=1)
    assert seconds(traces["a"].available.on) == [(0, 1800), (7200, 9000)]  # type: ignore[union-attr]
    assert seconds(traces["b"].available.known) == [(1800, 3600), (7200, 9000)]  # type: ignore[union-attr]
    assert str(report.examples[0]) == "a.csv:4: '2' is not 1, 0 or empty"
