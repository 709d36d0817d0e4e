"""Options that make no sense are refused when a selector is made, not in the middle of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.runs.assembly import make_selector
from emulator.scenario.model import Scenario, SelectorSection
from emulator.selectors.parts.options import options_of
from emulator.selectors.tifl import TiFL
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import build, registered


def chosen(name: str, **options: Any) -> Scenario:
    return Scenario(name="test", selector=SelectorSection(name=name, options=options))


@pytest.mark.parametrize(
    ("name", "option", "value", "hint"),
    [
        ("fedrank", "batch", 16.0, "a whole number from 1"),
        ("fedrank", "hidden", 64, "a list of 2"),
        ("fedrank", "hidden", [64, 1.5], "a whole number from 1"),
        ("fedrank", "rank_by", ["q1"], "known: advantage, q1"),
        ("fedrank", "policy", True, "a text"),
        ("fedrank_plus", "max_others", 0.5, "a whole number from 1"),
        ("fedmarl", "weights", [1, 2], "a list of 3"),
        ("fedmarl", "weights", [1, 2, "x"], "a number from 0"),
        ("fedmarl", "mode", "best", "known: topk, native"),
        ("fedmarl", "sync_every", True, "a whole number from 1"),
        ("tifl", "interval", 2.5, "a whole number from 1"),
        ("tifl", "only_when_stalled", "no", "true or false"),
        ("favor", "cache", 10.5, "a whole number from 1"),
        ("favor", "online", "no", "true or false"),
        ("oort", "pacer_step", 2.5, "a whole number from 0"),
        ("oort", "penalty", True, "a number from 0"),
        ("oort", "mode", ["paper"], "known: paper"),
        ("eafl", "blacklist_after", 1.5, "a whole number from -1"),
        ("autofl", "levels", 3.0, "a whole number from 1"),
        ("power_of_choice", "d", 2.5, "a whole number from 0"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_at_once(name: str, option: str, value: Any, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"selector '{name}': {option} is ") as caught:
        make_selector(chosen(name, **{option: value}))
    assert hint in caught.value.hint


def test_numbers_of_numpy_are_numbers() -> None:
    assert TiFL(interval=np.int64(3)).interval == 3


@pytest.mark.parametrize("name", registered())
def test_every_default_is_a_value_that_may_be_given(name: str) -> None:
    options = {option: value for option, value in options_of(type(build(name))).items() if value is not None}
    assert make_selector(chosen(name, **options)).name == name


@pytest.mark.parametrize("name", registered())
def test_an_unknown_option_lists_those_of_this_selector(name: str) -> None:
    with pytest.raises(ConfigError, match=f"selector '{name}' has no option 'colour'") as caught:
        make_selector(chosen(name, colour="red"))
    known = caught.value.hint.removeprefix("known: ").split(", ")
    assert set(known) == set(options_of(type(build(name))) or ["none"])
