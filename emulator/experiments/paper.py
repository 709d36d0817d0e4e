"""The paper's own numbers: Table 1 of FedRank (ICML 2024). One number per cell, no seeds, no intervals."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

TABLE = "paper_table1.csv"


@dataclass(frozen=True, slots=True)
class PaperRow:
    """What the paper reports of one method on one task and split.

    Attributes:
        accuracy: As printed, in percent; ``99@35`` means that 99 % were reached in round 35.
        energy_percent: Energy per round in percent of FedAvg's.
        speed: Times as fast per round as FedAvg.
    """

    accuracy: str
    energy_percent: float
    speed: float

    @property
    def share(self) -> float:
        """The accuracy as a share, whichever of the two metrics it is."""
        return float(self.accuracy.partition("@")[0]) / 100

    @property
    def reached_in_round(self) -> float | None:
        """The round in which that accuracy was reached, where that is what the paper prints."""
        reached = self.accuracy.partition("@")[2]
        return float(reached) if reached else None

    @property
    def accuracy_text(self) -> str:
        """With its unit, and the mixed metric said in words."""
        value, _, reached = self.accuracy.partition("@")
        return f"{value} % in round {reached}" if reached else f"{value} %"


@cache
def paper_table() -> dict[tuple[str, str, str], PaperRow]:
    """(split, task, method) to numbers."""
    text = files("emulator.experiments").joinpath(TABLE).read_text(encoding="utf-8")
    return {
        (row["split"], row["task"], row["method"]): PaperRow(
            row["accuracy_pct"], float(row["energy_pct_of_fedavg"]), float(row["speed_x_fedavg"])
        )
        for row in csv.DictReader(text.splitlines())
    }
