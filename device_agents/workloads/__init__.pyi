from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.models import MODELS, build, initial_state, load_state, state_arrays
from device_agents.workloads.random_operations import Generators
from device_agents.workloads.softmax import Softmax
from device_agents.workloads.tasks import TASKS, Task, batch_sizes, cross_entropy, find_task, synthetic_shard
from device_agents.workloads.trainer import EpochResult, LocalTrainer

__all__ = [
    "MODELS", "TASKS", "EpochResult", "Generators", "LocalTrainer", "OnnxRuntimeTrainer", "Softmax", "Task",
    "TorchTrainer", "batch_sizes", "build", "cross_entropy", "find_task", "initial_state", "load_state",
    "state_arrays", "synthetic_shard",
]  # fmt: skip
