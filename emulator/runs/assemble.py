"""`assemble`: an engine, ready for its first round, and the manifest of what went into it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads.tasks import Task, find_task
from emulator.assembly.checks import SURROGATE, check_learnable, check_recorded
from emulator.assembly.profiles import profiles_of
from emulator.data.model import DataSet, Split
from emulator.data.partition import Holdings, make_partition
from emulator.fleet.batteries import Batteries
from emulator.fleet.network import Network, TransferSource
from emulator.fleet.state import FleetState, fleet_from_profiles
from emulator.fleet.world import World
from emulator.round.budgets import budgets_by_rule
from emulator.round.engine import Engine
from emulator.round.reward import REWARDS, Budgets
from emulator.round.rules import RewardRules, RoundRules
from emulator.runs.fleet_inputs import conditions_of, recordings
from emulator.scenario.model import Scenario, TaskSection
from emulator.selectors.base import SELECTORS, Selector
from emulator.training.base import OpenTrainer, Trainer
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json
from joulefleet.seeds import generator
from power.profile.model import DeviceProfile

TRAINING_SAMPLES = "training samples: task.held_out is 0"


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """The learning side of a scenario and a seed.

    Attributes:
        trainer: Trains.
        data_size: Training samples of each device.
        classes: Number of classes.
        label_histogram: True share of each class on each device; ``None`` if unknown or not asked for.
        facts: For the manifest.
    """

    trainer: Trainer
    data_size: NDArray[np.int64]
    classes: int
    label_histogram: NDArray[np.float64] | None
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """An engine and what went into it."""

    engine: Engine
    facts: dict[str, Any]


def assemble(
    scenario: Scenario,
    seed: int,
    *,
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    open_trainer: OpenTrainer | None = None,
    learners: Learners | None = None,
) -> Assembly:
    """Everything that a run needs.

    Args:
        scenario: What to run.
        seed: Decides partition, fleet, trace offsets, initial weights and data order, whatever the selector.
        selector: Instead of the one that the scenario names.
        profiles: Instead of those that the scenario names, whatever model they are about.
        open_trainer: Where training happens; on this machine by default. Results do not depend on it.
        learners: Instead of the scenario's data and trainer: clients of another framework.
    """
    task = task_of(scenario.task)
    chooser = make_selector(scenario) if selector is None else selector
    known = profiles_of(scenario.fleet, task) if profiles is None else profiles
    conditions = conditions_of(scenario.fleet, seed)
    check_recorded(scenario.fleet, conditions)
    labels = "label_histogram" in chooser.needs
    foreign = learners is not None
    learners = learners or learners_of(scenario, task, seed, open_trainer, labels=labels)
    fleet = fleet_from_profiles(
        known,
        learners.data_size,
        rng=generator(seed, "fleet"),
        speed_spread=scenario.fleet.speed_spread,
        mix=scenario.fleet.mix,
        energy=scenario.energy,
    )
    batteries = Batteries(fleet, conditions, **scenario.fleet.battery.model_dump())
    link = scenario.fleet.network
    model_bytes = _model_bytes(learners.trainer, task, link)
    world = World(fleet, conditions, batteries, Network(fleet, conditions, link, model_bytes or 0))
    rounds = scenario.protocol
    reward_rules = reward_rules_of(
        scenario,
        lambda: budgets_by_rule(world, rounds.k, rounds.local_epochs, 0, generator(seed, "budgets")),
    )
    engine = Engine(
        world,
        learners.trainer,
        chooser,
        rules_of(scenario, task),
        reward_rules,
        seed,
        classes=learners.classes,
        label_histogram=learners.label_histogram,
    )
    check_learnable(chooser, learners.trainer, labels_known=learners.label_histogram is not None)
    facts = {
        "seed": seed,
        "selector": chooser.name,
        "selector_options": {name: _plain(value) for name, value in chooser.given_options.items()},
        "privileged": chooser.privileged,
        "budgets": {"time_s": reward_rules.budgets.time_s, "energy_j": reward_rules.budgets.energy_j},
        "trainer": learners.trainer.implementation,
        "model_bytes": model_bytes,
        "energy": scenario.energy,
        "policy_sha256": chooser.policy_sha256,
        **_fleet_facts(fleet),
        "profiles_sha256": profiles_sha256(tuple(known)),
        **_trace_facts(scenario),
        **({} if foreign else _accuracy_facts(scenario, chooser)),
        **learners.facts,
    }
    return Assembly(engine, facts)


def task_of(section: TaskSection) -> Task:
    """The task with the scenario's own settings."""
    try:
        task = find_task(section.name)
    except ValueError as error:
        raise ConfigError(f"task.name: {error}") from error
    changes = {
        name: value
        for name in ("batch_size", "learning_rate", "momentum")
        if (value := getattr(section, name)) is not None
    }
    return replace(task, **changes)


def make_selector(scenario: Scenario) -> Selector:
    """The selector that a scenario names, with its options."""
    section = scenario.selector
    kind = SELECTORS.load(section.name)
    # `object` takes no options, whatever its own signature says.
    known = {} if kind.__init__ is object.__init__ else inspect.signature(kind).parameters
    unknown = sorted(set(section.options) - set(known))
    # A selector that passes further options on refuses unknown ones itself.
    if unknown and all(option.kind is not option.VAR_KEYWORD for option in known.values()):
        raise ConfigError(
            f"selector {section.name!r} has no option {unknown[0]!r}",
            hint=f"known: {', '.join(known) or 'none'}",
        )
    return kind(**section.options)


