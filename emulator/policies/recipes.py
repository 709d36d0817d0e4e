"""What the policies of the package were made from, by name: `joulefleet policy train` without options."""

from __future__ import annotations

from emulator.policies.train import EXPERTS, Recipe
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    Scenario,
    TaskSection,
    TrainerSection,
)

DEVICES = 100
SAMPLES_PER_DEVICE = 50
"""On average: 5,000 images over 100 devices. What matters is the order of devices, not the accuracy."""

SERVER_SAMPLES = 100
"""Of the validation split, for imitating: none of the three experts looks at the server's accuracy."""

FEDMARL_ROUNDS = 20
FEDRANK_ROUNDS = 50

# Far from the seeds that people run experiments with: what is judged must not have been seen.
TRAIN_FROM, STOP_FROM, JUDGE_FROM = 1000, 2000, 3000


def scenarios(
    data: str, task: str, rounds: int, samples: int, server_samples: int | None = None
) -> tuple[Scenario, ...]:
    """The paper's IID and both readings of its Dirichlet 0.01, in turn.

    Only ``dir_class`` has devices of unequal size: without it a policy learns nothing about sizes.
    """
    partitions = {"iid": {}, "dir_client": {"alpha": 0.01}, "dir_class": {"alpha": 0.01}}
    return tuple(
        Scenario(
            name=f"pretrain-{name.replace('_', '-')}",
            fleet=FleetSection(devices=DEVICES),
            task=TaskSection(
                name=task,
                data=data,
                partition=name,
                options=options,
                train_samples=DEVICES * samples,
                server_samples=server_samples,
            ),
            protocol=ProtocolSection(rounds=rounds, test_every=0),
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
        played = scenarios(data, task, length, samples, SERVER_SAMPLES if imitates else None)
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
