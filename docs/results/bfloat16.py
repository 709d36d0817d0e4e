"""What bfloat16 does to accuracy, from its data: ``python docs/results/bfloat16.py`` prints the table.

``python docs/results/bfloat16.py measure [MODEL...]`` trains each model in both precisions on the same seeds,
in one process of one thread. Runs that are in the data are not repeated, so it can be ended at any time.
A run is federated averaging with our own trainer: so many random devices a round, the same in both.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.interval import Scale, student_interval
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
    "ResNet-18, 40 rounds": Plan(
        "cifar10-resnet18", "mnist", "dir_client", 20, 4, 2, 40, 5, {"alpha": 0.5, "samples_per_client": 160}
    ),
    "LSTM": Plan("shakespeare-lstm", "shakespeare", "iid", 20, 2, 4, 10, 5, {"samples_per_client": 320}, 0.3),
    "VGG-16": Plan(
        "cinic10-vgg16", "mnist", "iid", 10, 2, 4, 6, 3, {"samples_per_client": 320}, 0.03, tested=500
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
                lines = [",".join(map(str, row)) + "\n" for row in rows]
                with path.open("a", encoding="utf-8") as file:
                    file.write("".join(lines))
                sys.stdout.write(lines[-1])
                sys.stdout.flush()


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

    test = data.test.take(np.arange(tested))
    if data.train.x.dtype != np.uint8:
        return replace(data, test=test)
    margin = (shape[1] - data.input_shape[1]) // 2
    around = ((0, 0), (0, 0), (margin, margin), (margin, margin))

    def shaped(split: Split) -> Split:
        return Split(np.repeat(np.pad(split.x, around), shape[0], axis=1), split.y)

    parts = shaped(data.train), shaped(data.validation), shaped(test)
    return image_data_set(data.name, data.classes, *parts, note=data.note)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


Course = dict[str, list[float]]
"""Of a run, round by round: its accuracy, its loss, its CPU time so far."""


def read(path: Path = DATA) -> dict[str, dict[int, tuple[Course, Course]]]:
    """By model and seed: float32 and bfloat16, where both are there."""
    found: dict[tuple[str, int], dict[str, Course]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in _rows(path):
        course = found[row["model"], int(row["seed"])][row["precision"]]
        for name in COLUMNS[4:]:
            course[name].append(float(row[name]))
    pairs: dict[str, dict[int, tuple[Course, Course]]] = defaultdict(dict)
    for (model, seed), courses in found.items():
        if set(courses) == set(PRECISIONS):
            pairs[model][seed] = (courses["float32"], courses["bfloat16"])
    return pairs


def table(path: Path = DATA) -> str:
    """Markdown: a row per model."""
    header = [
        "model", "seeds", "float32, end: accuracy %", "bfloat16, end: points",
        "mean of all rounds: points", "loss, end", "CPU time, float32 to bfloat16",
    ]  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for model, seeds in read(path).items():
        exact, half = zip(*seeds.values(), strict=True)
        accuracy, loss, cpu_s = COLUMNS[4:]
        ends = 100 * (_ends(half, accuracy) - _ends(exact, accuracy))
        means = 100 * (_means(half, accuracy) - _means(exact, accuracy))
        texts = [
            model, str(len(seeds)), f"{100 * _ends(exact, accuracy).mean():.1f}",
            _difference(ends, 1), _difference(means, 1),
            _difference(_ends(half, loss) - _ends(exact, loss), 3),
            f"{np.median(_ends(exact, cpu_s) / _ends(half, cpu_s)):.2f}x",
        ]  # fmt: skip
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def _ends(courses: tuple[Course, ...], name: str) -> Any:
    return np.array([course[name][-1] for course in courses])


def _means(courses: tuple[Course, ...], name: str) -> Any:
    return np.array([np.mean(course[name]) for course in courses])


def _difference(values: Any, digits: int) -> str:
    """Mean of the paired differences and Student's 95 % interval; of fewer than three the values."""
    found = student_interval(values, Scale.LINEAR)
    if not found.known:
        return " and ".join(f"{value:+.{digits}f}" for value in values)
    return f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(DATA, sys.argv[2:] or list(PLANS))
    sys.stdout.write(table())
