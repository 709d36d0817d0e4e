"""`Replay`: what the traces did to a run, read off its tables: its span, load, who came, went and ran low."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.fleet.motion import MOTION
from emulator.round.outcome import Fate
from emulator.scenario.model import Scenario

if TYPE_CHECKING:
    import pandas as pd

    from emulator.runs.result import Result

NOTHING = (
    "the traces changed nothing in this run: nobody came, went, left or ran low, and no app was met; "
    "more rounds, or a longer protocol.every_s, would span more of the day"
)


@dataclass(frozen=True, slots=True)
class Replay:
    """What happened in the world of one run; ``None`` where an earlier version did not note it.

    Attributes:
        traces: Whether there were any.
        span_s: Calendar time from the beginning to the end of the last round.
        eligible: Fewest and most devices at a check-in.
        participations: Of devices in rounds, those that were only probed included.
        under_load: Those of them that computed beside somebody's app.
        devices_changed: Devices that were eligible at one check-in and not at another.
        devices_left: Devices that were taken away from their work.
        devices_low: Devices whose battery ended or kept them away.
        every_s: The pace that was asked for.
        slower: Rounds that took longer than that, so that the next one followed at once.
        rounds: How many were played.
    """

    traces: bool
    span_s: float
    eligible: tuple[int, int]
    participations: int
    under_load: int | None
    devices_changed: int | None
    devices_left: int | None
    devices_low: int | None
    every_s: float
    slower: int
    rounds: int

    @property
    def load_share(self) -> float | None:
        """Share of the participations that met a load."""
        if self.under_load is None or not self.participations:
            return None
        return self.under_load / self.participations

    @property
    def nothing_moved(self) -> bool:
        """Whether there were traces, and the run would have been the same without them."""
        seen = (self.under_load, self.devices_changed, self.devices_left, self.devices_low)
        return self.traces and all(count == 0 for count in seen)

    def sentences(self) -> list[str]:
        """For people: the span and what moved, and what is worth a warning."""
        if not self.traces:
            return [f"spans {span(self.span_s)}; without traces every device is always there and idle"]
        load = "unknown" if self.load_share is None else f"{self.load_share:.1%}"
        low, most = self.eligible
        seen = (
            f"{low:,} to {most:,} devices eligible; {load} of {self.participations:,} participations under "
            f"load; devices that came and went {_count(self.devices_changed)}, left "
            f"{_count(self.devices_left)}, ran low {_count(self.devices_low)}"
        )
        said = [f"spans {span(self.span_s)}; {NOTHING if self.nothing_moved else seen}"]
        if self.every_s and self.slower:
            said.append(
                f"{self.slower} of {self.rounds} rounds took longer than the pace of {span(self.every_s)}: "
                "the next one followed at once"
            )
        return said


def replay_of(result: Result) -> Replay:
    """What the traces did to a finished run."""
    return replay_in(result.record.scenario, result.rounds, result.clients)


def replay_in(scenario: Scenario, rounds: pd.DataFrame, clients: pd.DataFrame) -> Replay:
    """The same from its tables; round 0 (profiling) is no round."""
    played = rounds[rounds["round"] > 0].sort_values("round")
    clients = clients[clients["round"] > 0]
    loaded = clients.get("loaded_s")
    noted = loaded is not None and not loaded.isna().any()
    every_s = scenario.protocol.every_s
    counts = {name: _last(played, name) for name in MOTION}
    eligible = played["eligible"].to_numpy()
    return Replay(
        traces=scenario.fleet.traces is not None,
        span_s=float(calendar_s(rounds).max(initial=0.0)),
        eligible=(int(min(eligible, default=0)), int(max(eligible, default=0))),
        participations=len(clients),
        under_load=int((loaded > 0).sum()) if noted and loaded is not None else None,
        **counts,
        every_s=every_s,
        slower=int((played["time_s_honest"].to_numpy() > every_s).sum()) if every_s else 0,
        rounds=len(played),
    )


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of the day, over all days of a run.

    Attributes:
        check_ins: Rounds that began in it.
        eligible: Mean number of devices at them; NaN without any.
        participations: Of devices in these rounds.
        under_load: Those of them that computed beside an app; ``None`` if it was not noted.
    """

    check_ins: int
    eligible: float
    participations: int
    under_load: int | None


