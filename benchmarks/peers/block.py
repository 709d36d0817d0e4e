"""What every contender of the training benchmarks does: one block of work at each ``go``.

A block: ten clients of 600 samples, five epochs each in batches of 32, from the same weights; in
`benchmarks/model_training.py` fewer and smaller ones of another model. Runs in an environment that has numpy,
not joulefleet; those that have torch go on from `torch_block`.
"""
# mypy: ignore-errors

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

TASK = os.environ.get("BLOCK_TASK", "mnist-lenet5")
CLIENTS, CHOSEN, SAMPLES, EPOCHS = map(int, os.environ.get("BLOCK_SIZES", "100 10 600 5").split())
BATCH = 32
STEPS = -(-SAMPLES // BATCH)
LEARNING_RATE, MOMENTUM = 0.01, 0.9
FOLDER = Path(os.environ["BLOCK_FOLDER"])  # not an argument: it has to reach Ray's workers too


def start_arrays() -> dict[str, np.ndarray]:
    """The weights that every block starts from."""
    with np.load(FOLDER / "start.npz") as arrays:
        return dict(arrays)


def samples_of(client: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's samples."""
    piece = slice(client * SAMPLES, (client + 1) * SAMPLES)
    x, y = (np.load(FOLDER / f"{name}.npy", mmap_mode="r")[piece] for name in "xy")
    return np.array(x), np.array(y)


def chosen(block: int) -> list[int]:
    """Who works in a block."""
    return [(block * CHOSEN + i) % CLIENTS for i in range(CHOSEN)]


def blocks() -> Iterator[int]:
    """A number for each block that is asked for."""
    print("@@ ready", flush=True)
    for block, line in enumerate(sys.stdin):
        if line.strip() != "go":
            return
        yield block


def done(loss: float) -> None:
    """Tell the mean loss of the clients' last epochs, by which the work is compared."""
    print(f"@@ {json.dumps({'loss': loss})}", flush=True)
