"""A round through the `Trainer`: aggregation, failures of clients and workers, bad input."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from device_agents.workloads.tasks import TASKS, Task
from emulator.data.partition import make_partition
from emulator.data.sources import load_data_set
from emulator.training.base import Trainer
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from emulator.training.pool import Pool, SharedRows
from joulefleet.errors import ConfigError, JoulefleetError
from tests.emulator.plain_training import data_for, ids, run, shards_of

MLP = TASKS["digits-mlp"]


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    trainers: list[Trainer] = []

    def build(task: Task = MLP, sizes: tuple[int, ...] = (40, 20, 10), **options: Any) -> Trainer:
        held_out = options.pop("held_out", 0.0)
        options = {"implementation": "cpu", "workers": 1, **options}
        clients = ClientData(data_for(task, sum(sizes)), shards_of(*sizes), 1, held_out)
        trainers.append(open_trainer(task, clients, **options))
        return trainers[-1]

    yield build
    for trainer in trainers:
        trainer.close()


def test_aggregation_is_the_weighted_sum_whatever_the_order(opened: Any) -> None:
    trainer = opened()
    rows = run(trainer, (0, 1, 2), 2).astype(np.float64)
    by_size = np.array([40, 20, 10]) / 70
    found = trainer.aggregate(ids(0, 1, 2), by_size)
    np.testing.assert_allclose(found, by_size @ rows, rtol=1e-6, atol=1e-8)
    assert np.array_equal(found, trainer.aggregate(ids(2, 0, 1), by_size[[2, 0, 1]]))
    uniform = trainer.aggregate(ids(0, 1, 2), np.full(3, 1 / 3))
    np.testing.assert_allclose(uniform, rows.mean(0), rtol=1e-6, atol=1e-8)
    assert not np.array_equal(found, uniform)


def test_a_client_of_which_nothing_was_asked_is_at_the_global_weights(opened: Any) -> None:
    trainer = opened()
    start = trainer.initial()
    trainer.begin(1, start)
    trainer.train(ids(0), ids(1))
    assert np.array_equal(trainer.weights(ids(2))[0], start)
    trainer.begin(2, start)
    assert np.array_equal(trainer.weights(ids(0))[0], start)
    assert trainer.weights(ids()).shape == (0, len(start))


def test_rounds_differ_in_the_order_of_the_data_only(opened: Any) -> None:
    trainer = opened()
    start = trainer.initial()
    rows = []
    for round_number in (1, 2, 1):
        trainer.begin(round_number, start)
        trainer.train(ids(0), ids(1))
        rows.append(trainer.weights(ids(0))[0])
    assert np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize("implementation", ["cpu", "batched"])
def test_a_client_that_diverges_is_reported_and_does_no_harm_to_others(
    opened: Any, implementation: str
) -> None:
    trainer = opened(replace(MLP, learning_rate=0.01), implementation=implementation)
    healthy = run(trainer, (0, 1, 2), 2)
    trainer.clients.data.train.x[40:60] = 1e38  # client 1
    trainer.begin(1, trainer.initial())
    found = trainer.train(ids(0, 1, 2), ids(2, 2, 2))
    assert found.finite.tolist() == [True, False, True]
    assert np.array_equal(trainer.weights(ids(0, 2)), healthy[[0, 2]])


def test_federated_averaging_learns_the_digits() -> None:
    data = load_data_set("digits")
    clients = ClientData(data, make_partition("iid", data.train, 10, 0), 0)
    trainer = open_trainer(replace(MLP, learning_rate=0.1), clients)
    assert trainer.implementation == "batched"  # a model this small
    weights = trainer.initial()
    before = trainer.evaluate(weights, "validation")
    for round_number in range(1, 6):
        trainer.begin(round_number, weights)
        trainer.train(np.arange(5), np.full(5, 3))
        weights = trainer.aggregate(np.arange(5), np.full(5, 0.2))
        trainer.end()
    after = trainer.evaluate(weights, "validation")
    assert before.accuracy < 0.3
    assert after.accuracy > 0.8
    assert after.loss < before.loss


def test_held_out_samples_are_not_trained_on(opened: Any) -> None:
    trainer = opened(held_out=0.25)
    data = trainer.clients
    assert [data.training_size(client) for client in range(3)] == [30, 15, 8]
    trained, scored = data.training(0)[0], data.scored(0)[0]
    assert len(scored) == 10
    assert not {row.tobytes() for row in trained} & {row.tobytes() for row in scored}
    assert np.isfinite(trainer.accuracy_of(trainer.initial(), ids(0, 1, 2))).all()


def test_the_output_bias_is_found(opened: Any) -> None:
    trainer = opened()
    weights = np.arange(2 * len(trainer.initial()), dtype=np.float32).reshape(2, -1)
    assert np.array_equal(trainer.bias_of(weights), weights[:, -10:])
    odd = opened(Task("odd", "tests.emulator.small_nets:NoBias", "", (4,), 3))
    with pytest.raises(ConfigError, match="no output bias of 3"):
        odd.bias_of(odd.initial())


def test_a_killed_worker_is_an_error_that_says_so_and_the_next_call_works(opened: Any) -> None:
    trainer = opened(workers=2)
    expected = run(trainer, (0, 1, 2), 1)
    for process in trainer._pool._workers.values():
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(JoulefleetError, match="ended in the middle of its work: SIGKILL") as error:
        run(trainer, (0, 1, 2), 1)
    assert "memory" in error.value.hint
    assert np.array_equal(run(trainer, (0, 1, 2), 1), expected)


def test_inside_somebody_elses_worker_it_works_alone(opened: Any) -> None:
    expected = run(opened(), (0, 1), 1)
    pool: Pool[int, np.ndarray] = Pool(1, lambda _: run(opened(workers=2), (0, 1), 1))
    assert np.array_equal(pool.run([0])[0], expected)
    pool.close()


def test_an_error_in_a_worker_comes_back() -> None:
    def work(job: int) -> float:
        if job == 3:
            raise ConfigError("three is refused", hint="try four")
        return 1 / job

    pool: Pool[int, float] = Pool(2, work)
    assert pool.run([1, 2, 4]) == [1, 0.5, 0.25]
    with pytest.raises(ConfigError, match="three is refused") as error:
        pool.run([1, 2, 3, 4, 5])
    assert error.value.hint == "try four"
    with pytest.raises(JoulefleetError, match="ZeroDivisionError"):
        pool.run([0])
    assert pool.run([8]) == [0.125]
    pool.close()


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = (
        "import time\n"
        "from emulator.training.pool import Pool\n"
        "pool = Pool(2, lambda job: job)\n"
        "pool.run([1, 2])\n"
        "print(*[process.pid for process in pool._workers.values()], flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        workers = [int(number) for number in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_shared_rows_grow_and_keep_what_is_there() -> None:
    table = SharedRows(3)
    table.grow(1)
    table.rows(1)[0] = 1, 2, 3
    early = table.rows(1)
    table.grow(1000)
    assert len(table) == 1000
    assert table.rows(1)[0].tolist() == [1, 2, 3]
    early[0, 0] = 9  # the same memory, though mapped before
    assert table.rows(1000)[0, 0] == 9


def test_threads_are_left_as_they_were(opened: Any) -> None:
    threads = torch.get_num_threads()
    run(opened(), (0,), 1)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.begin(1, t.initial()[:-1]), "weights of shape"),
        (lambda t: t.begin(1, t.initial(), proximal_mu=-1.0), "proximal_mu must be zero or positive"),
        (lambda t: t.train(ids(0, 0), ids(1, 1)), "only once in one call"),
        (lambda t: t.train(ids(3), ids(1)), "there is no client 3: the partition has 3"),
        (lambda t: t.evaluate(t.initial(), "train"), "neither 'validation' nor 'test'"),
    ],
)
def test_bad_requests_are_refused(opened: Any, ask: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(opened())


def test_what_does_not_fit_together_is_refused(opened: Any) -> None:
    with pytest.raises(ConfigError, match="no training implementation called 'gpu'") as error:
        opened(implementation="gpu")
    assert "batched" in error.value.hint
    with pytest.raises(ConfigError, match="at least one is needed"):
        opened(workers=0)
    with pytest.raises(ConfigError, match="held_out is a share"):
        opened(held_out=1.0)
    data = data_for(MLP, 10)
    with pytest.raises(
        ConfigError, match=r"task 'mnist-lenet5' takes samples of shape \(1, 28, 28\)"
    ) as error:
        open_trainer(TASKS["mnist-lenet5"], ClientData(data, shards_of(10), 0))
    assert "mnist" in error.value.hint