def rules_of(scenario: Scenario, task: Task) -> RoundRules:
    """The rules of a scenario."""
    settings = scenario.protocol.model_dump(exclude={"candidates"})
    return RoundRules(**settings, candidates=scenario.candidates, batch_size=task.batch_size)


def reward_rules_of(scenario: Scenario, by_rule: Callable[[], tuple[float, float]]) -> RewardRules:
    """How rounds are judged; ``by_rule`` gives T and E where the scenario does not."""
    section = scenario.reward
    time_s, energy_j = section.time_budget_s, section.energy_budget_j
    if time_s is None or energy_j is None:
        rule_s, rule_j = by_rule()
        time_s, energy_j = time_s or rule_s, energy_j or rule_j
    scale = section.budget_scale
    budgets = Budgets(scale * time_s, scale * energy_j, section.alpha, section.beta)
    return RewardRules(REWARDS.load(section.function), budgets, scenario.accounting, section.split)


def learners_of(
    scenario: Scenario, task: Task, seed: int, open_trainer: OpenTrainer | None = None, *, labels: bool = True
) -> Learners:
    """The data of a scenario, shared out by the seed, and who trains on it; arguments as in `assemble`.

    Only oracles ask for everybody's ``labels``; to count them takes long in a very large fleet.
    """
    section = scenario.task
    if scenario.trainer.kind == SURROGATE:
        from emulator.training.surrogate import SurrogateTrainer

        sizes = np.full(scenario.fleet.devices, section.samples_per_device, np.int64)
        trainer = SurrogateTrainer(sizes, task.classes, seed)
        return Learners(trainer, sizes, task.classes, None, {"data": None})
    from emulator.training.choose import open_trainer as on_this_machine

    data, partition = data_of(section, scenario.fleet.devices, seed)
    real = (open_trainer or on_this_machine)(
        task,
        data,
        partition,
        seed=seed,
        implementation=scenario.trainer.kind,
        workers=scenario.trainer.workers,
        held_out=section.held_out,
    )
    shares = _label_shares(data, partition) if labels else None
    sizes = partition.sizes - np.round(section.held_out * partition.sizes).astype(np.int64)
    facts = {
        "data": {"name": data.name, "note": data.note, "sha256": data.sha256()},
        "partition": partition.manifest(),
    }
    return Learners(real, sizes, data.classes, shares, facts)


def _label_shares(data: DataSet, partition: Holdings) -> NDArray[np.float64]:
    counts = partition.label_counts(data.train.y, data.classes)
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def data_of(section: TaskSection, devices: int, seed: int) -> tuple[DataSet, Holdings]:
    """The data of a scenario as far as it uses them, and who has which."""
    from emulator.data.sources import load_data_set

    loaded = load_data_set(section.data or task_of(section).data_set, seed=seed)
    data = _cut(loaded, section, seed)
    return data, make_partition(section.partition, data.train, devices, seed, **section.options)


def _cut(data: DataSet, section: TaskSection, seed: int) -> DataSet:
    """The data as far as the scenario uses it."""

    def cut(name: str, key: str, samples: int | None) -> Split:
        split: Split = getattr(data, name)
        if samples is None:
            return split
        if samples > len(split):
            raise ConfigError(
                f"task.{key} = {samples}, but {data.name} has {len(split)} samples for {name}",
                hint="lower it, or leave it out to use all of them",
            )
        order = generator(seed, "samples in use", name).permutation(len(split))
        return split.take(np.sort(order[:samples]))

    return replace(
        data,
        train=cut("train", "train_samples", section.train_samples),
        validation=cut("validation", "server_samples", section.server_samples),
        test=cut("test", "server_samples", section.server_samples),
    )


def _model_bytes(trainer: Trainer, task: Task, link: TransferSource) -> int | None:
    """Size of the model on the wire; ``None`` where nobody built one and transfers are as measured."""
    if trainer.implementation != SURROGATE:
        return trainer.initial().nbytes
    if link is TransferSource.PROFILE:
        return None
    from emulator.training.layout import model_bytes

    # What the surrogate passes around is one number, whatever the model.
    return model_bytes(task)


@lru_cache(maxsize=8)
def profiles_sha256(profiles: tuple[DeviceProfile, ...]) -> str:
    """Hash of what the profiles hold, whatever their order: a file may be another one under the same name."""
    return hashlib.sha256(canonical_json(sorted(profile.sha256() for profile in profiles))).hexdigest()


def _plain(value: Any) -> Any:
    """An option as a record can hold it; of an object its type."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return type(value).__name__


def _accuracy_facts(scenario: Scenario, selector: Selector) -> dict[str, Any]:
    """Whose accuracy a selector goes by, where it asks devices for one."""
    if "local_accuracy" not in selector.needs or scenario.trainer.kind == SURROGATE:
        return {}
    return {"local_accuracy": "held-out samples" if scenario.task.held_out else TRAINING_SAMPLES}


def _fleet_facts(fleet: FleetState) -> dict[str, Any]:
    counts = np.bincount(fleet.profile, minlength=len(fleet.costs.names))
    return {
        "cost_origin": fleet.origin.value,
        "profiles": {name: int(n) for name, n in zip(fleet.costs.names, counts, strict=True) if n},
        "not_measured": list(fleet.costs.gaps),
    }


def _trace_facts(scenario: Scenario) -> dict[str, Any]:
    if scenario.fleet.traces is None:
        return {"traces": None}
    found = recordings(scenario.fleet.traces)
    return {"traces": {"users": len(found.flat), "origin": found.origin, "sha256": found.sha256}}
