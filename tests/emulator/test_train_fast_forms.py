"""Faster forms of the same arithmetic: single-pixel convolutions, SGD block by block, bfloat16 by name."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from device_agents.workloads.models import build, initial_state
from device_agents.workloads.tasks import TASKS, synthetic_shard
from emulator.runs.batch import plan, play, start
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.training import autograd_model
from emulator.training.autograd_model import AutogradModel
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from emulator.training.single_pixel import SinglePixel, replace_single_pixels
from joulefleet.errors import ConfigError
from tests.emulator.plain_training import data_for, run, shards_of

RESNET = TASKS["cifar10-resnet18"]


def draws(batch: int) -> int:
    return batch


class Narrowing(nn.Module):
    """Every way to come to a single pixel, and one convolution that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.Conv2d(2, 3, 3, padding=1)
        self.strided = nn.Conv2d(3, 4, 3, stride=2, padding=1)  # 2x2 to 1x1
        self.projected = nn.Conv2d(3, 4, 1, stride=2, bias=False)  # 2x2 to 1x1
        self.centre = nn.Conv2d(4, 5, 3, padding=1, bias=False)  # 1x1
        self.wide = nn.Conv2d(5, 2, (5, 1), padding=(2, 0))  # 1x1
        self.whole = nn.Conv2d(3, 2, 2)  # 2x2 to 1x1, no padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.kept(x))
        deep = self.wide(self.centre(torch.tanh(self.strided(x) + self.projected(x))))
        return (deep + self.whole(x)).flatten(1)


def test_a_single_pixel_is_the_convolution_to_the_last_digits() -> None:
    torch.manual_seed(0)
    plain, fast = Narrowing().double(), Narrowing().double()
    fast.load_state_dict(plain.state_dict())
    x = torch.randn(4, 2, 2, 2, dtype=torch.float64)
    parts = replace_single_pixels(fast, x)
    assert set(parts) == {f"{name}.weight" for name in ("strided", "projected", "centre", "wide", "whole")}
    assert fast.centre.weight.shape == (5, 4, 1, 1)
    assert fast.strided.weight.shape == (4, 3, 2, 2)
    assert [name for name, _ in fast.named_parameters()] == [name for name, _ in plain.named_parameters()]
    found = [torch.autograd.grad(m(x).square().sum(), list(m.parameters())) for m in (plain, fast)]
    torch.testing.assert_close(plain(x), fast(x), rtol=1e-13, atol=1e-14)
    for (name, _), whole, narrow in zip(plain.named_parameters(), *found, strict=True):
        expected = torch.zeros_like(whole)
        expected[parts.get(name, ())] = narrow
        torch.testing.assert_close(whole, expected, rtol=1e-12, atol=1e-13)


def test_what_a_narrow_layer_does_not_train_keeps_its_weights() -> None:
    model = AutogradModel(RESNET)
    kinds = [name for name, module in model._model.named_modules() if isinstance(module, SinglePixel)]
    assert kinds == [
        "layer4.0.conv1",
        "layer4.0.conv2",
        "layer4.0.downsample.0",
        "layer4.1.conv1",
        "layer4.1.conv2",
    ]
    rng = np.random.default_rng(0)
    begun = model.layout.row(initial_state(RESNET, 0))
    moving = rng.normal(size=model.layout.trainable).astype(np.float32)
    weights, velocity = np.full_like(begun, 7), np.full_like(moving, 7)  # a row of shared memory is undefined
    model.load(begun, None)
    model.anchor(begun, 0.1)
    model.take(*synthetic_shard(RESNET, 4, rng))
    model.epoch(np.arange(4), [4], draws)
    model.store(weights, velocity)
    place = next(place for place in model.layout.parameters if place.name == "layer4.1.conv2.weight")
    now, before, moved = (row[place.span].reshape(place.shape) for row in (weights, begun, velocity))
    edges = np.ones(place.shape, bool)
    edges[:, :, 1, 1] = False
    assert np.array_equal(now[edges], before[edges])
    assert not moved[edges].any()
    assert (now[~edges] != before[~edges]).mean() > 0.9
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("proximal_mu", [0.0, 0.3])
def test_blocks_change_no_bit(monkeypatch: pytest.MonkeyPatch, proximal_mu: float) -> None:
    task = replace(TASKS["digits-mlp"], options={"hidden": (32,)})
    rows = []
    for block in (1000, 10**9):
        monkeypatch.setattr(autograd_model, "_BLOCK", block)
        model = AutogradModel(task)
        begun = model.layout.row(initial_state(task, 0))
        model.load(begun, None)
        model.anchor(begun, proximal_mu)
        model.take(*synthetic_shard(task, 64, np.random.default_rng(0)))
        model.epoch(np.arange(64), [32, 32], draws)
        weights, velocity = np.empty_like(begun), np.empty(model.layout.trainable, np.float32)
        model.store(weights, velocity)
        rows.append((weights, velocity))
    assert np.array_equal(rows[0][0], rows[1][0])
    assert np.array_equal(rows[0][1], rows[1][1])
    assert build(task).layers[0].weight.numel() > 1000


def _opened(**options: Any) -> Any:
    task = TASKS["digits-mlp"]
    clients = ClientData(data_for(task, 60), shards_of(40, 20), 1, 0.0)
    return open_trainer(task, clients, workers=1, **options)


def test_bfloat16_is_near_and_not_the_same() -> None:
    exact, half = _opened(implementation="cpu"), _opened(implementation="cpu-bfloat16")
    assert (exact.implementation, half.implementation) == ("cpu", "cpu-bfloat16")
    rows = [run(trainer, (0, 1), 3) for trainer in (exact, half)]
    assert not np.array_equal(*rows)
    moved = np.abs(rows[0] - exact.initial()).max()
    assert np.abs(rows[0] - rows[1]).max() < 0.05 * moved  # 8 bits of mantissa, and errors that cancel
    assert np.array_equal(rows[1], run(_opened(implementation="cpu-bfloat16"), (0, 1), 3))
    assert exact.evaluate(rows[0][0], "test") == half.evaluate(rows[0][0], "test")  # scored in float32


def test_bfloat16_is_named_in_the_record_and_in_the_table(tmp_path: Any) -> None:
    scenario = Scenario(
        name="half",
        fleet=FleetSection(devices=6),
        task=TaskSection(name="digits-mlp"),
        protocol=ProtocolSection(rounds=2, k=2),
        trainer=TrainerSection(precision="bfloat16", workers=1),
    )
    index = plan(scenario, ["fedavg"], [0])
    with start(tmp_path, index, "") as stored:
        (result,) = play(stored, index)
    assert result.record.facts["trainer"] == "cpu-bfloat16"
    assert set(result.rounds["training"]) == {"cpu-bfloat16"}
    stacked = scenario.model_copy(update={"trainer": TrainerSection(kind="batched", precision="bfloat16")})
    index = plan(stacked, ["fedavg"], [0])
    with (
        start(tmp_path / "stacked", index, "") as stored,
        pytest.raises(ConfigError, match="auto or cpu, not 'batched'"),
    ):
        play(stored, index)
