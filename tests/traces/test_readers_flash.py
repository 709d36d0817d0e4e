"""FLASH's JSON: logs of changes phone by phone, and the timers derived from them."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from joulefleet.errors import ConfigError, DataQualityError
from tests.traces.importing import imported, seconds
from traces.model import NetworkKind
from traces.replay.fleet import TraceQuery

ZONE = "Asia/Shanghai"
BEGIN_S = datetime(2020, 1, 29, tzinfo=ZoneInfo(ZONE)).timestamp()

LOG = """2020-01-29 00:00:00\tscreen_on
2020-01-29 00:00:10\tbattery_charged_on
2020-01-29 00:00:20\twifi
2020-01-29 00:00:30\t47.0%
2020-01-29 00:01:00\tscreen_off
2020-01-29 00:01:00\tscreen_lock
2020-01-29 00:02:00\t4G

2020-01-29 00:03:00\tUnknown
2020-01-29 00:04:00\t5G
2020-01-29 00:05:00\tbattery_charged_off
2020-01-29 00:06:00\t46.5%
"""


def written(tmp_path: Path, value: object, name: str = "state_traces.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def phone(messages: str = LOG, guid: str = "g0") -> dict[str, str]:
    return {"guid": guid, "model": "MI 8", "messages": messages}


def after(begin: float, end: float) -> tuple[float, float]:
    return BEGIN_S + begin, BEGIN_S + end


def test_log_becomes_channels(tmp_path: Path) -> None:
    traces, report = imported("flash", written(tmp_path, {"0": phone()}), time_zone=ZONE)
    trace = traces["g0"]
    assert (trace.start_ns, trace.end_ns) == (BEGIN_S * 1e9, (BEGIN_S + 360) * 1e9)
    assert trace.screen is not None
    assert trace.plugged is not None
    assert trace.network is not None
    assert trace.battery is not None
    assert seconds(trace.screen.on) == [after(0, 60)]
    assert seconds(trace.screen.known) == [after(0, 360)]
    assert seconds(trace.plugged.on) == [after(10, 300)]
    assert seconds(trace.plugged.known) == [after(10, 360)]
    assert seconds(trace.network.intervals) == [after(20, 120), after(120, 180), after(240, 360)]
    assert trace.network.kind.tolist() == [
        NetworkKind.WIFI,
        NetworkKind.CELLULAR_4G,
        NetworkKind.CELLULAR_5G,
    ]
    assert trace.battery.level.tolist() == [0.47, 0.465]
    assert (trace.device, trace.time_zone, trace.licence) == ("MI 8", ZONE, "BSD-2-Clause")
    assert report.rows == 11
    assert dict(report.notes) == {"screen_lock events, not kept": 1}


def test_a_phone_that_is_switched_off_is_unknown_until_it_tells_again(tmp_path: Path) -> None:
    """On the charger and on Wi-Fi in the evening, off through the night."""
    night = """2020-01-29 00:00:00\tbattery_charged_on
