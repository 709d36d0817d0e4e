"""What methods do to the fleet: who is chosen, how fairly, where the energy goes, who drops out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.round.outcome import Fate
from emulator.runs.reading import FinishedRun

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

ENERGY_PARTS = (
    "train", "probe of the chosen", "communicate", "rejected work", "dropped work", "profiling", "wait",
)  # fmt: skip
DROPPED = (Fate.LEFT, Fate.BATTERY, Fate.DEADLINE, Fate.SURPLUS, Fate.DIVERGED)


@dataclass(frozen=True, slots=True, eq=False)
class Behaviour:
    """One method, means over seeds.

    Attributes:
        gini: Of how often devices were chosen: 0 for all alike, towards 1 for always the same few.
        jain: Of the same: 1 for all alike, 1/N for always one.
        energy_gini: Of the energy that devices spent.
        energy_j: Whole run by part (`ENERGY_PARTS`), waiting included, which is outside R_E.
        dropped: Participations that ended early, by reason, per run.
        participations: Per run, for comparison.
    """

    gini: float
    jain: float
    energy_gini: float
    energy_j: Mapping[str, float]
    dropped: Mapping[Fate, float]
    participations: float


def behaviour(by_seed: Mapping[int, FinishedRun]) -> Behaviour:
    """Read it off the tables of participants."""
    each = [_one(run) for run in by_seed.values()]
    return Behaviour(
        gini=float(np.mean([one.gini for one in each])),
        jain=float(np.mean([one.jain for one in each])),
        energy_gini=float(np.mean([one.energy_gini for one in each])),
        energy_j={part: float(np.mean([one.energy_j[part] for one in each])) for part in ENERGY_PARTS},
        dropped={fate: float(np.mean([one.dropped[fate] for one in each])) for fate in DROPPED},
        participations=float(np.mean([one.participations for one in each])),
    )


def chosen_share(run: FinishedRun) -> Values:
    """Share of the rounds in which each device was chosen."""
    return _times_chosen(run.clients, run.record.scenario.fleet.devices) / max(1, run.record.rounds or 0)


def _times_chosen(clients: pd.DataFrame, devices: int) -> Values:
    ids = clients["device"].to_numpy()[clients["chosen"].to_numpy(bool)]
    return np.bincount(ids, minlength=devices).astype(np.float64)


def _one(run: FinishedRun) -> Behaviour:
    clients = run.clients
    devices = run.record.scenario.fleet.devices
    ids = clients["device"].to_numpy()
    counts = _times_chosen(clients, devices)
    parts_j = {
        name: clients[f"{name}_j"].to_numpy(float)
        for name in ("download", "probe", "train", "upload", "wait")
    }
    work_j = np.sum(list(parts_j.values()), axis=0)
    fate = clients["fate"].to_numpy(str)
    rejected, profiled = fate == Fate.REJECTED.value, fate == Fate.PROFILED.value
    dropped = np.isin(fate, [one.value for one in DROPPED])
    useful = ~rejected & ~dropped & ~profiled
    communicate_j = parts_j["download"] + parts_j["upload"]
    return Behaviour(
        gini=gini(counts),
        jain=jain(counts),
        energy_gini=gini(np.bincount(ids, weights=work_j, minlength=devices).astype(np.float64)),
        energy_j={
            "train": float(parts_j["train"][useful].sum()),
            "probe of the chosen": float(parts_j["probe"][useful].sum()),
            "communicate": float(communicate_j[useful].sum()),
            "rejected work": float((work_j - parts_j["wait"])[rejected].sum()),
            "dropped work": float((work_j - parts_j["wait"])[dropped].sum()),
            "profiling": float((work_j - parts_j["wait"])[profiled].sum()),
            "wait": float(parts_j["wait"].sum()),
        },
        dropped={one: float((fate == one.value).sum()) for one in DROPPED},
        participations=float(len(clients)),
    )


def gini(values: Values) -> float:
    """Half of the mean absolute difference over the mean; 0 where everybody has nothing."""
    total = float(values.sum())
    if total <= 0:
        return 0.0
    n = len(values)
    ranks = np.arange(1, n + 1)
    return float((2 * ranks - n - 1) @ np.sort(values) / (n * total))


def jain(values: Values) -> float:
    """(sum x)^2 / (n sum x^2) (Jain et al. 1984); 1 where everybody has nothing."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0
