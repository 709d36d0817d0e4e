"""Random operations of a model are functions of (seed, round, client, epoch, batch) and of nothing else."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from device_agents.workloads.models import build, initial_state
from device_agents.workloads.random_operations import Generators
from device_agents.workloads.tasks import TASKS, Task
from emulator.round.outcome import RoundOutcome
from emulator.runs.batch import plan, play, start
from emulator.runs.planning import BatchEntry
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.training.base import Trainer
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from joulefleet.errors import ConfigError, JoulefleetError
from joulefleet.seeds import stream_entropy
from tests.emulator.plain_training import data_for, ids, put, row, run, shards_of

DROPPED, AUGMENTED, MIRRORED, NOISY, UNSEEDED, COUNTED, DRAWN_WEIGHTS = (
    Task(name.lower(), f"tests.emulator.random_nets:{name}", "digits", (1, 8, 8), 10, smallest_batch=2)
    for name in ("Dropped", "Augmented", "Mirrored", "Noisy", "Unseeded", "Counted", "DrawnWeights")
)
RANDOM = pytest.mark.parametrize("task", [DROPPED, AUGMENTED, NOISY], ids=lambda task: task.name)
SIZES = (70, 40, 33)


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    trainers: list[Trainer] = []

    def build(task: Task, seed: int = 1, **options: Any) -> Trainer:
        options = {"implementation": "cpu", "workers": 1, **options}
        clients = ClientData(data_for(task, sum(SIZES)), shards_of(*SIZES), seed, 0.0)
        trainers.append(open_trainer(task, clients, **options))
        return trainers[-1]

    yield build
    for trainer in trainers:
        trainer.close()


@RANDOM
def test_nothing_but_seed_round_client_epoch_and_batch_decides_what_is_drawn(opened: Any, task: Task) -> None:
    trainer = opened(task)
    expected = run(trainer, (0, 1, 2), 3)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - the state that another program left
    random.seed(99)
    assert np.array_equal(run(opened(task), (0, 1, 2), 3), expected)
    assert np.array_equal(run(opened(task, workers=2), (2, 0, 1), 3)[[1, 2, 0]], expected)
    trainer.begin(1, trainer.initial())  # alone, and epoch by epoch
    for _ in range(3):
        trainer.train(ids(1), ids(1))
        trainer.train(ids(2), ids(1))
    assert np.array_equal(trainer.weights(ids(1, 2)), expected[1:])
    weights = expected[0]
    scores = [opened(task, workers=workers).loss_of(weights, ids(0, 1)) for workers in (1, 2)]
    assert np.array_equal(*scores)
    assert trainer.evaluate(weights, "test") == opened(task, workers=2).evaluate(weights, "test")


@RANDOM
def test_another_round_or_seed_draws_something_else(opened: Any, task: Task) -> None:
    """With the order of the data held still, which is another one too."""
    found = []
    for seed, round_number in ((1, 1), (1, 2), (2, 1)):
        trainer = opened(task, seed=seed)
        trainer.order_of = lambda _: lambda _: np.arange(70)
        trainer.begin(round_number, opened(task).initial())
        trainer.train(ids(0), ids(1))
        found.append(trainer.weights(ids(0))[0])
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_dropout_is_the_textbooks_with_the_named_stream(opened: Any) -> None:
    trainer = opened(DROPPED)
    found = run(trainer, (0,), 2)[0]
    model = build(DROPPED)
    put(model, trainer.initial())
    optimiser = torch.optim.SGD(model.parameters(), lr=DROPPED.learning_rate, momentum=DROPPED.momentum)
    x, y = (torch.from_numpy(part) for part in trainer.clients.training(0))
    for epoch in range(2):
        batches = torch.from_numpy(trainer.clients.order(0, 1, epoch)).split(32)
        for number, batch in enumerate(batches):
            torch.manual_seed(stream_entropy(1, "random operations", 0, 1, epoch, number) & (2**63 - 1))
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    np.testing.assert_allclose(found, row(model), rtol=1e-5, atol=1e-7)
    with torch.no_grad():  # dropout is off where nothing is trained
        put(model, found)
        expected = nn.functional.cross_entropy(model.eval()(x), y)
    assert trainer.loss_of(found, ids(0))[0] == pytest.approx(float(expected), rel=1e-6)


def test_the_callers_generators_are_left_alone(opened: Any) -> None:
    trainer = opened(AUGMENTED)
    moved = Generators().drawn_by(lambda: (run(trainer, (0, 1), 1), opened(NOISY).initial()))
    assert moved == ()


def test_weights_that_numpy_draws_follow_from_the_seed() -> None:
    one, again, other = (initial_state(DRAWN_WEIGHTS, seed)["weight"] for seed in (2**40, 2**40, 2**41))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_no_seed_reaches_is_refused(opened: Any, workers: int) -> None:
    with pytest.raises(ConfigError, match="gives other numbers for the same batch and seeds") as error:
        run(opened(UNSEEDED, workers=workers), (0, 1), 1)
    assert "default_rng() made in the forward pass" in error.value.hint


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (DROPPED, r"draws random numbers \(torch\)"),
        (MIRRORED, r"draws random numbers \(python\)"),
        (NOISY, r"draws random numbers \(torch\)"),
        (COUNTED, "no batched form"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize("asked", ["batched", "auto"])
def test_a_stack_hands_over_to_cpu_and_says_why(opened: Any, task: Task, why: str, asked: str) -> None:
    trainer = opened(task, implementation=asked)
    assert trainer.implementation == "cpu"
    assert re.search(why, trainer.note)
    assert trainer.note.startswith("cpu instead of batched: its model ")
    assert np.array_equal(run(trainer, (0, 1), 2), run(opened(task), (0, 1), 2))
    assert opened(TASKS["digits-mlp"], implementation=asked).note == ""


def test_a_step_that_only_later_has_no_batched_form_is_an_error_of_ours(opened: Any) -> None:
    trainer = opened(TASKS["digits-mlp"], implementation="batched")
    trainer._model.forward = lambda x: nn.functional.dropout(x.flatten(1)[:, :10])
    with pytest.raises(JoulefleetError, match="no batched form of this step") as error:
        run(trainer, (0, 1), 1)
    assert 'trainer.kind = "cpu"' in error.value.hint


def _scenario(**trainer: Any) -> Scenario:
    return Scenario(
        name="drawn",
        fleet=FleetSection(devices=8, speed_spread=0.3),
        task=TaskSection(name="digits-mlp"),
        protocol=ProtocolSection(rounds=4, k=3, candidates=5),
        trainer=TrainerSection(**trainer),
    )


def _interrupt(planned: BatchEntry, outcome: RoundOutcome) -> None:
    if outcome.round == 2:
        raise InterruptedError


def test_a_resumed_run_draws_what_an_uninterrupted_one_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(TASKS, "digits-mlp", replace(DROPPED, name="digits-mlp"))
    tables, facts = [], []
    for number, workers in enumerate((1, 2)):
        index = plan(_scenario(kind="batched", workers=workers), ["fedavg"], [3])
        with start(tmp_path / str(number), index, "") as stored:
            if number:
                with pytest.raises(InterruptedError):
                    play(stored, index, _interrupt)
            (result,) = play(stored, index)
        tables.append([(result.path / f"{name}.parquet").read_bytes() for name in ("rounds", "clients")])
        facts.append(result.record.facts)
    assert tables[0] == tables[1]
    assert facts[0]["trainer"] == "cpu"
    assert "draws random numbers (torch)" in facts[0]["trainer_note"]
    assert facts[0] == facts[1]