@dataclass(frozen=True, slots=True)
class Week:
    """How a run's world went through the day, and what that did to the participants.

    Attributes:
        hours: Of the users' day, 24 of them.
        swing: Largest over smallest mean number of eligible devices of an hour; NaN if an hour had nobody.
        dropped: Devices that were told to train and did not finish, by reason.
        asked: Devices that were told to train, without those that over-commitment sent home.
        time_rho: Spearman's correlation of a device's computing time in its first and its last finished
            participation, over the devices that have two; NaN for fewer than three of these.
        energy_rho: The same of its energy.
        pairs: How many devices that is about.
    """

    hours: tuple[Hour, ...]
    swing: float
    dropped: Mapping[Fate, int]
    asked: int
    time_rho: float
    energy_rho: float
    pairs: int

    @property
    def dropped_share(self) -> float:
        """Of those asked; NaN if nobody was."""
        return sum(self.dropped.values()) / self.asked if self.asked else float("nan")


DROPPED = (Fate.LEFT, Fate.BATTERY, Fate.DEADLINE, Fate.DIVERGED)


def week_of(result: Result) -> Week:
    """The day and the drop-outs of a finished run; round 0 (profiling) is no round."""
    rounds, clients = (table[table["round"] > 0] for table in (result.rounds, result.clients))
    began = began_s(result.record.scenario, rounds) // 1
    hour = dict(zip(rounds["round"], began // 3600 % 24, strict=True))
    hours = tuple(
        _hour(rounds[rounds["round"].map(hour) == h], clients[clients["round"].map(hour) == h])
        for h in range(24)
    )
    means = np.array([one.eligible for one in hours if one.check_ins])
    chosen = clients[clients["chosen"]]
    counts = chosen["fate"].value_counts()
    dropped = {fate: int(counts.get(fate.value, 0)) for fate in DROPPED}
    time_rho, energy_rho, pairs = _first_and_last(chosen)
    return Week(
        hours=hours,
        swing=float(means.max() / means.min()) if len(means) and means.min() > 0 else float("nan"),
        dropped=dropped,
        asked=int(counts.get(Fate.FINISHED.value, 0)) + sum(dropped.values()),
        time_rho=time_rho,
        energy_rho=energy_rho,
        pairs=pairs,
    )


def began_s(scenario: Scenario, rounds: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When each round began, whatever it waited for before: seconds after the midnight before the run."""
    traces = scenario.fleet.traces
    start_s = 0 if traces is None else _seconds_of_day(traces.start)
    return np.asarray((rounds["start_ns"] + rounds["idle_ns"]).to_numpy(np.float64) * 1e-9 + start_s)


def _hour(rounds: pd.DataFrame, clients: pd.DataFrame) -> Hour:
    loaded = clients.get("loaded_s")
    noted = loaded is not None and not loaded.isna().any()
    return Hour(
        check_ins=len(rounds),
        eligible=float(rounds["eligible"].mean()) if len(rounds) else float("nan"),
        participations=len(clients),
        under_load=int((loaded > 0).sum()) if noted and loaded is not None else None,
    )


def _first_and_last(chosen: pd.DataFrame) -> tuple[float, float, int]:
    """Correlations of time and of energy of computing, and over how many devices."""
    from scipy.stats import spearmanr

    done = chosen[chosen["fate"] == Fate.FINISHED.value].sort_values("round")
    done = done.assign(time=done["probe_s"] + done["train_s"], energy=done["probe_j"] + done["train_j"])
    groups = done.groupby("device")
    often = groups.size() > 1
    first, last = groups.first()[often], groups.last()[often]
    if len(first) < 3:
        return float("nan"), float("nan"), len(first)
    rho = [float(spearmanr(first[name], last[name]).statistic) for name in ("time", "energy")]
    return rho[0], rho[1], len(first)


def _seconds_of_day(start: str) -> int:
    hour, minute = map(int, start.split(":"))
    return hour * 3600 + minute * 60


def calendar_s(rounds: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Virtual time since the beginning at which each round was over, whatever it waited for before."""
    return np.asarray((rounds["start_ns"] + rounds["duration_ns"]).to_numpy(np.float64) * 1e-9)


def span(seconds: float) -> str:
    """A stretch of time as people say it."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= (2 if unit == "days" else 1) * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _last(rounds: pd.DataFrame, name: str) -> int | None:
    if name not in rounds or not len(rounds) or rounds[name].isna().iloc[-1]:
        return None
    return int(rounds[name].iloc[-1])


def _count(devices: int | None) -> str:
    return "unknown" if devices is None else f"{devices:,}"
