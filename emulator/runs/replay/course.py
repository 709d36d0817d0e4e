"""`Course`: a run's world round by round, over its days: who might train, load, drop-outs, batteries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.batteries import LEVELS
from emulator.round.outcome import Fate
from emulator.runs.replay.happened import DROPPED, began_s

if TYPE_CHECKING:
    from emulator.runs.result import Result

Array = NDArray[np.float64]
NIGHT_H = (22.0, 6.0)
"""Shown as night; of the users' clocks."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """One entry per round; NaN where nobody knows.

    Attributes:
        hours: When each round began, hours after the midnight before the run.
        eligible: Devices that might train.
        under_load: Percent of the participants that computed beside an app.
        dropped: Devices that were told to train and did not finish, by reason.
        batteries: Levels in percent, by their names in the table of rounds.
    """

    hours: Array
    eligible: Array
    under_load: Array
    dropped: Mapping[Fate, Array]
    batteries: Mapping[str, Array]

    @property
    def nights(self) -> list[tuple[float, float]]:
        """Stretches of ``hours`` that are night, as far as the run goes."""
        if not len(self.hours):
            return []
        begin, end = self.hours[0], self.hours[-1]
        days = range(int(begin // 24) - 1, int(end // 24) + 1)
        spans = ((24 * day + NIGHT_H[0], 24 * (day + 1) + NIGHT_H[1]) for day in days)
        cut = ((max(a, begin), min(b, end)) for a, b in spans)
        return [(float(a), float(b)) for a, b in cut if a < b]


def course_of(result: Result) -> Course:
    """How a finished run went; round 0 (profiling) is no round."""
    rounds, clients = (table[table["round"] > 0] for table in (result.rounds, result.clients))
    rounds = rounds.sort_values("round")
    groups = clients.groupby("round")
    loaded = clients.get("loaded_s")
    known = loaded is not None and not loaded.isna().any()
    share: dict[int, float] = (
        dict(100.0 * groups["loaded_s"].agg(lambda seconds: (seconds > 0).mean())) if known else {}
    )
    told = clients[clients["chosen"]].groupby(["round", "fate"]).size()
    numbers = rounds["round"].tolist()

    def column(name: str) -> Array:
        return rounds[name].to_numpy(float) if name in rounds else np.full(len(rounds), np.nan)

    return Course(
        hours=began_s(result.record.scenario, rounds) / 3600.0,
        eligible=column("eligible"),
        under_load=np.array([share.get(number, np.nan) for number in numbers]),
        dropped={
            fate: np.array([float(told.get((number, fate.value), 0)) for number in numbers])
            for fate in DROPPED
        },
        batteries={name: 100.0 * column(name) for name in LEVELS},
    )
