"""`joulefleet list`: what each method says about itself, and what a scenario may name."""

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from device_agents.workloads.tasks import TASKS
from emulator.data.partition import PARTITIONS
from emulator.data.sources import DATA_SETS
from emulator.round.selector import Family
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.parts.options import options_of
from emulator.selectors.registry import SELECTORS
from harness.cli.list import UNLOADABLE, list_group
from joulefleet.errors import ConfigError


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(list_group, ["selectors", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def shown(what: str, *arguments: str) -> str:
    result = CliRunner().invoke(list_group, [what, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_tasks_say_what_they_train_on_what() -> None:
    rows = json.loads(shown("tasks", "--json"))
    assert set(rows) == set(TASKS)
    assert {row["data_set"] for row in rows.values()} <= set(DATA_SETS.entries())
    assert "lenet5 on mnist: samples of 1 x 28 x 28 in 10 classes" in shown("tasks")
    assert "samples of 80 tokens in 80 classes" in shown("tasks")


def test_data_sets_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULEFLEET_DATA", "/somewhere/else")
    rows = json.loads(shown("data", "--json"))
    assert set(rows) == set(DATA_SETS.entries())
    for row in rows.values():
        assert re.search("inside|downloaded|data folder", row["summary"])
    assert shown("data").splitlines()[-1].startswith("data folder: /somewhere/else")


def test_partitions_are_shown_with_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(shown("partitions", "--json"))
    assert set(rows) == set(PARTITIONS.entries())
    assert rows["dir_client_lazy"]["options"] == {"alpha": 0.01, "samples_per_client": 20}
    assert "options: alpha = 0.01, samples_per_client\n" in shown("partitions")
    monkeypatch.setitem(PARTITIONS.builtin, "broken", ("no_such_module:thing", "not there"))
    assert "no_such_module" in shown("partitions")


def test_the_listing_holds_what_a_user_must_know() -> None:
    rows: dict[str, dict[str, Any]] = json.loads(listed("--json"))
    assert set(rows) >= {
        "fedavg",
        "fedprox",
        "afl",
        "tifl",
        "oort",
        "autofl",
        "harmony_like",
        "power_of_choice",
    }
    assert {row["family"] for row in rows.values()} <= set(Family)
    assert rows["power_of_choice"]["probe"] == "loss"
    assert rows["tifl"]["profiling"] == "epoch"
    assert rows["oort"]["needs"] == ["capability_s", "comm_s", "epoch_s", "loss_rms"]
    assert rows["speed_oracle"]["privileged"] is True
    assert rows["fedavg"]["privileged"] is False
    assert "surrogate" in rows["harmony_like"]["deviations"]


def test_people_see_families_in_order_and_oracles_marked() -> None:
    text = listed()
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert headings == [str(family) for family in Family]
    oracle = text[text.index("  speed_oracle") :].splitlines()
    assert "PRIVILEGED" in oracle[1]
    assert "probe: loss" in text


def test_one_selector_is_shown_with_its_options() -> None:
    row = json.loads(listed("afl", "--json"))
    assert row["options"] == {"alpha1": 0.75, "alpha2": 0.01, "alpha3": 0.1, "initial": "first_round"}
    text = listed("afl")
    assert "alpha2 = 0.01" in text
    assert "Goetz" in text
    assert "Switches:" in text
    assert "options: none" in listed("fedavg")


def test_options_that_are_passed_on_are_shown() -> None:
    fedrank = json.loads(listed("fedrank", "--json"))["options"]
    assert {
        "policy": "fedrank",
        "explore_first": 0.1,
        "rank_weight": 0.5,
        "demo_rounds": 50,
    }.items() <= fedrank.items()
    plus = json.loads(listed("fedrank_plus", "--json"))["options"]
    assert plus == {"probe_factor": 1.5, "fast_share": 0.6, "coverage": 1.0, **fedrank}
    fedmarl = json.loads(listed("fedmarl", "--json"))["options"]
    assert {"policy": "fedmarl", "mode": "topk", "cache": 2000, "rank_weight": 0.0}.items() <= fedmarl.items()
    oort = json.loads(listed("oort", "--json"))["options"]
    assert {"mode": "paper", "cut_off": 0.95, "blacklist_after": 10}.items() <= oort.items()
    assert json.loads(listed("eafl", "--json"))["options"] == oort


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("minus_i", {"policy": ""}),
        ("minus_p", {"rank_weight": 0.0}),
        ("minus_ip", {"policy": "", "rank_weight": 0.0}),
        ("frozen", {"online": False}),
        ("from_oort", {"policy": "fedrank_from_oort"}),
        ("from_fedmarl", {"policy": "fedrank_from_fedmarl"}),
        ("from_harmony_like", {"policy": "fedrank_from_harmony_like"}),
        ("literal", {"rank_by": "q1", "rank_target": "literal"}),
    ],
)
def test_a_variant_of_fedrank_has_its_options_and_own_defaults(name: str, changed: dict[str, Any]) -> None:
    assert options_of(SELECTORS.load(f"fedrank_{name}")) == {**options_of(FedRank), **changed}


@pytest.mark.parametrize("name", sorted(SELECTORS.builtin))
def test_every_option_that_is_shown_can_be_given(name: str) -> None:
    selector = SELECTORS.load(name)
    assert isinstance(selector(**options_of(selector)), selector)


def test_what_a_variant_of_fedrank_says_it_does_differently() -> None:
    rows: dict[str, dict[str, Any]] = json.loads(listed("--json"))
    said = {name: row["deviations"] for name, row in rows.items() if name.startswith("fedrank")}
    options = {name: options_of(SELECTORS.load(name)) for name in said if name != "fedrank_plus"}
    for name, given in options.items():
        learns_ranks = given["online"] and given["rank_weight"] > 0
        assert ("ranks by advantage" in said[name]) == (given["rank_by"] == "advantage"), name
        credited = learns_ranks and given["rank_target"] == "credited"
        assert ("credited rank target" in said[name]) == credited, name
        assert ("exploration" in said[name]) == given["online"], name


def test_an_unknown_selector_is_answered_with_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        listed("oart")
    assert "did you mean 'oort'" in caught.value.hint


def test_a_plug_in_that_cannot_be_loaded_is_shown_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELECTORS.builtin, "broken", ("no_such_module:Thing", "not there"))
    row = json.loads(listed("--json"))["broken"]
    assert row["family"] == UNLOADABLE
    assert "no_such_module" in row["error"]
    assert "no_such_module" in listed()
