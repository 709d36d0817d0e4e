from emulator.training.base import LocalResults, OpenTrainer, Score, weighted_sum
from emulator.training.choose import open_trainer
from emulator.training.client_data import ClientData
from emulator.training.layout import Layout
from emulator.training.surrogate import SURROGATE, SurrogateTrainer
from emulator.training.table import TableTrainer

__all__ = [
    "SURROGATE", "ClientData", "Layout", "LocalResults", "OpenTrainer", "Score", "SurrogateTrainer",
    "TableTrainer", "open_trainer", "weighted_sum",
]  # fmt: skip
