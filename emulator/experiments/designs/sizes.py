"""Scenarios in three sizes, each with the list of what is smaller than in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.experiments.plan import Variant
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario

SPLITS = {
    "iid": "IID",
    "dir-client": "non-IID, Dirichlet per device (dir_client)",
    "dir-class": "non-IID, Dirichlet per label (dir_class)",
}
"""The paper's "p_k ~ Dir_N" has two readings with opposite results (docs/selectors-notes.md, A22): both."""

TASKS = {
    "mnist-lenet5": "MNIST, LeNet-5",
    "cifar10-resnet18": "CIFAR-10, ResNet-18",
    "cinic10-vgg16": "CINIC-10, VGG-16",
    "tinyimagenet-shufflenetv2": "Tiny ImageNet, ShuffleNet V2",
}
PAPER_TASKS = {"tinyimagenet-shufflenetv2": "tinyimagenet-shufflenet"}
"""Names in the paper's table, where they differ from ours."""

FEW = (0, 1)
THREE = (0, 1, 2)
FIVE = tuple(range(5))
TEN = tuple(range(10))


def changed(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """A scenario with other values at dotted keys, validated again."""
    data = scenario.model_dump(mode="json")
    for key, value in changes.items():
        *path, last = key.split(".")
        inner = data
        for part in path:
            inner = inner[part]
        inner[last] = value
    return Scenario.model_validate(data)


def derived(
    variant: Variant,
    name: str,
    title: str,
    changes: Mapping[str, Any],
    **also: Any,
) -> Variant:
    """A variant that differs from another one in named keys."""
    scenario = changed(variant.scenario, {**changes, "name": name})
    return variant.model_copy(update={"name": name, "title": title, "scenario": scenario, **also})


def longer(variant: Variant, rounds: int) -> Variant:
    """The same over more rounds than the paper's 50, under a name of its own."""
    note = f"{rounds} rounds instead of the paper's {variant.scenario.protocol.rounds}"
    return derived(
        variant,
        f"{variant.name}-{rounds}",
        f"{variant.title}, {rounds} rounds",
        {"protocol.rounds": rounds},
        paper_task="",  # beside another horizon's numbers the paper's would mislead
        reductions=(*variant.reductions, note),
    )


def smoke(split: str) -> Variant:
    """Embedded digits, small fleet, few rounds: seconds a run."""
    variant = digits(split)
    sizes = {
        "fleet.devices": 30,
        "fleet.traces.users": 30,
        "fleet.traces.days": 3,
        "protocol.rounds": 12,
        "protocol.k": 5,
        "protocol.candidates": 10,
        "protocol.local_epochs": 3,
    }
    note = "30 devices, 5 of 10 candidates, 12 rounds, 3 local epochs: too small to conclude anything from"
    return derived(variant, f"smoke-{split}", variant.title, sizes, reductions=(*variant.reductions, note))


def digits(split: str) -> Variant:
    """The paper's protocol on the embedded digits."""
    scenario = load_scenario(f"digits-{split}")
    return Variant(
        name=scenario.name,
        title=f"digits, small MLP; {SPLITS[split]}",
        scenario=scenario,
        reductions=("1,797 embedded digits of 8x8 pixels and a small MLP: no task of the paper",),
    )


def full(task: str, split: str) -> Variant:
    """A task of the paper at its full size."""
    scenario = load_scenario(f"{task}-{split}")
    return Variant(
        name=scenario.name,
        title=f"{TASKS[task]}; {SPLITS[split]}",
        scenario=scenario,
        paper_task=PAPER_TASKS.get(task, task),
        paper_split="iid" if split == "iid" else "noniid",
        target=0.99 if scenario.name == "mnist-lenet5-iid" else None,
    )


def half_mnist(split: str) -> Variant:
    """MNIST with LeNet-5 at the paper's N, K, rounds and epochs, on half of the images."""
    samples = 30_000
    variant = full("mnist-lenet5", split)
    note = f"{samples:,} training images instead of 60,000, so half as many on each device"
    sizes = {"task.train_samples": samples}
    # The paper's 99 % are out of reach with half of the images, for everybody.
    return derived(variant, variant.name, variant.title, sizes, reductions=(note,), target=None)


def small_cifar10() -> Variant:
    """CIFAR-10 with ResNet-18 as far as two cores carry it in an evening."""
    samples, rounds, server = 100, 20, 1000
    variant = full("cifar10-resnet18", "iid")
    sizes = {
        "task.options": {"samples_per_client": samples},
        "task.server_samples": server,
        "protocol.rounds": rounds,
    }
    note = (
        f"{samples} samples a device instead of 500, {rounds} rounds instead of 50, "
        f"{server} validation and {server} test samples: accuracies are not comparable with the paper's"
    )
    return derived(variant, variant.name, variant.title, sizes, reductions=(note,))
