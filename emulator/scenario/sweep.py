"""Variants of a scenario: several selectors, several values of its keys, and what each variant is called."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emulator.scenario.load import found_from
from emulator.scenario.model import Scenario, SelectorSection
from emulator.scenario.settings import (
    MOST,
    SHORT,
    selectors_in,
    shown,
    typed_lists,
    with_settings,
)
from emulator.selectors.parts.options import named_options
from emulator.selectors.registry import SELECTORS as REGISTERED
from joulefleet.config import validate
from joulefleet.errors import ConfigError

SELECTORS = "selectors"
"""Key of ``[sweep]`` for who chooses; every other one is a key of the scenario."""
OPTIONS = "selector.options."

Selected = str | SelectorSection | Mapping[str, Any]
"""A selector: ``oort``, ``oort:mode=official``, or a section with its name and options."""
Lists = Mapping[str, Sequence[Any]]
"""Keys to their values."""


@dataclass(frozen=True, slots=True)
class ScenarioVariant:
    """What is run of a scenario with each of its seeds.

    Attributes:
        selector: Who chooses, its options included.
        settings: Keys of the scenario that differ between variants, and their values here.
        scenario: The scenario with both.
    """

    selector: SelectorSection
    settings: dict[str, Any]
    scenario: Scenario

    @property
    def label(self) -> str:
        """Its name in tables."""
        return method_label(self.selector.name, self.selector.options, self.settings)


def expand(
    scenario: Scenario,
    selectors: Sequence[Selected] | None = None,
    settings: Lists | None = None,
    *,
    seeds: int = 1,
    folder: Path | None = None,
) -> list[ScenarioVariant]:
    """Every selector with every combination of settings, in the order in which they are run.

    Args:
        scenario: May have a ``[sweep]`` of its own; what is given here comes instead of its parts.
        selectors: By default those of its sweep, or its own.
        settings: Keys of the scenario to lists of values.
        seeds: With how many seeds each variant is run.
        folder: Where files are found that the values name; the current folder by default.

    Raises:
        ConfigError: A key or value does not fit, a variant comes twice, or there are too many.
    """
    folder = folder or Path.cwd()
    own = _leaves(scenario.sweep or {})
    base = scenario.model_copy(update={"sweep": None})
    of_file = own.pop(SELECTORS, None)
    typed = typed_lists(base, {**own, **(settings or {})}, folder)
    options = {key: values for key, values in typed.items() if key.startswith(OPTIONS)}
    # What has one value is shared by all variants, and no part of their names.
    shared = {key: values[0] for key, values in typed.items() if len(values) == 1 and key not in options}
    swept = {key: values for key, values in typed.items() if key not in {*options, *shared}}
    choosers = _choosers(base, of_file if selectors is None else selectors, options, folder)
    _check_size({SELECTORS: len(choosers), **{key: len(values) for key, values in swept.items()}}, seeds)
    variants = []
    for chooser, values in product(choosers, product(*swept.values())):
        here = dict(zip(swept, values, strict=True))
        made = with_settings(base.model_copy(update={"selector": chooser}), shared | here)
        variants.append(ScenarioVariant(chooser, here, made))
    _check_distinct(variants)
    return variants


def typed_sweep(scenario: Scenario, folder: Path) -> Scenario:
    """A scenario whose ``[sweep]`` was found to fit, its files found from a folder.

    Raises:
        ConfigError: It does not.
    """
    if scenario.sweep is None:
        return scenario
    lists = _leaves(scenario.sweep)
    named = lists.pop(SELECTORS, None)
    base = scenario.model_copy(update={"sweep": None})
    typed: dict[str, Any] = {key: list(values) for key, values in typed_lists(base, lists, folder).items()}
    if named is not None:
        typed[SELECTORS] = [one.model_dump() for one in _choosers(base, named, {}, folder)]
    if not typed:
        raise ConfigError("[sweep] is empty", hint='e.g. "protocol.k" = [5, 10]; or leave it out')
    return scenario.model_copy(update={"sweep": typed})


def method_label(name: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """``oort (mode=official, k=5)``: who chose, with the options it was given and the settings that vary.

    A variant is called the same in every table, whatever stands beside it. A key is shortened to its last
    word where no other key of a scenario has that word.
    """
    words = dict(sorted(options.items()))
    for key, value in settings.items():
        short = SHORT.get(key, key)
        words[key if short in options else short] = value
    listed = ", ".join(f"{word}={shown(value)}" for word, value in words.items())
    return name + (f" ({listed})" if listed else "")


def folder_name(label: str) -> str:
    """A label as the name of a folder."""
    plain = re.sub(r"[^\w.-]+", "-", label.replace(" (", "_").replace(", ", "_")).strip("-.")
    if len(plain) <= 96:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _leaves(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A nested table as dotted keys: in TOML ``protocol.k`` without quotes is a table."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{before}{name}"
        inner = _leaves(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
        if double := found.keys() & inner.keys():
            raise ConfigError(f"sweep.{min(double)}: is there twice")
        found |= inner
    return found


def _choosers(
    base: Scenario, named: Sequence[Selected] | None, options: Lists, folder: Path
) -> list[SelectorSection]:
    """Every selector with every combination of the options that are swept."""
    if named is not None and (isinstance(named, str) or not isinstance(named, Sequence) or not named):
        raise ConfigError(
            f"selectors {named!r:.60}: not a list of names",
            hint="e.g. ['fedavg', 'oort:mode=official']; `joulefleet list selectors` shows names",
        )
    sections = [base.selector] if named is None else [_section(base, one, folder) for one in named]
    names = [key.removeprefix(OPTIONS) for key in options]
    return [
        section.model_copy(update={"options": {**section.options, **dict(zip(names, values, strict=True))}})
        for section in sections
        for values in product(*options.values())
    ]


def _section(base: Scenario, given: Selected, folder: Path) -> SelectorSection:
    """A selector as it was named; what the scenario says of its own selector holds unless it is said here."""
    if isinstance(given, str):
        found = selectors_in([given])
        if len(found) != 1:
            raise ConfigError(f"selectors: {given!r} is not one selector", hint="give a list of them")
        section = found[0]
    elif isinstance(given, SelectorSection):
        section = given
    elif isinstance(given, Mapping):
        section = validate(dict(given), SelectorSection, name="selectors")
    else:
        raise ConfigError(
            f"selectors: {given!r:.60} is not the name of one",
            hint="`emulator.run(..., selector=...)` takes an object; `joulefleet list selectors` shows names",
        )
    section = found_from(folder, base.model_copy(update={"selector": section})).selector
    own = base.selector
    if section.name != own.name:
        return section
    return section.model_copy(update={"options": {**own.options, **section.options}})


def _check_size(sizes: Mapping[str, int], seeds: int) -> None:
    count = math.prod(sizes.values()) * seeds
    if count > MOST:
        parts = " x ".join(f"{size:,} {key}" for key, size in {**sizes, "seeds": seeds}.items())
        raise ConfigError(
            f"{count:,} emulations ({parts}) are too many",
            hint=f"at most {MOST:,} in one run: sweep fewer values, or in several runs",
        )


def _check_distinct(variants: Sequence[ScenarioVariant]) -> None:
    """No variant is there twice, nor one that only spells a default out."""
    labels = set()
    seen: dict[bytes, ScenarioVariant] = {}
    for one in variants:
        options = named_options(REGISTERED.load(one.selector.name), one.selector.options)
        same = json.dumps([one.selector.name, options, one.settings], sort_keys=True, default=str).encode()
        first = seen.setdefault(same, one)
        if first is not one or one.label in labels:
            raise ConfigError(
                f"{one.label}: comes twice" + (f", as {first.label}" if first.label != one.label else ""),
                hint="name each variant once; `--seeds` repeats it",
            )
        labels.add(one.label)
