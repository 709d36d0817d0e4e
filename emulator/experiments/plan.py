"""What an experiment runs: scenarios that differ in one thing, methods, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from emulator.data.partition import BY_CLASS
from emulator.own_code.files import GivenCode
from emulator.scenario.code import with_code
from emulator.scenario.model import Scenario
from emulator.scenario.settings import selectors_in
from emulator.scenario.sweep import folder_name, method_label
from emulator.selectors.registry import SELECTORS
from joulefleet.config import ClosedModel
from joulefleet.errors import ConfigError
from joulefleet.records import StoredRecord
from joulefleet.runstore.folder import InsidePath

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]

BASELINE_BLIND_TO = (("reward",), ("protocol", "candidates"), ("accounting",), ("name",))
"""What uniformly random selection never looks at: scenarios that differ in these share their FedAvg runs."""


CANDIDATES_KEY = "protocol.candidates"
"""Dotted key of M, which a scenario may leave to a rule."""


class Preset(StrEnum):
    """How large."""

    SMOKE = "smoke"
    """About a minute; shows that everything works, and nothing else."""
    LAPTOP = "laptop"
    """Two cores and an evening."""
    PAPER = "paper"
    """The paper's full scale, for a GPU or a cluster."""


class SweptQuantity(ClosedModel):
    """What a series of variants varies.

    Attributes:
        quantity: For people.
        key: Dotted key of the scenario.
    """

    quantity: str
    key: str

    def value(self, scenario: Scenario) -> float:
        """Where a scenario stands in the series."""
        if self.key == CANDIDATES_KEY:
            return float(scenario.candidates)
        found: Any = scenario
        for part in self.key.split("."):
            found = getattr(found, part)
        return float(found)


class Variant(ClosedModel):
    """One scenario of an experiment.

    Attributes:
        name: Of its folder.
        title: For people.
        scenario: All but who chooses.
        reductions: What differs from the paper, mostly smaller; shown with every table.
        paper_task: Column of the paper's table to stand beside; empty for none.
        paper_split: ``iid`` or ``noniid``, likewise.
        target: Accuracy to reach; by default what FedAvg ends with here.
        baseline: Variant whose FedAvg runs count here too; its own by default.
        swept: The series it belongs to.
    """

    name: Name
    title: str
    scenario: Scenario
    reductions: tuple[str, ...] = ()
    paper_task: str = ""
    paper_split: str = ""
    target: float | None = None
    baseline: str = ""
    swept: SweptQuantity | None = None

    @property
    def unlike_the_paper(self) -> str:
        """What differs from the paper, the number of candidates and the place in a series included."""
        scenario, swept = self.scenario, self.swept
        among, devices = scenario.candidates, scenario.fleet.devices
        found = list(self.reductions)
        if among < devices:
            found.append(
                f"at most M = {among} of N = {devices} devices are candidates, in the paper's text all"
            )
        if swept is not None and swept.key != CANDIDATES_KEY:
            found.append(f"{swept.quantity} = {swept.value(scenario):g}")
        return "; ".join(found) or "nothing; the paper's N, K, M, rounds, epochs and samples"


class PlanEntry(ClosedModel):
    """One method on one variant with one seed: a selector, with other options than its defaults or none."""

    LATER: ClassVar[frozenset[str]] = frozenset({"options"})

    variant: InsidePath
    selector: InsidePath
    seed: Annotated[int, Field(ge=0)]
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def method(self) -> str:
        """What tables call it."""
        return method_label(self.selector, self.options, {})

    @property
    def folder(self) -> str:
        """Inside the run."""
        return f"{self.variant}/{folder_name(self.method)}_s{self.seed}"

    @property
    def settings(self) -> None:
        """None: variants are scenarios of their own."""


