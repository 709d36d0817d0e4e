"""What is trained on what: the tasks of the FedRank paper, with the settings it leaves open filled in.

Batch size, optimiser and epochs are those of the sister paper's published configuration (FedGCS, IJCAI 2024,
``mnist-lenet5-iid.yml``: SGD 0.01, momentum 0.9, weight decay 0, batch 32, 5 epochs).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.workloads.losses import ACCURACY, Metric
from device_agents.workloads.own_code import OwnCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """One model on one kind of data.

    Attributes:
        name: What users type.
        model: A key of `device_agents.workloads.models.MODELS`, or ``module:Class`` for one's own.
        data_set: The data set the task is named for; any data of the same shape costs the same work.
        input_shape: One sample, without the batch.
        classes: Number of classes; 0 if the targets are real numbers.
        vocabulary: Inputs are token numbers below this; 0 if they are real numbers.
        options: Keyword arguments of the model beside ``classes``.
        smallest_batch: Batches with fewer samples are left out. Batch normalisation needs two: one value has
            no variance, and torch refuses it.
        batch_size: Samples per step.
        learning_rate: Of SGD.
        momentum: Of SGD; dampening 0, no Nesterov, no weight decay.
        local_epochs: l_ep, the probe epoch included.
        loss: A key of `device_agents.workloads.losses.LOSSES`, or ``own``.
        metric: How good a model is.
        own_metric: Whether that is a function of the task's file.
        target_shape: One target: nothing for a number or a class, the length for a sequence.
        per_sample_loss: Whether the loss tells samples apart; if not, each has its batch's mean.
        code: The file that a task of the user's own comes from.
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
    loss: str = "cross_entropy"
    metric: Metric = ACCURACY
    own_metric: bool = False
    target_shape: tuple[int, ...] = ()
    per_sample_loss: bool = True
    code: OwnCode | None = None

    @property
    def input_dtype(self) -> str:
        """The numpy type of one sample in a float32 run."""
        return "int64" if self.vocabulary else "float32"

    @property
    def has_labels(self) -> bool:
        """Whether each sample is of one class."""
        return bool(self.classes) and not self.target_shape

    @property
    def target_dtype(self) -> str:
        """That of one target."""
        return "int64" if self.classes else "float32"


TASKS = {
    task.name: task
    for task in (
        Task("mnist-lenet5", "lenet5", "mnist", (1, 28, 28), 10),
        Task("cifar10-resnet18", "resnet18", "cifar10", (3, 32, 32), 10, smallest_batch=2),
        # torchvision's head is made for 224x224 images; see `models.vgg16`.
        Task("cinic10-vgg16", "vgg16", "cinic10", (3, 32, 32), 10, options={"head": "hidden"}),
        Task("tinyimagenet-shufflenetv2", "shufflenetv2", "tinyimagenet", (3, 64, 64), 200, smallest_batch=2),
        # Sequence length and alphabet of LEAF's Shakespeare task (Caldas et al. 2018).
        Task("shakespeare-lstm", "lstm", "shakespeare", (80,), 80, vocabulary=80),
        Task("wikitext-lstm", "lstm", "wikitext", (80,), 80, vocabulary=80),
        # Not the paper's: its VGG-16 without hidden layers, and so without dropout.
        Task("cinic10-vgg16-linear", "vgg16", "cinic10", (3, 32, 32), 10, options={"head": "linear"}),
        # Nor are these: small enough for a test or a demo to train in seconds.
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


def synthetic_shard(task: Task, samples: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random data of the right shape: the same arithmetic as real data, but not always the same time.

    It teaches nothing. Where the time of a step hangs on the values, as with max-pooling, it takes longer.
    """
    shape, targets = (samples, *task.input_shape), (samples, *task.target_shape)
    labels: NDArray[Any]
    if task.classes:
        labels = rng.integers(0, task.classes, targets)
    else:
        labels = rng.standard_normal(targets, dtype=np.float32)
    if task.vocabulary:
        return rng.integers(0, task.vocabulary, shape), labels
    return rng.standard_normal(shape, dtype=np.float32), labels


def pack_task(task: Task, *, with_code: bool) -> bytes:
    """A task of the user's own as a device reads it; with its file where that is to be run there."""
    fields = asdict(task)
    if not with_code:
        fields["code"] = None
    return json.dumps(fields).encode()


def unpack_task(data: bytes) -> Task:
    """What `pack_task` made.

    Raises:
        ValueError: It is none.
    """
    try:
        fields = json.loads(data)
        fields["metric"] = Metric(**fields["metric"])
        fields["code"] = None if fields["code"] is None else OwnCode(**fields["code"])
        for name in ("input_shape", "target_shape"):
            fields[name] = tuple(fields[name])
        return Task(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a task ({error})") from error
