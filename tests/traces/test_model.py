"""Queries against brute force: answers equal those read off the intervals one nanosecond at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError
from tests.conftest import FULL_COUNTS
from tests.traces import brute
from traces.model import AppSessions, BatteryPoints, Fact, InteractionTrace, Intervals, NetworkKind
from traces.replay.devices import NEVER_NS, DeviceMap, FleetRecipe
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet, TraceQuery, TraceState
from traces.replay.intensity import default_table

BRUTE = settings(deadline=None, max_examples=500 if FULL_COUNTS else 60)
UNKNOWN = {None: -1, False: 0, True: 1}


def assert_state(state: TraceState, apps: tuple[str, ...], i: int, expected: brute.Moment) -> None:
    """One entry of an answer against the slow way."""
    for name in ("screen", "plugged", "available"):
        assert getattr(state, name)[i] == UNKNOWN[getattr(expected, name)], name
    assert state.network[i] == (-1 if expected.network is None else expected.network)
    assert state.covered[i] == expected.covered
    number = int(state.app[i])
    assert (None if number == -1 else "?" if number == -2 else apps[number]) == expected.app
    for name in ("cpu", "memory"):
        value, wanted = float(getattr(state, name)[i]), getattr(expected, name)
        assert math.isnan(value) if wanted is None else value == pytest.approx(wanted, rel=1e-6), name


def around(trace: InteractionTrace) -> np.ndarray:
    return np.arange(trace.start_ns - 3, trace.end_ns + 4)


@pytest.mark.campaign
@BRUTE
@given(brute.traces())
def test_state_at_equals_brute_force_at_every_nanosecond(trace: InteractionTrace) -> None:
    query = TraceQuery(trace)
    times = around(trace)
    state = query.state_at(times)
    for i, t in enumerate(times.tolist()):
        assert_state(state, query.apps, i, brute.moment(trace, t))


@pytest.mark.campaign
@BRUTE
@given(brute.traces(), st.randoms())
def test_asking_twice_in_any_order_gives_the_same_answers(trace: InteractionTrace, random: object) -> None:
    # FedScale's availability moves a cursor: asked in large steps it is wrong half of the time.
    query = TraceQuery(trace)
    times = around(trace)
    first = query.state_at(times)
    mixed = np.array(random.sample(range(len(times)), len(times)))
    again = query.state_at(times[mixed])
    for name in TraceState.__slots__:
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name)[mixed])


@pytest.mark.campaign
@BRUTE
@given(brute.traces(scale=86_399_999_999_989), st.data())
def test_state_of_long_traces_at_and_around_every_edge(trace: InteractionTrace, data: st.DataObject) -> None:
    query = TraceQuery(trace)
    unit = 86_399_999_999_989
    edges = np.arange(trace.start_ns, trace.end_ns + 1, unit)
    inner = data.draw(st.lists(st.integers(trace.start_ns, trace.end_ns), max_size=20))
    times = np.concatenate([edges - 1, edges, edges + 1, np.array(inner, np.int64)])
    state = query.state_at(times)
    for i, t in enumerate(times.tolist()):
        assert_state(state, query.apps, i, brute.moment(trace, t))


@pytest.mark.campaign
@BRUTE
@given(brute.traces())
def test_battery_and_throughput_equal_brute_force(trace: InteractionTrace) -> None:
    query = TraceQuery(trace)
    times = around(trace)
    level = query.battery_at(times)
    rates = query.throughput_at(times)
    for i, t in enumerate(times.tolist()):
        expected = brute.battery_at(trace, t)
        assert math.isnan(level[i]) if expected is None else level[i] == pytest.approx(expected)
        found = trace.throughput and brute.reading_at(trace, trace.throughput.t_ns.tolist(), t)
        if found:
            assert (rates.down_bps[i], rates.up_bps[i]) == (found[0], 2 * found[0])
        else:
            assert math.isnan(rates.down_bps[i])
            assert math.isnan(rates.up_bps[i])


@pytest.mark.campaign
@BRUTE
@given(brute.traces())
def test_next_change_equals_brute_force(trace: InteractionTrace) -> None:
    query = TraceQuery(trace)
    times = around(trace)
    found = query.next_change(times)
    for t, change in zip(times.tolist(), found.tolist(), strict=True):
        now = brute.moment(trace, t)
        later = (u for u in range(t + 1, trace.end_ns + 2) if brute.moment(trace, u) != now)
        assert change == next(later, NEVER_NS)


@pytest.mark.campaign
@BRUTE
@given(brute.traces(), st.data())
def test_intensity_is_the_mean_over_every_nanosecond(trace: InteractionTrace, data: st.DataObject) -> None:
    query = TraceQuery(trace)
    edge = st.integers(trace.start_ns - 5, trace.end_ns + 5)
    windows = [(a, b) for a, b in data.draw(st.lists(st.tuples(edge, edge), min_size=1, max_size=8)) if b > a]
    if not windows:
        return
    mean = query.intensity(np.array([a for a, _ in windows]), np.array([b for _, b in windows]))
    for i, (a, b) in enumerate(windows):
        cpu, memory, known = brute.mean_intensity(trace, list(range(a, b)))
        assert mean.cpu[i] == pytest.approx(cpu, rel=1e-6, nan_ok=True)
        assert mean.memory[i] == pytest.approx(memory, rel=1e-6, nan_ok=True)
        assert mean.known[i] == pytest.approx(known)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[InteractionTrace], DeviceMap]:
    users = draw(st.integers(1, 3))
    recorded = [draw(brute.traces(user=f"u{i}")) for i in range(users)]
    n = draw(st.integers(1, 6))
    user = np.array(draw(st.lists(st.integers(0, users - 1), min_size=n, max_size=n)), np.int32)
    padding = draw(st.sampled_from([0, 0, 5]))
    period = np.array([trace.span_ns + padding for trace in recorded])
    wrap = draw(st.booleans())
    phase = np.array(draw(st.lists(st.integers(-30, 30), min_size=n, max_size=n)))
    return recorded, DeviceMap(user, phase % period[user] if wrap else phase, period, wrap)


def place(trace: InteractionTrace, devices: DeviceMap, device: int, t: int) -> int:
    """The time in the recording that a device replays at t."""
    x = t - trace.start_ns + int(devices.phase_ns[device])
    if devices.wrap:
        x %= int(devices.period_ns[devices.user[device]])
    return trace.start_ns + x


@pytest.mark.campaign
@BRUTE
@given(fleets(), st.integers(-100, 100))
def test_a_fleet_replays_shifted_users(fleet: tuple[list[InteractionTrace], DeviceMap], t: int) -> None:
    recorded, devices = fleet
    flat = flatten(recorded)
    asked = TraceFleet(flat, devices)
    everyone = asked.state_at(t)
    picked = asked.state_at(np.full(len(devices), t), np.arange(len(devices)))
    changes = asked.next_change(t)
    horizon = 2 * int(devices.period_ns.max()) + 140
    for d, user in enumerate(devices.user.tolist()):
        trace = recorded[user]
        now = brute.moment(trace, place(trace, devices, d, t))
        assert_state(everyone, flat.apps, d, now)
        assert_state(picked, flat.apps, d, now)
        later = (
            u for u in range(t + 1, t + horizon) if brute.moment(trace, place(trace, devices, d, u)) != now
        )
        assert changes[d] == next(later, NEVER_NS)


@pytest.mark.campaign
@BRUTE
@given(fleets(), st.integers(-50, 50), st.integers(1, 150))
def test_fleet_intensity_over_windows_longer_than_a_recording(
    fleet: tuple[list[InteractionTrace], DeviceMap], t: int, length: int
) -> None:
    recorded, devices = fleet
    asked = TraceFleet(flatten(recorded), devices)
    mean = asked.intensity(t, t + length)
    for d, user in enumerate(devices.user.tolist()):
        times = [place(recorded[user], devices, d, u) for u in range(t, t + length)]
        cpu, memory, known = brute.mean_intensity(recorded[user], times)
        assert mean.cpu[d] == pytest.approx(cpu, rel=1e-6, nan_ok=True)
        assert mean.memory[d] == pytest.approx(memory, rel=1e-6, nan_ok=True)
        assert mean.known[d] == pytest.approx(known)


@pytest.mark.campaign
@BRUTE
@given(fleets(), st.integers(-50, 50), st.integers(1, 150), st.data())
def test_segments_are_the_intensities_of_every_nanosecond(
    fleet: tuple[list[InteractionTrace], DeviceMap], t: int, length: int, data: st.DataObject
) -> None:
    recorded, devices = fleet
    asked = TraceFleet(flatten(recorded), devices)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(devices) - 1), max_size=6)), np.int64)
    begin = t + np.arange(len(chosen))
    found = asked.segments(begin, begin + length, chosen)
    assert len(found.offset) == len(chosen) + 1
    for i, device in enumerate(chosen.tolist()):
        trace = recorded[devices.user[device]]
        part = slice(*found.offset[i : i + 2])
        start, end = found.start_ns[part].tolist(), found.end_ns[part].tolist()
        assert [*start, begin[i] + length] == [begin[i], *end]  # no gap from begin to end
        values = list(zip(found.cpu[part].tolist(), found.memory[part].tolist(), strict=True))
        told = [pair for a, b, pair in zip(start, end, values, strict=True) for _ in range(a, b)]
        moments = [
            brute.moment(trace, place(trace, devices, device, int(begin[i]) + u)) for u in range(length)
        ]
        wanted = [(m.cpu, m.memory) if m.cpu is not None else (math.nan, math.nan) for m in moments]
        np.testing.assert_allclose(told, wanted, rtol=1e-6)
        assert all(str(a) != str(b) for a, b in itertools.pairwise(values))  # as text: NaN is itself


def test_segments_of_all_devices_sum_up_to_their_mean_intensity() -> None:
    recorded = [screen_user(i) for i in range(7)]
    flat = flatten(recorded)
    fleet = TraceFleet.from_recipe(flat, FleetRecipe(devices=500, seed=3, align_ns=0))
    t0, t1 = 10**15, 10**15 + 4 * 10**13
    parts, mean = fleet.segments(t0, t1), fleet.intensity(t0, t1)
    assert np.all(mean.known == 1.0)
    work = parts.cpu.astype(float) * (parts.end_ns - parts.start_ns)
    np.testing.assert_allclose(np.add.reduceat(work, parts.offset[:-1]) / (t1 - t0), mean.cpu, rtol=1e-9)


def screen_user(number: int) -> InteractionTrace:
    edges = np.cumsum(np.random.default_rng(number).integers(10**10, 10**12, 200))
    screen = Fact(Intervals(edges[0:-1:2], edges[1::2]))
    return InteractionTrace(f"u{number}", 0, int(edges[-1]), screen=screen, relative_time=True)


def test_many_users_make_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.replay.flat.BLOCK_USERS", 3)
    recorded = [
        InteractionTrace(
            f"u{i}", i, i + 50 + i, screen=Fact(Intervals.one(i + 2, i + 10 + i)), relative_time=True
        )
        for i in range(10)
    ]
    flat = flatten(recorded)
    users = np.arange(10, dtype=np.int32)
    fleet = TraceFleet(flat, DeviceMap(users, np.zeros(10, np.int64), flat.span_ns, wrap=False))
    for t in range(-2, 75):
        expected = [UNKNOWN[brute.moment(trace, t).screen] for trace in recorded]
        np.testing.assert_array_equal(fleet.state_at(t).screen, expected)


def test_more_devices_than_one_part_keep_their_order() -> None:
    trace = InteractionTrace("u", 0, 1000, screen=Fact(Intervals.one(0, 500)), relative_time=True)
    flat = flatten([trace])
    n = 100_000
    phase = np.random.default_rng(1).integers(0, 1000, n)
    fleet = TraceFleet(flat, DeviceMap(np.zeros(n, np.int32), phase, flat.span_ns, wrap=True))
    np.testing.assert_array_equal(fleet.state_at(300).screen, ((phase + 300) % 1000 < 500).astype(np.int8))
    some = np.random.default_rng(2).integers(0, n, 70_000)
    np.testing.assert_array_equal(fleet.state_at(300, some).screen, fleet.state_at(300).screen[some])


def test_measured_intensity_wins_over_the_table() -> None:
    apps = AppSessions([0, 10], [10, 20], [0, 0], ("com.king.candy",), cpu=[0.9, np.nan])
    query = TraceQuery(InteractionTrace("u", 0, 20, apps=apps, relative_time=True))
    state = query.state_at(np.array([5, 15]))
    game = default_table().row("com.king.candy")
    assert state.cpu.tolist() == pytest.approx([0.9, game.cpu], rel=1e-6)
    assert state.memory.tolist() == pytest.approx([game.memory, game.memory], rel=1e-6)
    assert query.intensity(np.array([0]), np.array([20])).cpu[0] == pytest.approx((0.9 + game.cpu) / 2)


def test_intensity_keeps_its_digits_over_a_year() -> None:
    day = 86_400 * 10**9
    starts = np.arange(365 * 24) * (day // 24)
    apps = AppSessions(starts, starts + 7 * 10**9, np.zeros(len(starts), np.int32), ("SpringBoard",))
    query = TraceQuery(InteractionTrace("u", 0, 365 * day, apps=apps, relative_time=True))
    second = 10**9
    last = query.intensity(starts[-1:] + 3 * second, starts[-1:] + 11 * second)
    launcher = default_table().row("SpringBoard").cpu
    assert last.cpu[0] == pytest.approx(launcher * 4 / 8, rel=1e-7)


def test_queries_refuse_a_trace_with_errors() -> None:
    trace = InteractionTrace("bob", 0, 100, screen=Fact(Intervals([5, 7], [9, 12])), relative_time=True)
    with pytest.raises(DataQualityError, match=r"'bob'.*screen: intervals overlap") as refused:
        TraceQuery(trace)
    assert "--repair" in refused.value.hint


def test_a_window_must_have_a_length() -> None:
    query = TraceQuery(InteractionTrace("u", 0, 9, screen=Fact(Intervals.none()), relative_time=True))
    for ask in (query.intensity, query.segments):
        with pytest.raises(ValueError, match="not after"):
            ask(np.array([4]), np.array([4]))


def test_times_and_devices_go_together() -> None:
    flat = flatten([InteractionTrace("u", 0, 9, screen=Fact(Intervals.none()), relative_time=True)])
    fleet = TraceFleet(flat, DeviceMap(np.zeros(3, np.int32), np.arange(3), flat.span_ns, wrap=True))
    with pytest.raises(ValueError, match="2,"):
        fleet.state_at(np.array([1, 2]))
    for ask in (
        lambda t: fleet.eligible(t, "any"),
        lambda t: fleet.intensity(t, 5),
        lambda t: fleet.segments(0, t),
    ):
        with pytest.raises(ValueError, match="must be integers"):
            ask(1.5)
    assert len(fleet.state_at(np.array([1, 2]), np.array([0, 0])).screen) == 2


def test_arrays_are_read_only_and_times_are_integers() -> None:
    spans = Intervals(np.array([1]), np.array([2]))
    with pytest.raises(ValueError, match="read-only"):
        spans.start_ns[0] = 5
    with pytest.raises(ValueError, match="must be integers"):
        Intervals(np.array([1.5]), np.array([2.5]))
    with pytest.raises(ValueError, match="unequal length"):
        BatteryPoints(np.array([1, 2]), np.array([0.5]))
    with pytest.raises(ValueError, match="outside the 1 names"):
        AppSessions([1], [2], [1], ("a",))
    with pytest.raises(ValueError, match="not after"):
        InteractionTrace("u", 5, 5)


def test_network_kinds_fit_their_bits() -> None:
    from traces.replay.flags import NETWORK_MASK

    assert max(NetworkKind) + 1 <= NETWORK_MASK