2020-01-29 00:00:00\twifi
2020-01-29 00:00:00\tscreen_off
2020-01-29 00:01:00\tphone_off
2020-01-29 00:01:00\t80.0%
2020-01-29 08:00:00\tphone_on
2020-01-29 08:01:00\tbattery_charged_on
2020-01-29 08:02:00\twifi
2020-01-29 08:03:00\tscreen_on
2020-01-29 09:00:00\t90.0%
"""
    traces, report = imported("flash", written(tmp_path, {"0": phone(night)}), time_zone=ZONE)
    trace = traces["g0"]
    assert trace.screen is not None
    assert trace.plugged is not None
    assert trace.network is not None
    morning, end = 8 * 3600, 9 * 3600
    # The reading in the second in which the phone went off is no sign that it is on again.
    assert seconds(trace.coverage) == [after(0, 60), after(morning, end)]
    # What was so in the evening need not be so in the morning: each state waits for its own message.
    assert seconds(trace.plugged.known) == [after(0, 60), after(morning + 60, end)]
    assert seconds(trace.network.intervals) == [after(0, 60), after(morning + 120, end)]
    assert seconds(trace.screen.known) == [after(0, 60), after(morning + 180, end)]
    may_train = TraceQuery(trace).eligible_intervals("charging and wifi")
    assert seconds(may_train) == [after(0, 60), after(morning + 120, end)]
    assert dict(report.notes) == {
        "phone_off events, unknown until the next message": 1,
        "phone_on events, not kept": 1,
    }


def test_the_zone_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wall-clock times: the time zone must be given"):
        imported("flash", written(tmp_path, {"0": phone()}))


def test_bad_messages_and_phones_are_counted_with_their_place(tmp_path: Path) -> None:
    strange = (
        "2020-01-29 00:00:00\tdancing\nyesterday\twifi\n2020-01-29 00:00:05\n2020-01-29 00:00:06\t101%\n"
    )
    source = written(
        tmp_path,
        {
            "0": phone(LOG + strange),
            "1": 7,
            "2": {"guid": "g2"},
            "3": phone(guid="g0"),
            "4": phone(guid=""),
            "5": {"guid": "g5", "messages": ["x"]},
            "6": phone(guid="g6"),
            "7": phone("", guid="g7"),
        },
    )
    traces, report = imported("flash", source, time_zone=ZONE, max_bad_rows=20)
    assert list(traces) == ["g0", "g6"]
    problems = [(bad.line, bad.problem) for bad in report.examples]
    assert problems[:4] == [
        (2, "phone g0, message 13: state 'dancing' is not known"),
        (2, "phone g0, message 14: time 'yesterday' is not a date with seconds"),
        (2, "phone g0, message 15: no state after the time"),
        (2, "phone g0, message 16: battery 101 is not between 0 and 100"),
    ]
    assert problems[4:] == [
        (7, "is not a phone"),
        (8, "has neither 'messages' nor 'ready_time'"),
        (11, "user 'g0' is there twice, the first one counts"),
        (16, "the guid is not text"),
        (21, "'messages' is not text"),
    ]


def test_time_running_backwards_is_sorted_for_changes_and_counted(tmp_path: Path) -> None:
    lines = LOG.splitlines()
    backwards = "\n".join([*lines[4:], *lines[:4]])
    traces, report = imported("flash", written(tmp_path, {"0": phone(backwards)}), time_zone=ZONE)
    assert seconds(traces["g0"].screen.on) == [after(0, 60)]  # type: ignore[union-attr]
    assert report.notes["screen readings out of time order, sorted"] == 1
    assert report.notes["battery readings out of time order, kept"] == 1


def test_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="there is no usable phone"):
        imported("flash", written(tmp_path, {}), time_zone=ZONE)


def test_cut_and_packed(tmp_path: Path) -> None:
    text = json.dumps({str(number): phone(guid=f"g{number}") for number in range(500)}).encode()
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text))
    assert len(imported("flash", path, time_zone=ZONE)[0]) == 500
    path.write_bytes(text[:-1000])
    with pytest.raises(DataQualityError, match="the file ends in the middle"):
        imported("flash", path, time_zone=ZONE)


def test_timers_become_availability(tmp_path: Path) -> None:
    timers = {
        "g0": {
            "isSuccess": True,
            "trace_start": 100.0,
            "trace_end": 1000.0,
            "ready_time": [[200.0, 300.0], [400, 900]],
        },
        "g1": {"isSuccess": True, "trace_start": 0, "trace_end": 50, "ready_time": []},
        "g2": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
        "g3": {"isSuccess": True, "trace_start": 0, "trace_end": 50, "ready_time": [[1]]},
        "g4": {"isSuccess": True, "trace_start": 0, "trace_end": "x", "ready_time": []},
    }
    source = written(tmp_path, timers, "cached_timers.json")
    traces, report = imported("flash", source, time_zone=ZONE, max_bad_rows=2)
    reference = datetime(2020, 1, 2, tzinfo=ZoneInfo(ZONE)).timestamp()
    available = traces["g0"].available
    assert available is not None
    assert seconds(available.on) == [(reference + 200, reference + 300), (reference + 400, reference + 900)]
    assert (traces["g0"].start_ns, traces["g0"].end_ns) == ((reference + 100) * 1e9, (reference + 1000) * 1e9)
    assert seconds(traces["g1"].available.on) == []  # type: ignore[union-attr]
    assert seconds(traces["g1"].available.known) == [(reference, reference + 50)]  # type: ignore[union-attr]
    assert sorted(traces) == ["g0", "g1"]
    assert report.notes["phones for which FLASH found no timer, left out"] == 1
    assert [bad.problem for bad in report.examples] == [
        "'ready_time' is not a list of pairs",
        "trace_end 'x' is not a number of seconds",
    ]


def test_timers_count_on_a_clock_that_is_put_forward(tmp_path: Path) -> None:
    """Ninety days after 2 January 2020 the clocks of Berlin had been put forward by an hour."""
    days = 90 * 86_400
    phone = {"isSuccess": True, "trace_start": 0, "trace_end": days, "ready_time": [[days - 3600.5, days]]}
    source = written(tmp_path, {"g": phone}, "cached_timers.json")
    trace = imported("flash", source, time_zone="Europe/Berlin")[0]["g"]
    end = datetime(2020, 4, 1, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert trace.available is not None
    assert trace.end_ns == end * 10**9
    assert seconds(trace.available.on) == [(end - 3600.5, end)]
