"""What early exit saves, as a table and as numbers, with the paper's figure beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emulator.compare.render import interval_text
from emulator.experiments import paper_probing
from emulator.experiments.vanilla import AgainstVanilla
from emulator.round.outcome import Accounting
from emulator.selectors.base import shown_name

if TYPE_CHECKING:
    from joulefleet.interval import Interval

HEADER = (
    "method",
    "rounds counted",
    "vanilla s per round",
    "vanilla J per round",
    "time saved % of vanilla: honest",
    "selected only",
    "free",
    "energy saved % of vanilla: honest",
    "selected only",
    "free",
)
NOTE = (
    "Vanilla is another baseline than FedAvg: all candidates train all epochs, then the chosen upload; "
    "probing stops the others after the first epoch. With FedAvg only the chosen train, and nobody is probed"
)
PAPER = f"Against vanilla, {paper_probing.TEXT}"


def vanilla_rows(found: Mapping[str, AgainstVanilla]) -> list[list[str]]:
    """A row per probing method."""
    return [[shown_name(method), *_cells(one)] for method, one in found.items()]


def _cells(one: AgainstVanilla) -> list[str]:
    total = one.rounds + one.left_out
    return [
        f"{one.rounds} of {total}",
        interval_text(one.vanilla_s),
        interval_text(one.vanilla_j),
        *(interval_text(one.savings[accounting].time, 100) for accounting in Accounting),
        *(interval_text(one.savings[accounting].energy, 100) for accounting in Accounting),
    ]


def vanilla_numbers(one: AgainstVanilla) -> dict[str, Interval]:
    """The same by the name that each number has in CSV files."""
    numbers = {"vanilla_round_time_s": one.vanilla_s, "vanilla_round_energy_j": one.vanilla_j}
    for accounting in Accounting:
        numbers[f"time_saved_of_vanilla_{accounting.value}"] = one.savings[accounting].time
        numbers[f"energy_saved_of_vanilla_{accounting.value}"] = one.savings[accounting].energy
    return numbers
