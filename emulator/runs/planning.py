"""What a run of several emulations plays: every variant of a scenario with every seed, a folder each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import Field

from emulator.runs.assembly import make_selector
from emulator.scenario.model import Scenario
from emulator.scenario.settings import with_settings
from emulator.scenario.sweep import Lists, ScenarioVariant, Selected, expand, folder_name, method_label
from joulefleet.config import ClosedModel
from joulefleet.errors import ConfigError
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord
from joulefleet.runstore.folder import InsidePath


class PlannedEmulation(Protocol):
    """One emulation of a plan."""

    @property
    def folder(self) -> str:
        """Inside the run."""

    @property
    def seed(self) -> int:
        """Its seed."""

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """Keys of the scenario in which the variants of a sweep differ, and their values here."""


P = TypeVar("P", bound=PlannedEmulation)


class EmulationPlan(Protocol[P]):
    """Variants with seeds (`BatchIndex`), or those of several scenarios (an experiment)."""

    @property
    def planned(self) -> tuple[P, ...]:
        """All of them, in the order in which they are run."""

    def scenario_of(self, planned: P, /) -> Scenario:
        """The scenario of one of them."""


class BatchEntry(ClosedModel):
    """One variant with one seed, and where it is.

    Attributes:
        selector: Who chooses.
        seed: Its seed.
        folder: Inside the run.
        options: Of the selector; by default the scenario's own if it is the scenario's selector, else none.
        settings: Other values than the scenario's, by dotted key.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"options", "settings"})

    selector: str
    seed: int
    folder: InsidePath
    options: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None


class BatchIndex(StoredRecord):
    """``index.json``: what a run of several emulations holds.

    Attributes:
        scenario: Of all of them, but for the selector and for what each one sets.
        planned: All of them, in the order in which they are run.
        given: What Python handed over as objects (``selector``, ``profiles``): no file describes them.
        config: Hashes of the files that say for people what is run: they must not say something else later.
        more_rounds: How many rounds were added when the planned ones had been played.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"given", "config", "more_rounds"})

    scenario: Scenario
    planned: tuple[BatchEntry, ...]
    given: tuple[str, ...] | None = None
    config: dict[str, Sha256] | None = None
    more_rounds: int | None = Field(default=None, gt=0)

    def scenario_of(self, planned: BatchEntry) -> Scenario:
        """The scenario of one of them."""
        scenario, own = self.scenario, self.scenario.selector
        if planned.selector != own.name and "selector" not in (self.given or ()):
            own = own.model_copy(update={"name": planned.selector, "options": {}})
        if planned.options is not None:
            own = own.model_copy(update={"options": planned.options})
        scenario = with_settings(scenario.model_copy(update={"selector": own}), planned.settings or {})
        rounds = scenario.protocol.rounds + (self.more_rounds or 0)
        protocol = scenario.protocol.model_copy(update={"rounds": rounds})
        return scenario.model_copy(update={"protocol": protocol})

    @property
    def fingerprint(self) -> str:
        """Hash of what the run was begun with: rounds that are added later are no other run."""
        return self.model_copy(update={"more_rounds": None}).sha256()

    def label(self, planned: BatchEntry) -> str:
        """The variant of one of them, as tables call it."""
        options = self.scenario_of(planned).selector.options
        return method_label(planned.selector, options, planned.settings or {})

    @property
    def size(self) -> str:
        """How many there are of what, for people."""
        keys = dict.fromkeys(key for one in self.planned for key in one.settings or {})
        counts = {
            "selector": len({(one.selector, str(one.options)) for one in self.planned}),
            **{key: len({str((one.settings or {}).get(key)) for one in self.planned}) for key in keys},
            "seed": len({one.seed for one in self.planned}),
        }
        parts = [f"{count} {what}{'s' * (what not in keys and count > 1)}" for what, count in counts.items()]
        return f"{len(self.planned):,} emulation{'s' * (len(self.planned) > 1)}: {' x '.join(parts)}"


def plan(
    scenario: Scenario,
    selectors: Sequence[Selected] | None,
    seeds: Sequence[int] | None = None,
    settings: Lists | None = None,
) -> BatchIndex:
    """Every variant with every seed; the seeds of one variant follow each other.

    Args:
        scenario: What is varied.
        selectors: Those of its sweep, or its own, by default.
        seeds: Its own by default.
        settings: Keys of the scenario to lists of values.

    Raises:
        ConfigError: There is nothing to run, or something does not fit.
    """
    seeds = scenario.seeds if seeds is None else seeds
    if (
        isinstance(seeds, str | int)
        or not seeds
        or not all(type(seed) is int and seed >= 0 for seed in seeds)
    ):
        raise ConfigError(f"seeds {seeds!r}: not a list of whole numbers from 0 on", hint="e.g. [0, 1, 2]")
    seeds = list(dict.fromkeys(seeds))
    variants = expand(scenario, selectors, settings, seeds=len(seeds))
    # In what they share all of them are like the first, and what they do not share each one sets.
    base = variants[0].scenario.model_copy(update={"selector": scenario.selector})
    planned = [
        BatchEntry(
            selector=one.selector.name,
            seed=seed,
            folder=f"{folder}_s{seed}",
            options=_options(scenario, one),
            settings=one.settings or None,
        )
        for folder, one in zip(_folders(variants), variants, strict=True)
        for seed in seeds
    ]
    return BatchIndex(scenario=base, planned=tuple(planned))


def check_selectors(index: BatchIndex) -> None:
    """A misspelt name or option is found now, not after hours.

    Raises:
        ConfigError: A selector cannot be made.
    """
    different = {(one.selector, str(one.options)): one for one in index.planned}
    for planned in different.values():
        make_selector(index.scenario_of(planned))


def _options(scenario: Scenario, variant: ScenarioVariant) -> dict[str, Any] | None:
    """Those of a variant; ``None`` for those that it has unless something else is said."""
    own = scenario.selector
    usual = own.options if variant.selector.name == own.name else {}
    return None if variant.selector.options == usual else variant.selector.options


def _folders(variants: Sequence[ScenarioVariant]) -> list[str]:
    """A folder for each: the selector's name where that is enough, else what the variant is called."""
    names = Counter(one.selector.name for one in variants)
    found: dict[str, None] = {}
    for one in variants:
        folder = one.selector.name if names[one.selector.name] == 1 else folder_name(one.label)
        while folder in found:  # labels that differ in signs which no folder should have
            folder = f"{folder}-{len(found)}"
        found[folder] = None
    return list(found)
