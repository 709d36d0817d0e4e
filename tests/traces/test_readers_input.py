"""Opening, decoding and telling time; JSON member by member; sorting rows by user on disk."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError, DataQualityError, StorageError
from traces.readers import ImportReport, ReaderOptions
from traces.readers.files import sources
from traces.readers.files.json_members import object_members
from traces.readers.rows import spool
from traces.readers.rows.spool import RecordKind
from traces.readers.rows.timestamps import WallClock, number_to_ns


def text_of(path: Path, **settings: str) -> str:
    return "".join(sources.text_chunks(path, ReaderOptions(settings=settings), ImportReport()))


def test_gzip_is_unpacked_and_progress_counts_bytes_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"  # the name does not matter, the bytes do
    path.write_bytes(gzip.compress(b"hello\n" * 100_000))
    seen: list[int] = []
    report = ImportReport(on_progress=seen.append)
    assert b"".join(sources.byte_chunks(path, report)) == b"hello\n" * 100_000
    assert seen == sorted(seen)
    assert seen[-1] == report.bytes_read == path.stat().st_size


def test_cut_gzip_gives_what_it_has_and_then_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    whole = b"".join(b"%d\n" % number for number in range(200_000))
    packed = gzip.compress(whole)
    path.write_bytes(packed[: len(packed) // 2])
    got = b""
    with pytest.raises(DataQualityError, match=r"cut short; \d+ bytes could be unpacked"):
        for chunk in sources.byte_chunks(path, ImportReport()):
            got += chunk
    assert len(got) > 0.3 * len(whole)
    assert whole.startswith(got)


def test_damaged_gzip_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    packed = bytearray(gzip.compress(bytes(range(256)) * 1000))
    packed[len(packed) // 2] ^= 0xFF
    packed[-5] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataQualityError, match="gzip file is"):
        list(sources.byte_chunks(path, ImportReport()))


def test_archives_must_be_unpacked_first(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "x")
    with tarfile.open(tmp_path / "lsapp.tsv.gz", "w:gz") as archive:  # how LSApp is published
        info = tarfile.TarInfo("lsapp.tsv")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    for name, kind in (("a.zip", "zip archive"), ("lsapp.tsv.gz", "tar archive")):
        with pytest.raises(DataQualityError, match=kind):
            list(sources.byte_chunks(tmp_path / name, ImportReport()))
    with pytest.raises(StorageError, match="no such file"):
        sources.files_of(tmp_path / "none")
    with pytest.raises(DataQualityError, match="no file ends in"):
        sources.files_of(tmp_path, ".sql")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_mark_decides_the_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é\n" * 10, encoding=encoding)
    assert text_of(path) == "é\n" * 10


def test_other_encodings_are_said_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("é".encode("latin-1"))
    assert text_of(path, encoding="latin-1") == "é"
    assert not sources.is_text(text_of(path))
    assert sources.is_text("é🙂")
    with pytest.raises(ConfigError, match="there is no 'klingon'"):
        text_of(path, encoding="klingon")
    path.write_bytes(b"abc")
    with pytest.raises(DataQualityError, match="is not utf-16"):
        text_of(path, encoding="utf-16-le")


def test_a_line_without_end_is_refused() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "x" * 65536

    with pytest.raises(DataQualityError, match="a:1: a line has more than"):
        list(sources.lines(endless(), "a"))


@given(st.decimals(-(10**9), 10**9, places=9), st.sampled_from(["{:f}", "{:E}", "{:+f}"]))
@settings(deadline=None)
def test_numbers_become_nanoseconds_exactly(value: Decimal, form: str) -> None:
    assert number_to_ns(form.format(value)) == int(value * 10**9)


@pytest.mark.parametrize(
    "text", ["", "x", "nan", "inf", "1e400", "1,5", "0x10", "1488315824049000", "1" * 5000]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|digits"):
        number_to_ns(text)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1)))  # noqa: DTZ001
@settings(deadline=None)
def test_wall_clock_agrees_with_datetime(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    zone = ZoneInfo("Europe/Dublin")
    got = WallClock(zone).ns(f"{moment:%Y-%m-%d %H:%M:%S}")
    assert got == int(moment.replace(tzinfo=zone).timestamp()) * 10**9


def test_wall_clock_counts_what_it_cannot_tell() -> None:
    clock = WallClock(ZoneInfo("Europe/Berlin"))
    assert (
        clock.ns("2020-10-25 02:30:00") == int(datetime(2020, 10, 25, 0, 30, tzinfo=UTC).timestamp()) * 10**9
    )
    assert clock.ambiguous == 1
    clock.ns("2020-10-25 04:30:00")
    assert clock.ambiguous == 1
    for text in (
        "2020-13-01 00:00:00",
        "9999-01-01 00:00:00",
        "2020-01-01",
        "2020-01-01 00:00:99",
        "yesterday at noon...",
    ):
        with pytest.raises(ValueError, match="time"):
            clock.ns(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.integers(1, 50), st.sampled_from([None, 1]))
@settings(deadline=None)
def test_json_members_are_those_of_json(value: dict[str, object], size: int, indent: int | None) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        members = list(object_members((text[at : at + size] for at in range(0, len(text), size)), "a"))
        assert {member.key: member.value for member in members} == value
        if indent and value:
            assert members[0].line == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a:1: the file ends"),
        ("[1]", "a:1: does not begin with a JSON object"),
        ('{"a":1,\n"b":', "a:2: the file ends"),
        ('{"a":{"b":1}', "the file ends"),
        ('{"a":1 "b":2}', "a comma or a closing brace is missing"),
        ('{"a" 1}', "a colon is missing"),
        ('{"a":}', "a value is missing"),
        ("{a:1}", "a quoted name is missing"),
        ('{"a":{"b"}}', "is not JSON"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "is not JSON"),
    ],
)
def test_broken_json_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(DataQualityError, match=problem):
        list(object_members([text], "a"))


def test_spilled_rows_come_back_by_user_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_BUFFERED_ROWS", 100)
    with spool.UserSpool() as rows:
        for number in range(5000):
            rows.of(f"u{number % 7}").add(RecordKind.LEVEL, number, x=number / 2)
        found = {user: observed.array() for user, observed in rows.each()}
    assert list(found) == [f"u{number}" for number in range(7)]
    for number in range(7):
        assert found[f"u{number}"]["t_ns"].tolist() == list(range(number, 5000, 7))
        assert found[f"u{number}"]["x"].tolist() == [value / 2 for value in range(number, 5000, 7)]


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_NAMES", 3)
    names = spool.NameIndex("app")
    assert [names.index(name) for name in "abca"] == [0, 1, 2, 0]
    with pytest.raises(DataQualityError, match="more than 3 different values of app"):
        names.index("d")
    with pytest.raises(ValueError, match="app is empty"):
        names.index("")
