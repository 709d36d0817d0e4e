"""Training work as plain numpy or torch, shared by the agent on the device and by the emulator.

Shipped to devices: Python 3.9, and nothing is imported before a name is used.
"""

_NAMES = {
    "backend_onnxruntime": ("OnnxRuntimeTrainer",),
    "backend_torch": ("TorchTrainer",),
    "flops": ("Work", "count_task"),
    "losses": (
        "ACCURACY",
        "LOSSES",
        "METRICS",
        "OWN",
        "Metric",
        "cross_entropy",
        "each_tensor",
        "loss_of",
        "metric_sums",
        "metric_value",
        "tensors_of",
    ),
    "models": ("MODELS", "build", "initial_state", "load_state", "state_arrays"),
    "own_code": ("OwnCode", "blame", "module_of"),
    "random_operations": ("Generators",),
    "softmax": ("Softmax",),
    "tasks": ("TASKS", "Task", "batch_sizes", "find_task", "pack_task", "synthetic_shard", "unpack_task"),
    "trainer": ("EpochResult", "LocalTrainer"),
}
__all__ = sorted(name for names in _NAMES.values() for name in names)  # noqa: PLE0605


def __getattr__(name):
    for module, names in _NAMES.items():
        if name in names:
            return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
