"""Your own model and data set in a few lines: points on two spirals, told apart by a small network."""

import sys

import numpy as np
from torch import nn

import emulator
from device_agents.workloads.tasks import TASKS, Task
from emulator.data.model import DataSet, Split
from emulator.data.sources import DATA_SETS
from emulator.scenario.load import load_scenario


class Network(nn.Sequential):
    """Any torch module whose first argument is the number of classes."""

    def __init__(self, classes):
        super().__init__(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, classes))


def spirals(source):
    """Any function that makes a `DataSet`: what devices share, what rewards see, what reports see."""
    turn, arm = source.rng("spirals").uniform(0.5, 3, 3000), np.arange(3000) % 2
    x = np.stack([turn * np.cos(turn + np.pi * arm), turn * np.sin(turn + np.pi * arm)], 1)
    parts = [Split(x[i::3].astype(np.float32), arm[i::3]) for i in range(3)]
    return DataSet("spirals", 2, *parts, note="generated")


if __name__ == "__main__":
    TASKS["spirals"] = Task("spirals", "__main__:Network", "spirals", (2,), 2, learning_rate=0.1)
    DATA_SETS.builtin["spirals"] = ("__main__:spirals", "Two spirals")
    quick = load_scenario("quick")
    scenario = quick.model_copy(update={"task": quick.task.model_copy(update={"name": "spirals"})})
    print(emulator.run(scenario, out=sys.argv[1] if sys.argv[1:] else "emulations").rounds["accuracy"])
