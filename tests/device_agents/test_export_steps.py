"""The exported step against torch's, for every model.

In float64 the two agree to about 1e-13: the graph computes the same step. In float32 every implementation
rounds differently, and with batch normalisation a step amplifies that: a ReLU whose input changes sign moves
the gradient by a jump. torch does not agree with itself there (oneDNN on or off), so what onnxruntime may
deviate over several steps is measured by that.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from device_agents.export.cache import GraphCache
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import MODELS
from device_agents.workloads.tasks import TASKS, Task
from tests.conftest import FULL_COUNTS
from tests.device_agents.trained import SMALL, Setting, apart, other_kernels, split, whole_apart

# One worker per model, so that its graphs are exported once.
EVERY_TASK = [pytest.param(name, marks=pytest.mark.xdist_group(f"export-{name}")) for name in SMALL]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> GraphCache:
    return GraphCache(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(autouse=True)
def one_thread_and_no_trace_log(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    # pytest listens to every logger that does not propagate; torch writes a record per traced tensor to
    # this one as soon as somebody listens, which doubles the time of an export.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", True)


def sized(name: str) -> Task:
    return TASKS[name] if FULL_COUNTS else SMALL[name]


def after(setting: Setting, graphs: GraphCache, dtype: str) -> tuple[OnnxRuntimeTrainer, TorchTrainer]:
    ours, theirs = setting.onnxruntime(graphs, dtype), setting.torch(dtype)
    np.testing.assert_allclose(
        setting.losses(ours), setting.losses(theirs), rtol=1e-8 if dtype == "float64" else 1e-4
    )
    return ours, theirs


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_two_steps_agree_in_float64(
    name: str, graphs: GraphCache, record_property: Callable[[str, object], None]
) -> None:
    """Two, so that the second one has momentum."""
    ours, theirs = after(Setting(sized(name), steps=2), graphs, "float64")
    momentum = theirs.velocity()
    parameters, statistics, counters = split(theirs.state(), momentum)
    measured = {
        "velocity": apart(ours.velocity(), momentum),
        "parameters": apart(split(ours.state(), momentum)[0], parameters),
    }
    if statistics:
        measured["running_statistics"] = apart(split(ours.state(), momentum)[1], statistics)
    for what, distance in measured.items():
        record_property(what, distance)
    assert max(measured.values()) < 1e-8
    assert {key: int(array) for key, array in split(ours.state(), momentum)[2].items()} == {
        key: int(array) for key, array in counters.items()
    }


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_one_step_agrees_in_float32(
    name: str, graphs: GraphCache, record_property: Callable[[str, object], None]
) -> None:
    ours, theirs = after(Setting(sized(name), steps=1), graphs, "float32")
    momentum = theirs.velocity()
    our_parts, their_parts = (split(trainer.state(), momentum) for trainer in (ours, theirs))
    distance = whole_apart(our_parts[0], their_parts[0])
    record_property("parameters", distance)
    assert distance < 1e-4
    if their_parts[1]:
        distance = apart(our_parts[1], their_parts[1])
        record_property("running_statistics", distance)
        assert distance < 1e-4


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_the_float32_gradient_is_near_the_exact_one(
    name: str, graphs: GraphCache, record_property: Callable[[str, object], None]
) -> None:
    """Parameters hardly move in one step; the gradient shows more. Exact means torch's in float64.

    A ReLU or a maximum that falls on the other side makes a jump in some draws (in torch's float32, too), so
    the nearest of a few counts: a wrong gradient is far off in all.
    """
    distances = []
    for seed in range(3):
        setting = Setting(SMALL[name], steps=1, seed=seed)
        ours, exact = setting.onnxruntime(graphs, "float32"), setting.torch("float64")
        for trainer in (ours, exact):
            setting.losses(trainer)
        distances.append(whole_apart(ours.velocity(), exact.velocity()))
        if distances[-1] < 1e-4:
            break
    record_property("gradient", distances)
    assert min(distances) < 1e-4


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_the_loss_after_20_steps(
    name: str, graphs: GraphCache, record_property: Callable[[str, object], None]
) -> None:
    setting = Setting(sized(name), steps=20)
    theirs = np.array(setting.losses(setting.torch("float32")))

    def deviation(losses: list[float]) -> float:
        return float(np.median(np.abs(np.array(losses) / theirs - 1)))

    measured = deviation(setting.losses(setting.onnxruntime(graphs, "float32")))
    record_property("median_deviation", measured)
    if measured > 1e-2:
        with other_kernels():
            yardstick = deviation(setting.losses(setting.torch("float32")))
        record_property("torch_from_itself", yardstick)
        assert measured < 3 * yardstick


@pytest.mark.campaign
@pytest.mark.parametrize("name", EVERY_TASK)
def test_the_loss_after_20_steps_in_float64(
    name: str,
    graphs: GraphCache,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """Without rounding in the way the two trainings stay together, at the task's own learning rate."""
    setting = Setting(SMALL[name], steps=campaign_count(4, 20))
    ours, theirs = (
        np.array(setting.losses(trainer))
        for trainer in (setting.onnxruntime(graphs, "float64"), setting.torch("float64"))
    )
    measured = float(np.abs(ours / theirs - 1).max())
    record_property("largest_deviation", measured)
    assert measured < 1e-2 if FULL_COUNTS else measured < 1e-7


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


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-8)])
def test_operators_that_no_model_uses(
    monkeypatch: pytest.MonkeyPatch, graphs: GraphCache, dtype: str, tolerance: float
) -> None:
    monkeypatch.setitem(MODELS, "odd", "tests.device_agents.odd_net:OddNet")
    task = Task("odd", "odd", "noise", (2, 15, 13), 3, smallest_batch=2, batch_size=6)
    ours, theirs = after(Setting(task, steps=1), graphs, dtype)
    assert apart(ours.velocity(), theirs.velocity()) < tolerance
    our_parts, their_parts = (split(trainer.state(), theirs.velocity()) for trainer in (ours, theirs))
    assert apart(our_parts[0], their_parts[0]) < tolerance
    assert apart(our_parts[1], their_parts[1]) < tolerance


@pytest.mark.xdist_group("export-mnist-lenet5")
def test_the_optimisers_settings_are_inputs_of_the_step(graphs: GraphCache) -> None:
    """One graph serves every learning rate."""
    plain = SMALL["mnist-lenet5"]
    for task in (replace(plain, learning_rate=0.1), replace(plain, momentum=0.5), replace(plain, momentum=0.0)):
        ours, theirs = after(Setting(task, steps=2), graphs, "float64")
        assert apart(ours.state(), theirs.state()) < 1e-8
