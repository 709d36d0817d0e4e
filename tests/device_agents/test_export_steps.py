"""The exported step against torch's, for every model.

In float64 the two agree to about 1e-13: the graph computes the same step. In float32 every implementation
rounds differently, and with batch normalisation a step amplifies that: a ReLU whose input changes sign moves
the gradient by a jump. torch does not agree with itself there (oneDNN on or off), so what onnxruntime may
deviate over several steps is measured by that (docs/decisions/0007).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from device_agents.onnx_export import decompositions, windows
from device_agents.onnx_export.cache import GraphCache
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import MODELS
from device_agents.workloads.tasks import Task
from tests.conftest import FULL_COUNTS
from tests.device_agents.trained import SMALL, UNDRAWN, Setting, apart, other_kernels, split, whole_apart

# One worker per model, so that its graphs are exported once.
EVERY_TASK = [pytest.param(name, marks=pytest.mark.xdist_group(f"export-{name}")) for name in SMALL]
# Each export of these takes several seconds; in float64, which is the stricter judge, they are always done.
LARGE = ("cifar10-resnet18", "cinic10-vgg16", "tinyimagenet-shufflenetv2")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> GraphCache:
    return GraphCache(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def sized(name: str) -> Task:
    return UNDRAWN[name] if FULL_COUNTS else SMALL[name]


def test_no_model_is_left_out() -> None:
    assert {task.model for task in SMALL.values()} == set(MODELS)


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_steps_in_float64(
    name: str,
    graphs: GraphCache,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """State and momentum after two steps (the second has momentum), losses as far as the count goes."""
    setting = Setting(sized(name), steps=campaign_count(3, 20))
    ours, theirs = setting.onnxruntime(graphs, "float64"), setting.torch("float64")
    losses = [setting.losses(trainer, until=2) for trainer in (ours, theirs)]

    momentum = theirs.velocity()
    our_parts, their_parts = (split(trainer.state(), momentum) for trainer in (ours, theirs))
    measured = {
        "velocity": apart(ours.velocity(), momentum),
        "parameters": apart(our_parts.parameters, their_parts.parameters),
        "running_statistics": apart(our_parts.statistics, their_parts.statistics),
    }
    for what, distance in measured.items():
        record_property(what, distance)
    assert max(measured.values()) < 1e-8
    assert our_parts.counters == their_parts.counters

    losses = [seen + setting.losses(trainer) for seen, trainer in zip(losses, (ours, theirs), strict=True)]
    deviation = np.abs(np.array(losses[0]) / losses[1] - 1)
    record_property("largest_loss_deviation", float(deviation.max()))
    assert deviation[:2].max() < 1e-8
    assert deviation.max() < 1e-2


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_steps_in_float32(
    name: str, graphs: GraphCache, record_property: Callable[[str, object], None]
) -> None:
    """State and gradient after one step, loss over 20 steps."""
    if name in LARGE and not FULL_COUNTS:
        pytest.skip("half a minute for three models: the small ones and the odd net stand for them")
    setting = Setting(sized(name), steps=20)
    ours, theirs = setting.onnxruntime(graphs, "float32"), setting.torch("float32")
    losses = [setting.losses(trainer, until=1) for trainer in (ours, theirs)]
    momentum = theirs.velocity()
    our_parts, their_parts = (split(trainer.state(), momentum) for trainer in (ours, theirs))
    measured = {
        "parameters": whole_apart(our_parts.parameters, their_parts.parameters),
        "running_statistics": apart(our_parts.statistics, their_parts.statistics),
    }
    if not FULL_COUNTS:  # with full batches there is always a jump
        measured["gradient"] = distance_from_exact_gradient(name, graphs, ours)
    for what, distance in measured.items():
        record_property(what, distance)
    assert max(measured.values()) < 1e-4

    losses = [seen + setting.losses(trainer) for seen, trainer in zip(losses, (ours, theirs), strict=True)]

    def deviation(from_torch: list[float]) -> float:
        return float(np.median(np.abs(np.array(from_torch) / losses[1] - 1)))

    record_property("median_loss_deviation", deviation(losses[0]))
    if deviation(losses[0]) > 1e-2:
        with other_kernels():
            yardstick = deviation(setting.losses(setting.torch("float32")))
        record_property("of_torch_from_itself", yardstick)
        assert deviation(losses[0]) < 3 * yardstick


def distance_from_exact_gradient(name: str, graphs: GraphCache, first: OnnxRuntimeTrainer) -> float:
    """Parameters hardly move in one step; the gradient shows more. Exact means torch's in float64.

    A ReLU or a maximum that falls on the other side makes a jump in some draws (in torch's float32, too), so
    the nearest of a few counts: a wrong gradient is far off in all.
    """
    distances = []
    for seed in range(3):
        setting = Setting(SMALL[name], steps=20, seed=seed)
        ours, exact = first, setting.torch("float64")
        if seed > 0:
            ours = setting.onnxruntime(graphs, "float32")
            setting.losses(ours, until=1)
        setting.losses(exact, until=1)
        distances.append(whole_apart(ours.velocity(), exact.velocity()))
        if distances[-1] < 1e-4:
            break
    return min(distances)


@pytest.mark.xdist_group("export-mnist-lenet5")
def test_an_epoch_with_a_smaller_last_batch(graphs: GraphCache) -> None:
    task = SMALL["mnist-lenet5"]
    setting = Setting(task, steps=3)
    x, y = (part[:20] for part in setting.data())  # 8 + 8 + 4
    theirs = TorchTrainer(task, setting.torch("float64").state(), x, y, "float64")
    ours = OnnxRuntimeTrainer(task, graphs.shard(task, 20, "float64"), theirs.state(), x, y)
    for seed in range(3):  # odd and even numbers of steps
        mine, other = (trainer.epoch(np.random.default_rng(seed)) for trainer in (ours, theirs))
        assert (mine.samples, mine.steps) == (20, 3)
        assert mine.loss == pytest.approx(other.loss, rel=1e-10)
        assert mine.loss_rms == pytest.approx(other.loss_rms, rel=1e-10)
        assert mine.loss_rms >= mine.loss
    assert apart(ours.state(), theirs.state()) < 1e-8
    assert apart(ours.velocity(), theirs.velocity()) < 1e-8


ODD = Task("odd", "odd", "noise", (2, 15, 13), 3, smallest_batch=2, batch_size=6)


@pytest.fixture
def odd_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "odd", "tests.device_agents.odd_net:OddNet")


def odd_distance(graphs: GraphCache, dtype: str) -> float:
    """How far losses, momentum, parameters or statistics are apart after two steps, whichever is furthest."""
    setting = Setting(ODD, steps=2)
    ours, theirs = setting.onnxruntime(graphs, dtype), setting.torch(dtype)
    losses = np.array([setting.losses(trainer) for trainer in (ours, theirs)])
    momentum = theirs.velocity()
    our_parts, their_parts = (split(trainer.state(), momentum) for trainer in (ours, theirs))
    return max(
        float(np.abs(losses[0] / losses[1] - 1).max()),
        apart(ours.velocity(), momentum),
        apart(our_parts.parameters, their_parts.parameters),
        apart(our_parts.statistics, their_parts.statistics),
    )


@pytest.mark.usefixtures("odd_net")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-8)])
def test_operators_that_no_model_uses(graphs: GraphCache, dtype: str, tolerance: float) -> None:
    assert odd_distance(graphs, dtype) < tolerance


def without_projection(right: Callable[..., Any]) -> Callable[..., Any]:
    """Batch normalisation's gradient without the part that comes from the batch's variance."""

    def wrong(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
        _, grad_weight, grad_bias = right(grad, x, weight, *rest)
        scale = rest[3] * weight  # of the inverse standard deviation
        shift = -scale * grad_bias / (x.numel() // x.shape[1])
        return decompositions._per_channel(grad, scale, shift), grad_weight, grad_bias

    return wrong


def slightly_large(right: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient that is off by a thousandth."""
    return lambda *arguments: 1.001 * right(*arguments)


@pytest.mark.usefixtures("odd_net")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("batch_norm_backward", without_projection),
        ("_weight_gradient", slightly_large),
        ("max_pool_backward", slightly_large),
        ("sigmoid_backward", slightly_large),
    ],
)
def test_a_wrong_gradient_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, mutant: Callable[..., Any], dtype: str
) -> None:
    """What the comparison is worth: see ADR-0007."""
    home = windows if hasattr(windows, name) else decompositions
    monkeypatch.setattr(home, name, mutant(getattr(home, name)))
    assert odd_distance(GraphCache(tmp_path), dtype) > 2e-4


@pytest.mark.xdist_group("export-mnist-lenet5")
def test_the_optimisers_settings_are_inputs_of_the_step(graphs: GraphCache) -> None:
    """One graph serves every learning rate."""
    plain = SMALL["mnist-lenet5"]
    for task in (
        replace(plain, learning_rate=0.1),
        replace(plain, momentum=0.5),
        replace(plain, momentum=0.0),
    ):
        setting = Setting(task, steps=2)
        ours, theirs = setting.onnxruntime(graphs, "float64"), setting.torch("float64")
        np.testing.assert_allclose(setting.losses(ours), setting.losses(theirs), rtol=1e-8)
        assert apart(ours.state(), theirs.state()) < 1e-8
