"""One client's local training, whatever computes the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from device_agents.workloads import OwnCode, batch_sizes, blame
from joulefleet.errors import ConfigError, JoulefleetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.training.layout import Layout

Draws = Callable[[int], int]
"""Entropy of the random operations in each batch of an epoch, or of what is scored."""
UNREPEATED = (
    "draw from torch, numpy.random or random, or from a generator that is an attribute of the module: these "
    "are seeded for every batch. A numpy.random.default_rng() made in the forward pass cannot be, nor can "
    "what is counted outside the module's buffers be undone"
)
"""What to do about a model that gives other numbers for the same batch and seeds."""


@contextmanager
def blaming(code: OwnCode | None) -> Iterator[None]:
    """What goes wrong in the user's own code as an error of ours that names its file and line."""
    try:
        yield
    except JoulefleetError:
        raise
    except (Exception, SystemExit) as error:
        if code is None:
            raise
        raise ConfigError(blame(code, error), hint=_neighbour(code, error)) from error


def _neighbour(code: OwnCode, error: BaseException) -> str:
    """What to do about an import of a file that lies beside the user's."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    beside = Path(code.file).with_name(f"{name.partition('.')[0]}.py")
    if not name or not beside.exists():
        return ""
    return f"{beside.name} lies beside it, but what is given is one file: write it into that, or install it"


@dataclass(frozen=True, slots=True)
class LocalResult:
    """See `emulator.training.base.LocalResults`, of which this is one entry; by default no epoch was run."""

    loss: float = float("nan")
    loss_rms: float = float("nan")
    last_loss: float = float("nan")
    finite: bool = True

    @classmethod
    def of(cls, first: NDArray[np.float32], last: NDArray[np.float32]) -> LocalResult:
        """From the samples' losses in the first and in the last epoch."""
        exact = first.astype(np.float64)
        return cls(
            loss=float(exact.mean()),
            loss_rms=float(np.sqrt(np.mean(exact**2))),
            last_loss=float(last.mean(dtype=np.float64)),
            finite=bool(np.isfinite(first).all() and np.isfinite(last).all()),
        )

    def checked(self, weights: NDArray[np.float32]) -> LocalResult:
        """With regard to the weights that came out."""
        return replace(self, finite=self.finite and bool(np.isfinite(weights).all()))


class LocalModel(ABC):
    """A model and its optimiser in one process: weights go in, epochs run, weights come out.

    Attributes:
        layout: Of the rows.
        task: What is trained, and how.
    """

    layout: Layout
    task: Task
    scoring_batch: ClassVar[int] = 500

    @abstractmethod
    def load(self, weights: NDArray[np.float32], velocity: NDArray[np.float32] | None) -> None:
        """Take a copy of these weights and of this momentum (``None``: zero)."""

    @abstractmethod
    def store(self, weights: NDArray[np.float32], velocity: NDArray[np.float32]) -> None:
        """Write the present weights and momentum."""

    @abstractmethod
    def anchor(self, weights: NDArray[np.float32], proximal_mu: float) -> None:
        """Pull towards these weights in all following steps: the gradient gets ``mu (w - weights)``."""

    @abstractmethod
    def take(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """The shard that the following epochs run on."""

    @abstractmethod
    def epoch(self, order: NDArray[np.int64], sizes: list[int], draws: Draws) -> NDArray[np.float32]:
        """Batches of these sizes in this order; each sample's loss before the step that used it."""

    @abstractmethod
    def score(
        self, x: NDArray[Any], y: NDArray[Any], entropy: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Losses of some samples and what they add to the task's metric: no training, no dropout."""

    def score_all(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> tuple[float, tuple[float, ...]]:
        """Sum of the losses and sums of the metric over any number of samples."""
        loss: float = 0.0
        total: NDArray[np.float64] | None = None
        for batch, start in enumerate(range(0, len(y), self.scoring_batch)):
            stop = start + self.scoring_batch
            losses, sums = self.score(x[start:stop], y[start:stop], draws(batch))
            loss += float(losses.sum(dtype=np.float64))
            total = sums if total is None else total + sums
        return loss, () if total is None else tuple(total.tolist())


def run_epochs(
    model: LocalModel,
    x: NDArray[Any],
    y: NDArray[Any],
    orders: Callable[[int], NDArray[np.int64]],
    draws: Callable[[int], Draws],
    epochs: range,
) -> LocalResult:
    """Train the loaded model on one shard; nothing happens if it is too small for a step."""
    sizes = batch_sizes(model.task, len(y))
    if not sizes or not epochs:
        return LocalResult()
    model.take(x, y)
    losses = [model.epoch(orders(epoch), sizes, draws(epoch)) for epoch in epochs]
    return LocalResult.of(losses[0], losses[-1])
