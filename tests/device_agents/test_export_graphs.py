"""The exported file: its cache, its contract with the device, and what does not fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from device_agents.onnx_export import cache
from device_agents.onnx_export.cache import GraphCache
from device_agents.onnx_export.graph import IR_VERSION, OPSET, OnnxGraph, Value
from device_agents.onnx_export.step import export_step
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.models import MODELS, initial_state
from device_agents.workloads.tasks import TASKS, synthetic_shard
from joulefleet.errors import ConfigError, JoulefleetError, StorageError

TASK = replace(TASKS["mnist-lenet5"], batch_size=4)


@pytest.fixture(scope="module")
def step() -> bytes:
    return export_step(TASK, 4)


def test_a_step_is_exported_once(tmp_path: Path) -> None:
    graphs = GraphCache(tmp_path / "made" / "on demand")
    path = graphs.step(TASK, 4)
    first = path.stat()
    assert GraphCache(path.parent).step(TASK, 4) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    # What the step takes as an input is not in the graph.
    assert graphs.step(replace(TASK, learning_rate=0.5, momentum=0.0, local_epochs=1), 4) == path
    assert list(path.parent.iterdir()) == [path]


def test_whatever_changes_the_graph_changes_its_name(tmp_path: Path) -> None:
    graphs = GraphCache(tmp_path)
    paths = {
        graphs.step(TASK, 4),
        graphs.step(TASK, 3),
        graphs.step(TASK, 4, "float64"),
        graphs.step(replace(TASK, classes=11), 4),
    }
    assert len(paths) == 4


def test_the_name_depends_on_every_source_that_makes_the_graph() -> None:
    sources = cache.sources()
    for name in (
        "onnx_export/ops.py",
        "onnx_export/windows.py",
        "workloads/tasks.py",
        "workloads/models/lenet5.py",
    ):
        assert len(sources[name]) == 64


def test_a_model_of_ones_own_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "one_of_my_own.py"
    lines = "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, classes):\n"
    source.write_text(lines + "        super().__init__(3, classes)\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = replace(TASK, model="one_of_my_own:Net", input_shape=(3,))
    graphs = GraphCache(tmp_path / "graphs")
    first = graphs.step(task, 4)
    assert graphs.step(task, 4) == first
    source.write_text(source.read_text() + "# another version\n")
    assert graphs.step(task, 4) != first


def test_a_damaged_file_is_exported_again(tmp_path: Path, step: bytes) -> None:
    path = GraphCache(tmp_path).step(TASK, 4)
    assert path.read_bytes() == step, "an export is the same bytes every time"
    for damaged in (step[:100], b"\0" + step[1:], b""):
        path.write_bytes(damaged)
        assert GraphCache(tmp_path).step(TASK, 4) == path
        assert path.read_bytes() == step


def test_a_shard_takes_one_graph_per_batch_size(tmp_path: Path) -> None:
    graphs = GraphCache(tmp_path)
    assert list(graphs.shard(TASK, 8)) == [4]
    assert list(graphs.shard(TASK, 10)) == [2, 4]
    assert list(graphs.shard(TASK, 3)) == [3]
    with pytest.raises(ConfigError, match="1 samples are too few"):
        graphs.shard(replace(TASK, smallest_batch=2), 1)


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        GraphCache(tmp_path / "file").step(TASK, 4)


def test_the_file_is_valid_onnx_for_old_runtimes_and_holds_no_weights(step: bytes) -> None:
    model = onnx.load_from_string(step)
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, [(o.domain, o.version) for o in model.opset_import]) == (
        IR_VERSION,
        [("", OPSET)],
    )
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)
    weights = sum(array.nbytes for array in initial_state(TASK, 0).values())
    assert len(step) < weights / 10
    inputs, outputs = ([item.name for item in part] for part in (model.graph.input, model.graph.output))
    assert inputs[:4] == ["x", "y", "learning_rate", "momentum"]
    assert outputs == ["losses", *(f"next/{name}" for name in inputs[4:])]
    states = [name.removeprefix("state/") for name in inputs if name.startswith("state/")]
    assert states == list(initial_state(TASK, 0))


def test_equal_nodes_and_constants_are_written_once_and_unused_ones_not_at_all() -> None:
    graph = OnnxGraph()
    x = Value("x", (2,), np.dtype("float32"))
    graph.input(x)
    doubled = graph.op("Mul", x, graph.constant([2, 2], np.float32))
    assert graph.op("Mul", x, graph.constant([2, 2], np.float32)) == doubled
    graph.op("Neg", x)
    graph.output("twice", Value(doubled, x.shape, x.dtype))
    graph.output("twice again", Value(doubled, x.shape, x.dtype))
    graph.output("itself", x)
    model = onnx.load_from_string(graph.serialise())
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Identity", "Identity"]
    assert len(model.graph.initializer) == 1


@pytest.mark.parametrize(
    ("batch", "dtype", "message"), [(1, "float32", "batches of 1"), (2, "float16", "neither")]
)
def test_a_step_that_nobody_can_export_is_refused(batch: int, dtype: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        export_step(replace(TASK, smallest_batch=2), batch, dtype)


def test_an_operator_without_an_onnx_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "unexportable", "tests.device_agents.odd_net:Unexportable")
    task = replace(TASK, model="unexportable", input_shape=(2, 15, 13))
    with pytest.raises(JoulefleetError, match=r"prims\.erf_inv\.default, which has no ONNX form") as caught:
        export_step(task, 4)
    assert "onnx_export/ops.py" in caught.value.hint


def test_what_does_not_fit_the_graph_is_refused_before_the_first_step(step: bytes) -> None:
    state = initial_state(TASK, 0)
    x, y = synthetic_shard(TASK, 8, np.random.default_rng(0))
    renamed = {name.replace("fc3", "fc4"): value for name, value in state.items()}
    reshaped = {**state, "fc3.bias": np.zeros(7, np.float32)}
    with pytest.raises(ValueError, match=r"no exported step .* for batches of \[4\]"):
        OnnxRuntimeTrainer(TASK, {}, state, x, y)
    with pytest.raises(ValueError, match=r"given for batches of 8 was exported for \[4\]"):
        OnnxRuntimeTrainer(replace(TASK, batch_size=8), {8: step}, state, x, y)
    with pytest.raises(ValueError, match=r"\['fc3.bias', 'fc3.weight', 'fc4.bias', 'fc4.weight'\] in one"):
        OnnxRuntimeTrainer(TASK, {4: step}, renamed, x, y)
    with pytest.raises(ValueError, match=r"state/fc3\.bias has shape \(7,\), the exported step \[10\]"):
        OnnxRuntimeTrainer(TASK, {4: step}, reshaped, x, y)
    with pytest.raises(ValueError, match="do not fit task 'mnist-lenet5'"):
        OnnxRuntimeTrainer(TASK, {4: step}, state, x[:, :, :27], y)
    with pytest.raises(ValueError, match="do not fit task"):
        OnnxRuntimeTrainer(TASK, {4: step}, state, x[:7], y)
    with pytest.raises(ValueError, match="0 samples are too few"):
        OnnxRuntimeTrainer(TASK, {4: step}, state, x[:0], y[:0])


def test_steps_write_into_two_sets_of_arrays_in_turn(step: bytes) -> None:
    """No copy between steps: onnxruntime reads and writes the trainer's own memory."""
    x, y = synthetic_shard(TASK, 4, np.random.default_rng(0))
    trainer = OnnxRuntimeTrainer(TASK, {4: step}, initial_state(TASK, 0), x, y)
    sets = trainer._generations
    addresses = [{name: array.ctypes.data for name, array in arrays.items()} for arrays in sets]
    weights = []
    for count in range(4):
        before = sets[count % 2]["state/fc3.weight"].copy()
        trainer.step(np.arange(4))
        assert np.array_equal(sets[count % 2]["state/fc3.weight"], before), "what was read is not written"
        weights.append(sets[1 - count % 2]["state/fc3.weight"].copy())
        assert np.array_equal(trainer.state()["fc3.weight"], weights[-1])
    assert len({array.tobytes() for array in weights}) == 4
    assert [{name: array.ctypes.data for name, array in arrays.items()} for arrays in sets] == addresses


def test_what_a_trainer_returns_is_the_callers_own(step: bytes) -> None:
    x, y = synthetic_shard(TASK, 4, np.random.default_rng(0))
    trainer = OnnxRuntimeTrainer(TASK, {4: step}, initial_state(TASK, 0), x, y)
    losses = trainer.step(np.arange(4))
    kept, state = losses.copy(), trainer.state()
    frozen = {name: array.copy() for name, array in state.items()}
    for _ in range(2):
        trainer.step(np.arange(4))
    assert np.array_equal(losses, kept)
    assert all(np.array_equal(state[name], frozen[name]) for name in state)
