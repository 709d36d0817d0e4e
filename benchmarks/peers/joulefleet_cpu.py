"""Our own trainer, in our environment; the arguments are the number of workers and the implementation."""
# mypy: ignore-errors

import sys

import numpy as np
from block import (
    BATCH,
    CHOSEN,
    CLIENTS,
    EPOCHS,
    FOLDER,
    LEARNING_RATE,
    MOMENTUM,
    SAMPLES,
    TASK,
    blocks,
    chosen,
    done,
)

from device_agents.workloads import TASKS
from emulator import DataSet, Split
from emulator.data import Partition
from emulator.training import ClientData, open_trainer

task = TASKS[TASK]
assert (task.batch_size, task.learning_rate, task.momentum) == (BATCH, LEARNING_RATE, MOMENTUM)
x, y = (np.load(FOLDER / f"{name}.npy", mmap_mode="r") for name in "xy")
empty = Split(x[:0], y[:0])
data = DataSet(TASK, task.classes, Split(x, y), empty, empty, note="")
partition = Partition("blocks", {}, 0, np.arange(len(y)), np.arange(CLIENTS + 1) * SAMPLES)
trainer = open_trainer(
    task, ClientData(data, partition, 0), implementation=sys.argv[2], workers=int(sys.argv[1])
)
with np.load(FOLDER / "start.npz") as state:
    start = trainer.layout.row(state)

for block in blocks():
    trainer.begin(block, start)
    ids = np.array(chosen(block))
    results = trainer.train(ids, np.full(CHOSEN, EPOCHS))
    trainer.aggregate(ids, np.full(CHOSEN, 1 / CHOSEN))
    trainer.end()
    done(float(results.last_loss.mean()))
trainer.close()
