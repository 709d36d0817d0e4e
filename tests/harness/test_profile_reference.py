from pathlib import Path

import pytest

from device_agents.workloads import count_task
from device_agents.workloads.tasks import TASKS
from harness.profiles.reference_fleet.__main__ import compute_facts, tasks
from power.reference import reference_facts


def test_arithmetic_in_the_facts_is_that_of_the_models() -> None:
    counted = {task.name: task for task in tasks()}
    for task in reference_facts().tasks:
        assert task == counted[task.name], "run `python -m harness.profiles.reference_fleet` again"


def test_facts_are_what_the_data_sets_say(real_data: Path) -> None:
    assert compute_facts(real_data) == reference_facts()


@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-resnet18", "digits-mlp"])
def test_counting_agrees_with_torch(name: str) -> None:
    forward, training = _torch_counts(name)
    work = count_task(TASKS[name])
    assert work.forward_flop == forward
    assert work.training_flop == training


def test_grouped_convolutions_are_counted_as_grouped() -> None:
    """torch agrees going forward; going backward it takes groups for dense, so it counts too much."""
    forward, training = _torch_counts("tinyimagenet-shufflenetv2")
    work = count_task(TASKS["tinyimagenet-shufflenetv2"])
    assert work.forward_flop == forward
    assert 2.5 * forward < work.training_flop < 3 * forward < training


def test_recurrent_layers_are_counted() -> None:
    """80 characters, two layers of 256: 4 gates x (inputs + 256) x 256 products each, and the last layer."""
    macs = 80 * 4 * 256 * ((8 + 256) + (256 + 256)) + 256 * 80
    assert count_task(TASKS["shakespeare-lstm"]).forward_flop == 2 * macs


def _torch_counts(name: str) -> tuple[float, float]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from device_agents.workloads.models import build

    task = TASKS[name]
    model = build(task)
    with FlopCounterMode(display=False) as counter:
        loss = model(torch.zeros(2, *task.input_shape)).sum()
        forward = counter.get_total_flops()
        loss.backward()
    return forward / 2, counter.get_total_flops() / 2
