"""Throughput of others beside usage: who is given what, what it is at a time, and the same on disk."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin, Provenance
from tests.traces import brute
from traces.merge import merge_traces, network_recordings, with_throughput
from traces.model import InteractionTrace, Intervals, NetworkKind, NetworkSpans, Throughput
from traces.replay import DAY_NS, FleetRecipe, LinkKind, NetworkPools, TraceFleet, TraceQuery, flatten, pair
from traces.replay.devices import one_device_per_user
from traces.replay.flat_store import RecordedFacts
from traces.storage.trace_set import TraceSet, new_trace_set

K = NetworkKind
HOUR_NS = 3600 * 10**9
FIXED, MOBILE = {K.WIFI, K.ETHERNET}, {kind for kind in K if kind.name.startswith("CELLULAR")} | {K.NOT_WIFI}


def recording(
    name: str,
    kind: NetworkKind | None,
    rates: Sequence[tuple[int, float]],
    span: int = 10,
    *,
    start: int = 0,
    coverage: Intervals | None = None,
) -> InteractionTrace:
    """Readings as (at, down); up is a tenth of that."""
    down = np.array([rate for _, rate in rates], float)
    spans = None if kind is None else NetworkSpans([start], [start + span], [kind])
    rates_of = Throughput([start + at for at, _ in rates], down, down / 10)
    return InteractionTrace(
        name, start, start + span, coverage=coverage, network=spans, throughput=rates_of, relative_time=True
    )


def person(
    name: str, spans: Sequence[tuple[int, int, NetworkKind]] | None, span: int = 40
) -> InteractionTrace:
    network = None if spans is None else NetworkSpans(*(list(column) for column in zip(*spans, strict=True)))
    return InteractionTrace(name, 0, span, network=network, relative_time=True)


NET = (
    recording("b", K.WIFI, [(0, 10.0), (5, 20.0)]),
    recording("a", K.ETHERNET, [(0, 30.0)], 7),
    recording("d", K.CELLULAR_3G, [(2, 40.0), (4, 0.0)], 9),
    recording("c", K.CELLULAR_5G, [(0, 50.0)], 3, start=-5),
    recording("e", None, [(0, 60.0)]),
)
"""Different in everything; one does not tell its kind, one knows nothing of its first two units."""


class Brute:
    """The pairing and the look-up, worked out the slow way from what the module's text says."""

    def __init__(self, network: Sequence[InteractionTrace], seed: int) -> None:
        self.network, self.seed = sorted(network, key=lambda one: one.user), seed

    def _kinds(self, one: InteractionTrace) -> set[str]:
        told = {brute.moment(one, t).network for t in range(one.start_ns, one.end_ns) if self._runs(one, t)}
        return {name for name, kinds in (("WIFI", FIXED), ("MOBILE", MOBILE)) if told & kinds}

    @staticmethod
    def _runs(one: InteractionTrace, t: int) -> bool:
        return brute.inside(one.covered, t) is not None

    def _rate(self, one: InteractionTrace, t: int) -> tuple[float, float]:
        assert one.throughput is not None
        found = brute.reading_at(one, one.throughput.t_ns.tolist(), t)
        if found is None:
            return math.nan, math.nan
        return float(one.throughput.down_bps[found[0]]), float(one.throughput.up_bps[found[0]])

    def _told(self, one: InteractionTrace) -> bool:
        rates = [self._rate(one, t) for t in range(one.start_ns, one.end_ns)]
        return any(not math.isnan(rate) for pair in rates for rate in pair)

    def pool(self, kind: str) -> list[InteractionTrace]:
        told = [one for one in self.network if self._told(one)]
        return told if kind == "ANY" else [one for one in told if self._kinds(one) == {kind}]

    def drawn(self, user: str, kind: str) -> tuple[InteractionTrace, int]:
        name = repr((self.seed, "network recording", user, kind)).encode()
        bits = int.from_bytes(hashlib.sha256(name).digest()[:16], "big")
        pool = self.pool(kind)
        chosen = pool[bits % len(pool)]
        return chosen, (bits >> 40) % chosen.span_ns

    def rate(self, usage: InteractionTrace, t: int) -> tuple[float, float]:
        if not (usage.start_ns <= t < usage.end_ns and self._runs(usage, t)):
            return math.nan, math.nan
        network = brute.moment(usage, t).network
        if network is K.OFFLINE:
            return 0.0, 0.0
        kind = "ANY" if network is None else "WIFI" if network in FIXED else "MOBILE"
        chosen, phase = self.drawn(usage.user, kind)
        return self._rate(chosen, chosen.start_ns + (t - usage.start_ns + phase) % chosen.span_ns)


def fleet_of(usage: Sequence[InteractionTrace], network: Sequence[InteractionTrace], seed: int) -> TraceFleet:
    flat = flatten(usage)
    return TraceFleet(flat, one_device_per_user(flat), pair(flat, NetworkPools.of(flatten(network)), seed))


