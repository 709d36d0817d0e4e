"""Files as a user would write them, and a process that was given none yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.data.sources import DATA_SETS
from emulator.own_code import files, find
from emulator.round.reward import REWARDS
from emulator.round.rules import AGGREGATIONS
from emulator.selectors.registry import SELECTORS

RENTS = """
import numpy as np
from torch import nn

learning_rate = 0.05


def data():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(240, 3))
    return x, 3 * x[:, 0] - 2 * x[:, 1]


def model():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
"""
TOKENS = """
import numpy as np
from torch import nn

metric = "perplexity"
learning_rate = 0.5


def data():
    turns = np.arange(240)[:, None] + np.arange(9)
    return turns[:, :-1] % 6, turns[:, 1:] % 6, np.arange(240) % 12


def model():
    return nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6))
"""


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test gives is gone after it."""
    monkeypatch.setattr(files, "_given", files.GivenCode())
    monkeypatch.setattr(find, "_installed", {})
    for registry in (SELECTORS, REWARDS, AGGREGATIONS, DATA_SETS, find.ALL_TASKS):
        monkeypatch.setattr(registry, "given", {})


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
