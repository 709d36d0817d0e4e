"""FLGo: a round of its federated averaging at each ``go``, clients one after the other."""
# mypy: ignore-errors

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import flgo
import flgo.algorithm.fedavg
import flgo.benchmark.partition
import numpy as np
from block import BATCH, CHOSEN, CLIENTS, EPOCHS, FOLDER, LEARNING_RATE, MOMENTUM, STEPS, blocks, chosen, done
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from torch_block import start_weights

CONFIG = """
import numpy as np
import torch
from block import FOLDER
from torch_block import one_model

x, y = (torch.from_numpy(np.load(FOLDER / f"{name}.npy")) for name in "xy")
train_data = torch.utils.data.TensorDataset(x, y)
train_data.classes = list(range(10))


def get_model():
    return one_model()
"""


def made():
    """A server with its clients, on samples shared at random; FLGo wants its task as files."""
    os.chdir(FOLDER)
    Path("flgo_config.py").write_text(CONFIG)
    sys.path.insert(0, str(FOLDER))
    benchmark = import_module(flgo.gen_benchmark_from_file("flgo_model", "flgo_config.py"))
    # torch 2.13 refuses FLGo 0.4.4's data set without this method, which torch's message asks for.
    FromDatasetPipe.TaskDataset.__getitems__ = lambda self, rows: [self[row] for row in rows]
    benchmark.visualize = lambda *_: None  # a picture of every sample, which takes minutes
    shared = flgo.benchmark.partition.IIDPartitioner(num_clients=CLIENTS)
    flgo.gen_task_by_(benchmark, shared, "flgo_task")
    option = {
        "proportion": CHOSEN / CLIENTS,
        "num_epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "train_holdout": 0.0,
        "sample": "uniform",
        "gpu": [],
        "no_log_console": True,
    }
    return flgo.init("flgo_task", flgo.algorithm.fedavg, option)


server = made()
losses = []
calculator = server.clients[0].calculator
compute_loss = calculator.compute_loss


def noted(model, data):
    """As FLGo computes it."""
    found = compute_loss(model, data)
    losses.append(float(found["loss"].detach()))
    return found


for client in server.clients:
    client.calculator.compute_loss = noted
for block in blocks():
    losses.clear()
    server.sample = partial(chosen, block)  # its own draws some of them twice, and has them train once
    server.model.model.load_state_dict(start_weights())
    server.iterate()
    assert len(losses) == CHOSEN * EPOCHS * STEPS
    done(float(np.mean(np.reshape(losses, (CHOSEN, EPOCHS, STEPS))[:, -1])))
