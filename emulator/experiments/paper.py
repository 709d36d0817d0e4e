"""The numbers that the FedRank paper (ICML 2024) prints: its Table 1, and what probing saves.

One number per cell, no seeds, no intervals.
"""

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


@dataclass(frozen=True, slots=True)
class PaperSaving:
    """What probing saves of a round without early exit, as the paper prints it ("Impact of probing").

    LeNet-5 on MNIST, five local epochs. The paper states neither M nor which costs are counted.

    Attributes:
        vanilla_s: Time of a round without early exit.
        vanilla_j: Its energy.
        time_saved: As a share.
        energy_saved: As a share.
    """

    vanilla_s: float = 37.4
    vanilla_j: float = 8.2
    time_saved: float = 0.106
    energy_saved: float = 0.252

    @property
    def text(self) -> str:
        """The figure in a sentence."""
        return (
            f"the paper: {self.vanilla_s} s and {self.vanilla_j} J per round, of which {self.time_saved:.1%} "
            f"and {self.energy_saved:.1%} are saved; it states neither M nor which costs are counted"
        )

    @property
    def remark(self) -> str:
        """Why nothing can be held against it closely."""
        return (
            f"{self.vanilla_j} J in {self.vanilla_s} s are {self.vanilla_j / self.vanilla_s:.2f} W on "
            "average, less than a phone draws awake and idle; nothing here is fitted to it"
        )


PAPER_SAVING = PaperSaving()
