"""The model and the training loop of every contender that computes with torch."""
# mypy: ignore-errors

from functools import cache

import torch
from block import BATCH, EPOCHS, LEARNING_RATE, MOMENTUM, TASK, samples_of, start_arrays
from torch import nn

torch.set_num_threads(1)


class LeNet5(nn.Module):
    """As in every textbook: convolution, ReLU, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        """Logits."""
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


def model_class() -> type[nn.Module]:
    """The model of the task: the textbook's LeNet-5, else the module that ours trains too."""
    if TASK == "mnist-lenet5":
        return LeNet5
    from device_agents.workloads import build, find_task  # needs numpy and torch only

    task = find_task(TASK)
    kind = type(build(task))
    return type(
        kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, task.classes, **task.options)}
    )


@cache
def one_model() -> nn.Module:
    """One per process: making random weights anew for every client is nobody's training."""
    return model_class()()


def start_weights() -> dict[str, torch.Tensor]:
    """The weights that every block starts from."""
    return {name: torch.from_numpy(values) for name, values in start_arrays().items()}


def shard(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's samples."""
    x, y = samples_of(client)
    return torch.from_numpy(x), torch.from_numpy(y)


def train(model: nn.Module, client: int) -> float:
    """A plain loop: tensors in memory, no loader. The mean loss of the last epoch."""
    x, y = shard(client)
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss_function = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        losses = []
        for batch in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            loss = loss_function(model(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    return float(torch.stack(losses).mean())
