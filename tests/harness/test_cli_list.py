"""`fedjoule list selectors`: what each method says about itself."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from emulator.selectors.base import SELECTORS, Family
from fedjoule.errors import ConfigError
from harness.cli.list import UNLOADABLE, list_group


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(list_group, ["selectors", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


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
