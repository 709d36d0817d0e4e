"""Local training as the agent and the emulator see it, whatever computes the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.workloads.random_operations import step_entropy
from device_agents.workloads.tasks import batch_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads.tasks import Task


@dataclass(frozen=True)
class EpochResult:
    """What one pass over the shard saw, each sample before the step that used it.

    Attributes:
        samples: How many were trained on; fewer than the shard if a last batch was too small.
        steps: Batches.
        loss: Mean over the samples.
        loss_rms: Root mean square over the samples, which Oort's utility is made of.
    """

    samples: int
    steps: int
    loss: float
    loss_rms: float


class LocalTrainer(ABC):
    """A model, its optimiser and a shard of data, ready to run epochs.

    Args:
        task: What is trained, and how.
        x: The shard's samples.
        y: Their labels.
        seed: Of the model's random operations (dropout), with the numbers of the epoch and of the batch.

    Attributes:
        random_operations: How they are handled here, for the capture; empty if the model has none.
    """

    random_operations = ""

    def __init__(self, task: Task, x: NDArray[Any], y: NDArray[Any], seed: int = 0) -> None:
        if x.shape != (len(y), *task.input_shape) or y.shape[1:] != task.target_shape:
            raise ValueError(f"samples of shape {x.shape} and {len(y)} labels do not fit task {task.name!r}")
        if not batch_sizes(task, len(y)):
            raise ValueError(f"{len(y)} samples are too few for one step of task {task.name!r}")
        self.task = task
        self.samples = len(y)
        self._seed = seed
        self._epochs = 0

    def epoch(self, rng: np.random.Generator) -> EpochResult:
        """One pass over the shard in random order."""
        order = rng.permutation(self.samples)
        losses = []
        start = 0
        for batch, size in enumerate(batch_sizes(self.task, self.samples)):
            self.draw(step_entropy(self._seed, self._epochs, batch))
            losses.append(self.step(order[start : start + size]))
            start += size
        self._epochs += 1
        seen = np.concatenate(losses).astype(np.float64)
        return EpochResult(len(seen), len(losses), float(seen.mean()), float(np.sqrt(np.mean(seen**2))))

    @abstractmethod
    def draw(self, entropy: int) -> None:
        """Get ready what the next step draws."""

    @abstractmethod
    def step(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """One SGD step on the samples at ``indices``; returns their losses under the weights before it."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of the weights and buffers, by the names of torch's ``state_dict``."""

    @abstractmethod
    def velocity(self) -> dict[str, NDArray[Any]]:
        """A copy of the optimiser's momentum, by parameter."""
