"""AWARE, ExtraSensory, LSApp and StudentLife, on small files written by hand."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from joulefleet.errors import ConfigError, DataQualityError
from tests.traces.importing import imported, seconds
from traces.model import NetworkKind


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


SCREEN = "time,screen_status\n100.5,1\n101,3\n110,0\n110.1,2\n190,1\n260,0\n"
BATTERY = (
    "time,battery_level,battery_status,battery_adaptor\n"
    "100,50,3,0\n120,50,2,1\n180,52,5,4\n200,52,-1,0\n300,51,3,0\n400,50,3,0\n"
)


def test_aware_screen_and_battery_are_one_phone(tmp_path: Path) -> None:
    folder = tmp_path / "phone7"
    folder.mkdir()
    written(folder / "screen.csv", SCREEN)
    (folder / "battery.csv.gz").write_bytes(gzip.compress(BATTERY.encode()))
    traces, report = imported("aware", folder, time_zone="Europe/Helsinki", settings={"licence": "MIT"})
    trace = traces["phone7"]
    assert trace.screen is not None
    assert trace.plugged is not None
    assert trace.battery is not None
    # The phone was off from 200 s to the next row of either file, the screen event at 260 s.
    assert seconds(trace.coverage) == [(100, 200), (260, 400)]
    assert seconds(trace.screen.on) == [(100.5, 110), (190, 200)]
    assert seconds(trace.screen.known) == [(100.5, 200), (260, 400)]
    assert seconds(trace.plugged.on) == [(120, 200)]
    assert seconds(trace.plugged.known) == [(100, 200), (300, 400)]
    assert trace.battery.level.tolist() == [0.5, 0.5, 0.52, 0.52, 0.51, 0.5]
    assert (trace.licence, trace.time_zone) == ("MIT", "Europe/Helsinki")
    assert dict(report.notes) == {
        "locked events, not kept": 1,
        "unlocked events, not kept": 1,
        "shutdown events, unknown until the next row": 1,
    }


def test_aware_own_export_counts_milliseconds_and_names_devices(tmp_path: Path) -> None:
    text = "_id,timestamp,device_id,screen_status\n1,1578528401574,d1,1\n2,1578528402574,d1,0\n"
    traces, report = imported("aware", written(tmp_path / "a.csv", text))
    assert (traces["d1"].start_ns, traces["d1"].end_ns) == (1578528401574 * 10**6, 1578528402574 * 10**6)
    assert report.notes["the licence is not stated (setting: licence)"] == 1


def test_aware_one_trace_per_user_and_device(tmp_path: Path) -> None:
    text = "user,device,time,screen_status\na,d1,1,1\na,d2,1,1\nb,d1,1,1\na,d1,2,0\na,d2,3,0\nb,d1,4,0\n"
    traces, _ = imported("aware", written(tmp_path / "a.csv", text))
    assert {user: trace.end_ns for user, trace in traces.items()} == {
        "a/d1": 2 * 10**9,
        "a/d2": 3 * 10**9,
        "b/d1": 4 * 10**9,
    }


def test_aware_bad_rows(tmp_path: Path) -> None:
    source = written(
        tmp_path / "a.csv", BATTERY + "500,101,3,0\n500,50,9,0\n500,50,3,7\nx,50,3,0\n500,50,3\n\n"
    )
    _, report = imported("aware", source, max_bad_rows=5)
    assert [(bad.line, bad.problem) for bad in report.examples] == [
        (8, "battery_level 101 is not between 0 and 100"),
        (9, "battery_status '9' is not known"),
        (10, "battery_adaptor '7' is not known"),
        (11, "time 'x' is not a number"),
        (12, "3 fields instead of 4"),
    ]
    _, report = imported("aware", written(tmp_path / "b.csv", SCREEN + "300,7\n"), max_bad_rows=1)
    assert str(report.examples[0]) == "b.csv:8: screen_status '7' is not known"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("time,screen_status\n", "there is no usable row"),
        ("when,screen_status\n1,1\n", "no column time"),
        ("time,steps\n1,1\n", "neither AWARE's screen nor its battery"),
        ("time,time,screen_status\n1,1,1\n", "column time twice"),
        ('time,screen_status\n1,"1\n' + "2,1\n" * 50_000, "field larger than|quote"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(DataQualityError, match=problem):
        imported("aware", written(tmp_path / "a.csv", text))


def test_columns_can_be_mapped_and_unknown_choices_are_errors(tmp_path: Path) -> None:
    source = written(tmp_path / "a.csv", "when,lit\n1,1\n2,0\n")
    traces, _ = imported("aware", source, column_map={"time": "when", "screen": "lit"})
    assert seconds(traces["a"].screen.on) == [(1, 2)]  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="no mapped field 'colour'"):
        imported("aware", source, column_map={"colour": "x"})
    with pytest.raises(ConfigError, match="no setting 'licens'") as caught:
        imported("aware", source, settings={"licens": "x"})
    assert "did you mean 'licence'?" in caught.value.hint


EXTRASENSORY = (
    "user,timestamp,battery_level,battery_plugged,battery_state,wifi_status,screen_brightness\n"
    "es00,1000,0.5,,charging,reachable_via_wifi,0.3\n"
    "es00,1060,0.51,,unplugged,not_reachable,0.3\n"
    "es00,1120,,ac,discharging,,\n"
    "es00,1180,0.5,,not_charging,reachable_via_wwan,\n"
    "es00,1900,0.4,,full,reachable_via_wifi,\n"
)


def test_extrasensory_readings_hold_and_gaps_stay_unknown(tmp_path: Path) -> None:
    traces, report = imported("extrasensory", written(tmp_path / "all.csv", EXTRASENSORY))
    trace = traces["es00"]
    assert trace.plugged is not None
    assert trace.network is not None
    assert trace.battery is not None
    assert seconds(trace.coverage) == [(1000, 1270), (1900, 1990)]
    assert seconds(trace.plugged.on) == [(1000, 1060), (1120, 1180), (1900, 1990)]
    assert seconds(trace.plugged.known) == [(1000, 1180), (1900, 1990)]
    assert seconds(trace.network.intervals) == [(1000, 1060), (1060, 1120), (1180, 1270), (1900, 1990)]
    assert trace.network.kind.tolist() == [
        NetworkKind.WIFI,
        NetworkKind.NOT_WIFI,
        NetworkKind.CELLULAR,
        NetworkKind.WIFI,
    ]
    assert trace.battery.t_ns.tolist() == [1000 * 10**9, 1060 * 10**9, 1180 * 10**9, 1900 * 10**9]
    assert trace.screen is None
    assert report.notes["battery_state not_charging without a charger named: charger unknown"] == 1
    longer, _ = imported("extrasensory", tmp_path / "all.csv", settings={"hold_s": "1000"})
    assert seconds(longer["es00"].coverage) == [(1000, 2900)]
    for bad in ("0", "-1", "x", "nan"):
        with pytest.raises(ConfigError, match="hold_s"):
            imported("extrasensory", tmp_path / "all.csv", settings={"hold_s": bad})


def test_extrasensory_as_published(tmp_path: Path) -> None:
    header = [
        "timestamp",
        "raw_acc:magnitude_stats:mean",
        "discrete:battery_plugged:is_ac",
        "discrete:battery_plugged:missing",
        "discrete:battery_state:is_charging",
        "discrete:battery_state:is_discharging",
        "discrete:battery_state:missing",
        "discrete:wifi_status:is_reachable_via_wifi",
        "discrete:wifi_status:is_not_reachable",
        "lf_measurements:battery_level",
        "label:SLEEPING",
    ]
    rows = ["1000,0.9,0,1,1,0,0,1,0,0.5,nan", "1060,0.9,0,1,0,1,0,0,1,nan,1", "1120,0.9,1,0,0,1,0,0,0,0.4,1"]
    packed = tmp_path / "0A986513.features_labels.csv.gz"
    packed.write_bytes(gzip.compress("\n".join([",".join(header), *rows]).encode()))
    trace = imported("extrasensory", tmp_path)[0]["0A986513"]
    assert seconds(trace.plugged.on) == [(1000, 1060), (1120, 1210)]  # type: ignore[union-attr]
    assert seconds(trace.network.intervals) == [(1000, 1060), (1060, 1120)]  # type: ignore[union-attr]
    assert trace.battery.level.tolist() == [0.5, 0.4]  # type: ignore[union-attr]


def test_extrasensory_bad_rows(tmp_path: Path) -> None:
    rows = "es00,1,2,,,,\nes00,1,,tree,,,\nes00,1,,,tired,,\nes00,1,,,,maybe,\n,1,0.5,,,,\n"
    _, report = imported("extrasensory", written(tmp_path / "a.csv", EXTRASENSORY + rows), max_bad_rows=5)
    assert [bad.problem for bad in report.examples] == [
        "battery_level 2 is not between 0 and 1",
        "battery_plugged 'tree' is not known",
        "battery_state 'tired' is not known",
        "wifi_status 'maybe' is not known",
        "user is empty",
    ]


LSAPP = "user_id\tsession_id\ttimestamp\tapp_name\tevent_type\n" + "".join(
    f"{user}\t1\t2018-01-16 06:{stamp}\t{app}\t{event}\n"
    for user, stamp, app, event in (
        (0, "01:05", 'Mines "Classic"', "Opened"),
        (0, "01:05", 'Mines "Classic"', "Closed"),
        (0, "01:10", "Facebook", "Opened"),
        (1, "01:10", "Gmail", "Opened"),
        (0, "01:15", "Gmail", "User Interaction"),
        (0, "01:20", "Facebook", "Closed"),
        (0, "01:20", "Facebook", "Opened"),
        (0, "01:30", "Facebook", "Closed"),
        (0, "02:00", "Gmail", "Opened"),
        (0, "02:10", "Maps", "Opened"),
        (0, "02:20", "Gmail", "Closed"),
        (0, "02:30", "Maps", "Broken"),
        (1, "02:30", "Gmail", "Closed"),
        (0, "03:00", "Maps", "Opened"),
        (0, "03:30", "Maps", "Closed"),
    )
)


def test_lsapp_events_become_sessions(tmp_path: Path) -> None:
    source = written(tmp_path / "lsapp.tsv", LSAPP)
    with pytest.raises(ConfigError, match="the time zone must be given"):
        imported("lsapp", source)
    traces, report = imported("lsapp", source, time_zone="America/New_York")
    begin = datetime(2018, 1, 16, 6, 0, tzinfo=ZoneInfo("America/New_York")).timestamp()
    apps = traces["0"].apps
    assert apps is not None
    found = [
        (apps.names[app], start - begin, end - begin)
        for app, (start, end) in zip(apps.app, seconds(apps.intervals), strict=True)
    ]
    assert found == [("Facebook", 70, 90), ("Gmail", 120, 130), ("Maps", 130, 150), ("Maps", 180, 210)]
    assert [(start - begin, end - begin) for start, end in seconds(apps.known)] == [(65, 150), (180, 210)]
    assert seconds(traces["1"].apps.intervals) == [(begin + 70, begin + 150)]  # type: ignore[union-attr]
    assert dict(report.notes) == {
        "interactions with an app that was not opened, not kept": 1,
        "apps opened before another one was closed, which ends there": 1,
        "apps closed that were not in front, not kept": 1,
        "broken sessions, unknown until the next app is opened": 1,
    }


def test_lsapp_backwards_and_bad(tmp_path: Path) -> None:
    extra = "0\t2\t2018-01-16 05:00:00\tMaps\tOpened\n0\t2\t2018-01-16\tMaps\tOpened\n0\t2\tx\tMaps\tSwiped\n"
    source = written(tmp_path / "lsapp.tsv", LSAPP + extra)
    _, report = imported("lsapp", source, time_zone="UTC", max_bad_rows=2)
    assert report.notes["events out of time order, sorted"] == 1
    assert [bad.problem for bad in report.examples] == [
        "time '2018-01-16' is not a date with seconds",
        "event_type 'Swiped' is not known",
    ]


def test_studentlife_takes_the_task_on_top(tmp_path: Path) -> None:
    text = (
        "user,timestamp,task_id,top_package,num_running\n"
        "u00,1000,9,com.chat,1\nu00,1000,2,com.launcher,1\nu01,1000,2,com.launcher,1\n"
        "u00,2200,2,com.launcher,1\nu00,2200,9,com.chat,1\nu00,9000,2,com.launcher,1\n"
    )
    traces, report = imported("studentlife", written(tmp_path / "a.csv", text))
    apps = traces["u00"].apps
    assert apps is not None
    assert [apps.names[app] for app in apps.app] == ["com.chat", "com.launcher", "com.launcher"]
    assert seconds(apps.intervals) == [(1000, 2200), (2200, 3405), (9000, 10205)]
    assert seconds(apps.known) == seconds(traces["u00"].coverage) == [(1000, 3405), (9000, 10205)]
    assert traces["u00"].screen is None
    assert report.notes == {"tasks below the one on top, not kept": 2}
    published = "id,device,timestamp,RUNNING_TASKS_topActivity_mPackage\n1,x,1000,com.chat\n2,x,1000,com.b\n"
    traces, _ = imported("studentlife", written(tmp_path / "running_app_u17.csv", published))
    assert traces["u17"].apps.names == ("com.chat",)  # type: ignore[union-attr]
