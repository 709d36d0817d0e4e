"""`Replay`: what the traces did to a run, read off its tables: its span, load, who came, went and ran low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.fleet.motion import MOTION
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
