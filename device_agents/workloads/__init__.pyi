from device_agents.workloads.backend_onnxruntime import OnnxRuntimeTrainer
from device_agents.workloads.backend_torch import TorchTrainer
from device_agents.workloads.flops import Work, count_task
from device_agents.workloads.losses import (
    ACCURACY,
    LOSSES,
    METRICS,
    OWN,
    Metric,
    cross_entropy,
    each_tensor,
    loss_of,
    metric_sums,
    metric_value,
    tensors_of,
)
from device_agents.workloads.models import MODELS, build, initial_state, load_state, state_arrays
from device_agents.workloads.own_code import OwnCode, blame, module_of
from device_agents.workloads.random_operations import Generators
from device_agents.workloads.softmax import Softmax
from device_agents.workloads.tasks import (
    TASKS,
    Task,
    batch_sizes,
    find_task,
    pack_task,
    synthetic_shard,
    unpack_task,
)
from device_agents.workloads.trainer import EpochResult, LocalTrainer

__all__ = [
    "ACCURACY", "LOSSES", "METRICS", "MODELS", "OWN", "TASKS", "EpochResult", "Generators", "LocalTrainer",
    "Metric", "OnnxRuntimeTrainer", "OwnCode", "Softmax", "Task", "TorchTrainer", "Work", "batch_sizes",
    "blame", "build", "count_task", "cross_entropy", "each_tensor", "find_task", "initial_state",
    "load_state", "loss_of", "metric_sums", "metric_value", "module_of", "pack_task", "state_arrays",
    "synthetic_shard", "tensors_of", "unpack_task",
]  # fmt: skip
