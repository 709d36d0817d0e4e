"""What bfloat16 does to accuracy, from its data: ``python docs/results/bfloat16.py`` prints the table.

``python docs/results/bfloat16.py measure`` trains: every model in both precisions on the same seeds, in one
process of one thread. Rounds that are in the data are not trained again, so it can be ended at any time.
A run is federated averaging with our own trainer: so many random devices a round, the same in both.
"""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.seeds import generator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.data import DataSet

DATA = Path(__file__).parent / "data" / "bfloat16.csv"
COLUMNS = ("model", "seed", "precision", "round", "test_accuracy", "test_loss", "training_cpu_s")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Plan:
    """How a model is trained.

    Attributes:
        task: A built-in one.
        data: A built-in data set; images are put into the task's shape.
        partition: Who has what.
        options: Of the partition.
        devices: How many there are.
        chosen: Of them in a round.
        epochs: Local ones.
        rounds: In a run.
        learning_rate: If it is not the task's.
        tested: Samples of the test part.
        seeds: All of them.
    """

    task: str
    data: str
    partition: str
    devices: int
    chosen: int
    epochs: int
    rounds: int
    seeds: int
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float | None = None
    tested: int = 1000


PLANS = {
    "ResNet-18": Plan(
        "cifar10-resnet18", "mnist", "dir_client", 20, 4, 2, 10, 5, {"alpha": 0.5, "samples_per_client": 160}
    ),
    "LSTM": Plan("shakespeare-lstm", "shakespeare", "iid", 20, 2, 2, 12, 5, {"samples_per_client": 320}, 0.1),
    "VGG-16": Plan(
        "cinic10-vgg16", "mnist", "iid", 10, 2, 4, 8, 3, {"samples_per_client": 160}, 0.03, tested=500
    ),
}


def measure(path: Path, models: list[str]) -> None:
    """Train what is not in the data yet, seed by seed, and add it a run at a time."""
    import torch

    torch.set_num_threads(1)
    done = {(row["model"], int(row["seed"]), row["precision"]) for row in _rows(path)}
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(",".join(COLUMNS) + "\n")
    for seed in range(max(PLANS[model].seeds for model in models)):
        for model in models:
            for precision in PRECISIONS:
                if (model, seed, precision) in done or seed >= PLANS[model].seeds:
                    continue
                rows = [(model, seed, precision, *row) for row in _run(PLANS[model], seed, precision)]
                with path.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
                print(*rows[-1], flush=True)


def _run(plan: Plan, seed: int, precision: str) -> Iterator[tuple[int, str, str, str]]:
    """Round, accuracy and loss on the test part, CPU seconds of the training so far."""
    from device_agents.workloads import find_task
    from emulator.data import load_data_set, make_partition
    from emulator.training import ClientData, open_trainer

    task = find_task(plan.task)
    if plan.learning_rate is not None:
        task = replace(task, learning_rate=plan.learning_rate)
    data = _fitted(load_data_set(plan.data, seed=seed, download=False), task.input_shape, plan.tested)
    holdings = make_partition(plan.partition, data.train, plan.devices, seed, **plan.options)
    sizes = np.array([holdings.size(client) for client in range(plan.devices)])
    name = "cpu" if precision == "float32" else "cpu-bfloat16"
    trainer = open_trainer(task, ClientData(data, holdings, seed), implementation=name, workers=1)
    weights, cpu_s = trainer.initial(), 0.0
    for number in range(1, plan.rounds + 1):
        chosen = np.sort(generator(seed, "chosen", number).choice(plan.devices, plan.chosen, replace=False))
        before = time.process_time()
        trainer.begin(number, weights)
        trainer.train(chosen, np.full(plan.chosen, plan.epochs))
        weights = trainer.aggregate(chosen, sizes[chosen] / sizes[chosen].sum())
        trainer.end()
        cpu_s += time.process_time() - before
        score = trainer.evaluate(weights, "test")
        yield number, f"{score.accuracy:.4f}", f"{score.loss:.5f}", f"{cpu_s:.1f}"
    trainer.close()


def _fitted(data: DataSet, shape: tuple[int, ...], tested: int) -> DataSet:
    """The data set in the task's shape: digits get a black margin and three equal colours."""
    from emulator.data import Split, image_data_set

    splits = [data.train, data.validation, data.test.take(np.arange(tested))]
    if data.train.x.dtype != np.uint8:
        return replace(data, test=splits[2])
    margin = (shape[1] - data.input_shape[1]) // 2
    around = ((0, 0), (0, 0), (margin, margin), (margin, margin))
    images = [np.repeat(np.pad(split.x, around), shape[0], axis=1) for split in splits]
    shaped = [Split(x, split.y) for x, split in zip(images, splits, strict=True)]
    return image_data_set(data.name, data.classes, *shaped, note=data.note)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
