"""What devices are sent and what becomes of what they send back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from device_agents.job import Job
from device_agents.payload.job import parse_job
from device_agents.payload.tensors import unpack_arrays
from device_agents.payload.trainer import Files, build_trainer
from device_agents.workloads.tasks import find_task
from emulator.runs.learners import learners_of
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario
from emulator.training.table import TableTrainer
from harness.federate.files import on_bench
from harness.federate.fleet_data import FleetData, Uploads
from joulefleet.errors import ConfigError, JoulefleetError

TASK = replace(find_task("digits-mlp"), learning_rate=0.1)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return on_bench(load_scenario("quick").model_copy(update={"seeds": (3,)}), 4)


@pytest.fixture(scope="module")
def trainer(scenario: Scenario) -> TableTrainer:
    found = learners_of(scenario, TASK, 3).trainer
    assert isinstance(found, TableTrainer)
    return found


def test_a_device_gets_its_own_shard_and_the_global_weights(trainer: TableTrainer) -> None:
    data = FleetData(TASK, trainer, 4, "torch")
    weights = trainer.initial() + np.float32(0.5)
    for device in range(4):
        work = data.workload(device, data.model(weights))
        blobs = work.blobs()
        x, y = trainer.clients.training(device)
        shard = unpack_arrays(blobs["shard"])
        assert np.array_equal(shard["x"], x)
        assert np.array_equal(shard["y"], y)
        assert data.samples(device) == len(y)
        assert np.array_equal(data.row(unpack_arrays(blobs["model"])), weights), "there and back"
    assert data.trainable().all()
    shards = {data.workload(device, b"").shard for device in range(4)}
    assert len(shards) == 4


def test_devices_without_data_cannot_train(scenario: Scenario) -> None:
    task = scenario.task.model_copy(update={"partition": "dir_class", "options": {"alpha": 1e-3}})
    many = on_bench(scenario, 30).model_copy(update={"task": task})
    skewed = learners_of(many, TASK, 3).trainer
    assert isinstance(skewed, TableTrainer)
    sizes = [skewed.clients.training_size(i) for i in range(30)]
    assert 0 in sizes
    data = FleetData(TASK, skewed, 30, "torch")
    assert data.trainable().tolist() == [size > 0 for size in sizes]
    with pytest.raises(ConfigError, match="not a single device has any data"):
        FleetData(replace(TASK, smallest_batch=10**6, batch_size=10**6), skewed, 30, "torch")


def test_updates_are_added_up_as_the_emulator_does(trainer: TableTrainer) -> None:
    clients, shares = np.array([2, 0]), np.array([0.75, 0.25])
    weights = trainer.initial()
    trainer.begin(1, weights)
    trainer.train(clients, np.array([1, 1]))
    uploads = Uploads(trainer, "torch")
    uploads.begin(1, weights)
    for client in clients.tolist():
        uploads.put(client, trainer.weights(np.array([client]))[0])
    assert np.array_equal(uploads.aggregate(clients, shares), trainer.aggregate(clients, shares))
    assert np.array_equal(uploads.weights(clients), trainer.weights(clients))
    assert uploads.evaluate(weights, "test") == trainer.evaluate(weights, "test")
    for ask in (uploads.loss_of, uploads.batch_loss_of, uploads.accuracy_of):
        with pytest.raises(JoulefleetError, match="agents do not"):
            ask(weights, clients)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, (0.01, 0.9)), ({"learning_rate": 0.3}, (0.3, 0.9)), ({"momentum": 0.5}, (0.01, 0.5))],
)
def test_an_agent_trains_with_the_scenarios_settings(
    settings: dict[str, float], wanted: tuple[float, float]
) -> None:
    job = Job(workload="digits-mlp", backend="torch", samples=64, epochs=1, seed=1, **settings)
    spec = parse_job({"type": "job", "job_id": "j", **job.model_dump(mode="json")})
    made: Any = build_trainer(spec, Files(model=None, shard=None, graphs={}))
    assert (made._trainer.task.learning_rate, made._trainer.task.momentum) == wanted
