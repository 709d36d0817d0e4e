"""The learning side of a scenario and a seed: its data, shared out among devices, and who trains on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import ACCURACY, Metric, Task
from emulator.data.lazy_partition import LazyPartition
from emulator.data.model import DataSet, Split
from emulator.data.partition import Holdings, make_partition
from emulator.fleet.network import TransferSource
from emulator.own_code.find import find_task
from emulator.runs.replay.devices import Held
from emulator.scenario.model import Scenario, TaskSection
from emulator.training.base import OpenTrainer, Trainer
from emulator.training.client_data import ClientData
from emulator.training.surrogate import SURROGATE, SurrogateTrainer
from joulefleet.errors import ConfigError
from joulefleet.seeds import generator


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """The learning side of a scenario and a seed.

    Attributes:
        trainer: Trains.
        data_size: Training samples of each device.
        classes: Number of classes.
        label_histogram: True share of each class on each device; ``None`` if unknown or not asked for.
        facts: For the manifest.
        metric: How good a model is.
        loss_rms: Whether devices can tell how their samples' losses spread.
        held: Which classes devices have samples of; ``None`` if that is not known.
        drawn: Whether a device's samples are drawn when they are first asked for.
    """

    trainer: Trainer
    data_size: NDArray[np.int64]
    classes: int
    label_histogram: NDArray[np.float64] | None
    facts: dict[str, Any]
    metric: Metric = ACCURACY
    loss_rms: bool = True
    held: Held | None = None
    drawn: bool = False


def task_of(section: TaskSection) -> Task:
    """The task with the scenario's own settings."""
    try:
        task = find_task(section.name)
    except ConfigError as error:
        raise ConfigError(f"task.name: {error.message}", hint=error.hint) from error
    changes = {
        name: value
        for name in ("batch_size", "learning_rate", "momentum")
        if (value := getattr(section, name)) is not None
    }
    return replace(task, **changes)


def metric_of(scenario: Scenario) -> Metric:
    """What a scenario's models are judged by; where nothing is trained, an accuracy by a formula."""
    return ACCURACY if scenario.trainer.kind == SURROGATE else task_of(scenario.task).metric


def learners_of(
    scenario: Scenario,
    task: Task,
    seed: int,
    open_trainer: OpenTrainer | None = None,
    *,
    labels: bool = True,
    download: bool = True,
) -> Learners:
    """The data of a scenario, shared out by the seed, and who trains on it; arguments as in `assemble`.

    Only oracles ask for everybody's ``labels``; to count them takes long in a very large fleet.
    """
    section = scenario.task
    if scenario.trainer.kind == SURROGATE:
        # All alike: one number, not one per device.
        sizes = np.broadcast_to(np.int64(section.samples_per_device), scenario.fleet.devices)
        trainer = SurrogateTrainer(sizes, task.classes, seed)
        return Learners(trainer, sizes, task.classes, None, {"data": None})
    from emulator.training.choose import open_trainer as on_this_machine
    from emulator.training.choose import with_precision

    data, partition = data_of(section, scenario.fleet.devices, seed, download=download)
    clients = ClientData(data, partition, seed, section.held_out)
    wanted = scenario.trainer
    real = (open_trainer or on_this_machine)(
        task,
        clients,
        implementation=with_precision(wanted.kind, wanted.precision),
        workers=wanted.workers,
    )
    shares = _label_shares(data, partition) if labels and data.has_labels else None
    sizes = partition.sizes - np.round(section.held_out * partition.sizes).astype(np.int64)
    facts = {
        "data": {"name": data.name, "note": data.note, "sha256": data.sha256()},
        "partition": partition.manifest(),
        **({"trainer_note": note} if (note := getattr(real, "note", "")) else {}),
    }
    return Learners(
        real,
        sizes,
        data.classes if data.has_labels else 0,
        shares,
        {**facts, **own_facts(task)},
        task.metric,
        task.per_sample_loss,
        held=partial(_held, data, partition) if data.has_labels else None,
        drawn=isinstance(partition, LazyPartition),
    )


def own_facts(task: Task) -> dict[str, Any]:
    """What a run says of a task that is not one of ours, or is not judged by its accuracy."""
    found: dict[str, Any] = {}
    if task.code is not None:
        found["task"] = {"name": task.name, "sha256": task.code.sha256, "loss": task.loss}
    if task.metric != ACCURACY:
        found["metric"] = asdict(task.metric)
    return found


def data_of(
    section: TaskSection, devices: int, seed: int, *, download: bool = True
) -> tuple[DataSet, Holdings]:
    """The data of a scenario as far as it uses them, and who has which."""
    from emulator.data.sources import load_data_set

    loaded = load_data_set(section.data or task_of(section).data_set, seed=seed, download=download)
    data = _cut(loaded, section, seed)
    return data, make_partition(section.partition, data.train, devices, seed, **section.options)


def _label_shares(data: DataSet, partition: Holdings) -> NDArray[np.float64]:
    counts = partition.label_counts(data.train.y, data.classes)
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def _held(data: DataSet, partition: Holdings, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
    shards = [partition.shard(device) for device in devices.tolist()]
    owner = np.repeat(np.arange(len(devices)), [len(shard) for shard in shards])
    found = np.zeros((len(devices), data.classes), bool)
    found[owner, data.train.y[np.concatenate(shards)]] = True
    return found


def _cut(data: DataSet, section: TaskSection, seed: int) -> DataSet:
    """The data as far as the scenario uses it."""

    def cut(name: str, key: str, samples: int | None) -> Split:
        split: Split = getattr(data, name)
        if samples is None:
            return split
        if samples > len(split):
            raise ConfigError(
                f"task.{key} = {samples}, but {data.name} has {len(split)} samples for {name}",
                hint="lower it, or leave it out to use all of them",
            )
        order = generator(seed, "samples in use", name).permutation(len(split))
        return split.take(np.sort(order[:samples]))

    return replace(
        data,
        train=cut("train", "train_samples", section.train_samples),
        validation=cut("validation", "server_samples", section.server_samples),
        test=cut("test", "server_samples", section.server_samples),
    )


def model_bytes_of(trainer: Trainer, task: Task, link: TransferSource) -> int | None:
    """Size of the model on the wire; ``None`` where nobody built one and transfers are as measured."""
    if trainer.implementation != SURROGATE:
        return trainer.initial().nbytes
    if link is TransferSource.PROFILE:
        return None
    from emulator.training.layout import model_bytes

    # What the surrogate passes around is one number, whatever the model.
    return model_bytes(task)
