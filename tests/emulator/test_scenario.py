"""Scenario files, presets, and what is wrong with others."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emulator.fleet.conditions import Conditions
from emulator.runs.assembly import assemble, make_selector
from emulator.runs.batch import run
from emulator.runs.fleet_inputs import conditions_of, profiles_of, recordings
from emulator.runs.learners import task_of
from emulator.scenario.load import load_scenario, preset_names, preset_summaries
from emulator.scenario.model import FleetSection, Scenario, TaskSection, TracesSection
from emulator.selectors.neural.policy import any_policy, write_policy
from emulator.selectors.registry import SELECTORS
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError, NobodyLeft
from power.profile.model import save_profile
from tests.emulator.worlds import HOUR_S, SECOND_NS, profile, trace_set, user
from traces.replay.flat_store import FLAT_FILE, write_flat
from traces.storage.trace_set import TraceSet

PAPER = ("mnist-lenet5", "cifar10-resnet18", "cinic10-vgg16", "tinyimagenet-shufflenetv2", "shakespeare-lstm")

NEW_YEAR_S = 1_704_067_200  # 2024, in UTC


def scenario(text: str = "") -> Scenario:
    return parse_toml('name = "test"\n' + text, Scenario, name="test")


def test_every_preset_is_valid_and_says_what_it_is() -> None:
    assert {f"{task}-{part}" for task in PAPER for part in ("iid", "dir-client", "dir-class")} < set(
        preset_names()
    )
    for name in preset_names():
        found = load_scenario(name)
        assert found.name == name
        task_of(found.task)
        make_selector(found)
        assert len(preset_summaries()[name]) > 20


@pytest.mark.parametrize("task", PAPER)
def test_the_papers_setting(task: str) -> None:
    found = load_scenario(f"{task}-dir-client")
    protocol = found.protocol
    assert (found.fleet.devices, protocol.k, protocol.rounds, protocol.local_epochs) == (100, 10, 50, 5)
    assert found.candidates == 30
    assert found.task.options == {"alpha": 0.01 if task.startswith("mnist") else 0.1}
    resolved = task_of(found.task)
    assert (resolved.batch_size, resolved.learning_rate, resolved.momentum) == (32, 0.01, 0.9)
    assert profiles_of(found.fleet, resolved)


def test_candidates_as_the_paper_or_three_times_k() -> None:
    assert scenario().candidates == 30
    assert scenario('[protocol]\ncandidates = "all"').candidates == 100
    assert scenario("[fleet]\ndevices = 12").candidates == 12


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[protcol]\nk = 1", "protcol: unknown key"),
        ("[fleet]\ndevices = 5", "10 clients per round are more than the fleet of 5"),
        ("[protocol]\ncandidates = 3", "fewer than the 10 wanted"),
        ("seeds = [1, 1]", "one comes twice"),
        ("seeds = []", "seeds"),
        ("[fleet.traces]\npolicy = 'any'", "at_end: missing"),
        ("[fleet.traces]\nat_end = 'loop'", "at_end"),
        ("[fleet.traces]\nat_end = 'wrap'\nstart = '25:00'", "start: should be a time of day"),
        ("[fleet.traces]\nat_end = 'wrap'\nstart = 22", "start"),
        ("accounting = 'cheap'", "accounting"),
        ("[protocol]\nover_commit = 0.5", "over_commit"),
        ("[task]\nheld_out = 1.0", "held_out"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        scenario(text)


def test_names_that_are_unknown_list_the_known() -> None:
    with pytest.raises(ConfigError, match="no preset called 'mnist'") as caught:
        load_scenario("mnist")
    assert "mnist-lenet5-iid" in caught.value.hint
    with pytest.raises(ConfigError, match="no task called"):
        task_of(TaskSection(name="mnist-lenet6"))
    with pytest.raises(ConfigError, match="no selector called"):
        make_selector(scenario("[selector]\nname = 'fedavgg'"))
    with pytest.raises(ConfigError, match="no option 'size'") as caught:
        make_selector(scenario("[selector]\nname = 'power_of_choice'\noptions = { size = 3 }"))
    assert "known: d" in caught.value.hint
    with pytest.raises(ConfigError, match="no option 'size'"):
        make_selector(scenario("[selector]\nname = 'fedavg'\noptions = { size = 3 }"))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("oort", "cut_off = 0.5"),
        ("fedrank", "rank_weight = 0.1"),
        ("fedrank_frozen", "rank_by = 'q1'"),
        ("fedrank_plus", "explore_first = 0.0"),
        ("fedmarl", "rate = 0.01"),
    ],
)
def test_options_that_a_selector_passes_on_are_options(name: str, option: str) -> None:
    assert make_selector(scenario(f"[selector]\nname = '{name}'\noptions = {{ {option} }}")).name == name
    with pytest.raises(ConfigError, match="no option 'size'"):
        make_selector(scenario(f"[selector]\nname = '{name}'\noptions = {{ size = 3 }}"))


def test_files_are_found_beside_the_scenario(tmp_path: Path) -> None:
    save_profile(profile(), tmp_path / "phone.json")
    trace_set(tmp_path / "people", [user(charging=[(0, 100)])])
    (tmp_path / "s.toml").write_text(
        'name = "test"\n[fleet]\nprofiles = ["phone.json"]\n'
        '[fleet.traces]\nsource = "people"\nat_end = "wrap"\n'
    )
    found = load_scenario(tmp_path / "s.toml")
    task = task_of(TaskSection(name="digits-softmax"))
    assert [p.device for p in profiles_of(found.fleet, task)] == ["phone"]
    assert conditions_of(found.fleet, 0).eligible(0).any()


def test_what_a_scenario_names_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by whoever resumes its run in another folder."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    save_profile(profile(), home / "phone.json")
    trace_set(home / "people", [user(charging=[(0, 100)])])
    write_policy(home / "own.safetensors", any_policy("fedrank"))
    (home / "s.toml").write_text(
        'name = "test"\n[fleet]\nprofiles = ["phone.json"]\n'
        '[fleet.traces]\nsource = "people"\nat_end = "wrap"\n'
        '[selector]\nname = "fedrank"\noptions = { policy = "own.safetensors" }\n'
    )
    monkeypatch.chdir(home)
    found = load_scenario("s.toml")
    monkeypatch.chdir(elsewhere)
    assert load_scenario("../home/s.toml") == found
    assert make_selector(found).policy_sha256 == any_policy("fedrank").sha256
    assert profiles_of(found.fleet, task_of(TaskSection(name="digits-softmax")))
    assert conditions_of(found.fleet, 0).eligible(0).any()


def test_words_that_are_no_policy_files_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'name = "test"\n[selector]\nname = "tifl"\noptions = { policy = "fast" }\n'
    )
    assert load_scenario(tmp_path / "s.toml").selector.options == {"policy": "fast"}


@pytest.mark.parametrize(
    ("held_out", "told"), [(0.0, "training samples: task.held_out is 0"), (0.2, "held-out samples")]
)
def test_a_run_says_whose_accuracy_its_selector_goes_by(held_out: float, told: str) -> None:
    tiers = scenario(
        f"[fleet]\ndevices = 20\n[task]\nname = 'digits-softmax'\nheld_out = {held_out}\n"
        "[selector]\nname = 'tifl'\n"
    )
    for name, fact in (("tifl", told), ("fedavg", None)):
        assembly = assemble(tiers, 0, selector=SELECTORS.load(name)())
        assembly.engine.trainer.close()
        assert assembly.facts.get("local_accuracy") == fact


def test_the_flat_form_of_a_trace_set_replays_the_same(tmp_path: Path) -> None:
    folder = trace_set(tmp_path / "people", [user("a", charging=[(0, 3600)]), user("b", charging=[(60, 90)])])
    write_flat(TraceSet(folder), tmp_path / "flat")
    rules = {"policy": "charging", "at_end": "wrap"}
    both = [TracesSection(source=str(tmp_path / name), **rules) for name in ("people", "flat")]
    stored, flat = (conditions_of(FleetSection(devices=40, traces=traces), 0) for traces in both)
    for t_s in (0, 75, 4000):
        found = flat.eligible(t_s * SECOND_NS)
        np.testing.assert_array_equal(stored.eligible(t_s * SECOND_NS), found)
    assert 0 < found.sum() < 40


def test_the_flat_form_says_where_its_traces_come_from(tmp_path: Path) -> None:
    found = TraceSet(trace_set(tmp_path / "people", [user("a", charging=[(0, 3600)])]))
    write_flat(found, tmp_path / "told", provenance=found.record.provenance)
    write_flat(found, tmp_path / "earlier")
    folders = {"people": "emulated", "told": "emulated", "earlier": "unknown"}
    for name, origin in folders.items():
        assert recordings(TracesSection(source=str(tmp_path / name), at_end="wrap")).origin == origin, name


def test_a_profile_of_another_model_names_what_could_be_scaled(tmp_path: Path) -> None:
    save_profile(profile(), tmp_path / "phone.json")
    chosen = FleetSection(profiles=(str(tmp_path / "phone.json"),))
    with pytest.raises(ConfigError, match=r"'lenet5'.*phone/mlp") as caught:
        profiles_of(chosen, task_of(TaskSection()))
    assert "profile scale" in caught.value.hint
    assert "mnist-lenet5" in caught.value.hint


def surrogate(folder: Path, traces: str, rounds: int = 3) -> Scenario:
    return scenario(
        f"checkpoint_every = 0\n[fleet]\ndevices = 4\n[fleet.traces]\nsource = '{folder}'\n{traces}\n"
        f"[protocol]\nk = 2\nrounds = {rounds}\n[trainer]\nkind = 'surrogate'"
    )


def test_traces_that_end_before_the_run_wrap_or_stop_as_chosen(tmp_path: Path) -> None:
    """Half an hour on the charger a day, a day long: one session is all there is."""
    full = [(0, 0.9), (86400, 0.9)]  # or a modelled battery would idle itself empty within days
    day = [user(name, charging=[(3600, end)], battery=full) for name, end in (("a", 3603), ("b", 3604))]
    folder = trace_set(tmp_path / "day", day)
    rules = "policy = 'charging'\nshift = false\njitter_s = 0\nat_end = "
    wrapped = run(surrogate(folder, rules + "'wrap'", rounds=4), out=tmp_path / "wrap")
    assert wrapped.record.rounds == 4
    assert wrapped.rounds["start_ns"].iloc[-1] > 24 * HOUR_S * SECOND_NS
    stopped = run(surrogate(folder, rules + "'stop'", rounds=4), out=tmp_path / "stop")
    assert 0 < stopped.record.rounds < 4
    assert "no device is eligible" in stopped.record.ended_early
    nobody = surrogate(folder, "policy = 'cellular'\nat_end = 'wrap'")
    with pytest.raises(NobodyLeft, match="no device is eligible"):
        run(nobody, out=tmp_path / "never")


def flat_form(folder: Path) -> Path:
    out = folder.with_name(folder.name + "-flat")
    write_flat(TraceSet(folder), out)
    return out


@pytest.mark.parametrize("form", [Path, flat_form])
def test_the_start_is_on_the_users_clock(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    """A recording from 0:00 UTC on; in Helsinki it is two hours later, in Shanghai eight."""
    people = [user("a", begin_s=NEW_YEAR_S, charging=[(4 * HOUR_S, 5 * HOUR_S)])]
    rules = {"policy": "charging", "shift": False, "jitter_s": 0, "at_end": "wrap"}
    for zone, hour in (("", 4), ("UTC", 4), ("Europe/Helsinki", 6), ("Asia/Shanghai", 12)):
        folder = trace_set(tmp_path / f"set{zone.replace('/', '')}", people, {"a": zone})
        chosen = TracesSection(source=str(form(folder)), start=f"{hour:02}:10", **rules)
        there = conditions_of(FleetSection(devices=3, traces=chosen), 0)
        assert there.eligible(0).all(), zone
        assert not there.eligible(51 * 60 * SECOND_NS).any(), zone
        assert there.leaves_at(0, np.arange(3)).tolist() == [50 * 60 * SECOND_NS] * 3


@pytest.mark.parametrize("form", [Path, flat_form])
def test_time_zones_that_do_not_fit_are_refused(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    a, b = (user(name, begin_s=NEW_YEAR_S) for name in "ab")
    folder = form(trace_set(tmp_path / "one", [a], {"a": "Europe/Helsinki"}))
    several = form(trace_set(tmp_path / "two", [a, b], {"a": "Europe/Helsinki", "b": "Asia/Tokyo"}))

    def there(source: Path, zone: str = "") -> object:
        traces = TracesSection(source=str(source), at_end="wrap", time_zone=zone)
        return conditions_of(FleetSection(devices=3, traces=traces), 0)

    with pytest.raises(ConfigError, match="recorded in Europe/Helsinki") as caught:
        there(folder, "America/New_York")
    assert "mixed" in caught.value.hint
    with pytest.raises(ConfigError, match="2 time zones"):
        there(several)
    unknown = form(trace_set(tmp_path / "unknown", [user("a")]))
    with pytest.raises(ConfigError, match="no zone called 'Mars/Base'"):
        there(unknown, "Mars/Base")
    assert there(several, "mixed")
    assert there(folder, "Europe/Helsinki")


def test_a_flat_form_that_does_not_tell_its_zone_needs_one(tmp_path: Path) -> None:
    """As they were made before the record had time zones."""
    people = [user("a", begin_s=NEW_YEAR_S, charging=[(4 * HOUR_S, 5 * HOUR_S)])]
    flat = flat_form(trace_set(tmp_path / "set", people, {"a": "Asia/Shanghai"}))
    record = json.loads((flat / FLAT_FILE).read_text())
    assert record.pop("time_zones") == ["Asia/Shanghai"]
    (flat / FLAT_FILE).write_text(json.dumps(record))

    def there(zone: str, start: str) -> Conditions:
        rules = {"policy": "charging", "shift": False, "jitter_s": 0, "at_end": "wrap"}
        traces = TracesSection(source=str(flat), time_zone=zone, start=start, **rules)
        return conditions_of(FleetSection(devices=3, traces=traces), 0)

    with pytest.raises(ConfigError, match="does not tell the users' time zone") as caught:
        there("", "12:10")
    assert "traces flatten" in caught.value.hint
    assert "time_zone" in caught.value.hint
    assert there("Asia/Shanghai", "12:10").eligible(0).all()
    assert there("mixed", "04:10").eligible(0).all()


def test_the_manifest_says_what_went_in() -> None:
    text = "[fleet]\ndevices = 20\n[trainer]\nkind = 'surrogate'\n"
    found = scenario(text)
    facts = assemble(found, 3).facts
    assert facts["cost_origin"] == "literature"
    assert facts["trainer"] == "surrogate"
    assert sum(facts["profiles"].values()) == 20
    assert facts["budgets"]["time_s"] > 0
    fixed = scenario(text + "[reward]\ntime_budget_s = 7\nenergy_budget_j = 9")
    assert assemble(fixed, 3).facts["budgets"] == {"time_s": 7.0, "energy_j": 9.0}
