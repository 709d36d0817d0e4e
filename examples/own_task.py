"""Your own model and data set in a few lines: points on two spirals, told apart by a small network."""

import sys

import numpy as np
from torch import nn

import emulator
from device_agents.workloads import TASKS, Task
from emulator import DATA_SETS, SELECTORS, DataSet, Split, load_scenario
from power import reference_fleet


class Network(nn.Sequential):
    """Any torch module whose first argument is the number of classes."""

    def __init__(self, classes):
        super().__init__(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, classes))


def spirals(source):
    """Any function that makes a `DataSet`: what devices share, what rewards see, what reports see."""
    turn, arm = source.rng("spirals").uniform(0.5, 3, 3000), np.arange(3000) % 2
    x = np.stack([turn * np.cos(turn + np.pi * arm), turn * np.sin(turn + np.pi * arm)], 1)
    return DataSet("spirals", 2, *(Split(x[i::3].astype("f4"), arm[i::3]) for i in range(3)), note="made up")


if __name__ == "__main__":
    TASKS["spirals"] = Task("spirals", f"{__name__}:Network", "spirals", (2,), 2, learning_rate=0.1)
    DATA_SETS.builtin["spirals"] = (f"{__name__}:spirals", "Two spirals")
    quick, out = load_scenario("quick"), sys.argv[1] if sys.argv[1:] else "spirals"
    task = quick.task.model_copy(update={"name": "spirals"})
    scenario = quick.model_copy(update={"name": "spirals", "task": task})
    costs = reference_fleet("digits-mlp")  # of a network of about this size; a profile of yours is better
    for method in ("fedavg", "oort"):
        result = emulator.run(scenario, selector=SELECTORS.load(method)(), profiles=costs, out=out)
        print(f"{method}: accuracy {result.record.test_accuracy:.3f}")  # next: `joulefleet compare spirals`
