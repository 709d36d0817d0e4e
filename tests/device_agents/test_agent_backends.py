"""The same agent with each of its backends."""

from pathlib import Path

import numpy as np
import pytest

from device_agents.job import BlobRef
from device_agents.payload.tensors import pack
from device_agents.workloads.models import initial_state
from device_agents.workloads.tasks import find_task, synthetic_shard
from fedjoule.errors import DeviceError
from tests.device_agents.agents import session_on, softmax

LENET = {"workload": "mnist-lenet5", "samples": 80, "epochs": 2, "upload": True, "threads": 1}


def test_torch_trains_a_task_and_the_probe_is_its_first_epoch(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        with_probe = session.run_round(softmax(backend="torch", **LENET))
        without = session.run_round(softmax(backend="torch", probe=False, **LENET))
    assert with_probe.model is not None
    assert without.model is not None
    assert {name: array.tobytes() for name, array in with_probe.model.items()} == {
        name: array.tobytes() for name, array in without.model.items()
    }
    assert with_probe.probe is not None
    assert with_probe.probe.loss is not None
    assert with_probe.probe.loss_rms is not None
    assert with_probe.probe.loss_rms >= with_probe.probe.loss > 0
    assert list(with_probe.model) == list(initial_state(find_task("mnist-lenet5"), 0))


def test_torch_starts_from_the_model_and_shard_that_it_is_given(tmp_path: Path) -> None:
    task = find_task("mnist-lenet5")
    x, y = synthetic_shard(task, 80, np.random.default_rng(4))
    model, shard = pack(initial_state(task, 7)), pack({"x": x, "y": y})
    job = softmax(backend="torch", **LENET, model=BlobRef.of(model), shard=BlobRef.of(shard))
    with session_on(tmp_path) as session:
        result = session.run_round(job, blobs={"model": model, "shard": shard})

    from device_agents.workloads.backend_torch import TorchTrainer

    expected = TorchTrainer(task, initial_state(task, 7), x, y)
    rng = np.random.default_rng(job.seed)
    losses = [expected.epoch(rng).loss for _ in range(2)]
    assert result.model is not None
    for name, array in expected.state().items():
        np.testing.assert_allclose(result.model[name], array, rtol=1e-5, atol=1e-6)
    assert result.done.loss == pytest.approx(losses[-1], rel=1e-5)


def test_an_unknown_task_is_refused(tmp_path: Path) -> None:
    with session_on(tmp_path) as session, pytest.raises(DeviceError, match="no task called 'softmax'; known"):
        session.run_round(softmax(backend="torch"))
