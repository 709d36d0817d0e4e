"""Whether runs may stand in one table: they differ in who chose and in the seed, and in nothing else.

Variants of a sweep may differ in the keys that were swept as well: these are part of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.runs.reading import FinishedRun
    from emulator.runs.result import EmulationRecord
    from emulator.scenario.model import Scenario

EMULATED = "emulated"
SHARED_BY_SEED = ("data", "partition", "traces", "network", "profiles", "profiles_sha256")
"""What runs with the same seed rest on, whoever chooses."""
SHARED_BY_METHOD = ("policy_sha256", "selector_sha256")
"""What a method begins with, whatever the seed: otherwise it is two methods under one name."""
SHARED_BY_ALL = ("trainer", "played", "task")
"""What makes two worlds of one: another implementation of training, a bench instead of emulated devices."""

WORLD = ("fleet", "task", "trainer")
"""Sections of a scenario on which these facts depend."""


def facts_of(record: EmulationRecord) -> dict[str, Any]:
    """What a run rests on. Emulations do not say that they are; a bench does."""
    return {"played": EMULATED, **record.facts}


def told_apart(loaded: Sequence[FinishedRun]) -> list[FinishedRun]:
    """A method on the bench is another one than the same method emulated, where both are there."""
    where = [facts_of(one.record)["played"] for one in loaded]
    if len(set(where)) == 1:
        return list(loaded)
    return [
        one if played == EMULATED else replace(one, method=f"{one.method} ({played})")
        for one, played in zip(loaded, where, strict=True)
    ]


def unequal(loaded: Sequence[FinishedRun]) -> list[str]:
    """How the runs differ in more than who chose and which seed."""
    return _unequal_scenarios(loaded) + _unequal_facts(loaded)


def _unequal_scenarios(loaded: Sequence[FinishedRun]) -> list[str]:
    swept = {key for one in loaded for key in one.record.swept or ()}
    first = _deciding(loaded[0].record.scenario, swept)
    for one in loaded[1:]:
        other = _deciding(one.record.scenario, swept)
        if other != first:
            parts = [name for name in first if first[name] != other.get(name)]
            where = f"{loaded[0].path} and {one.path}"
            return [f"the scenarios differ ({', '.join(parts)}), so not the methods alone: {where}"]
    return []


def _deciding(scenario: Scenario, swept: Collection[str]) -> dict[str, Any]:
    """What decides results, beside the method: no names, no numbers of processes, no places of files.

    What was in the files is among the facts, what was swept in the method's name.
    """
    ignored: Any = {
        "name": True,
        "seeds": True,
        "selector": True,
        "checkpoint_every": True,
        "code": True,
        "trainer": {"workers"},
    }
    found = scenario.model_dump(exclude=ignored)
    fleet = found["fleet"]
    if not isinstance(fleet["profiles"], str):
        fleet["profiles"] = [PurePath(name).name for name in fleet["profiles"]]
    for part in (fleet["traces"], fleet["network"]):
        if isinstance(part, dict):
            part["source"] = PurePath(part["source"]).name
    for key in swept:
        *tables, last = key.split(".")
        inner: Any = found
        for part in tables:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
    return found


def _unequal_facts(loaded: Sequence[FinishedRun]) -> list[str]:
    """The same paths may hold other files, and the same names other policies."""
    found = [
        *(_differs(loaded, fact, lambda one: f"the runs{_world(one)}") for fact in SHARED_BY_ALL),
        *(_differs(loaded, fact, lambda one: f"runs of {one.method}") for fact in SHARED_BY_METHOD),
        *(
            _differs(loaded, fact, lambda one: f"runs with seed {one.seed}{_world(one)}")
            for fact in SHARED_BY_SEED
        ),
    ]
    return [one for one in found if one]


def _world(one: FinishedRun) -> str:
    """In which data, fleet or trainer a variant plays, if its sweep is about one of them."""
    found = one.record.settings
    parts = [f"{key} = {found[key]}" for key in found if key.partition(".")[0] in WORLD]
    return f" with {', '.join(parts)}" if parts else ""


def _differs(loaded: Sequence[FinishedRun], fact: str, group: Callable[[FinishedRun], str]) -> str:
    """The first two runs of a group that rest on different facts; one that does not tell is in no group."""
    firsts: dict[str, FinishedRun] = {}
    for one in loaded:
        if fact not in (facts := facts_of(one.record)):
            continue
        first = firsts.setdefault(group(one), one)
        mine, other = facts[fact], facts_of(first.record)[fact]
        if mine != other:
            values = (
                f" ({other:.16} and {mine:.16})" if isinstance(mine, str) and isinstance(other, str) else ""
            )
            what = f"{group(one)} rest on different {fact}{values}"
            return f"{what}, so not the methods alone: {first.path} and {one.path}"
    return ""
