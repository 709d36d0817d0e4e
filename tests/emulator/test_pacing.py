"""Rounds that are spread over days: when each begins, what waiting costs, what a run says about it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emulator
from emulator.compare.metrics import run_metrics
from emulator.fleet.motion import MOTION
from emulator.round.outcome import Accounting, Fate, RoundOutcome
from emulator.runs.fleet_inputs import clock_notes, conditions_of
from emulator.runs.replay.happened import NOTHING, replay_of, span, week_of
from emulator.scenario.load import load_scenario, preset_names, preset_text
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TracesSection
from emulator.selectors.tifl import TiFL
from harness.cli import run as command
from joulefleet.config import validate
from joulefleet.errors import ConfigError, NobodyLeft
from power.profile.model import Battery
from tests.emulator.worlds import (
    HOUR_S,
    Prober,
    engine,
    fleet,
    play,
    profile,
    replay,
    trace_set,
    user,
    world,
)

HOUR_NS = HOUR_S * 10**9


def begins(outcomes: list[RoundOutcome]) -> list[tuple[int, int, int]]:
    """When each round was due, began and ended, in nanoseconds."""
    found = []
    for one in outcomes:
        end_ns = one.start_ns + one.duration_ns
        found.append((one.start_ns, end_ns - round(one.costs[Accounting.HONEST].time_s * 1e9), end_ns))
    return found


@pytest.mark.parametrize("every_s", [0.0, 3.0, 60.0, 3600.0])
def test_a_round_begins_no_earlier_than_the_pace_after_the_last_one_began(every_s: float) -> None:
    """Against the plain rule, also where nobody is there when a round is due."""
    people = [user("a", busy=[(0, 40, 0.5)], charging=[(0, 50), (7000, 7100), (9000, 80_000)])] * 10
    place = world(fleet([profile()], [100] * 10), replay(people, "charging"))
    rounds = begins(play(engine(Prober(), place=place, rounds=6, every_s=every_s)))
    due_ns = 0
    for start_ns, began_ns, end_ns in rounds:
        assert start_ns == due_ns
        second = began_ns // 10**9
        assert second in range(50) or second in range(7000, 7100) or second in range(9000, 80_000)
        due_ns = max(end_ns, began_ns + int(every_s * 1e9))
    waited = [began - start for start, began, _ in rounds]
    assert any(waited)


def test_what_everybody_does_once_before_the_first_round_paces_nothing() -> None:
    profiled, first, second = begins(play(engine(TiFL(), rounds=2, every_s=3600.0)))
    assert first[0] == first[1] == profiled[2]
    assert second[0] == first[1] + HOUR_NS


def test_waiting_between_rounds_costs_nobody_anything() -> None:
    """With an idle fleet a pace changes the clock and nothing else."""
    battery = Battery(capacity_j=1000.0, charge_w=1.0)
    people = [user(str(i), hours=100, battery=[(0, 0.9), (360_000, 0.9)], charging=[]) for i in range(10)]

    def played(every_s: float) -> tuple[list[RoundOutcome], Any]:
        place = world(fleet([profile(battery=battery)], [100] * 10), replay(people))
        e = engine(place=place, every_s=every_s)
        return play(e), place.batteries.level(e.clock_ns, np.arange(10))

    (together, level), (apart, later) = played(0.0), played(5 * HOUR_S)
    for one, other in zip(together, apart, strict=True):
        assert one.costs == other.costs
        assert one.fates == other.fates
        np.testing.assert_array_equal(one.clients, other.clients)
        assert one.accuracy == other.accuracy
    assert apart[-1].start_ns == 3 * 5 * HOUR_NS
    took_part = np.unique(np.concatenate([one.clients for one in apart]))
    assert (np.delete(later, took_part) == 0.9).all()
    np.testing.assert_array_equal(level, later)


def test_a_paced_run_goes_on_where_it_was_stopped() -> None:
    whole = [one.start_ns for one in play(engine(rounds=5, every_s=900.0))]
    first = engine(rounds=5, every_s=900.0)
    begun = [first.play().start_ns for _ in range(2)]
    rest = engine(rounds=5, every_s=900.0)
    rest.load_state_dict(first.state_dict())
    assert [*begun, *(one.start_ns for one in play(rest))] == whole


@pytest.mark.parametrize(
    ("written", "seconds"), [("30 min", 1800.0), ("2h", 7200.0), ("0.5 d", 43_200.0), (90, 90.0), (0, 0.0)]
)
def test_a_pace_is_written_in_seconds_or_with_its_unit(written: object, seconds: float) -> None:
    assert validate({"every_s": written}, ProtocolSection, name="x").every_s == seconds


@pytest.mark.parametrize("written", ["soon", "30 minutes", -1, "367 d", float("nan"), ""])
def test_a_pace_that_is_none_is_refused_by_its_name(written: object) -> None:
    with pytest.raises(ConfigError, match="every_s"):
        validate({"every_s": written}, ProtocolSection, name="x")


def test_rounds_for_centuries_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 50 years"):
        validate({"name": "a", "protocol": {"every_s": "366 d", "rounds": 51}}, Scenario, name="x")


def test_a_pace_is_part_of_the_hash_and_none_is_not() -> None:
    plain, paced = Scenario(name="a"), Scenario(name="a", protocol=ProtocolSection(every_s=60.0))
    assert (
        paced.sha256() != plain.sha256() == Scenario(name="a", protocol=ProtocolSection(every_s=0)).sha256()
    )


def test_the_papers_presets_span_a_day_and_a_night() -> None:
    papers = [name for name in preset_names() if "The paper's" in preset_text(name).partition("\n")[0]]
    assert len(papers) == 19
    for protocol in (load_scenario(name).protocol for name in papers):
        assert 24 * HOUR_S <= (protocol.rounds - 1) * protocol.every_s <= 25 * HOUR_S
    assert load_scenario("quick").protocol.every_s == load_scenario("night").protocol.every_s == 0


def small(**changes: Any) -> Scenario:
    """`quick` with other settings of its tables."""
    found = load_scenario("quick").model_dump()
    for table, values in changes.items():
        found[table] = {**found[table], **values}
    return Scenario(**found)


def test_a_run_says_its_span_and_what_moved(tmp_path: Path) -> None:
    """Counted again from who took part; the stored columns agree."""
    scenario = small(protocol={"every_s": 3 * HOUR_S, "rounds": 12})
    traces = scenario.fleet.traces
    assert traces is not None
    asleep = traces.model_copy(update={"policy": "idle"})
    scenario = scenario.model_copy(
        update={"fleet": scenario.fleet.model_copy(update={"traces": asleep, "devices": 60})}
    )
    result = emulator.run(scenario, out=tmp_path)
    rounds, clients = result.rounds, result.clients
    found = replay_of(result)
    assert found.span_s == pytest.approx(11 * 3 * HOUR_S, rel=1e-3)
    assert found.participations == len(clients)
    assert found.under_load == (clients["loaded_s"] > 0).sum()
    assert found.devices_left == clients[clients["fate"] == Fate.LEFT.value]["device"].nunique()
    conditions = conditions_of(scenario.fleet, 0)
    begin_ns = (rounds["start_ns"] + rounds["idle_ns"]).tolist()
    seen = np.array([conditions.eligible(at) for at in begin_ns])
    assert found.devices_changed == np.count_nonzero(seen.any(0) & ~seen.all(0)) > 0
    np.testing.assert_array_equal(rounds["eligible"], seen.sum(1))
    assert (np.diff(rounds[list(MOTION)], axis=0) >= 0).all()
    assert not found.nothing_moved
    assert "came and went" in found.sentences()[0]
    metrics = run_metrics(rounds, 2.0, Accounting.HONEST)
    assert metrics.time_s == pytest.approx(rounds["time_s_honest"].sum())
    assert metrics.calendar_s == metrics.calendar_to_target_s == pytest.approx(found.span_s)


def test_a_run_in_which_the_traces_changed_nothing_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = emulator.run("quick", out=tmp_path)
    assert replay_of(result).nothing_moved
    assert command(["emulate", "quick", "--dry-run"]) == 0
    assert "would change nothing" in capsys.readouterr().out
    assert command(["emulate", "quick", "--root", str(tmp_path)]) == 0
    assert sum(NOTHING in line for line in capsys.readouterr().out.splitlines()) == 1


def test_a_pace_shorter_than_the_rounds_is_allowed_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hurried = tmp_path / "hurried.toml"
    hurried.write_text(preset_text("quick") + "every_s = 0.001\n", encoding="utf-8")
    assert command(["emulate", str(hurried), "--dry-run"]) == 0
    assert "rounds take longer than the pace" in capsys.readouterr().out
    result = emulator.run(hurried, out=tmp_path)
    assert any("5 of 5 rounds took longer" in text for text in replay_of(result).sentences())


@pytest.mark.parametrize(
    ("seconds", "said"), [(5.0, "5 s"), (90.0, "1.5 min"), (86_400.0, "24 h"), (604_800.0, "7 days")]
)
def test_spans_are_said_as_people_do(seconds: float, said: str) -> None:
    assert span(seconds) == said


BERLIN = {"a": "Europe/Berlin"}
SPRING_S, AUTUMN_S = (
    1_711_839_600,
    1_729_980_000,
)  # midnights before the clocks change, 2024-03-31 and 2024-10-27


def section(folder: Path, begin_s: int, start: str, hours: float = 24) -> TracesSection:
    path = trace_set(folder, [user("a", begin_s=begin_s, hours=hours)], BERLIN)
    return TracesSection(source=str(path), at_end="wrap", start=start)


def test_a_start_that_the_clocks_leave_out_is_refused(tmp_path: Path) -> None:
    traces = section(tmp_path / "t", SPRING_S, "02:30")
    with pytest.raises(ConfigError, match=r"no 02:30 on 2024-03-31 in Europe/Berlin"):
        conditions_of(FleetSection(devices=1, traces=traces), 0)
    conditions_of(FleetSection(devices=1, traces=traces.model_copy(update={"start": "03:00"})), 0)


def test_what_a_change_of_clocks_does_is_said(tmp_path: Path) -> None:
    twice, *others = reversed(clock_notes(section(tmp_path / "a", AUTUMN_S, "02:30")))
    assert "comes twice on 2024-10-27" in twice
    assert len(others) == 1
    (crossed,) = clock_notes(section(tmp_path / "b", SPRING_S - 86_400, "12:00", hours=72))
    assert "Europe/Berlin change on or before 2024-04-01" in crossed
    assert clock_notes(section(tmp_path / "c", SPRING_S - 10 * 86_400, "12:00")) == []


def test_a_week_in_which_nobody_is_there_ends_with_a_sentence(tmp_path: Path) -> None:
    path = trace_set(tmp_path / "t", [user("a", hours=168, charging=[])])
    traces = {"source": str(path), "policy": "charging", "at_end": "wrap"}
    with pytest.raises(NobodyLeft, match="no device is eligible, nor will be"):
        emulator.run(small(fleet={"traces": traces}, protocol={"every_s": 3600.0}), out=tmp_path)


def test_a_recording_that_ends_before_the_rounds_do_ends_the_run_early(tmp_path: Path) -> None:
    path = trace_set(tmp_path / "t", [user("a", hours=5)])
    traces = {"source": str(path), "at_end": "stop", "shift": False, "jitter_s": 0.0, "policy": "recorded"}
    result = emulator.run(small(fleet={"traces": traces}, protocol={"every_s": 2.0 * HOUR_S}), out=tmp_path)
    assert result.record.rounds == 3
    assert "no device is eligible" in result.record.ended_early


def test_the_day_of_a_run_is_counted_from_its_tables(tmp_path: Path) -> None:
    """Hours, drop-outs and correlations against plain loops over the rows."""
    scenario = small(protocol={"every_s": 5 * HOUR_S, "rounds": 20, "k": 8})
    traces = scenario.fleet.traces
    assert traces is not None
    asleep = traces.model_copy(update={"policy": "idle", "start": "22:30"})
    fleet_section = scenario.fleet.model_copy(update={"traces": asleep})
    result = emulator.run(scenario.model_copy(update={"fleet": fleet_section}), out=tmp_path)
    found = week_of(result)
    eligible: dict[int, list[int]] = {}
    hour_of: dict[int, int] = {}
    for row in result.rounds.itertuples():
        hour_of[row.round] = int((22.5 + (row.start_ns + row.idle_ns) / HOUR_NS) % 24)
        eligible.setdefault(hour_of[row.round], []).append(row.eligible)
    rows = list(result.clients.itertuples())
    for number, hour in enumerate(found.hours):
        assert hour.check_ins == len(eligible.get(number, []))
        here = [row for row in rows if hour_of[row.round] == number]
        assert hour.participations == len(here)
        assert hour.under_load == sum(row.loaded_s > 0 for row in here)
        if number in eligible:
            assert hour.eligible == pytest.approx(np.mean(eligible[number]))
    means = [np.mean(counts) for counts in eligible.values()]
    assert found.swing == pytest.approx(max(means) / min(means))
    for fate, count in found.dropped.items():
        assert count == sum(row.chosen and row.fate == fate.value for row in rows)
    times: dict[int, list[float]] = {}
    for row in rows:
        if row.fate == Fate.FINISHED.value:
            times.setdefault(row.device, []).append(row.probe_s + row.train_s)
    twice = [one for one in times.values() if len(one) > 1]
    assert found.pairs == len(twice)
    first, last = (np.argsort(np.argsort([one[i] for one in twice])) for i in (0, -1))
    assert found.time_rho == pytest.approx(np.corrcoef(first, last)[0, 1], abs=1e-9)
