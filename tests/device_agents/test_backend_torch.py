"""The torch backend against a plain loop with torch's own optimiser and loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import build, initial_state, load_state
from device_agents.workloads.tasks import TASKS, synthetic_shard


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-resnet18"])
def test_it_equals_a_plain_loop_to_the_bit(name: str) -> None:
    task = replace(TASKS[name], batch_size=4)
    state, (x, y) = initial_state(task, 1), synthetic_shard(task, 10, np.random.default_rng(2))
    trainer = TorchTrainer(task, state, x, y)
    result = trainer.epoch(np.random.default_rng(3))

    model = build(task)
    load_state(model, state)
    optimiser = torch.optim.SGD(model.parameters(), lr=task.learning_rate, momentum=task.momentum)
    order = np.random.default_rng(3).permutation(10)
    losses = []
    for batch in (order[:4], order[4:8], order[8:]):
        optimiser.zero_grad()
        each = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(x[batch])), torch.from_numpy(y[batch]), reduction="none"
        )
        each.mean().backward()
        optimiser.step()
        losses += each.tolist()

    for key, value in model.state_dict().items():
        assert np.array_equal(trainer.state()[key], value.numpy()), key
    velocity = trainer.velocity()
    for key, parameter in model.named_parameters():
        assert np.array_equal(velocity[key], optimiser.state[parameter]["momentum_buffer"].numpy()), key
    assert (result.samples, result.steps) == (10, 3)
    assert result.loss == pytest.approx(np.mean(losses))
    assert result.loss_rms == pytest.approx(np.sqrt(np.mean(np.square(losses))))


def test_what_it_was_given_and_what_it_returns_is_not_its_own() -> None:
    task = replace(TASKS["mnist-lenet5"], batch_size=4)
    state, (x, y) = initial_state(task, 1), synthetic_shard(task, 4, np.random.default_rng(2))
    given = {name: array.copy() for name, array in state.items()}
    trainer = TorchTrainer(task, state, x, y)
    returned = trainer.state()
    trainer.epoch(np.random.default_rng(3))
    for name, array in given.items():
        assert np.array_equal(state[name], array)
        assert np.array_equal(returned[name], array)


def test_a_shard_of_another_shape_is_refused() -> None:
    task = TASKS["mnist-lenet5"]
    x, y = synthetic_shard(task, 4, np.random.default_rng(2))
    with pytest.raises(ValueError, match=r"samples of shape \(4, 1, 28\) and 4 labels do not fit"):
        TorchTrainer(task, initial_state(task, 1), x[..., 0], y)
