"""What is sent to a device runs there: Python 3.9, and nothing but the chosen backend beside numpy."""

import ast
import json
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from device_agents.onnx_export.cache import GraphCache
from device_agents.workloads.models import initial_state
from device_agents.workloads.tasks import TASKS
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "device_agents" / "workloads"
FILES = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.py"))
ALLOWED = {"numpy", "torch", "onnxruntime", "device_agents"} | set(sys.stdlib_module_names)

# Refuses every import of a package that is not on the list, as if it were not installed.
DEVICE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in {installed} or name == "device_agents":
            return None
        if name.startswith("device_agents.workloads"):
            return None
        raise ModuleNotFoundError("not on this device: " + name, name=name)

sys.meta_path.insert(0, Absent())
sys.path.insert(0, {repository!r})

import json
import numpy as np
from device_agents.workloads.tasks import find_task, synthetic_shard

task = find_task("mnist-lenet5")
x, y = synthetic_shard(task, 40, np.random.default_rng(3))
with np.load({state!r}) as arrays:
    state = dict(arrays)
{open}
result = trainer.epoch(np.random.default_rng(4))
state = trainer.state()
print(json.dumps([result.loss, result.loss_rms, result.steps, float(state["fc1.weight"].sum())]))
assert "joulefleet" not in sys.modules and "pydantic" not in sys.modules
assert "torch._dynamo" not in sys.modules, "seconds and megabytes that a phone would pay for nothing"
"""

OPEN = {
    "torch": """
from device_agents.workloads.backend_torch import TorchTrainer
trainer = TorchTrainer(task, state, x, y)
""",
    "onnxruntime": """
from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
trainer = OnnxRuntimeTrainer(task, {{int(k): v for k, v in {graphs}.items()}}, state, x, y)
assert "torch" not in sys.modules and "onnx" not in sys.modules
""",
}


def modules_of(*distributions: str) -> set[str]:
    """Every module that installing these distributions brings, with what they require."""
    wanted, seen = list(distributions), set()
    while wanted:
        name = wanted.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        for line in requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    return {
        module
        for module, owners in packages_distributions().items()
        if seen.intersection(owner.lower().replace("_", "-") for owner in owners)
    }


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_file_is_python_3_9_and_imports_only_what_a_device_has(path: Path) -> None:
    tree = ast.parse((FOLDER / path).read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names = [str(node.module)]
        for name in names:
            assert name.partition(".")[0] in ALLOWED, name
            if name.startswith("device_agents"):
                assert name.startswith("device_agents.workloads"), name


def test_the_front_door_imports_nothing_before_a_name_is_used() -> None:
    """It is shipped, too: the host's half of the package is not on the device."""
    text = (REPOSITORY / "device_agents" / "__init__.py").read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    program = (
        "import sys; old = set(sys.modules); import device_agents.workloads; print(*set(sys.modules) - old)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY)
    assert set(done.stdout.split()) == {"device_agents", "device_agents.workloads"}


def test_the_grammar_check_can_fail() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))


def run_on_device(backend: str, folder: Path, graphs: dict[int, str], installed: set[str]) -> list[float]:
    np.savez(folder / "state.npz", **initial_state(TASKS["mnist-lenet5"], 5))
    program = DEVICE.format(
        installed=sorted(installed),
        repository=str(REPOSITORY),
        state=str(folder / "state.npz"),
        open=OPEN[backend].format(graphs=graphs),
    )
    # -I: neither the environment's variables nor the working directory add to the path.
    finished = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    values: list[float] = json.loads(finished.stdout)
    return values


def test_both_backends_train_alike_on_a_bare_device(tmp_path: Path) -> None:
    task = TASKS["mnist-lenet5"]
    graphs = {size: str(path) for size, path in GraphCache(tmp_path).shard(task, 40).items()}
    torch = run_on_device("torch", tmp_path, {}, modules_of("numpy", "torch"))
    onnxruntime = run_on_device("onnxruntime", tmp_path, graphs, modules_of("numpy", "onnxruntime"))
    assert torch[2] == onnxruntime[2] == 2
    np.testing.assert_allclose(onnxruntime, torch, rtol=1e-5)


def test_the_bare_device_has_not_more_than_it_says(tmp_path: Path) -> None:
    """The test above can fail: where torch is missing, its backend does not start."""
    with pytest.raises(AssertionError, match="not on this device: torch"):
        run_on_device("torch", tmp_path, {}, modules_of("numpy", "onnxruntime"))
