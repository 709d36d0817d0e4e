"""What the policies of the package were made from, by name: `fedjoule policy train` without options."""

from __future__ import annotations

from emulator.policies.train import EXPERTS, Recipe
from emulator.scenario.model import (
    Fleet,
    ProtocolSection,
    Scenario,
    TaskSection,
    TrainerSection,
)

SAMPLES_PER_DEVICE = 50
"""5,000 images over 100 devices: what matters is the order of devices, not the accuracy of the model."""

FEDMARL_ROUNDS = 20
FEDRANK_ROUNDS = 50


def scenarios(data: str, task: str, rounds: int, samples: int) -> tuple[Scenario, ...]:
    """Equal and skewed data in turn (the paper's IID and Dirichlet 0.01)."""
    partitions = {
        "iid": {"samples_per_client": samples},
        "dir_client": {"alpha": 0.01, "samples_per_client": samples},
    }
    return tuple(
        Scenario(
            name=f"pretrain-{name.replace('_', '-')}",
            fleet=Fleet(devices=100),
            task=TaskSection(name=task, data=data, partition=name, options=options),
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
    command: str = "",
) -> Recipe:
    """The usual recipe: 100 episodes of 20 rounds for trying, 6 runs of 50 per expert for imitating."""
    imitates = kind == "fedrank"
    count = runs or (6 if imitates else 100)
    length = rounds or (FEDRANK_ROUNDS if imitates else FEDMARL_ROUNDS)
    return Recipe(
        scenarios=scenarios(data, task, length, samples),
        # Far from the seeds that people run experiments with: what is judged must not have been seen.
        seeds=tuple(range(1000, 1000 + count)),
        held_out=tuple(range(2000, 2000 + max(2, count // 3))) if imitates else (),
        experts=experts,
        experts_policy=experts_policy,
        command=command,
    )
