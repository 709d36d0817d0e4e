"""`assemble`: an engine, ready for its first round, and the manifest of what went into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import ACCURACY, Metric, Task
from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import Conditions
from emulator.fleet.network import Network, TransferSource
from emulator.fleet.state import FleetState, fleet_from_profiles
from emulator.fleet.world import World
from emulator.own_code.files import code_of
from emulator.round.budgets import MOMENTS, budgets_by_rule, feasible_budgets
from emulator.round.engine import Engine
from emulator.round.reward import REWARDS, BudgetRule, Budgets
from emulator.round.rules import AGGREGATIONS, RewardRules, RoundRules
from emulator.round.selector import Selector
from emulator.runs.fleet_inputs import (
    clock_notes,
    conditions_of,
    profiles_of,
    recordings,
    throughput_recordings,
    with_behaviour,
)
from emulator.runs.learners import Learners, learners_of, model_bytes_of, task_of
from emulator.runs.replay.devices import Devices
from emulator.runs.replay.floors import floors_of
from emulator.scenario.model import FleetSection, NetworkSection, RewardSection, Scenario
from emulator.selectors.parts.options import made_with
from emulator.selectors.registry import SELECTORS
from emulator.training.base import OpenTrainer
from emulator.training.surrogate import SURROGATE
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json
from joulefleet.seeds import generator
from power import DeviceProfile
from traces.replay import RecordedFacts

TRAINING_SAMPLES = "training samples: task.held_out is 0"


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """An engine, what went into it, and who its devices are."""

    engine: Engine
    facts: dict[str, Any]
    devices: Devices


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
    if scenario.sweep is not None:
        raise ConfigError(
            f"scenario {scenario.name!r} is a sweep, and this takes one scenario",
            hint="`joulefleet emulate` plays all of its variants; leave [sweep] out for one",
        )
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
    link = scenario.fleet.link
    model_bytes = model_bytes_of(learners.trainer, task, link)
    plain = World(fleet, conditions, batteries, Network(fleet, conditions, link, model_bytes or 0))
    world = with_behaviour(plain, scenario.fleet, seed)
    rules = rules_of(scenario, task)
    reward_rules = reward_rules_of(
        scenario, lambda: _budgets(scenario, world, rules, chooser, seed), learners.metric
    )
    engine = Engine(
        world,
        learners.trainer,
        chooser,
        rules,
        reward_rules,
        seed,
        classes=learners.classes,
        label_histogram=learners.label_histogram,
    )
    check_learnable(chooser, learners)
    facts = {
        "seed": seed,
        "selector": chooser.name,
        "selector_options": {name: _plain(value) for name, value in chooser.given_options.items()},
        "privileged": chooser.privileged,
        "budgets": {"time_s": reward_rules.budgets.time_s, "energy_j": reward_rules.budgets.energy_j},
        "budget_rule": budget_rule_text(scenario.reward),
        "trainer": learners.trainer.implementation,
        "model_bytes": model_bytes,
        "energy": scenario.energy,
        "policy_sha256": chooser.policy_sha256,
        **_fleet_facts(fleet),
        "profiles_sha256": profiles_sha256(tuple(known)),
        **_trace_facts(scenario),
        "clock_notes": [] if scenario.fleet.traces is None else clock_notes(scenario.fleet.traces),
        **({} if foreign else accuracy_facts(scenario, chooser)),
        **_code_facts(chooser),
        **learners.facts,
        "behaviour": _behaviour_facts(world),
        "floors": floors_of(world, engine.rules).facts(),
    }
    phones = [profile.device for profile in known]
    devices = Devices(fleet, conditions, phones, learners.held, learners.drawn)
    return Assembly(engine, facts, devices)


def make_selector(scenario: Scenario) -> Selector:
    """The selector that a scenario names, with its options."""
    section = scenario.selector
    return made_with(section.name, SELECTORS.load(section.name), section.options)


def rules_of(scenario: Scenario, task: Task) -> RoundRules:
    """The rules of a scenario."""
    settings = scenario.protocol.model_dump(exclude={"candidates", "aggregation"})
    how = AGGREGATIONS.load(scenario.protocol.aggregation)
    return RoundRules(**settings, aggregation=how, candidates=scenario.candidates, batch_size=task.batch_size)


def reward_rules_of(
    scenario: Scenario, by_rule: Callable[[], tuple[float, float]], metric: Metric = ACCURACY
) -> RewardRules:
    """How rounds are judged; ``by_rule`` gives T and E where the scenario does not."""
    section = scenario.reward
    time_s, energy_j = section.time_budget_s, section.energy_budget_j
    if time_s is None or energy_j is None:
        rule_s, rule_j = by_rule()
        time_s, energy_j = time_s or rule_s, energy_j or rule_j
    scale = section.budget_scale
    budgets = Budgets(scale * time_s, scale * energy_j, section.alpha, section.beta)
    return RewardRules(REWARDS.load(section.function), budgets, scenario.accounting, section.split, metric)


def _budgets(
    scenario: Scenario, world: World, rules: RoundRules, selector: Selector, seed: int
) -> tuple[float, float]:
    rng, reward = generator(seed, "budgets"), scenario.reward
    if reward.budgets is BudgetRule.BEST_30:
        return budgets_by_rule(world, rules.k, rules.local_epochs, 0, rng)
    return feasible_budgets(world, rules, selector, scenario.accounting, reward.budget_quantile, rng)


def budget_rule_text(section: RewardSection) -> str:
    """Where T and E come from, for people."""
    if section.time_budget_s is not None and section.energy_budget_j is not None:
        return "given"
    if section.budgets is BudgetRule.BEST_30:
        return "mean of rounds among the best 30 % of the devices, without probes and load"
    return (
        f"kept by {section.budget_quantile:.0%} of {MOMENTS} random rounds with the same "
        "probes, which are computed and charged to nobody"
    )


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


def accuracy_facts(scenario: Scenario, selector: Selector) -> dict[str, Any]:
    """Whose accuracy a selector goes by, where it asks devices for one."""
    if "local_accuracy" not in selector.needs or scenario.trainer.kind == SURROGATE:
        return {}
    return {"local_accuracy": "held-out samples" if scenario.task.held_out else TRAINING_SAMPLES}


def _code_facts(selector: Selector) -> dict[str, Any]:
    code = code_of(selector.name)
    return {} if code is None else {"selector_sha256": code.sha256}


def _fleet_facts(fleet: FleetState) -> dict[str, Any]:
    counts = np.bincount(fleet.profile, minlength=len(fleet.costs.names))
    return {
        "cost_origin": fleet.origin.value,
        "profiles": {name: int(n) for name, n in zip(fleet.costs.names, counts, strict=True) if n},
        "not_measured": list(fleet.costs.gaps),
    }


def _behaviour_facts(world: World) -> dict[str, Any]:
    """What slows devices and makes them vary; the largest standard deviations among the profiles."""
    variation, registration = world.variation, world.registration

    def most(*sds: NDArray[np.float64]) -> float:
        return float(np.hypot.reduce(sds).max())

    return {
        "interference": "own load curves" if world.apps is None else "literature, else own load curves",
        "time_log_sd": most(variation.time_log_sd) if variation else 0.0,
        "power_log_sd": most(variation.power_log_sd) if variation else 0.0,
        "registration_log_sd": most(registration.kind_log_sd, registration.unit_log_sd)
        if registration
        else 0.0,
    }


def _trace_facts(scenario: Scenario) -> dict[str, Any]:
    traces, network = scenario.fleet.traces, scenario.fleet.network
    found: dict[str, Any] = {"traces": None if traces is None else _recorded(recordings(traces))}
    if isinstance(network, NetworkSection):
        found["network"] = _recorded(throughput_recordings(network))
    return found


def _recorded(found: RecordedFacts) -> dict[str, Any]:
    return {"users": len(found.flat), "origin": found.origin, "sha256": found.sha256}


def check_recorded(fleet: FleetSection, conditions: Conditions) -> None:
    """Refuse rules about what was not recorded of anybody.

    Raises:
        ConfigError: Throughput or battery levels count, and there are none.
    """
    if fleet.link is TransferSource.TRACE and not conditions.has_rates:
        raise ConfigError(
            'fleet.network = "trace", but no throughput was recorded',
            hint='give traces with throughput, or write "profile" for transfers as measured with the devices',
        )
    if conditions.asks_level and not conditions.has_level.any():
        raise ConfigError(
            "fleet.traces.policy asks for the battery level, but none was recorded",
            hint="give traces with levels, or leave the battery out of the policy: "
            "a level that is modelled from the charger ends rounds, but does not enter a policy",
        )


def check_fits(
    selector: Selector, classes: int, metric: Metric, *, loss_rms: bool, hint: str = "take another selector"
) -> None:
    """Refuse methods that go by what a task does not have.

    Raises:
        ConfigError: The task has no classes, no accuracy or no loss per sample, and the selector needs it.
    """
    unfit = {
        "classes, and this task has none": "bias_delta" in selector.needs and not classes,
        f"an accuracy, and this task is judged by {metric.name}": selector.needs_accuracy
        and not metric.share,
        "a loss per sample, and the task's loss gives one for the whole batch": "loss_rms" in selector.needs
        and not loss_rms,
    }
    for what in (name for name, does in unfit.items() if does):
        raise ConfigError(f"selector {selector.name!r} goes by {what}", hint=hint)


def check_learnable(selector: Selector, learners: Learners) -> None:
    """Refuse methods that would choose by what is not there, and so at random.

    Raises:
        ConfigError: The selector needs labels that nobody knows, or weights where nothing is trained; or see
            `check_fits`.
    """
    check_fits(selector, learners.classes, learners.metric, loss_rms=learners.loss_rms)
    trainer = learners.trainer
    lacking = {
        "labels": "label_histogram" in selector.needs and learners.label_histogram is None,
        "weights": selector.needs_weights and trainer.implementation == SURROGATE,
    }
    for what in (name for name, lacks in lacking.items() if lacks):
        raise ConfigError(
            f"selector {selector.name!r} chooses by the devices' {what}, "
            f"and the {trainer.implementation} trainer has none",
            hint="train for real (leave trainer.kind out), or take another selector",
        )
