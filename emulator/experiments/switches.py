"""Which reading of the paper a run took, for every place where it can be read in several ways.

The items are those of ``docs/selectors-notes.md`` (A1 to A36).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from emulator.experiments.plan import Variant
from emulator.runs.assembly import budget_rule_text
from emulator.scenario.model import Scenario
from emulator.selectors.neural.learner import LearnerOptions
from emulator.selectors.registry import SELECTORS


@dataclass(frozen=True, slots=True)
class Switch:
    """One ambiguity and how it stood.

    Attributes:
        item: Its number.
        what: What the paper leaves open.
        setting: How it was set here.
    """

    item: str
    what: str
    setting: str


def switches_of(variant: Variant) -> list[Switch]:
    """All of them, for one variant."""
    scenario = variant.scenario
    return [*_protocol(scenario), *_reward(scenario), *_task(scenario), *_ranking()]


def _protocol(scenario: Scenario) -> list[Switch]:
    protocol, n = scenario.protocol, scenario.fleet.devices
    among = "all devices, as the paper's text has it" if scenario.candidates == n else "a part of the fleet"
    return [
        Switch("A3", "how many devices are probed", f"M = {scenario.candidates} of N = {n}: {among}"),
        Switch(
            "A4, A5",
            "whose probes count",
            f"all three accountings are shown; {scenario.accounting.value} enters the reward",
        ),
        Switch(
            "A26", "rounds", f"r = {protocol.rounds}, K = {protocol.k}, {protocol.local_epochs} local epochs"
        ),
    ]


def _reward(scenario: Scenario) -> list[Switch]:
    reward = scenario.reward
    return [
        Switch("A6", "sign of the penalty when accuracy falls", f"reward.function = {reward.function}"),
        Switch("A15", "budgets T and E", f"{budget_rule_text(reward)}, times {reward.budget_scale:g}"),
        Switch("A16", "exponents", f"alpha = {reward.alpha:g}, beta = {reward.beta:g}"),
        Switch("A17", "accuracy in the reward", f"of the server's {reward.split} split"),
    ]


def _task(scenario: Scenario) -> list[Switch]:
    task, fleet = scenario.task, scenario.fleet
    options = ", ".join(f"{name} = {value}" for name, value in sorted(task.options.items()))
    traces = (
        "no traces" if fleet.traces is None else f"traces {fleet.traces.source}, policy {fleet.traces.policy}"
    )
    profiles = "phones computed from published facts" if isinstance(fleet.profiles, str) else "own profiles"
    return [
        Switch("A22", "p_k ~ Dir_N", f"partition {task.partition}" + (f" ({options})" if options else "")),
        Switch("A27, A28", "phones and users", f"{profiles}; {traces}; {scenario.energy} energy"),
        Switch(
            "A30",
            "optimiser",
            f"batch {task.batch_size or 'of the task'}, rate {task.learning_rate or 'of the task'}, "
            f"momentum {'of the task' if task.momentum is None else task.momentum}",
        ),
    ]


def _ranking() -> list[Switch]:
    """FedRank's own switches at their defaults; the variants' names say what they change."""
    own = _defaults(SELECTORS.load("fedrank"))
    learning = LearnerOptions()
    return [
        Switch("A1", "depth and width of the network", f"two hidden layers of {own['hidden']}"),
        Switch("A8", "what devices are ranked by", f"rank_by = {own['rank_by']}"),
        Switch("A9", "target of the rank loss", f"rank_target = {learning.rank_target}"),
        Switch("A10", "pairs of the rank loss", f"pairs = {learning.pairs}"),
        Switch("A14", "normalisation of the state", "per round, robust, of the logarithm"),
        Switch(
            "A20",
            "exploration, discount, rank weight",
            f"{own['explore_first']:g} to {own['explore_last']:g}, gamma = {learning.discount:g}, "
            f"epsilon = {learning.rank_weight:g}",
        ),
        Switch(
            "A35, A36", "baseline and credit", f"baseline = {learning.baseline}, credit = {learning.credit}"
        ),
    ]


def _defaults(kind: type[Any]) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(kind).parameters.items()}
