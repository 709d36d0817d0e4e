"""The same agent with each of its backends."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from device_agents.job import BlobRef
from device_agents.payload.tensors import pack_arrays
from device_agents.session.agent_session import AgentSession
from device_agents.transport import LocalTransport
from device_agents.workloads.models import initial_state
from device_agents.workloads.tasks import batch_sizes, find_task, synthetic_shard
from joulefleet.errors import DeviceError
from tests.device_agents.agents import session_on, softmax

TASK = find_task("mnist-lenet5")
LENET = {"workload": TASK.name, "samples": 80, "epochs": 2, "upload": True, "threads": 1}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentSession]:
    """One agent for all: importing torch takes seconds."""
    with session_on(tmp_path_factory.mktemp("state")) as session:
        yield session


def as_bytes(model: dict[str, np.ndarray] | None) -> dict[str, bytes]:
    assert model is not None
    return {name: array.tobytes() for name, array in model.items()}


def torch_here(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], float]:
    """Two epochs from the weights of seed 7, in this process."""
    from device_agents.workloads.backend_torch import TorchTrainer

    trainer = TorchTrainer(TASK, initial_state(TASK, 7), x, y)
    loss = [trainer.epoch(rng).loss for _ in range(2)][-1]
    return trainer.state(), loss


def test_torch_trains_a_task_and_the_probe_is_its_first_epoch(session: AgentSession) -> None:
    with_probe = session.run_round(softmax(backend="torch", **LENET))
    without = session.run_round(softmax(backend="torch", probe=False, **LENET))
    assert as_bytes(with_probe.model) == as_bytes(without.model)
    assert list(as_bytes(with_probe.model)) == list(initial_state(TASK, 0))
    assert with_probe.probe is not None
    assert with_probe.probe.loss is not None
    assert with_probe.probe.loss_rms is not None
    assert with_probe.probe.loss_rms >= with_probe.probe.loss > 0


def test_torch_starts_from_the_model_and_shard_that_it_is_given(session: AgentSession) -> None:
    x, y = synthetic_shard(TASK, 80, np.random.default_rng(4))
    model, shard = pack_arrays(initial_state(TASK, 7)), pack_arrays({"x": x, "y": y})
    job = softmax(backend="torch", **LENET, model=BlobRef.of(model), shard=BlobRef.of(shard))
    result = session.run_round(job, blobs={"model": model, "shard": shard})
    expected, loss = torch_here(x, y, np.random.default_rng(job.seed))
    assert result.model is not None
    for name, array in expected.items():
        np.testing.assert_allclose(result.model[name], array, rtol=1e-5, atol=1e-6)
    assert result.done.loss == pytest.approx(loss, rel=1e-5)


def test_a_model_of_another_task_is_refused(session: AgentSession) -> None:
    model = pack_arrays(initial_state(find_task("shakespeare-lstm"), 0))
    with pytest.raises(DeviceError, match=r"mnist-lenet5 with backend torch: .*state_dict"):
        session.run_round(softmax(backend="torch", **LENET, model=BlobRef.of(model)), blobs={"model": model})


def test_an_unknown_task_is_refused(session: AgentSession) -> None:
    with pytest.raises(
        DeviceError, match="unknown workload 'softmax' for backend torch; known: mnist-lenet5"
    ):
        session.run_round(softmax(backend="torch"))


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from device_agents.payload.agent import main
main()
"""


def test_onnxruntime_trains_the_same_without_torch_on_the_device(tmp_path: Path) -> None:
    from device_agents.onnx_export.step import export_step

    blobs = {"model": pack_arrays(initial_state(TASK, 7))}
    blobs |= {f"graph-{size}": export_step(TASK, size) for size in set(batch_sizes(TASK, 80))}
    refs = {name: BlobRef.of(data) for name, data in blobs.items()}
    graphs = {int(name.partition("-")[2]): ref for name, ref in refs.items() if name != "model"}
    job = softmax(backend="onnxruntime", **LENET, model=refs["model"], graphs=graphs)
    with LocalTransport().open([sys.executable, "-c", WITHOUT_TORCH, "--state", str(tmp_path)]) as channel:
        session = AgentSession(channel)
        with_probe = session.run_round(job, blobs=blobs)
        without = session.run_round(job.model_copy(update={"probe": False}), blobs=blobs)
        with pytest.raises(DeviceError, match="backend torch needs torch"):
            session.run_round(softmax(backend="torch", **LENET))
    assert as_bytes(with_probe.model) == as_bytes(without.model)
    assert {file.name for file in (tmp_path / "cache").iterdir()} == {ref.sha256 for ref in graphs.values()}
    rng = np.random.default_rng(job.seed)
    expected, loss = torch_here(*synthetic_shard(TASK, 80, rng), rng)
    assert with_probe.model is not None
    for name, array in expected.items():
        np.testing.assert_allclose(with_probe.model[name], array, rtol=1e-4, atol=1e-6)
    assert with_probe.done.loss == pytest.approx(loss, rel=1e-5)


def test_onnxruntime_needs_its_graphs_and_a_model() -> None:
    with pytest.raises(ValueError, match="graphs: backend onnxruntime needs them"):
        softmax(backend="onnxruntime")
    with pytest.raises(ValueError, match="no other takes them"):
        softmax(backend="torch", graphs={32: BlobRef.of(b"graph")})
    with pytest.raises(ValueError, match="cannot make its own initial weights"):
        softmax(backend="onnxruntime", graphs={32: BlobRef.of(b"graph")})