def same(found: object, expected: object) -> bool:
    return bool(np.array_equal(np.array(found, float), np.array(expected, float), equal_nan=True))


@settings(max_examples=150, deadline=None)
@given(st.lists(brute.traces(), min_size=1, max_size=3), st.integers(0, 9), st.data())
def test_every_rate_equals_brute_force(
    people: list[InteractionTrace], seed: int, data: st.DataObject
) -> None:
    """Looked up, and as readings of the merged trace; gaps, zeros and what nobody tells included."""
    usage = [replace(one, user=f"u{i}", throughput=None) for i, one in enumerate(people)]
    gap = data.draw(brute.intervals(0, 12))
    network = (*NET, recording("f", K.WIFI, [(0, 70.0), (6, math.nan), (8, 5.0)], 12, coverage=gap))
    slow = Brute(network, seed)
    fleet, pools = fleet_of(usage, network, seed), NetworkPools.of(flatten(network))
    for number, one in enumerate(usage):
        times = np.arange(one.start_ns - 1, one.end_ns + 2)
        expected = [slow.rate(one, t) for t in times.tolist()]
        looked = fleet.throughput_at(times, np.full(len(times), number))
        assert same(np.transpose([looked.down_bps, looked.up_bps]), expected)
        joined = with_throughput(one, pools, seed)
        assert joined.throughput is not None
        assert all(brute.inside(one.covered, t) is not None for t in joined.throughput.t_ns.tolist())
        merged = TraceQuery(joined).throughput_at(times)
        assert same(np.transpose([merged.down_bps, merged.up_bps]), expected)


def test_neither_order_nor_company_matters() -> None:
    """A user's recording is that user's: whoever else is there, and in whatever order things come."""
    people = [person(f"p{i}", [(0, 20, K.WIFI), (20, 40, K.CELLULAR)]) for i in range(30)]
    times = np.arange(40)

    def rates(usage: Sequence[InteractionTrace], network: Sequence[InteractionTrace]) -> dict[str, bytes]:
        fleet = fleet_of(usage, network, 3)
        asked = {one.user: fleet.throughput_at(times, np.full(40, i)) for i, one in enumerate(usage)}
        return {name: found.down_bps.tobytes() for name, found in asked.items()}

    first = rates(people, NET)
    assert len(set(first.values())) > 5
    assert rates(people[::-1], NET[::-1]) == first
    assert rates(people[7:9], NET) == {name: first[name] for name in ("p7", "p8")}


def test_another_seed_is_another_pairing_and_all_are_drawn() -> None:
    flat, pools = (
        flatten([person(f"p{i}", [(0, 40, K.WIFI)]) for i in range(400)]),
        NetworkPools.of(flatten(NET)),
    )
    counts = [np.bincount(pair(flat, pools, seed).recording[LinkKind.WIFI], minlength=2) for seed in range(3)]
    assert len({found.tobytes() for found in counts}) == 3
    for found in counts:  # of two recordings each is drawn 200 times of 400, within five standard deviations
        assert abs(int(found[0]) - 200) < 50


@pytest.mark.parametrize(
    ("spans", "names", "said"),
    [
        (
            [(0, 40, K.WIFI)],
            "cd",
            "no recording of Wi-Fi or a fixed line, and 1 of 2 users need one, e.g. 'u'",
        ),
        ([(0, 40, K.CELLULAR_4G)], "abe", "no recording of a mobile network"),
        ([(0, 9, K.NOT_WIFI)], "abe", "no recording of a mobile network"),
        (None, "", "no recording of any network"),
        ([(0, 40, K.WIFI)], "e", "no recording of Wi-Fi"),
    ],
)
def test_a_kind_that_is_missing(
    spans: list[tuple[int, int, NetworkKind]] | None, names: str, said: str
) -> None:
    silent = recording("z", K.WIFI, [(0, math.nan)])  # has no throughput at all, so nobody is given it
    network = [*(one for one in NET if one.user in names), silent]
    usage = flatten([person("u", spans), person("offline", [(0, 40, K.OFFLINE)])])
    with pytest.raises(ConfigError, match=said):
        pair(usage, NetworkPools.of(flatten(network)), 0)


def test_a_recording_of_both_kinds_stands_for_neither() -> None:
    both = replace(NET[0], user="both", network=NetworkSpans([0, 5], [5, 10], [K.WIFI, K.CELLULAR]))
    pools = NetworkPools.of(flatten([both]))
    assert {kind.name: len(found) for kind, found in pools.of_kind.items()} == {
        "WIFI": 0,
        "MOBILE": 0,
        "ANY": 1,
    }


