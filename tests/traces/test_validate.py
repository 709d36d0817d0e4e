"""Validation, repair and statistics."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError
from joulefleet.provenance import Origin, Provenance
from tests.traces import brute
from traces.intervals import (
    difference,
    runs_from_samples,
    time_between,
    union,
)
from traces.model import (
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
    Throughput,
)
from traces.quality.checks import MEANING, TraceSeverity, errors, require_replayable, validate
from traces.quality.repairs import repair
from traces.quality.sets import repair_set, validate_set
from traces.replay.fleet import TraceQuery
from traces.stats import LocalHours, collect
from traces.storage.trace_set import new_trace_set

HOUR = 3600 * 10**9
DAY = 24 * HOUR
T0 = 1_300_000_000 * 10**9  # 2011


def trace(**channels: object) -> InteractionTrace:
    about = {"time_zone": "America/Chicago", **channels}
    return InteractionTrace("u", T0, T0 + 10 * DAY, **about)


def at(*hours: float) -> np.ndarray:
    return T0 + np.array([round(hour * HOUR) for hour in hours], np.int64)


def spans(*pairs: tuple[float, float]) -> Intervals:
    return Intervals(at(*(a for a, _ in pairs)), at(*(b for _, b in pairs)))


def sessions(*pairs: tuple[float, float], **more: object) -> AppSessions:
    s = spans(*pairs)
    return AppSessions(
        s.start_ns, s.end_ns, np.arange(len(s), dtype=np.int32), tuple("abcdefgh"[: len(s)]), **more
    )


QUIET = Fact(spans(*((h, h + 1) for h in range(0, 230, 24))))

WRONG = {
    "reversed": ("screen", 1, trace(screen=Fact(spans((1, 2), (5, 4))))),
    "backwards": ("screen", 1, trace(screen=Fact(spans((5, 6), (1, 2))))),
    "overlap": ("screen.known", 2, trace(screen=Fact(Intervals.none(), spans((1, 5), (2, 3), (4, 6))))),
    "outside": ("plugged", 2, trace(plugged=Fact(spans((-1, 2), (5, 6), (230, 241))))),
    "repeated": ("battery", 1, trace(battery=BatteryPoints(at(1, 1, 2), [0.1, 0.2, 0.3]))),
    "level-range": ("battery", 3, trace(battery=BatteryPoints(at(1, 2, 3, 4), [-0.1, 1.2, np.nan, 0.5]))),
    "negative": ("throughput.up_bps", 1, trace(throughput=Throughput(at(1, 2), [1.0, np.nan], [2.0, -1.0]))),
    "intensity-range": ("apps.cpu", 1, trace(apps=sessions((1, 2), (3, 4), cpu=np.array([1.5, np.nan])))),
    "time-zone": ("time_zone", 1, trace(screen=QUIET, time_zone="Mars/Olympus")),
    "clock": (
        "trace",
        1,
        InteractionTrace("u", 0, T0, time_zone="UTC", screen=Fact(Intervals.none())),
    ),
    "no-channel": ("trace", 1, trace()),
    "no-time-zone": ("time_zone", 1, trace(screen=QUIET, time_zone="")),
    "long-session": ("screen", 1, trace(screen=Fact(spans((1, 30), (31, 32))), plugged=QUIET)),
    "silence": ("coverage", 2, trace(screen=Fact(spans((50, 60), (239, 240))))),
    "low-coverage": ("coverage", 1, trace(coverage=spans((0, 40), (200, 240)), screen=QUIET)),
    "battery-jump": (
        "battery",
        1,
        trace(screen=QUIET, battery=BatteryPoints(at(1, 1.01, 3), [0.9, 0.5, 0.1])),
    ),
    "battery-rises": (
        "battery",
        1,
        trace(plugged=QUIET, battery=BatteryPoints(at(2, 3, 24.1, 25, 30), [0.5, 0.9, 0.2, 0.9, 0.1])),
    ),
}


@pytest.mark.parametrize("code", sorted(MEANING))
def test_every_kind_of_finding(code: str) -> None:
    channel, count, wrong = WRONG[code]
    found = {(finding.code, finding.channel): finding.count for finding in validate(wrong)}
    assert found[code, channel] == count
    is_error = MEANING[code][0] is TraceSeverity.ERROR
    assert bool(errors(wrong)) == is_error
    if is_error:
        with pytest.raises(DataQualityError, match="'u' has errors"):
            require_replayable(wrong)
    else:
        require_replayable(wrong)


def test_a_sound_trace_has_no_findings() -> None:
    sound = trace(
        screen=QUIET,
        plugged=Fact(spans((2.5, 3.5))),
        apps=sessions((0, 1), (1, 2)),
        network=NetworkSpans(at(0, 5), at(5, 9), [NetworkKind.WIFI, NetworkKind.OFFLINE]),
        battery=BatteryPoints(at(2, 3, 40), [0.5, 0.9, 0.1]),
        throughput=Throughput(at(1), [1.0], [np.nan]),
    )
    assert validate(sound) == []


def test_a_battery_charged_while_nobody_looked_is_no_jump() -> None:
    battery = BatteryPoints(at(10, 10.02), [0.1, 0.9])
    watched = trace(screen=QUIET, battery=battery)
    away = replace(watched, coverage=spans((0, 10.005), (10.01, 240)))
    assert "battery-jump" in {finding.code for finding in validate(watched)}
    assert "battery-jump" not in {finding.code for finding in validate(away)}


@pytest.mark.parametrize("code", sorted(code for code in MEANING if MEANING[code][0] is TraceSeverity.ERROR))
def test_repair_mends_and_says_so(code: str) -> None:
    _, count, wrong = WRONG[code]
    mended, changes = repair(wrong)
    if code == "clock":
        assert (mended, changes) == (wrong, [])
        return
    assert errors(mended) == []
    assert sum(change.count for change in changes) >= count
    TraceQuery(mended).state_at(at(1, 2, 3))


def test_what_repairs_do() -> None:
    wrong = trace(
        screen=Fact(spans((5, 9), (1, 2), (8, 10), (3, 3))),
        apps=sessions((5, 9), (1, 6), (-2, 0.5), cpu=np.array([0.5, 2.0, 0.25])),
        network=NetworkSpans(at(2, 1), at(4, 3), [NetworkKind.WIFI, NetworkKind.OFFLINE]),
        battery=BatteryPoints(at(4, 2, 2, 300), [0.4, 0.1, 0.2, 0.5]),
        throughput=Throughput(at(2, 1), [-5.0, 6.0], [7.0, 8.0]),
        time_zone="Nowhere",
    )
    mended, changes = repair(wrong)
    np.testing.assert_array_equal(mended.screen.on.start_ns, at(1, 5))
    np.testing.assert_array_equal(mended.screen.on.end_ns, at(2, 10))
    np.testing.assert_array_equal(mended.apps.start_ns, at(0, 1, 5))
    np.testing.assert_array_equal(mended.apps.end_ns, at(0.5, 5, 9))  # the earlier one ends
    assert [mended.apps.names[i] for i in mended.apps.app] == ["c", "b", "a"]
    np.testing.assert_array_equal(mended.apps.cpu, [0.25, np.nan, 0.5])
    np.testing.assert_array_equal(mended.network.end_ns, at(2, 4))
    assert mended.network.kind.tolist() == [NetworkKind.OFFLINE, NetworkKind.WIFI]
    np.testing.assert_array_equal(mended.battery.t_ns, at(2, 4))
    np.testing.assert_array_equal(mended.battery.level, [0.2, 0.4])
    np.testing.assert_array_equal(mended.throughput.down_bps, [6.0, np.nan])
    assert mended.time_zone == ""
    listed = {(change.channel, change.action) for change in changes}
    assert ("apps", "overlaps removed") in listed
    assert ("battery", "cut at the ends of the recording") in listed
    assert ("time_zone", "unknown time zone removed") in listed


def test_a_trace_without_errors_is_left_alone() -> None:
    odd = trace(screen=Fact(spans((1, 40))), time_zone="")
    assert repair(odd) == (odd, [])


messy_times = st.lists(st.integers(-5, 45), max_size=12)


@settings(deadline=None, max_examples=150)
@given(messy_times, messy_times, messy_times, st.randoms())
def test_repaired_traces_are_replayable_whatever_they_were(
    starts: list[int], ends: list[int], points: list[int], random: object
) -> None:
    n = min(len(starts), len(ends))
    messy = Intervals(starts[:n], ends[:n])
    labels = np.array([random.randrange(3) for _ in range(n)], np.int32)
    wrong = InteractionTrace(
        "u", 0, 40,
        coverage=messy,
        screen=Fact(messy, messy),
        apps=AppSessions(messy.start_ns, messy.end_ns, labels, brute.APPS),
        network=NetworkSpans(messy.start_ns, messy.end_ns, labels.astype(np.int8)),
        battery=BatteryPoints(points, [random.uniform(-0.5, 1.5) for _ in points]),
        relative_time=True,
    )  # fmt: skip
    mended, changes = repair(wrong)
    assert errors(mended) == []
    assert bool(changes) == bool(errors(wrong))
    state = TraceQuery(mended).state_at(np.arange(-1, 42))
    covered = {t for a, b in zip(starts, ends, strict=False) for t in range(max(a, 0), min(b, 40))}
    assert state.screen.tolist() == [1 if t in covered else -1 for t in range(-1, 42)]


def test_sets_are_validated_and_repaired_as_a_whole(tmp_path: Path) -> None:
    wrong = [replace(WRONG[code][2], user=code) for code in ("overlap", "backwards", "clock", "silence")]
    with new_trace_set(tmp_path / "a") as new:
        for one in wrong:
            new.add(one)
        new.describe(Provenance(origin=Origin.IMPORTED, basis="test"))
    from traces.storage.trace_set import TraceSet

    found = TraceSet(tmp_path / "a")
    tally = validate_set(found)
    assert (tally.users, tally.users_with_errors) == (4, 3)
    assert tally.rows[0].severity is TraceSeverity.ERROR
    mended = repair_set(found, tmp_path / "b")
    assert mended.left.users_with_errors == 1  # the calendar cannot be repaired
    assert {change.user for change in mended.repairs} == {"overlap", "backwards"}
    record = mended.repaired.record
    assert record.repaired_from == found.record.sha256()
    assert record.repairs == mended.repairs
    assert record.provenance.origin is Origin.IMPORTED
    assert "repaired copy" in record.provenance.basis


def fact_from_samples(t_ns: Any, on: Any, *, hold_ns: int | None, end_ns: int) -> Fact:
    runs, is_on = runs_from_samples(t_ns, on, hold_ns=hold_ns, end_ns=end_ns)
    return Fact(on=Intervals(runs.start_ns[is_on], runs.end_ns[is_on]), known=union(runs))


def test_readings_and_changes_become_intervals() -> None:
    t = np.array([0, 10, 10, 20, 50])
    on = np.array([True, False, True, False, True])
    changes = fact_from_samples(t, on, hold_ns=None, end_ns=60)
    assert (changes.on.start_ns.tolist(), changes.on.end_ns.tolist()) == ([0, 50], [20, 60])
    assert (changes.known.start_ns.tolist(), changes.known.end_ns.tolist()) == ([0], [60])
    samples = fact_from_samples(t, on, hold_ns=12, end_ns=60)
    assert (samples.on.start_ns.tolist(), samples.on.end_ns.tolist()) == ([0, 50], [20, 60])
    assert (samples.known.start_ns.tolist(), samples.known.end_ns.tolist()) == ([0, 50], [32, 60])
    network, kind = runs_from_samples(t, np.array([1, 1, 1, 0, 0], np.int8), hold_ns=None, end_ns=60)
    assert (network.start_ns.tolist(), kind.tolist()) == ([0, 20], [1, 0])
    with pytest.raises(ValueError, match="backwards"):
        fact_from_samples(t[::-1], on, hold_ns=None, end_ns=60)
    assert len(fact_from_samples(t[:0], on[:0], hold_ns=None, end_ns=60).known) == 0


pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


@settings(deadline=None, max_examples=200)
@given(pairs, pairs)
def test_union_difference_and_measure_equal_brute_force(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    one, two = (Intervals([s for s, _ in p], [e for _, e in p]) for p in (a, b))
    in_one, in_two = ({t for s, e in p for t in range(s, e)} for p in (a, b))
    both = union(one, two)
    assert both.is_clean
    every = np.arange(31)
    assert time_between(both, every, every + 1).tolist() == [int(t in in_one | in_two) for t in range(31)]
    left = difference(one, two)
    assert time_between(left, every, every + 1).tolist() == [int(t in in_one - in_two) for t in range(31)]
    assert int(time_between(both, np.array([3]), np.array([17]))[0]) == len(
        (in_one | in_two) & set(range(3, 17))
    )


@pytest.mark.parametrize(
    "zone", ["America/Chicago", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/London", ""]
)
def test_hours_are_local_also_when_clocks_change(zone: str) -> None:
    # 2011-03-13 (Chicago), 2011-03-27 (London), 2011-04-03 (Lord Howe, by half an hour).
    start = int(datetime(2011, 3, 10, 7, 13, tzinfo=ZoneInfo("UTC")).timestamp()) * 10**9
    end = start + 30 * DAY
    rng = np.random.default_rng(0)
    edges = np.sort(rng.choice(30 * 24 * 60, 120, replace=False)) * 60 * 10**9 + start
    on = Intervals(edges[::2], edges[1::2])
    one = InteractionTrace("u", start, end, screen=Fact(on), time_zone=zone)
    expected = np.zeros(24)
    for begin, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        for minute in range(begin, stop, 60 * 10**9):
            local = datetime.fromtimestamp(minute // 10**9, ZoneInfo(zone or "UTC"))
            expected[local.hour] += 60
    np.testing.assert_allclose(LocalHours(one).seconds(on), expected)


def test_statistics_of_a_known_day() -> None:
    start = int(datetime(2024, 6, 1, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp()) * 10**9

    def hours(*pairs: tuple[float, float]) -> Intervals:
        edges = [(start + round(a * HOUR), start + round(b * HOUR)) for a, b in pairs]
        return Intervals([a for a, _ in edges], [b for _, b in edges])

    one = InteractionTrace(
        "u", start, start + 2 * DAY,
        coverage=hours((0, 42)),
        screen=Fact(hours((8, 8.5), (12, 12.25), (32, 32.5))),
        plugged=Fact(hours((0, 6), (24, 30))),
        time_zone="Asia/Tokyo",
    )  # fmt: skip
    stats = collect([one], "charging and idle")
    assert stats.user_days == pytest.approx(42 / 24)
    assert stats.sessions_per_day.tolist() == pytest.approx([3 / (42 / 24)])
    assert sorted(stats.session_s) == pytest.approx([900, 1800, 1800])
    screen = stats.screen.by_hour
    assert screen[8] == pytest.approx(0.5)
    assert screen[12] == pytest.approx(0.125)
    assert screen[20] == 0
    assert stats.screen.overall == pytest.approx(1.25 / 42)
    assert stats.plugged.by_hour[:7].tolist() == pytest.approx([1] * 6 + [0])
    assert stats.eligible.overall == pytest.approx(12 / 42)
    assert stats.decided == pytest.approx(1.0)
    data = stats.as_dict()
    assert data["users_in_utc"] == 0
    assert data["session_s"]["p50"] == pytest.approx(1800)


def test_the_sources_own_verdict_counts_where_there_is_one() -> None:
    verdict = trace(available=Fact(spans((0, 60)), spans((0, 180))))
    stats = collect([verdict, trace(plugged=QUIET)])
    assert stats.decided == pytest.approx((180 + 230) / 480)  # unplugged for 230 h: no, whatever else
    assert stats.eligible.overall == pytest.approx(60 / (180 + 230))


def test_what_the_recording_does_not_decide_is_told() -> None:
    stats = collect([trace(screen=QUIET)], "charging and idle")
    assert stats.decided == pytest.approx(10 / 240)  # not idle: no, whatever the charger
    assert stats.eligible.overall == 0
    assert stats.as_dict()["charging"]["overall"] is None
    everything = collect([trace(screen=QUIET, coverage=spans((0, 120)))], "any")
    assert everything.decided == pytest.approx(1.0)
    assert everything.eligible.overall == pytest.approx(1.0)
