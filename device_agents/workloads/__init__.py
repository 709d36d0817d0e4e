"""Training work as plain numpy or torch, shared by the agent on the device and by the emulator.

Shipped to devices: Python 3.9, and nothing is imported before a name is used.
"""

_HOMES = {
    "EpochResult": "trainer",
    "LocalTrainer": "trainer",
    "MODELS": "models",
    "OnnxRuntimeTrainer": "backend_onnxruntime",
    "Softmax": "softmax",
    "TASKS": "tasks",
    "Task": "tasks",
    "TorchTrainer": "backend_torch",
    "batch_sizes": "tasks",
    "build": "models",
    "cross_entropy": "tasks",
    "find_task": "tasks",
    "initial_state": "models",
    "load_state": "models",
    "state_arrays": "models",
    "synthetic_shard": "tasks",
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(f"{__name__}.{_HOMES[name]}", fromlist=[name]), name)


def __dir__():
    return __all__