def test_what_was_recorded_together_is_not_replaced() -> None:
    own = replace(person("u", [(0, 40, K.WIFI)]), throughput=Throughput([3], [1.0], [math.nan]))
    with pytest.raises(ConfigError, match="throughput of their own"):
        pair(flatten([own]), NetworkPools.of(flatten(NET)), 0)


@pytest.mark.parametrize(
    ("t_ns", "said"), [([5, 3], "time runs backwards"), ([3, 3], "several readings at one time")]
)
def test_a_recording_that_overlaps_itself_is_refused(t_ns: list[int], said: str) -> None:
    bad = replace(NET[0], throughput=Throughput(t_ns, [1.0, 2.0], [1.0, 2.0]))
    with pytest.raises(DataQualityError, match=said):
        flatten([bad])


def test_a_day_on_which_the_clocks_change_is_looped_like_any_other() -> None:
    """Recordings are looped in elapsed time: 25 hours of a day in Berlin are 25 hours."""
    start_ns = 1_729_980_000 * 10**9  # 27 October 2024, 0:00 in Berlin
    usage = InteractionTrace("u", start_ns, start_ns + 25 * HOUR_NS, time_zone="Europe/Berlin")
    hourly = recording("h", None, [(0, 1.0), (1800 * 10**9, 2.0)], HOUR_NS)
    fleet = fleet_of([usage], [hourly], 0)
    at_ns = start_ns + np.arange(25) * HOUR_NS + 7
    assert len(set(fleet.throughput_at(at_ns, np.zeros(25, np.int64)).down_bps.tolist())) == 1


def test_devices_that_replay_the_same_user_meet_the_same_recording() -> None:
    """Shifted with the user, so at other times; padding beyond the recording is unknown."""
    usage = [replace(person("u", None, DAY_NS), end_ns=DAY_NS + HOUR_NS)]
    flat = flatten(usage)
    network = pair(flat, NetworkPools.of(flatten([recording("h", None, [(0, 1.0)], HOUR_NS)])), 0)
    fleet = TraceFleet.from_recipe(flat, FleetRecipe(devices=4, align_ns=DAY_NS), network)
    rates = fleet.throughput_at(2 * HOUR_NS).down_bps
    days = fleet.map.phase_ns // DAY_NS
    assert set(days.tolist()) == {0, 1}
    assert same(rates, np.where(days == 0, 1.0, math.nan))


def stored(folder: Path, people: Sequence[InteractionTrace]) -> TraceSet:
    with new_trace_set(folder) as new:
        for one in people:
            new.add(one)
        new.describe(Provenance(origin=Origin.IMPORTED, basis="test"))
    return TraceSet(folder)


def test_a_merged_set_says_what_it_is(tmp_path: Path) -> None:
    usage = stored(tmp_path / "people", [person("u", [(0, 20, K.WIFI), (20, 30, K.OFFLINE)])])
    network = RecordedFacts(flatten(NET), Provenance(origin=Origin.EMULATED, basis="drawn"), None)
    made = merge_traces(usage, network, tmp_path / "both", seed=5)
    assert made.record.provenance.origin is Origin.EMULATED
    assert "paired with people, seed 5" in made.record.provenance.basis
    (trace,) = made
    assert trace.throughput is not None
    assert trace.throughput.down_bps[trace.throughput.t_ns == 20].tolist() == [0.0]
    assert not made.verify()


def test_a_refused_merge_leaves_nothing(tmp_path: Path) -> None:
    people = [person("fine", None), person("u", [(0, 40, K.CELLULAR)])]
    network = RecordedFacts(flatten(NET[:2]), None, None)
    with pytest.raises(ConfigError, match="no recording of a mobile network"):
        merge_traces(stored(tmp_path / "people", people), network, tmp_path / "both", seed=0)
    assert not (tmp_path / "both").exists()


def test_generated_recordings_are_as_their_model_says() -> None:
    """Means, spreads and correlation of what is drawn, against the numbers of the model's file."""
    from traces.synth import load_network_model

    flat = network_recordings("synthetic").flat
    logs = np.log(flat.down_bps[~np.isnan(flat.down_bps)]).reshape(400, 720)
    for kind, part in zip(load_network_model().kinds, (logs[:200], logs[200:]), strict=True):
        means = part.mean(axis=1)
        assert means.mean() == pytest.approx(kind.log_mean, abs=5 * kind.between_log_sd / math.sqrt(200))
        assert means.std(ddof=1) == pytest.approx(kind.between_log_sd, rel=0.25)
        around = part - means[:, None]
        assert around.std() == pytest.approx(kind.within_log_sd, rel=0.05)
        lag = round(kind.correlation_s / 5)
        kept = (around[:, :-lag] * around[:, lag:]).mean() / around.var()
        assert kept == pytest.approx(math.exp(-5 * lag / kind.correlation_s), abs=0.05)
    assert np.isnan(flat.up_bps).all()
