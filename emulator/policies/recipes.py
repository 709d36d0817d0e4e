"""What the policies of the package were made from, by name: `joulefleet policy train` without options."""

from __future__ import annotations

from typing import Literal

from emulator.policies.train import EXPERTS, Recipe
from emulator.round.reward import BudgetRule
from emulator.scenario.load import load_scenario
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    RewardSection,
    Scenario,
    TaskSection,
    TrainerSection,
)

DEVICES = 100
SAMPLES_PER_DEVICE = 50
"""On average: 5,000 images over 100 devices. What matters is the order of devices, not the accuracy."""

SERVER_SAMPLES = 100
"""Of the validation split, for imitating: none of the three experts looks at the server's accuracy."""

WEEK = "week-in-use-mnist"
"""Whose phones, users, networks, pace and deadlines the policies learn with."""

SMALL_SHARDS = {"digits-mlp": {"batch_size": 8, "learning_rate": 0.02}}
"""Optimisers of tasks with so little data that their own would take a step an epoch; as in the presets."""

FEDMARL_ROUNDS = 20
FEDRANK_ROUNDS = 50

# Far from the seeds that people run experiments with: what is judged must not have been seen.
TRAIN_FROM, STOP_FROM, JUDGE_FROM = 1000, 2000, 3000


World = Literal["week", "still"]
"""Phones that people use, or phones that lie there."""


def scenarios(
    data: str,
    task: str,
    rounds: int,
    samples: int,
    server_samples: int | None = None,
    world: World = "week",
) -> tuple[Scenario, ...]:
    """The paper's IID and both readings of its Dirichlet 0.01, in turn.

    Only ``dir_class`` has devices of unequal size: without it a policy learns nothing about sizes. In the
    ``still`` world nobody uses the phones, as before there were traces with networks.
    """
    fleet, protocol = FleetSection(devices=DEVICES), ProtocolSection(rounds=rounds, test_every=0)
    if world == "week":
        week = load_scenario(WEEK)
        fleet = week.fleet.model_copy(update={"devices": DEVICES})
        pace = {name: getattr(week.protocol, name) for name in ("every_s", "over_commit", "deadline_s")}
        protocol = protocol.model_copy(update=pace)
    partitions = {"iid": {}, "dir_client": {"alpha": 0.01}, "dir_class": {"alpha": 0.01}}
    return tuple(
        Scenario(
            name=f"pretrain-{name.replace('_', '-')}",
            fleet=fleet,
            task=TaskSection(
                name=task,
                data=data,
                partition=name,
                options=options,
                train_samples=DEVICES * samples,
                server_samples=server_samples,
                **SMALL_SHARDS.get(task, {}),
            ),
            protocol=protocol,
            # For the surrogate of Harmony they are its own setting, and no reward: the tight ones, as ever.
            reward=RewardSection(budgets=BudgetRule.BEST_30),
            trainer=TrainerSection(),
        )
        for name, options in partitions.items()
    )


def recipe(
    kind: str,
    *,
    data: str,
    task: str,
    experts: tuple[str, ...] = EXPERTS,
    experts_policy: str = "fedmarl",
    runs: int | None = None,
    rounds: int | None = None,
    samples: int = SAMPLES_PER_DEVICE,
    scenario: Scenario | None = None,
    world: World = "week",
    command: str = "",
) -> Recipe:
    """The usual recipe: 100 episodes of 20 rounds for trying, 6 runs of 50 per expert for imitating.

    As many runs again decide when the imitation stops, and as many more judge it: two of each split. With a
    ``scenario`` all runs are of it: its fleet, traces, task and rules, and its rounds unless they are given.
    """
    imitates = kind == "fedrank"
    count = runs or (6 if imitates else 100)
    length = rounds or (FEDRANK_ROUNDS if imitates else FEDMARL_ROUNDS)
    if scenario is None:
        played = scenarios(data, task, length, samples, SERVER_SAMPLES if imitates else None, world)
    else:
        changes = {"rounds": rounds or scenario.protocol.rounds, "test_every": 0}
        protocol = scenario.protocol.model_copy(update=changes)
        played = (scenario.model_copy(update={"protocol": protocol}),)
    return Recipe(
        scenarios=played,
        seeds=tuple(range(TRAIN_FROM, TRAIN_FROM + count)),
        stop=tuple(range(STOP_FROM, STOP_FROM + count)) if imitates else (),
        judge=tuple(range(JUDGE_FROM, JUDGE_FROM + count)) if imitates else (),
        experts=experts,
        experts_policy=experts_policy,
        command=command,
    )
