"""Act 3: what early exit saves, by the paper's formula from profiles, and in the rounds of an emulation.

The rounds that were emulated are all probing rounds. What each would have cost without early exit follows
from the same log: a device that was told to stop would have trained on, each later epoch taking its own first
one times the ratio that those who did go on show. The rest is counted as in `harness.probing.formula`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.compare.statistics import Interval, mean_interval
from emulator.experiments.results import FinishedRun
from emulator.outcome import Accounting, Fate
from fedjoule.errors import DataQualityError
from fedjoule.provenance import Origin, weakest
from harness.probing.formula import CandidateCosts, both_ways
from harness.probing.predict import Prediction, Question, predict
from power.profile import DeviceProfile

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Share:
    """What is saved of a vanilla round's time and energy under one accounting, as shares."""

    time: Interval
    energy: Interval


@dataclass(frozen=True, slots=True)
class ReplayedSavings:
    """What the rounds of an emulation save.

    Attributes:
        vanilla_s: Mean time of such a round without early exit.
        vanilla_j: Mean energy of it.
        savings: Means over seeds, with 95 % intervals where there are several.
        rounds: Counted.
        left_out: Rounds in which a device dropped out, so that nobody can say what it would have cost.
        origin: Of the costs.
    """

    vanilla_s: Interval
    vanilla_j: Interval
    savings: Mapping[Accounting, Share]
    rounds: int
    left_out: int
    origin: Origin


def predicted_savings(
    profiles: Sequence[DeviceProfile], candidates: int, chosen: int, seed: int
) -> Prediction:
    """By the formula; each profile stands for as many devices as are drawn from it."""
    question = Question(candidates=(candidates,), chosen=(chosen,), distinct=False, seed=seed)
    return predict(profiles, question)


def replayed_savings(runs: Sequence[FinishedRun]) -> ReplayedSavings:
    """From the logs of a probing method, one run per seed.

    Raises:
        DataQualityError: There is no round to count.
    """
    each = [_of_run(run) for run in runs]
    counted = [one for one in each if one.rounds]
    if not counted:
        raise DataQualityError(
            "no emulated round in which every device finished or was told to stop",
            hint="a scenario without leaving devices has such rounds",
        )
    totals = np.array([one.totals for one in counted])
    vanilla = totals[:, 0] / np.array([[one.rounds] for one in counted])
    shares = 1 - totals[:, 1:] / totals[:, :1]
    return ReplayedSavings(
        vanilla_s=mean_interval(vanilla[:, 0]),
        vanilla_j=mean_interval(vanilla[:, 1]),
        savings={
            accounting: Share(mean_interval(shares[:, place, 0]), mean_interval(shares[:, place, 1]))
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


def _of_run(run: FinishedRun) -> _Counted:
    epochs = run.record.scenario.protocol.local_epochs
    clients = run.clients
    later = _LaterEpochs.of(clients, epochs)
    totals = [[0.0, 0.0] for _ in range(1 + len(Accounting))]
    rounds = left_out = 0
    for number, rows in clients.groupby("round"):
        if not set(rows["fate"]) <= {Fate.FINISHED.value, Fate.REJECTED.value}:
            left_out += 1
            continue
        rounds += 1
        chosen = rows["chosen"].to_numpy(bool)
        both = both_ways(later.costs(rows), chosen, epochs)
        _add(totals[0], both.vanilla.time_s, both.vanilla.energy_j)
        logged = run.rounds[run.rounds["round"] == number].iloc[0]
        for place, accounting in enumerate(Accounting, start=1):
            _add(totals[place], logged[f"time_s_{accounting}"], logged[f"energy_j_{accounting}"])
    return _Counted(totals, rounds, left_out)


def _add(total: list[float], seconds: float, joules: float) -> None:
    total[0] += float(seconds)
    total[1] += float(joules)


@dataclass(frozen=True, slots=True)
class _LaterEpochs:
    """A later epoch relative to the first, in time and in energy, of the devices that went on."""

    time: float
    energy: float
    epochs: int

    @classmethod
    def of(cls, clients: pd.DataFrame, epochs: int) -> _LaterEpochs:
        done = clients[clients["chosen"] & (clients["fate"] == Fate.FINISHED.value)]
        firsts = {unit: float(done[f"probe_{unit}"].sum()) for unit in ("s", "j")}
        laters = {unit: float(done[f"train_{unit}"].sum()) / max(1, epochs - 1) for unit in ("s", "j")}
        time, energy = (laters[unit] / firsts[unit] if firsts[unit] > 0 else 0.0 for unit in ("s", "j"))
        return cls(time, energy, epochs)

    def costs(self, rows: pd.DataFrame) -> CandidateCosts:
        """A round's participants; those who trained on with what they took, the others as if they had."""
        chosen = rows["chosen"].to_numpy(bool)
        column = {name: rows[name].to_numpy(float) for name in rows.columns if name.endswith(("_s", "_j"))}
        after = max(1, self.epochs - 1)
        return CandidateCosts(
            download_s=column["download_s"],
            probe_s=column["probe_s"],
            epoch_s=np.where(chosen, column["train_s"] / after, column["probe_s"] * self.time),
            upload_s=column["upload_s"],
            download_j=column["download_j"],
            probe_j=column["probe_j"],
            epoch_j=np.where(chosen, column["train_j"] / after, column["probe_j"] * self.energy),
            upload_j=column["upload_j"],
            wait_w=np.zeros(len(rows)),
        )
