"""What every contender of `benchmarks/multi_client_training.py` does: one block of work at each ``go``.

A block: ten clients of 600 samples, five epochs each in batches of 32, from the same weights. Runs in an
environment that has torch and numpy, not fedjoule.
"""
# mypy: ignore-errors

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

CLIENTS, CHOSEN, SAMPLES, EPOCHS, BATCH = 100, 10, 600, 5, 32
LEARNING_RATE, MOMENTUM = 0.01, 0.9
FOLDER = Path(os.environ["BLOCK_FOLDER"])  # not an argument: it has to reach Ray's workers too

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


def start_weights() -> dict[str, torch.Tensor]:
    """The weights that every block starts from."""
    with np.load(FOLDER / "start.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def shard(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's samples."""
    piece = slice(client * SAMPLES, (client + 1) * SAMPLES)
    x, y = (np.load(FOLDER / f"{name}.npy", mmap_mode="r")[piece] for name in "xy")
    return torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))


def chosen(block: int) -> list[int]:
    """Who works in a block."""
    return [(block * CHOSEN + i) % CLIENTS for i in range(CHOSEN)]


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


def blocks() -> Iterator[int]:
    """A number for each block that is asked for."""
    print("@@ ready", flush=True)
    for block, line in enumerate(sys.stdin):
        if line.strip() != "go":
            return
        yield block


def done(loss: float) -> None:
    """Tell the mean loss of the clients' last epochs, by which the work is compared."""
    print(f"@@ {json.dumps({'loss': loss})}", flush=True)
