"""Policies: text to data and back, Kleene's logic, and eligibility against brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError
from tests.conftest import FULL_COUNTS
from tests.traces import brute
from traces.model import (
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
)
from traces.replay.devices import NEVER_NS, FleetRecipe, one_device_per_user
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet, TraceQuery
from traces.replay.policy import (
    CELLULAR,
    MAX_DEPTH,
    MAX_LENGTH,
    ONLINE,
    WORDS,
    And,
    BatteryTerm,
    Not,
    Or,
    Policy,
    Word,
    parse_policy,
    policy_text,
)

levels = st.sampled_from([0.0, 0.125, 0.3, 0.5, 1.0])
leaves = st.builds(Word, st.sampled_from(sorted(WORDS))) | st.builds(
    BatteryTerm, st.sampled_from([">=", ">", "<=", "<"]), levels
)
policies = st.recursive(
    leaves,
    lambda part: (
        st.builds(Not, part)
        | st.builds(And, st.lists(part, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(part, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def word_truth(name: str, trace: InteractionTrace, t: int) -> bool | None:
    """One word at one time, None for unknown."""
    now = brute.moment(trace, t)
    kind = now.network
    in_use = now.screen if now.screen is not None else {None: False, "?": None}.get(now.app, True)
    undecided = kind is None or kind is NetworkKind.NOT_WIFI
    answers: dict[str, bool | None] = {
        "any": True,
        "recorded": now.covered,
        "charging": now.plugged,
        "screen": now.screen,
        "available": now.available,
        "idle": None if in_use is None else not in_use,
        "wifi": None if kind is None else kind is NetworkKind.WIFI,
        "unmetered": None if kind is None else kind in (NetworkKind.WIFI, NetworkKind.ETHERNET),
        "cellular": None if undecided else kind in CELLULAR,
        "online": None if undecided else kind in ONLINE,
    }
    return answers[name]


def truth(policy: Policy, query: TraceQuery, t: int) -> bool | None:
    """A policy at one time, three-valued."""
    match policy:
        case Word(name):
            return word_truth(name, query.trace, t)
        case BatteryTerm(comparison, limit):
            level = float(query.battery_at(np.array([t]))[0])
            if math.isnan(level):
                return None
            return {">=": level >= limit, ">": level > limit, "<=": level <= limit, "<": level < limit}[
                comparison
            ]
        case Not(part):
            inner = truth(part, query, t)
            return None if inner is None else not inner
        case And(parts):
            found = [truth(part, query, t) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, query, t) for part in parts]
            return True if True in found else None if None in found else False


@pytest.mark.campaign
@settings(deadline=None, max_examples=500 if FULL_COUNTS else 60)
@given(brute.traces(), policies)
def test_eligibility_equals_brute_force_and_unknown_is_no(trace: InteractionTrace, policy: Policy) -> None:
    query = TraceQuery(trace)
    times = np.arange(trace.start_ns - 2, trace.end_ns + 3)
    mask = query.eligible(times, policy)
    expected = [truth(policy, query, t) is True for t in times.tolist()]
    assert mask.tolist() == expected
    changes = query.next_change(times, policy=policy)
    for i, change in enumerate(changes.tolist()):
        later = (int(u) for u, yes in zip(times[i:], expected[i:], strict=True) if yes != expected[i])
        assert change == next(later, NEVER_NS)


@settings(deadline=None, max_examples=200)
@given(policies)
def test_text_and_back(policy: Policy) -> None:
    assert parse_policy(policy_text(policy)) == policy


pieces = st.sampled_from(
    ["(", ")", "not", "and", "or", "wifi", "battery", ">=", "<", "30", "%", "0.3", "idle"]
)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60) | st.lists(pieces, max_size=12).map(" ".join))
def test_any_text_is_a_policy_or_a_clear_refusal(text: str) -> None:
    try:
        policy = parse_policy(text)
    except ConfigError:
        return
    assert parse_policy(policy_text(policy)) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("any", Word("any")),
        ("Charging AND wifi and IDLE", And((Word("charging"), Word("wifi"), Word("idle")))),
        ("battery >= 30 %", BatteryTerm(">=", 0.3)),
        ("battery>=30%", BatteryTerm(">=", 0.3)),
        ("battery < 0.3", BatteryTerm("<", 0.3)),
        ("not wifi or idle", Or((Not(Word("wifi")), Word("idle")))),
        ("wifi and idle or charging", Or((And((Word("wifi"), Word("idle"))), Word("charging")))),
        ("wifi and (idle or charging)", And((Word("wifi"), Or((Word("idle"), Word("charging")))))),
        ("not not wifi", Not(Not(Word("wifi")))),
    ],
)
def test_what_texts_mean(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "ends where a word", "e.g."),
        ("wifi and", "ends where a word", "e.g."),
        ("wify", "'wify' is no word of a policy", "did you mean 'wifi'?"),
        ("moon", "'moon' is no word of a policy", "known words: any, recorded, charging"),
        ("battery", "ends where a comparison", "e.g."),
        ("battery = 30 %", "'=' has no meaning", "e.g."),
        ("battery and wifi", "'battery' is followed by 'and'", "e.g."),
        ("battery >= full", "'full' is not a battery level", "e.g."),
        ("battery >= 30", "battery level 30 is above full", "`30 %`"),
        ("battery >= 130 %", "above full", "`30 %`"),
        ("(wifi", "ends where '\\)' should stand", "e.g."),
        ("wifi)", "one word too many", "e.g."),
        ("wifi idle", "'idle' is one word too many", "e.g."),
        ("__import__('os')", "'__import__' is no word", "known words"),
        ("wifi" + " " * MAX_LENGTH, "at most 1000", ""),
        ("(" * (MAX_DEPTH + 2) + "wifi" + ")" * (MAX_DEPTH + 2), "nested more than 50", "e.g."),
        ("not " * 200 + "wifi", "nested more than 50", "e.g."),
    ],
)
def test_what_is_no_policy(text: str, problem: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_policy(text)
    assert hint in refused.value.hint


def test_a_gap_in_the_recording_is_not_eligible_but_for_any() -> None:
    coverage = Intervals([0, 60], [40, 100])
    trace = InteractionTrace(
        "u", 0, 100, coverage=coverage, plugged=Fact(Intervals.none()), relative_time=True
    )
    query = TraceQuery(trace)
    times = np.array([20, 50, 80, 150])
    assert query.eligible(times, "not charging").tolist() == [True, False, True, False]
    assert query.eligible(times, "charging or not charging").tolist() == [True, False, True, False]
    assert query.eligible(times, "recorded").tolist() == [True, False, True, False]
    assert query.eligible(times, "any").tolist() == [True] * 4
    assert query.eligible(times, "wifi or not wifi").tolist() == [False] * 4


def test_without_a_screen_channel_no_app_means_idle() -> None:
    apps = AppSessions([10], [20], [0], ("a",), known=Intervals.one(5, 30))
    query = TraceQuery(InteractionTrace("u", 0, 40, apps=apps, relative_time=True))
    assert query.eligible(np.array([7, 15, 25, 35]), "idle").tolist() == [True, False, True, False]
    seen = Fact(Intervals.one(6, 8), Intervals.one(6, 26))
    query = TraceQuery(InteractionTrace("u", 0, 40, apps=apps, screen=seen, relative_time=True))
    assert query.eligible(np.array([7, 15, 25, 28, 35]), "idle").tolist() == [False, True, True, True, False]


def test_a_level_that_drifts_through_the_limit_is_followed_to_the_nanosecond() -> None:
    day = 86_400 * 10**9
    trace = InteractionTrace(
        "u", 0, day, battery=BatteryPoints([0, day // 2, day - 1], [1.0, 0.1, 0.9]), relative_time=True
    )
    query = TraceQuery(trace)
    edges = []
    for text in ("battery >= 30 %", "battery > 30 %"):
        found = query.eligible_intervals(text)
        assert len(found) == 2
        edges.append(np.concatenate([found.end_ns[:1], found.start_ns[1:]]))
        times = np.concatenate([edge + np.arange(-200, 200) for edge in edges[-1]])
        level = query.battery_at(times)
        expected = level >= 0.3 if ">=" in text else level > 0.3
        np.testing.assert_array_equal(query.eligible(times, text), expected)
        assert 0 < expected.sum() < len(times)


def test_a_fleet_answers_like_its_users_one_by_one() -> None:
    rng = np.random.default_rng(5)
    hour = 3600 * 10**9
    recorded = []
    for i in range(7):
        edges = np.unique(rng.integers(0, 72 * 60, 60)) * (hour // 60)
        edges = edges[: len(edges) // 2 * 2]
        spans = Intervals(edges[::2], edges[1::2])
        network = NetworkSpans(spans.start_ns, spans.end_ns, rng.integers(0, 9, len(spans)).astype(np.int8))
        battery = BatteryPoints(np.arange(0, 72 * hour, hour), rng.random(72))
        recorded.append(
            InteractionTrace(
                f"u{i}", 0, 72 * hour, plugged=Fact(spans), network=network, battery=battery,
                relative_time=True,
            )
        )  # fmt: skip
    flat = flatten(recorded)
    fleet = TraceFleet.from_recipe(flat, FleetRecipe(devices=500, seed=3, jitter_ns=hour))
    policy = "(charging or battery > 40 %) and not wifi"
    queries = [TraceQuery(trace) for trace in recorded]
    for t in (0, 11 * hour + 7, 400 * hour):
        mask = fleet.eligible(t, policy)
        for device in range(len(fleet)):
            user = fleet.map.user[device]
            x = (t + fleet.map.phase_ns[device]) % fleet.map.period_ns[user]
            assert mask[device] == queries[user].eligible(np.array([x]), policy)[0]
        np.testing.assert_array_equal(mask, fleet.eligible(t, policy))


@settings(deadline=None, max_examples=60)
@given(brute.traces(), policies)
def test_at_the_recorded_levels_a_fleet_answers_as_recorded(trace: InteractionTrace, policy: Policy) -> None:
    flat = flatten([trace])
    fleet = TraceFleet(flat, one_device_per_user(flat))
    for t in range(trace.start_ns - 1, trace.end_ns + 2):
        at_level = fleet.eligible_at_level(t, policy, fleet.battery_at(t))
        assert at_level.tolist() == fleet.eligible(t, policy).tolist()


def test_other_levels_than_recorded_decide() -> None:
    trace = InteractionTrace("u", 0, 10, battery=BatteryPoints([0], [0.9]), relative_time=True)
    flat = flatten([trace, replace(trace, user="v", battery=None, plugged=Fact(Intervals.one(0, 5)))])
    fleet = TraceFleet(flat, one_device_per_user(flat))
    assert fleet.eligible_at_level(3, "battery > 50 %", np.array([0.2, 0.8])).tolist() == [False, True]
    assert fleet.eligible_at_level(3, "battery > 50 %", np.array([0.8]), np.array([1])).tolist() == [True]
    assert fleet.ever_eligible("charging").tolist() == [False, True]
    assert fleet.lowest_level_of_users.tolist() == [0.9, np.inf]
    assert not fleet.has_throughput
