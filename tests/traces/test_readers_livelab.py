"""LiveLab's dumps: a generated one with every quirk against the truth, and what can go wrong."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import ConfigError, DataQualityError
from tests.traces import livelab_dump
from tests.traces.importing import imported, same, seconds
from traces.intervals import union
from traces.quality.checks import errors
from traces.quality.repairs import repair
from traces.readers.rows import spool

ROWS = 12_000


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("livelab") / "appusage.sql"
    livelab_dump.write(path, livelab_dump.runs(ROWS))
    return path


def test_every_run_comes_back_exactly(dump: Path) -> None:
    traces, report = imported("livelab", dump, time_zone="America/Chicago")
    truth: defaultdict[str, list[livelab_dump.Run]] = defaultdict(list)
    for run in livelab_dump.runs(ROWS):
        truth[run.user].append(run)
    assert list(traces) == sorted(truth)
    assert len(traces) == 34
    for user, runs in truth.items():
        apps = traces[user].apps
        assert apps is not None
        told = [run for run in runs if run.duration_s]
        assert [apps.names[app] for app in apps.app] == [run.app for run in told]
        assert apps.start_ns.tolist() == [run.time_s * 10**9 for run in told]
        assert apps.end_ns.tolist() == [(run.time_s + (run.duration_s or 0)) * 10**9 for run in told]
    assert (report.rows, report.bad_rows) == (ROWS, 0)
    assert report.bytes_read == dump.stat().st_size
    everything = list(livelab_dump.runs(ROWS))
    assert dict(report.notes) == {
        "app sessions without an end, left out": sum(run.duration_s is None for run in everything),
        "app sessions of zero length, left out": sum(run.duration_s == 0 for run in everything),
        "app sessions that begin before an earlier one ends, kept": overlaps(truth),
    }
    assert livelab_dump.HOME_SCREEN in traces["A00"].apps.names  # type: ignore[union-attr]
    assert traces["A00"].time_zone == "America/Chicago"
    assert "Shepard" in traces["A00"].source
    assert traces["A00"].licence


def overlaps(truth: dict[str, list[livelab_dump.Run]]) -> int:
    count = 0
    for runs in truth.values():
        reach_s = 0
        for run in runs:
            if run.duration_s:
                count += run.time_s < reach_s
                reach_s = max(reach_s, run.time_s + run.duration_s)
    return count


def test_runs_double_as_the_screen_and_unknown_is_not_off(dump: Path) -> None:
    trace = imported("livelab", dump)[0]["A07"]
    assert trace.screen is not None
    assert trace.apps is not None
    assert seconds(trace.screen.on) == seconds(union(trace.apps.intervals))
    runs = [run for run in livelab_dump.runs(ROWS) if run.user == "A07"]
    unknown = [
        (run.time_s, runs[number + 1].time_s) for number, run in enumerate(runs) if run.duration_s is None
    ]
    assert len(unknown) > 1
    edges = [trace.start_ns / 1e9, *(edge for gap in unknown for edge in gap), trace.end_ns / 1e9]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    assert seconds(trace.screen.known) == [(begin, end) for begin, end in pairs if begin < end]


def test_overlaps_are_found_by_validation_and_repairable(dump: Path) -> None:
    trace = imported("livelab", dump)[0]["A01"]
    assert {finding.code for finding in errors(trace)} == {"overlap"}
    assert not errors(repair(trace)[0])


def test_spilling_and_gzip_change_nothing(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = imported("livelab", dump)
    packed = tmp_path / "appusage.sql.gz"
    packed.write_bytes(gzip.compress(dump.read_bytes()))
    monkeypatch.setattr(spool, "MAX_BUFFERED_ROWS", 1000)
    spilled, _ = imported("livelab", tmp_path)
    assert list(spilled) == list(plain)
    assert all(same(plain[user], spilled[user]) for user in plain)


def test_cut_gzip_is_a_clear_error_after_what_was_read(dump: Path, tmp_path: Path) -> None:
    packed = gzip.compress(dump.read_bytes())
    (tmp_path / "a.sql.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataQualityError, match=r"a\.sql\.gz: the gzip file is cut short"):
        imported("livelab", tmp_path / "a.sql.gz")


def sql(tmp_path: Path, text: str, name: str = "a.sql", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding=encoding)
    return path


def test_bad_rows_are_counted_with_their_lines(tmp_path: Path) -> None:
    source = sql(
        tmp_path,
        "INSERT INTO appusage VALUES\n(1,'A','Mail',100,5),\n(2,'A','Mail',200,-5),\n"
        "(3,'A','Mail','soon',5),\n(4,'A','Mail',300),\n(5,'A',NULL,400,5),\n(6,'','Mail',500,5),\n(7,'A','Mail',NULL,5),\n"
        "(8,'A','Mail',now(),5),\n(9,'A','Mail',600,5),\n(10,'A','Mail',99999999999999,5);\n",
    )
    traces, report = imported("livelab", source, max_bad_rows=8)
    assert [(bad.line, bad.problem) for bad in report.examples] == [
        (3, "it ends 5 s before it begins"),
        (4, "time 'soon' is not a number"),
        (5, "4 values instead of 5"),
        (6, "no field tells anything"),
        (7, "user is empty"),
        (8, "time is empty"),
        (9, "a value that is neither a number, a string nor NULL"),
        (11, "time '99999999999999' is out of range (milliseconds taken for seconds?)"),
    ]
    assert (report.rows, report.bad_rows) == (10, 8)
    assert seconds(traces["A"].apps.intervals) == [(100, 105), (600, 605)]  # type: ignore[union-attr]
    with pytest.raises(
        DataQualityError, match=r"more than 2 rows cannot be read, the first: a\.sql:3: it ends"
    ):
        imported("livelab", source, max_bad_rows=2)


def test_time_running_backwards_is_kept_and_counted(tmp_path: Path) -> None:
    source = sql(
        tmp_path, "INSERT INTO appusage VALUES (1,'A','x',500,5),(2,'A','y',100,5),(3,'A','z',600,5);"
    )
    traces, report = imported("livelab", source)
    assert report.notes["app sessions out of time order, kept"] == 1
    assert {finding.code for finding in errors(traces["A"])} >= {"backwards"}


def test_wrong_encoding_costs_its_rows_and_can_be_said(tmp_path: Path) -> None:
    text = "INSERT INTO appusage VALUES (1,'A','Café',100,5),(2,'A','Mail',200,5);"
    source = sql(tmp_path, text, encoding="latin-1")
    _, report = imported("livelab", source, max_bad_rows=1)
    assert [str(bad) for bad in report.examples] == ["a.sql:1: app is not valid text"]
    traces, report = imported("livelab", source, settings={"encoding": "latin-1"})
    assert traces["A"].apps.names == ("Café", "Mail")  # type: ignore[union-attr]


DISPLAY = """
CREATE TABLE display (id int, uid text, time int, state int);
INSERT INTO display VALUES (1,'A',100,1),(2,'A',200,0),(3,'B',150,1),(4,'A',300,1),(5,'A',310,0);
INSERT INTO display VALUES (6,'B',160,0);
"""


def test_display_says_better_than_the_runs_when_the_screen_is_on(tmp_path: Path) -> None:
    sql(tmp_path, "INSERT INTO appusage VALUES (1,'A','Mail',110,5);", "appusage.sql")
    sql(tmp_path, DISPLAY, "display.sql")
    traces, _ = imported("livelab", tmp_path)
    assert seconds(traces["A"].screen.on) == [(100, 200), (300, 310)]  # type: ignore[union-attr]
    assert seconds(traces["A"].screen.known) == [(100, 310)]  # type: ignore[union-attr]
    assert seconds(traces["A"].apps.intervals) == [(110, 115)]  # type: ignore[union-attr]
    assert traces["B"].apps is None
    alone, _ = imported("livelab", tmp_path, settings={"tables": "appusage"})
    assert seconds(alone["A"].screen.on) == [(110, 115)]  # type: ignore[union-attr]


def test_other_tables_come_by_the_users_column_map(tmp_path: Path) -> None:
    source = sql(
        tmp_path,
        "INSERT INTO appusage VALUES (1,'A','Mail',100,5);\n"
        "INSERT INTO Battery (who, `when`, pct, chg) VALUES ('A',100,80,'Y'),('A',200,79,'N');\n"
        "INSERT INTO Battery (chg, who, pct, `when`) VALUES ('N','A',78,300);",
    )
    settings = {"level_scale": "100", "plugged_values": "Y=on,N=off"}
    columns = {"user": "who", "time": "when", "level": "PCT", "plugged": "chg"}
    prefixed = {f"battery.{field}": column for field, column in columns.items()}
    for given, tables in ((prefixed, {}), (columns, {"table": "battery"})):
        traces, _ = imported("livelab", source, column_map=given, settings={**settings, **tables})
        trace = traces["A"]
        assert trace.battery is not None
        np.testing.assert_allclose(trace.battery.level, [0.8, 0.79, 0.78])
        assert seconds(trace.plugged.on) == [(100, 200)]  # type: ignore[union-attr]
        assert (trace.apps is None) == bool(tables)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"settings": {"table": "battery"}}, ConfigError, "columns of table 'battery' are not known"),
        ({"settings": {"tabel": "x"}}, ConfigError, "no setting 'tabel'"),
        ({"column_map": {"level": "pct"}}, ConfigError, "cannot map 'level'"),
        ({"column_map": {"battery.colour": "pct"}}, ConfigError, "cannot map 'battery.colour'"),
        ({"column_map": {"display.screen": "lit"}}, ConfigError, "display has no column lit; it has id, uid"),
        ({"column_map": {"display.time": "time", "bare.time": "time"}}, ConfigError, "tells anything|bare"),
        (
            {"settings": {"tables": "none"}, "column_map": {"none.time": "t"}},
            DataQualityError,
            "no usable row",
        ),
        ({"time_zone": "Mars/Olympus"}, ConfigError, "is not an IANA name"),
    ],
)
def test_what_does_not_fit_is_said(
    tmp_path: Path, options: dict[str, dict[str, str]], error: type[Exception], problem: str
) -> None:
    source = sql(tmp_path, DISPLAY + "INSERT INTO bare (time) VALUES (1);")
    with pytest.raises(error, match=problem):
        imported("livelab", source, **options)


def test_columns_that_the_dump_does_not_name_are_not_guessed(tmp_path: Path) -> None:
    source = sql(tmp_path, "INSERT INTO display VALUES (1,'A',100,1);")
    with pytest.raises(ConfigError, match="does not name the columns of display"):
        imported("livelab", source)


def test_dump_that_ends_in_the_middle_of_a_row(tmp_path: Path) -> None:
    source = sql(tmp_path, "INSERT INTO appusage VALUES (1,'A','Mail',100,5),(2,'A','Ma")
    traces, report = imported("livelab", source, max_bad_rows=1)
    assert len(traces["A"].apps) == 1  # type: ignore[arg-type]
    assert str(report.examples[0]) == "a.sql:1: the file ends in the middle of a row"