class ExperimentPlan(StoredRecord):
    """``experiment.json``: everything that an experiment runs, in order."""

    name: Name
    preset: Preset
    question: str
    variants: tuple[Variant, ...] = Field(min_length=1)
    planned: tuple[PlanEntry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        by_name = {variant.name: variant for variant in self.variants}
        if len(by_name) < len(self.variants):
            raise ValueError("variants: a name comes twice")
        if len({one.folder for one in self.planned}) < len(self.planned):
            raise ValueError("planned: one comes twice")
        lost = {one.variant for one in self.planned} - set(by_name)
        if lost:
            raise ValueError(f"planned: no variant called {min(lost)!r}")
        for variant in self.variants:
            if variant.baseline:
                _check_baseline(variant, by_name)
        return self

    def variant(self, name: str) -> Variant:
        """A variant by name."""
        return next(variant for variant in self.variants if variant.name == name)

    def scenario_of(self, planned: PlanEntry) -> Scenario:
        """The scenario of one of them, with its selector."""
        scenario = self.variant(planned.variant).scenario
        chosen = scenario.selector.model_copy(update={"name": planned.selector, "options": planned.options})
        return scenario.model_copy(update={"selector": chosen})


def _check_baseline(variant: Variant, by_name: dict[str, Variant]) -> None:
    other = by_name.get(variant.baseline)
    if other is None:
        raise ValueError(f"variant {variant.name}: its baseline {variant.baseline!r} is not there")
    if _as_baseline_sees(variant.scenario) != _as_baseline_sees(other.scenario):
        raise ValueError(
            f"variant {variant.name}: differs from its baseline {other.name} in what FedAvg depends on"
        )


def _as_baseline_sees(scenario: Scenario) -> dict[str, Any]:
    data = scenario.model_dump(mode="json", exclude={"selector"})
    for path in BASELINE_BLIND_TO:
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        inner.pop(path[-1])
    return data


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """Who plays on a variant.

    Attributes:
        variant: The scenario.
        methods: Selectors with all of ``seeds``, as they are typed: ``oort``, ``oort:penalty=0``.
        seeds: Of ``methods``.
        others: Selectors with ``other_seeds`` only: they cost as much and matter less.
        other_seeds: Of ``others``.
    """

    variant: Variant
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    others: tuple[str, ...] = ()
    other_seeds: tuple[int, ...] = ()

    def planned(self, seeds: Sequence[int] | None) -> list[PlanEntry]:
        """Every method with each of its seeds, or with ``seeds`` instead; seed by seed.

        So whatever part of it has been played holds the same seeds of all methods.
        """
        return [
            PlanEntry(variant=self.variant.name, selector=one.name, seed=seed, options=one.options)
            for methods, its_seeds in ((self.methods, self.seeds), (self.others, self.other_seeds))
            for seed in seeds or its_seeds
            for one in selectors_in(methods)
        ]


def with_own_code(plan: VariantPlan, given: GivenCode) -> VariantPlan:
    """A variant played with the user's own task instead of its own, and by the user's selectors besides.

    Args:
        plan: The variant and who plays on it.
        given: What the user's files offer.
    """
    variant = plan.variant
    scenario = with_code(variant.scenario, given)
    changes: dict[str, Any] = {"scenario": scenario}
    if scenario.task.name != variant.scenario.task.name:
        instead = f"task {scenario.task.name} instead of {variant.scenario.task.name}"
        # Beside another task's numbers the paper's would mislead, and its target too.
        changes |= {"reductions": (*variant.reductions, instead), "paper_task": "", "target": None}
        # A title is "data, model; how it is dealt out; ...".
        changes["title"] = "; ".join([scenario.task.name, *variant.title.split("; ")[1:]])
    methods = tuple(dict.fromkeys((*plan.methods, *given.selectors)))
    task = given.tasks.get(scenario.task.name)
    if task is not None and not task.metric.share:
        every = (*methods, *plan.others)
        left = [one for one in every if SELECTORS.load(one.partition(":")[0]).needs_accuracy]
        changes["reductions"] = (
            *changes["reductions"],
            f"without {', '.join(left)}, which go by an accuracy",
        )
        methods = tuple(name for name in methods if name not in left)
        plan = replace(plan, others=tuple(name for name in plan.others if name not in left))
    return replace(plan, variant=variant.model_copy(update=changes), methods=methods)


def playable(plans: Sequence[VariantPlan], given: GivenCode) -> list[VariantPlan]:
    """Those variants whose data can be dealt out: what has no classes is not dealt out by them.

    Raises:
        ConfigError: None is left.
    """
    found = [
        one
        for one in plans
        if (task := given.tasks.get(one.variant.scenario.task.name)) is None
        or task.has_labels
        or one.variant.scenario.task.partition not in BY_CLASS
    ]
    if not found:
        raise ConfigError(
            "every scenario of this experiment deals data out by classes, and your task has none"
        )
    return found


def make_plan(
    name: str,
    preset: Preset,
    question: str,
    plans: Sequence[VariantPlan],
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
) -> ExperimentPlan:
    """The plan of an experiment.

    Args:
        name: Of the experiment.
        preset: How large.
        question: What it answers.
        plans: Its variants and who plays on them.
        seeds: Instead of the preset's own, for every method.
        only: Names of the variants to run; a variant that another one takes its baseline from comes with it.

    Raises:
        ConfigError: There is no such variant.
    """
    known = {one.variant.name: one for one in plans}
    for wanted in only:
        if wanted not in known:
            raise ConfigError(
                f"experiment {name!r} has no variant {wanted!r} with preset {preset.value}",
                hint=f"known: {', '.join(known)}",
            )
    kept = set(only or known)
    kept |= {known[one].variant.baseline for one in kept} - {""}
    chosen = [one for one in plans if one.variant.name in kept]
    return ExperimentPlan(
        name=name,
        preset=preset,
        question=question,
        variants=tuple(one.variant for one in chosen),
        planned=tuple(entry for one in chosen for entry in one.planned(seeds)),
    )
