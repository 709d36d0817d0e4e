"""What early exit saves: the rounds of a probing method beside the same rounds without it.

Without early exit (the paper's *vanilla*) all M candidates train all epochs before the server keeps K. That
is another baseline than FedAvg, with which only K devices train at all. The rounds that were emulated are
probing rounds; what each would have cost otherwise follows from its log: a device that was told to stop would
have trained on, each later epoch taking its own first one times the ratio that those who did go on show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.experiments.paper import PAPER_SAVING
from emulator.round.accounting import vanilla_cost
from emulator.round.outcome import COSTS, Accounting, ClientCost, Fate
from emulator.round.selector import Probe
from emulator.runs.reading import FinishedRun
from emulator.selectors.registry import SELECTORS, shown_name
from joulefleet.interval import Interval, Scale, student_interval
from joulefleet.provenance import Origin, weakest

if TYPE_CHECKING:
    import pandas as pd

HEADER = (
    "method", "rounds counted", "vanilla s per round", "vanilla J per round",
    "time saved % of vanilla: honest", "selected only", "free",
    "energy saved % of vanilla: honest", "selected only", "free",
)  # fmt: skip
NOTE = (
    "Vanilla is another baseline than FedAvg: all candidates train all epochs, then the chosen upload; "
    "probing stops the others after the first epoch. With FedAvg only the chosen train, and nobody is probed"
)
PAPER = f"Against vanilla, {PAPER_SAVING.text}"


@dataclass(frozen=True, slots=True)
class Saved:
    """What is saved of a vanilla round's time and energy under one accounting, as shares."""

    time: Interval
    energy: Interval


@dataclass(frozen=True, slots=True)
class AgainstVanilla:
    """Rounds of a probing method against vanilla; means over seeds, with 95 % intervals for several.

    Attributes:
        vanilla_s: Mean time of such a round without early exit.
        vanilla_j: Mean energy of it.
        savings: By accounting of the probing rounds; vanilla is always counted in full.
        rounds: Counted.
        left_out: Rounds in which a device dropped out, so that nobody can say what it would have cost.
        origin: Of the costs.
    """

    vanilla_s: Interval
    vanilla_j: Interval
    savings: Mapping[Accounting, Saved]
    rounds: int
    left_out: int
    origin: Origin


def probes_an_epoch(method: str) -> bool:
    """Whether its candidates train an epoch before the choice; options may follow its name."""
    name = method.partition(" ")[0]
    return name in SELECTORS.entries() and SELECTORS.load(name).probe is Probe.EPOCH


def against_vanilla(runs: Sequence[FinishedRun]) -> AgainstVanilla | None:
    """From the logs of a probing method, one run per seed; ``None`` if no round can be counted."""
    each = [_count(run) for run in runs]
    counted = [one for one in each if one.rounds]
    if not counted:
        return None
    totals = np.array([one.totals for one in counted])
    vanilla = totals[:, 0] / np.array([[one.rounds] for one in counted])
    shares = 1 - totals[:, 1:] / totals[:, :1]
    return AgainstVanilla(
        vanilla_s=student_interval(vanilla[:, 0], Scale.LOG),
        vanilla_j=student_interval(vanilla[:, 1], Scale.LOG),
        savings={
            accounting: Saved(*(student_interval(shares[:, place, unit], Scale.SAVED) for unit in (0, 1)))
            for place, accounting in enumerate(Accounting)
        },
        rounds=sum(one.rounds for one in each),
        left_out=sum(one.left_out for one in each),
        origin=weakest(Origin(run.record.facts["cost_origin"]) for run in runs),
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """One run: seconds and joules summed over its rounds, vanilla first, then by accounting."""

    totals: list[list[float]]
    rounds: int
    left_out: int


def _count(run: FinishedRun) -> _Counted:
    clients = run.clients[run.clients["round"] > 0]
    ratios = _later_epochs(clients, run.record.scenario.protocol.local_epochs)
    logged = {row["round"]: row for row in run.rounds.to_dict("records")}
    totals = [[0.0, 0.0] for _ in range(1 + len(Accounting))]
    rounds = left_out = 0
    for number, rows in clients.groupby("round"):
        if not set(rows["fate"]) <= {Fate.FINISHED.value, Fate.REJECTED.value}:
            left_out += 1
            continue
        rounds += 1
        vanilla = vanilla_cost(_all_epochs(rows, ratios), rows["chosen"].to_numpy(bool))
        _add(totals[0], vanilla.time_s, vanilla.energy_j)
        for place, accounting in enumerate(Accounting, start=1):
            row = logged[number]
            _add(totals[place], row[f"time_s_{accounting.value}"], row[f"energy_j_{accounting.value}"])
    return _Counted(totals, rounds, left_out)


def _add(total: list[float], seconds: float, joules: float) -> None:
    total[0] += float(seconds)
    total[1] += float(joules)


def _later_epochs(clients: pd.DataFrame, local_epochs: int) -> dict[str, float]:
    """All epochs after the first relative to the first, of the devices that went on, by unit."""
    if local_epochs == 1:
        return {"s": 0.0, "j": 0.0}
    done = clients[clients["chosen"] & (clients["fate"] == Fate.FINISHED.value)]
    firsts = {unit: float(done[f"probe_{unit}"].sum()) for unit in ("s", "j")}
    return {u: float(done[f"train_{u}"].sum()) / first if first > 0 else 0.0 for u, first in firsts.items()}


def _all_epochs(rows: pd.DataFrame, ratios: Mapping[str, float]) -> ClientCost:
    """A round's participants; those who trained on with what they took, the others as if they had."""
    chosen = rows["chosen"].to_numpy(bool)
    cost: dict[str, Any] = {name: rows[name].to_numpy(float) for name in COSTS}
    for unit, ratio in ratios.items():
        cost[f"train_{unit}"] = np.where(chosen, cost[f"train_{unit}"], ratio * cost[f"probe_{unit}"])
    return ClientCost(**cost)


def vanilla_rows(found: Mapping[str, AgainstVanilla]) -> list[list[str]]:
    """A row per probing method."""
    return [[shown_name(method), *_cells(one)] for method, one in found.items()]


def _cells(one: AgainstVanilla) -> list[str]:
    total = one.rounds + one.left_out
    return [
        f"{one.rounds} of {total}",
        one.vanilla_s.text(),
        one.vanilla_j.text(),
        *(one.savings[accounting].time.text(100) for accounting in Accounting),
        *(one.savings[accounting].energy.text(100) for accounting in Accounting),
    ]


def vanilla_numbers(one: AgainstVanilla) -> dict[str, Interval]:
    """The same by the name that each number has in CSV files."""
    numbers = {"vanilla_round_time_s": one.vanilla_s, "vanilla_round_energy_j": one.vanilla_j}
    for accounting in Accounting:
        numbers[f"time_saved_of_vanilla_{accounting.value}"] = one.savings[accounting].time
        numbers[f"energy_saved_of_vanilla_{accounting.value}"] = one.savings[accounting].energy
    return numbers
