"""The generic CSV and Parquet format, and throughput sets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulefleet.errors import ConfigError, DataQualityError
from tests.traces.importing import imported, same, seconds
from traces.model import NetworkKind
from traces.quality.checks import errors
from traces.readers import READERS
from traces.readers.rows import row_reader, value_codec
from traces.readers.rows.timestamps import SHOWN_TWICE

MOMENTS = (
    "user,time,screen,plugged,network,level,app,down_bps,up_bps,device,steps\n"
    "ann,100,on,0,wifi,0.5,Mail,,,Pixel 4,7\n"
    "ann,110.5,off,,,,none,1e6,,,7\n"
    "bob,100,1,1,4g,,,,,,7\n"
    "ann,120,,yes,offline,0.49,,,2000,,7\n"
    "bob,130,0,1,unknown,,,,,,7\n"
    "ann,130,unknown,,,,Maps,,,,7\n"
    "ann,140,off,,,,,,,,7\n"
)
SPANS = (
    "user,start,duration,app,cpu,memory,screen,network,available\n"
    "ann,100,10,Mail,0.5,,1,wifi,1\n"
    "ann,110,,Maps,,,,,\n"
    "ann,120,30,Maps,,0.25,1,5g,0\n"
    "ann,160,5,Mail,,,,not_wifi,\n"
)


def written(tmp_path: Path, text: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_moments(tmp_path: Path) -> None:
    traces, report = imported("csv", written(tmp_path, MOMENTS), settings={"licence": "CC0", "source": "me"})
    ann, bob = traces["ann"], traces["bob"]
    assert ann.screen is not None
    assert ann.plugged is not None
    assert ann.apps is not None
    assert ann.network is not None
    assert ann.battery is not None
    assert ann.throughput is not None
    assert seconds(ann.screen.on) == [(100, 110.5)]
    assert seconds(ann.screen.known) == [(100, 130)]
    assert seconds(ann.plugged.on) == [(120, 140)]
    assert seconds(ann.apps.intervals) == [(100, 110.5), (130, 140)]
    assert seconds(ann.apps.known) == [(100, 140)]
    assert seconds(ann.network.intervals) == [(100, 120), (120, 140)]
    assert ann.network.kind.tolist() == [NetworkKind.WIFI, NetworkKind.OFFLINE]
    assert ann.battery.level.tolist() == [0.5, 0.49]
    np.testing.assert_array_equal(ann.throughput.down_bps, [1e6, np.nan])
    np.testing.assert_array_equal(ann.throughput.up_bps, [np.nan, 2000])
    assert (ann.device, ann.source, ann.licence, ann.coverage) == ("Pixel 4", "me", "CC0", None)
    assert bob.network is not None
    assert bob.network.kind.tolist() == [NetworkKind.CELLULAR_4G]
    assert (bob.apps, bob.battery, bob.throughput) == (None, None, None)
    assert dict(report.notes) == {"columns not kept: steps": 1}
    assert {finding.code for finding in errors(ann)} == {"clock"}  # these hundred seconds are in 1970


def test_readings_hold_only_as_long_as_said(tmp_path: Path) -> None:
    text = "time,plugged\n100,1\n110,1\n200,1\n"
    traces, _ = imported("csv", written(tmp_path, text, "phone.csv"), settings={"hold_s": "15"})
    trace = traces["phone"]
    assert seconds(trace.plugged.on) == [(100, 125), (200, 215)]  # type: ignore[union-attr]
    assert seconds(trace.coverage) == [(100, 125), (200, 215)]


def test_spans(tmp_path: Path) -> None:
    traces, report = imported("csv", written(tmp_path, SPANS))
    trace = traces["ann"]
    assert trace.apps is not None
    assert trace.screen is not None
    assert trace.available is not None
    assert trace.network is not None
    assert seconds(trace.apps.intervals) == [(100, 110), (120, 150), (160, 165)]
    assert seconds(trace.apps.known) == [(100, 110), (120, 165)]
    np.testing.assert_array_equal(trace.apps.cpu, [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(trace.apps.memory, [np.nan, 0.25, np.nan])
    assert seconds(trace.screen.on) == [(100, 110), (120, 150)]
    assert trace.screen.known is None
    assert seconds(trace.available.on) == [(100, 110)]
    assert seconds(trace.available.known) == [(100, 110), (120, 150)]
    assert trace.network.kind.tolist() == [NetworkKind.WIFI, NetworkKind.CELLULAR_5G, NetworkKind.NOT_WIFI]
    assert report.notes["app sessions without an end, left out"] == 1


@pytest.mark.parametrize(
    ("settings", "zone", "stamps"),
    [
        ({"time_unit": "ms"}, "", ["1580256000000", "1580256010500"]),
        ({"time_unit": "ns"}, "", ["1580256000000000000", "1580256010500000000"]),
        ({"time_format": "iso"}, "", ["2020-01-29T00:00:00Z", "2020-01-29T01:00:10.500+01:00"]),
        ({"time_format": "iso"}, "Europe/Dublin", ["2020-01-29 00:00:00", "2020-01-29 00:00:10.500"]),
        (
            {"time_format": "%d.%m.%Y %H:%M:%S.%f"},
            "Europe/Dublin",
            ["29.01.2020 00:00:00.0", "29.01.2020 00:00:10.5"],
        ),
    ],
)
def test_times_are_read_as_said(
    tmp_path: Path, settings: dict[str, str], zone: str, stamps: list[str]
) -> None:
    text = f"time,screen\n{stamps[0]},1\n{stamps[1]},0\n"
    traces, _ = imported("csv", written(tmp_path, text), settings=settings, time_zone=zone)
    assert seconds(traces["a"].screen.on) == [(1580256000, 1580256010.5)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "options", "error", "problem"),
    [
        ("user,screen\na,1\n", {}, ConfigError, "no field 'time' or 'start'"),
        ("user,time\na,1\n", {}, ConfigError, "no field that tells anything"),
        ("time,duration,app,level\n1,2,x,0.5\n", {}, ConfigError, "level: not in a table of spans"),
        ("time,app,cpu\n1,x,0.5\n", {}, ConfigError, "cpu: not in a table of moments"),
        (
            "time,screen\n2020-01-29 00:00:00,1\n",
            {"settings": {"time_format": "iso"}},
            ConfigError,
            "no offset",
        ),
        ("time,screen\n1,1\n", {"settings": {"time_format": "%H"}}, ConfigError, "time zone must be given"),
        (
            "time,screen\n1,1\n",
            {"settings": {"time_unit": "min"}},
            ConfigError,
            "time_unit: 'min' is not known",
        ),
        ("time,screen\n1,1\n", {"settings": {"screen_values": "lit"}}, ConfigError, "screen_values: 'lit'"),
        ("time,screen\n1,1\n", {"settings": {"screen_above": "x"}}, ConfigError, "screen_above: 'x'"),
        ("time,screen\n1,1\n", {"settings": {"delimiter": "|"}}, ConfigError, "delimiter"),
        ("time,screen\n1,1\n", {"column_map": {"screen": ""}}, ConfigError, "without a name"),
        ("time,screen\n1,1\n", {"column_map": {"screen": "lit"}}, DataQualityError, "has no column lit"),
    ],
)
def test_what_does_not_fit_is_said(
    tmp_path: Path, text: str, options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        imported("csv", written(tmp_path, text), **options)


def test_bad_rows_leave_nothing_behind(tmp_path: Path) -> None:
    rows = (
        "ann,200,blink,1,,,,,,,7\nann,201,1,1,,1.5,,,,,7\nann,202,1,1,,,,-5,,,7\nann,,1,,,,,,,,7\nann,203,1\n"
    )
    clean, _ = imported("csv", written(tmp_path, MOMENTS))
    traces, report = imported("csv", written(tmp_path, MOMENTS + rows), max_bad_rows=5)
    assert [(bad.line, bad.problem) for bad in report.examples] == [
        (9, "screen 'blink' is not known"),
        (10, "level 1.5 is not between 0 and 1"),
        (11, "down_bps -5 is not between 0 and inf"),
        (12, "time is empty"),
        (13, "3 fields instead of 11"),
    ]
    assert same(traces["ann"], clean["ann"])
    spans = "ann,200,5000000000,Mail,,,,,\nann,200,-1,Mail,,,,,\n"
    spans += "ann,200,1,Mail,7,,,,\nann,200,,,,,1,,\nann,200,5,,,,,,\n"
    _, report = imported("csv", written(tmp_path, SPANS + spans), max_bad_rows=5)
    assert [bad.problem for bad in report.examples] == [
        "time '5000000000' is out of range (milliseconds taken for seconds?)",
        "it ends 1 s before it begins",
        "cpu 7 is not between 0 and 1",
        "the end is empty",
        "no field tells anything",
    ]


def test_text_that_does_not_decode_stops_at_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,time,screen,caf\xe9\na,1,1,x\n")
    with pytest.raises(DataQualityError, match="the header is not valid text"):
        imported("csv", path)
    path.write_bytes(b"user,time,screen,device\na,1,1,x\na,2,0,caf\xe9\nb\xe9,2,0,x\na,3,0,x\n")
    traces, report = imported("csv", path, max_bad_rows=2)
    assert [bad.problem for bad in report.examples] == ["device is not valid text", "user is not valid text"]
    assert list(traces) == ["a"]


def test_the_documentation_names_every_field_and_setting() -> None:
    text = (Path(__file__).parents[2] / "docs" / "traces-format.md").read_text(encoding="utf-8")
    for name in (*row_reader.FIELDS, *value_codec.SETTINGS, *READERS.entries()):
        assert f"`{name}`" in text, name


def test_formulas_in_names_stay_what_they_are(tmp_path: Path) -> None:
    text = 'user,start,end,app\n"=cmd|\'/c calc\'!A1",1,2,"+SUM(A1:A9)"\n'
    traces, _ = imported("csv", written(tmp_path, text))
    assert traces["=cmd|'/c calc'!A1"].apps.names == ("+SUM(A1:A9)",)  # type: ignore[union-attr]


def test_delimiters_values_and_thresholds(tmp_path: Path) -> None:
    tabs = written(tmp_path, "time\tscreen\n1\tL\n2\tD\n", "a.tsv")
    semicolons = written(tmp_path, "time;screen\n1;33.5\n2;-1\n", "b.csv")
    one, _ = imported("csv", tabs, settings={"screen_values": "L=on,D=off"})
    two, _ = imported("csv", semicolons, settings={"delimiter": "semicolon", "screen_above": "0"})
    assert seconds(one["a"].screen.on) == seconds(two["b"].screen.on) == [(1, 2)]  # type: ignore[union-attr]


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = [datetime(2020, 1, 29, 0, 0, second, tzinfo=UTC) for second in (0, 10, 20)]
    columns = {
        "user": pa.array(["ann", "ann", "ann"]).dictionary_encode(),
        "time": pa.array(times, pa.timestamp("us", "UTC")),
        "screen": [True, False, None],
        "level": [0.5, None, 0.25],
        "network": ["wifi", None, "4g"],
        "extra": [[1], [2], [3]],
    }
    pq.write_table(pa.table(columns), path)
    traces, report = imported("csv", path)
    rows = ("user,time,screen,level,network", "ann,1580256000,1,0.5,wifi", "ann,1580256010,0,,")
    expected, _ = imported("csv", written(tmp_path, "\n".join((*rows, "ann,1580256020,,0.25,4g"))))
    assert same(traces["ann"], expected["ann"])
    assert (report.rows, report.bytes_read) == (3, path.stat().st_size)
    naive = pa.table({**columns, "time": pa.array(times, pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms"))})
    pq.write_table(naive, path)
    with pytest.raises(ConfigError, match="column time holds wall-clock times"):
        imported("csv", path)
    moved, _ = imported("csv", path, time_zone="Asia/Shanghai")
    assert moved["ann"].start_ns == expected["ann"].start_ns - 8 * 3600 * 10**9
    posix = pa.table({**columns, "time": [1580256000.0, 1580256010.0, 1580256020.0]})
    pq.write_table(posix, path)
    assert same(imported("csv", path)[0]["ann"], expected["ann"])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataQualityError, match=r"a\.parquet: cannot be read as Parquet"):
        imported("csv", path)


def test_parquet_bad_rows_have_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"time": [1, 2, 3, 4], "level": [0.5, 7.0, float("nan"), 0.5]}), path)
    traces, report = imported("csv", path, max_bad_rows=1)
    assert [str(bad) for bad in report.examples] == ["a.parquet:2: level 7 is not between 0 and 1"]
    assert traces["a"].battery.t_ns.tolist() == [1 * 10**9, 4 * 10**9]  # type: ignore[union-attr]


def test_a_drive_in_two_files_is_one_trace(tmp_path: Path) -> None:
    for name, first_s in (("a.csv", 0), ("b.csv", 100)):
        rows = [f"drive,{first_s + i},{i + 1}" for i in range(3)]
        (tmp_path / name).write_text("\n".join(["trace,t_s,mbps", *rows, ""]))
    (trace,) = imported("throughput", tmp_path)[0].values()
    assert trace.throughput is not None
    assert trace.throughput.t_ns.tolist() == [t * 10**9 for t in (0, 1, 100, 101)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_hours_that_a_clock_shows_twice_are_noted(tmp_path: Path, kind: str) -> None:
    stamps = ["2020-10-25 01:30:00", "2020-10-25 02:30:00", "2020-10-25 03:30:00"]
    path = tmp_path / f"a.{kind}"
    settings = {}
    if kind == "csv":
        path.write_text("time,screen\n" + "".join(f"{stamp},1\n" for stamp in stamps))
        settings = {"time_format": "iso"}
    else:
        times = pa.array([datetime.fromisoformat(stamp) for stamp in stamps], pa.timestamp("us"))
        pq.write_table(pa.table({"time": times, "screen": [True] * 3}), path)
    traces, report = imported("csv", path, time_zone="Europe/Berlin", settings=settings)
    assert report.notes[SHOWN_TWICE] == 1
    assert traces["a"].span_ns == 3 * 3600 * 10**9


def test_ucc_drives(tmp_path: Path) -> None:
    text = (
        "trace,timestamp,network_mode,dl_kbps,ul_kbps\n"
        "t1,2019.12.01_12.11.21,LTE,29,13\nt1,2019.12.01_12.11.21,LTE,30,13\nt1,2019.12.01_12.11.23,5G,2,3\n"
        "t2,2019.12.01_12.11.21,??,1,1\nt2,2019.12.01_12.11.22,HSPA+,1,1\nt2,2019.12.01_12.11.25,HSPA+,1,1\n"
    )
    source = written(tmp_path, text)
    with pytest.raises(ConfigError, match="wall-clock times: the time zone must be given"):
        imported("throughput", source)
    traces, report = imported("throughput", source, time_zone="Europe/Dublin")
    begin = datetime(2019, 12, 1, 12, 11, 21, tzinfo=ZoneInfo("Europe/Dublin")).timestamp()
    one = traces["t1"]
    assert one.throughput is not None
    assert one.network is not None
    assert one.throughput.t_ns.tolist() == [begin * 1e9, begin * 1e9, (begin + 2) * 1e9]
    assert one.throughput.down_bps.tolist() == [29e3, 30e3, 2e3]
    assert one.throughput.up_bps.tolist() == [13e3, 13e3, 3e3]
    assert one.network.kind.tolist() == [NetworkKind.CELLULAR_4G]
    assert traces["t2"].network.kind.tolist() == [NetworkKind.CELLULAR_3G]  # type: ignore[union-attr]
    assert report.notes["throughput readings twice at one time, kept"] == 1
    assert report.notes["network '??' is not known"] == 1
    published = text.replace(
        "trace,timestamp,network_mode,dl_kbps,ul_kbps", "x,Timestamp,NetworkMode,DL_bitrate,UL_bitrate"
    )
    drive = written(tmp_path, "\n".join(published.splitlines()[:4]), "B_2019.12.01_12.11.21.csv")
    assert list(imported("throughput", drive, time_zone="Europe/Dublin")[0]) == ["B_2019.12.01_12.11.21"]


def test_hsdpa_rates_belong_to_the_stretch_before(tmp_path: Path) -> None:
    table = written(
        tmp_path, "split,trace,t_s,mbps\ntrain,a,0.0,9\ntrain,b,0,9\ntrain,a,1.5,2\ntrain,a,2.0,4\n"
    )
    pairs = written(tmp_path, "0.0\t9\n1.5 2\n2.0\t4\n", "norway_bus_1")
    one, report = imported("throughput", table)
    two, _ = imported("throughput", pairs)
    for trace in (one["a"], two["norway_bus_1"]):
        assert trace.relative_time
        assert (trace.start_ns, trace.end_ns) == (0, 2 * 10**9)
        assert trace.throughput is not None
        assert trace.throughput.t_ns.tolist() == [0, 1_500_000_000]
        assert trace.throughput.down_bps.tolist() == [2e6, 4e6]
        assert np.isnan(trace.throughput.up_bps).all()
    assert report.notes["users with a single moment, left out"] == 1
    _, report = imported("throughput", written(tmp_path, "0 1\n1 2 3\n2 x\n3 4\n", "log"), max_bad_rows=2)
    assert [(bad.line, bad.problem) for bad in report.examples] == [
        (2, "3 fields instead of 2"),
        (3, "mbps 'x' is not a number"),
    ]


def test_what_a_recording_was_made_on(tmp_path: Path) -> None:
    """Names tell it, of others the setting; nothing is guessed."""

    def kinds(name: str, **settings: str) -> tuple[list[int], int]:
        traces, report = imported("throughput", written(tmp_path, "0 9\n5 2\n", name), settings=settings)
        (trace,) = traces.values()
        told = [] if trace.network is None else trace.network.kind.tolist()
        return told, sum("do not tell the network" in note for note in report.notes)

    assert kinds("norway_bus_1", network="wifi") == ([NetworkKind.CELLULAR_3G], 0)
    assert kinds("trace_7_http---www.example.com") == ([NetworkKind.ETHERNET], 0)
    assert kinds("bus.a-b-report.2010-09-28_1407CEST.log") == ([NetworkKind.CELLULAR_3G], 0)
    assert kinds("mine") == ([], 1)
    assert kinds("mine", network="wifi") == ([NetworkKind.WIFI], 0)
    with pytest.raises(ConfigError, match="network: 'lan' is not known"):
        kinds("mine", network="lan")


def test_runs_of_one_file_are_told_apart(tmp_path: Path) -> None:
    text = (
        "throughput,time_since_start,avg_power,target bandwidth,direction,network type,provider\n"
        "1,0,2737,1,downlink,LTE,Verizon\n2,1,2737,1,downlink,LTE,Verizon\n"
        "3,0,2737,1,uplink,mmwave,Verizon\n4,1,2737,1,uplink,mmwave,Verizon\n"
        "5,2,2737,9,uplink,mmwave,Verizon\n6,3,2737,9,uplink,mmwave,Verizon\n"
        "6,3,2737,9,sideways,mmwave,Verizon\n"
    )
    traces, report = imported("throughput", written(tmp_path, text), max_bad_rows=1)
    rates = [traces[f"a#00{run}"].throughput for run in (1, 2, 3)]
    np.testing.assert_array_equal(
        [rate.down_bps for rate in rates if rate], [[1e6, 2e6], [np.nan] * 2, [np.nan] * 2]
    )
    np.testing.assert_array_equal(
        [rate.up_bps for rate in rates if rate], [[np.nan] * 2, [3e6, 4e6], [5e6, 6e6]]
    )
    assert dict(traces["a#003"].facts) == {
        "direction": "uplink",
        "network": "mmwave",
        "provider": "Verizon",
        "target_mbps": 9.0,
    }
    assert report.notes["columns not kept: avg_power"] == 1


def test_shuffled_rows_are_not_taken_for_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"{time},CONNECTED,{time + 1},0\n" for time in rng.permutation(400))
    source = written(tmp_path, "Timestamp,nrStatus,downlink_Mbps,uplink_Mbps\n" + rows)
    with pytest.raises(DataQualityError, match="they are shuffled") as caught:
        imported("throughput", source)
    assert "runs=mixed" in caught.value.hint
    traces, report = imported("throughput", source, settings={"runs": "mixed"})
    throughput = traces["a"].throughput
    assert throughput is not None
    assert sorted(throughput.down_bps) == [1e6 * (time + 1) for time in range(400)]
    assert report.notes["throughput readings out of time order, kept"] > 100
    with pytest.raises(DataQualityError, match="no known throughput set has the columns"):
        imported("throughput", written(tmp_path, "a,b\n1,2\n"))
