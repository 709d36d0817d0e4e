"""`Penalties`: in how many rounds the reward's budgets were exceeded, and how often the reward hit its limit.

Where both are exceeded in every round the reward is little more than the sign of the accuracy's change: then
nothing can be learnt about costs, whoever learns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.round.reward import CLIP

if TYPE_CHECKING:
    from emulator.runs.result import Result

CLIPPED = frozenset({"signed"})
"""Rewards that are kept within `CLIP`."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Counts of rounds, of one run or of several.

    Attributes:
        rounds: In which somebody was chosen.
        over_time: Of them, those with R_T above T.
        over_energy: Those with R_E above E.
        at_clip: Those whose reward is as large, or as small, as it can be; ``None`` if it has no limits.
    """

    rounds: int
    over_time: int
    over_energy: int
    at_clip: int | None

    @classmethod
    def sum(cls, parts: Sequence[Penalties]) -> Penalties:
        """Of several runs together."""
        clips = [one.at_clip for one in parts if one.at_clip is not None]
        return cls(
            sum(one.rounds for one in parts),
            sum(one.over_time for one in parts),
            sum(one.over_energy for one in parts),
            sum(clips) if len(clips) == len(parts) else None,
        )

    def text(self) -> str:
        """For people."""
        clip = "" if self.at_clip is None else f", reward at its limit in {share(self.at_clip, self.rounds)}"
        return (
            f"R_T over T in {share(self.over_time, self.rounds)} of {self.rounds:,} rounds, "
            f"R_E over E in {share(self.over_energy, self.rounds)}{clip}"
        )


def share(part: int | None, whole: int) -> str:
    """``12 %``; ``-`` for what is not known."""
    return "-" if part is None or not whole else f"{100 * part / whole:.0f} %"


def penalties_of(results: Iterable[Result]) -> Penalties:
    """Of all rounds of these runs, under the accounting that was rewarded."""
    return Penalties.sum([_of_one(result) for result in results])


def _of_one(result: Result) -> Penalties:
    scenario, budgets, table = result.record.scenario, result.record.facts["budgets"], result.rounds
    played = table[(table["round"] > 0) & (table["chosen"] > 0)]
    over_time, over_energy = (
        int((played[f"{what}_{scenario.accounting.value}"] > budgets[what]).sum())
        for what in ("time_s", "energy_j")
    )
    at_clip = int((played["reward"].abs() >= CLIP).sum()) if scenario.reward.function in CLIPPED else None
    return Penalties(len(played), over_time, over_energy, at_clip)
