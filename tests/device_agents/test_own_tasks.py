"""A task of the user's own on the device: its file with torch, its exported step with onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agents.job import BlobRef
from device_agents.onnx_export.cache import GraphCache
from device_agents.payload.tensors import pack_arrays
from device_agents.session.agent_session import AgentSession
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.losses import METRICS, OWN
from device_agents.workloads.models import initial_state
from device_agents.workloads.own_code import OwnCode
from device_agents.workloads.tasks import Task, batch_sizes, pack_task, synthetic_shard, unpack_task
from joulefleet.errors import DeviceError
from tests.device_agents.agents import session_on, softmax

SOURCE = """
from torch import nn


def data():
    raise AssertionError("never on a device")


def model():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def loss(output, y):
    return (output[:, 0] - y) ** 2
"""
NAMED = Task("named", "named", "named", (3,), 0, loss="mae", code=OwnCode("n.py", SOURCE))
RENTS = Task(
    "rents",
    "rents",
    "rents",
    (3,),
    0,
    loss=OWN,
    metric=METRICS["mae"],
    learning_rate=0.05,
    code=OwnCode("rents.py", SOURCE),
)
TOKENS = Task(
    "tokens",
    "tokens",
    "tokens",
    (6,),
    5,
    vocabulary=5,
    target_shape=(6,),
    code=OwnCode(
        "t.py",
        "from torch import nn\ndef model():\n    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))\n",
    ),
)
SIZES = {"samples": 70, "epochs": 2, "upload": True, "threads": 1}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentSession]:
    """One agent for all: importing torch takes seconds."""
    with session_on(tmp_path_factory.mktemp("state")) as session:
        yield session


def sent(task: Task, backend: str, **more: bytes) -> dict[str, bytes]:
    x, y = synthetic_shard(task, 70, np.random.default_rng(4))
    return {
        "model": pack_arrays(initial_state(task, 7)),
        "shard": pack_arrays({"x": x, "y": y}),
        "task": pack_task(task, with_code=backend == "torch"),
        **more,
    }


def trained_here(task: Task, seed: int) -> tuple[dict[str, Any], float]:
    trainer = TorchTrainer(task, initial_state(task, 7), *synthetic_shard(task, 70, np.random.default_rng(4)))
    rng = np.random.default_rng(seed)
    loss = [trainer.epoch(rng).loss for _ in range(2)][-1]
    return trainer.state(), loss


def same(task: Task, session: AgentSession, backend: str, graphs: dict[int, bytes]) -> None:
    blobs = sent(task, backend, **{f"graph-{size}": data for size, data in graphs.items()})
    refs = {name: BlobRef.of(blobs[name]) for name in ("model", "shard", "task")}
    job = softmax(
        workload=task.name,
        backend=backend,
        **SIZES,
        **refs,
        graphs={size: BlobRef.of(data) for size, data in graphs.items()},
    )
    result = session.run_round(job, blobs=blobs)
    expected, loss = trained_here(task, job.seed)
    assert result.model is not None
    for name, array in expected.items():
        np.testing.assert_allclose(result.model[name], array, rtol=1e-4, atol=1e-5)
    assert result.done.loss == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("task", [RENTS, TOKENS], ids=lambda task: task.name)
def test_torch_runs_the_file_that_was_sent(session: AgentSession, task: Task) -> None:
    same(task, session, "torch", {})


@pytest.mark.parametrize("task", [RENTS, NAMED, TOKENS], ids=lambda task: task.name)
def test_onnxruntime_trains_the_exported_step_without_the_file(
    session: AgentSession, task: Task, tmp_path: Path
) -> None:
    graphs = {size: path.read_bytes() for size, path in GraphCache(tmp_path).shard(task, 70).items()}
    assert set(graphs) == set(batch_sizes(task, 70))
    assert unpack_task(pack_task(task, with_code=False)).code is None
    same(task, session, "onnxruntime", graphs)


def test_a_file_that_does_not_run_there_is_named_with_its_line(session: AgentSession) -> None:
    code = OwnCode("rents.py", "import not_on_this_device\n" + SOURCE)
    blobs = sent(RENTS, "torch") | {"task": pack_task(replace(RENTS, code=code), with_code=True)}
    refs = {name: BlobRef.of(data) for name, data in blobs.items()}
    with pytest.raises(
        DeviceError, match=r"rents\.py:1: ModuleNotFoundError: .*not_on_this_device.*on the device"
    ):
        session.run_round(softmax(workload="rents", backend="torch", **SIZES, **refs), blobs=blobs)


def test_a_task_travels_whole() -> None:
    assert unpack_task(pack_task(RENTS, with_code=True)) == RENTS
    with pytest.raises(ValueError, match="not a task"):
        unpack_task(b'{"name": "x"}')


DROPPED = replace(
    RENTS, name="dropped", code=OwnCode("d.py", SOURCE.replace("nn.Tanh()", "nn.Tanh(), nn.Dropout(0.5)"))
)


@pytest.mark.parametrize("backend", ["torch", "onnxruntime"])
def test_dropout_follows_from_the_jobs_seed_and_the_end_says_how(
    session: AgentSession, backend: str, tmp_path: Path
) -> None:
    shard = GraphCache(tmp_path).shard(DROPPED, 70) if backend == "onnxruntime" else {}
    graphs = {size: path.read_bytes() for size, path in shard.items()}
    blobs = sent(DROPPED, backend, **{f"graph-{size}": data for size, data in graphs.items()})
    refs: dict[str, Any] = {name: BlobRef.of(blobs[name]) for name in ("model", "shard", "task")}
    refs["graphs"] = {size: BlobRef.of(data) for size, data in graphs.items()}
    jobs = [softmax(workload=DROPPED.name, backend=backend, seed=seed, **SIZES, **refs) for seed in (3, 3, 4)]
    ends = [session.run_round(job, blobs=blobs).done for job in jobs]
    assert ends[0].loss == ends[1].loss != ends[2].loss
    whose = {"torch": "torch", "onnxruntime": "numpy, as inputs of the graph"}[backend]
    assert ends[0].random_operations == f"{whose}: seeded for each epoch and batch"
