"""What is trained on what: the tasks of the FedRank paper, with the settings it leaves open filled in.

Batch size, optimiser and epochs are those of the sister paper's published configuration (FedGCS, IJCAI 2024,
``mnist-lenet5-iid.yml``: SGD 0.01, momentum 0.9, weight decay 0, batch 32, 5 epochs).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class Task:
    """One model on one kind of data.

    Attributes:
        name: What users type.
        model: A key of `device_agents.workloads.models.MODELS`, or ``module:Class`` for one's own.
        data_set: The data set the task is named for; any data of the same shape costs the same work.
        input_shape: One sample, without the batch.
        classes: Number of classes.
        vocabulary: Inputs are token numbers below this; 0 if they are real numbers.
        options: Keyword arguments of the model beside ``classes``.
        smallest_batch: Batches with fewer samples are left out. Batch normalisation needs two: one value has
            no variance, and torch refuses it.
        batch_size: Samples per step.
        learning_rate: Of SGD.
        momentum: Of SGD; dampening 0, no Nesterov, no weight decay.
        local_epochs: l_ep, the probe epoch included.
    """

    name: str
    model: str
    data_set: str
    input_shape: tuple[int, ...]
    classes: int
    vocabulary: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    smallest_batch: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9
    local_epochs: int = 5

    @property
    def input_dtype(self) -> str:
        """The numpy type of one sample in a float32 run."""
        return "int64" if self.vocabulary else "float32"


TASKS = {
    task.name: task
    for task in (
        Task("mnist-lenet5", "lenet5", "mnist", (1, 28, 28), 10),
        Task("cifar10-resnet18", "resnet18", "cifar10", (3, 32, 32), 10, smallest_batch=2),
        # torchvision's head is made for 224x224 images; see `models.vgg16`.
        Task("cinic10-vgg16", "vgg16", "cinic10", (3, 32, 32), 10, options={"head": "linear"}),
        Task("tinyimagenet-shufflenetv2", "shufflenetv2", "tinyimagenet", (3, 64, 64), 200, smallest_batch=2),
        # Sequence length and alphabet of LEAF's Shakespeare task (Caldas et al. 2018).
        Task("shakespeare-lstm", "lstm", "shakespeare", (80,), 80, vocabulary=80),
        Task("wikitext-lstm", "lstm", "wikitext", (80,), 80, vocabulary=80),
        # Not the paper's: small enough for a test or a demo to train in seconds.
        Task("digits-softmax", "mlp", "digits", (1, 8, 8), 10),
        Task("digits-mlp", "mlp", "digits", (1, 8, 8), 10, options={"hidden": (32,)}),
    )
}


def find_task(name: str) -> Task:
    """The task called ``name``.

    Raises:
        ValueError: There is none; the known ones are listed.
    """
    try:
        return TASKS[name]
    except KeyError:
        raise ValueError("no task called {!r}; known: {}".format(name, ", ".join(TASKS))) from None


def batch_sizes(task: Task, samples: int) -> list[int]:
    """The batches of one epoch: full ones, then what is left if it is not too small."""
    full, rest = divmod(samples, task.batch_size)
    return [task.batch_size] * full + ([rest] if rest >= max(1, task.smallest_batch) else [])


def synthetic_shard(
    task: Task, samples: int, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Random data of the right shape: the same arithmetic as real data, but not always the same time.

    It teaches nothing. Where the time of a step hangs on the values, as with max-pooling, it takes longer.
    """
    shape = (samples, *task.input_shape)
    labels = rng.integers(0, task.classes, samples)
    if task.vocabulary:
        return rng.integers(0, task.vocabulary, shape), labels
    return rng.standard_normal(shape, dtype=np.float32), labels


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of every task, per sample: (batch,) from logits (batch, classes).

    Selectors need more than its mean (Oort ranks by the root mean square), so the caller takes the mean.
    """
    return -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
