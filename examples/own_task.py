"""A task of your own: points on two spirals, told apart by a small network.

joulefleet emulate quick --code examples/own_task.py --selector fedavg,oort
"""

import numpy as np
from torch import nn

name = "spirals"
learning_rate = 0.1


def data():
    """Samples and their classes; joulefleet divides them into training, validation and test."""
    rng = np.random.default_rng(0)
    turn, arm = rng.uniform(0.5, 3, 3000), np.arange(3000) % 2
    x = np.stack([turn * np.cos(turn + np.pi * arm), turn * np.sin(turn + np.pi * arm)], 1)
    return x, arm


def model():
    """Any torch module."""
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
