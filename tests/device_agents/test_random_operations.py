"""Dropout and other draws on the device: seeded with torch, inputs of the graph with onnxruntime."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from device_agents.onnx_export.cache import GraphCache
from device_agents.onnx_export.step import export_step
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import initial_state
from device_agents.workloads.random_operations import step_entropy
from device_agents.workloads.tasks import TASKS, Task, synthetic_shard
from joulefleet.errors import JoulefleetError
from joulefleet.seeds import stream_entropy

HERE = "tests.device_agents.test_random_operations"


class Drawing(nn.Module):
    """Every way to draw that has an ONNX form."""

    def __init__(self, classes: int, noise: float = 0.1) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 16), nn.Linear(16, classes)
        self.dropout, self.channels = nn.Dropout(0.4), nn.Dropout2d(0.2)
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.noise * (torch.randn_like(x) + torch.rand(12, dtype=x.dtype))
        x = (
            x
            + torch.empty_like(x).normal_(0.5, self.noise)
            + torch.empty_like(x).uniform_(-1, 1) * self.noise
        )
        x = self.dropout(torch.relu(self.fc1(x)))
        x = x * torch.bernoulli(torch.sigmoid(x.detach()))
        logits: Tensor = self.fc2(self.channels(x[:, :, None, None]).flatten(1))
        return logits


class Switched(Drawing):
    """Draws from numpy."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(np.random.random())  # noqa: NPY002 - what people write


DRAWING = Task("drawing", f"{HERE}:Drawing", "", (12,), 5, batch_size=8)
X, Y = synthetic_shard(DRAWING, 20, np.random.default_rng(0))
START = initial_state(DRAWING, 0)


def trained(trainer: TorchTrainer | OnnxRuntimeTrainer, epochs: int = 2) -> np.ndarray:
    for epoch in range(epochs):
        trainer.epoch(np.random.default_rng(epoch))
    return np.concatenate([value.ravel() for value in trainer.state().values()])


def test_torch_is_seeded_for_every_step_and_says_so() -> None:
    trainer = TorchTrainer(DRAWING, START, X, Y, seed=3)
    found = trained(trainer)
    torch.manual_seed(9)
    assert np.array_equal(found, trained(TorchTrainer(DRAWING, START, X, Y, seed=3)))
    assert not np.array_equal(found, trained(TorchTrainer(DRAWING, START, X, Y, seed=4)))
    assert trainer.random_operations == "torch: seeded for each epoch and batch"
    plain = TASKS["digits-mlp"]
    shard = synthetic_shard(plain, 40, np.random.default_rng(0))
    without = TorchTrainer(plain, initial_state(plain, 0), *shard)
    without.epoch(np.random.default_rng(0))
    assert without.random_operations == ""
    assert step_entropy(3, 1, 2) == stream_entropy(3, "random operations", 1, 2)


def test_onnxruntime_gets_its_draws_as_inputs_and_says_so(tmp_path: Path) -> None:
    graphs = GraphCache(tmp_path).shard(DRAWING, len(Y))
    trainer = OnnxRuntimeTrainer(DRAWING, graphs, START, X, Y, seed=3)
    found = trained(trainer)
    assert np.array_equal(found, trained(OnnxRuntimeTrainer(DRAWING, graphs, START, X, Y, seed=3)))
    assert not np.array_equal(found, trained(OnnxRuntimeTrainer(DRAWING, graphs, START, X, Y, seed=4)))
    assert trainer.random_operations == "numpy, as inputs of the graph: seeded for each epoch and batch"
    session = onnxruntime.InferenceSession(str(graphs[8]), providers=["CPUExecutionProvider"])
    draws = [item.name for item in session.get_inputs() if item.name.startswith("draw/")]
    assert sorted(name.split("/")[1] for name in draws) == ["normal"] * 2 + ["uniform"] * 5


def test_the_graph_with_given_draws_is_torchs_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In float64, with what the graph was given put in the place of what torch would draw."""
    task = replace(DRAWING, model=f"{HERE}:Dropping")
    graph = GraphCache(tmp_path).step(task, 8, "float64")
    start = initial_state(task, 0)
    ours = OnnxRuntimeTrainer(task, {8: graph}, start, X[:8], Y[:8], seed=1)
    theirs = TorchTrainer(task, start, X[:8], Y[:8], "float64")
    drawn = np.random.default_rng(step_entropy(1, 0, 0)).random((8, 16))
    kept = torch.from_numpy((drawn < 0.6) / 0.6)
    monkeypatch.setattr(nn.functional, "dropout", lambda x, *_: x * kept)
    for trainer in (ours, theirs):
        trainer.epoch(np.random.default_rng(2))
    for name, value in theirs.state().items():
        np.testing.assert_allclose(ours.state()[name], value, rtol=1e-12, atol=1e-14)


class Dropping(nn.Sequential):
    def __init__(self, classes: int) -> None:
        super().__init__(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, classes))


def test_the_share_that_drops_out_is_the_models() -> None:
    session = onnxruntime.InferenceSession(
        export_step(replace(DRAWING, model=f"{HERE}:Dropping"), 2), providers=["CPUExecutionProvider"]
    )
    (name,) = [item.name for item in session.get_inputs() if item.name.startswith("draw/")]
    assert name == "draw/uniform/0"


def test_draws_that_a_graph_would_repeat_for_ever_are_refused() -> None:
    with pytest.raises(JoulefleetError, match="not torch's, and a graph would repeat one draw") as error:
        export_step(replace(DRAWING, model=f"{HERE}:Switched"), 4)
    assert "torch backend" in error.value.hint
