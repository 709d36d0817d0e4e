"""Models that draw random numbers, as a user of the library would write them: found by ``module:Class``."""

import random

import numpy as np
import torch
from torch import Tensor, nn


class Dropped(nn.Module):
    """A hidden layer with dropout."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x.flatten(1))
        return logits


class Augmented(Dropped):
    """Shifts and mirrors its images at random while it is trained: numpy's generator and Python's."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x.roll(int(np.random.randint(-1, 2)), -1)  # noqa: NPY002 - what people write
            x = x.flip(-1) if random.random() < 0.5 else x
        return super().forward(x)


class Mirrored(nn.Linear):
    """Mirrors a batch or not."""

    def __init__(self, classes: int) -> None:
        super().__init__(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x.flip(-1) if random.random() < 0.5 else x).flatten(1))


class Noisy(nn.Module):
    """Draws in both modes, from torch's generator and from two of its own."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.fc = nn.Linear(64, classes)
        self.rng = np.random.default_rng(1)
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x.flatten(1) + 0.1 * torch.randn(64))
        x = x + torch.from_numpy(self.rng.normal(0, 0.1, 64).astype(np.float32))
        logits: Tensor = self.fc(x + 0.1 * torch.randn(64, generator=self.generator))
        return logits


class Unseeded(Dropped):
    """Draws from what no seed reaches."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + float(np.random.default_rng().normal())


class Counted(nn.Linear):
    """A control flow that depends on the data, which has no batched form."""

    def __init__(self, classes: int) -> None:
        super().__init__(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)) * (2 if float(x.sum()) > 0 else 1)


class DrawnWeights(nn.Linear):
    """Its weights come from numpy."""

    def __init__(self, classes: int) -> None:
        super().__init__(64, classes)
        drawn = np.random.normal(size=(classes, 64))  # noqa: NPY002 - what people write
        self.weight = nn.Parameter(torch.from_numpy(drawn.astype(np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))
