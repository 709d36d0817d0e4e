"""`foresee`: what the traces hold for the rounds that a scenario plans, before anything is trained.

The rounds are taken to last as long as one of random devices without load. Who is chosen is not known, so
shares are of all who would be eligible; batteries are as recorded, without what training takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emulator.fleet.motion import Motion
from emulator.round.engine import Engine
from emulator.runs.replay.floors import floors_of
from emulator.runs.replay.happened import NOTHING, span

LOOKS = 50
"""Check-ins that are looked at, spread evenly over the planned ones."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is to be expected of the planned rounds.

    Attributes:
        span_s: Calendar time from the first to the end of the last.
        round_s: How long a round of random devices without load takes.
        every_s: The pace that was asked for.
        looks: Check-ins that were looked at.
        eligible: Fewest and most devices at one of them.
        load_share: Share of those eligible who use an app just then; ``None`` if nobody ever is.
        leave_share: Share of those eligible who would be gone before the round is over; likewise.
        devices_changed: Devices that are eligible at one of them and not at another.
        devices_low: Devices whose recorded battery keeps them away at one of them.
    """

    span_s: float
    round_s: float
    every_s: float
    looks: int
    eligible: tuple[int, int]
    load_share: float | None
    leave_share: float | None
    devices_changed: int
    devices_low: int

    def sentences(self, *, traces: bool) -> list[str]:
        """For people."""
        pace = f"one every {span(self.every_s)}" if self.every_s else "back to back"
        said = [
            f"{pace}, a round of random idle devices takes {span(self.round_s)}: {span(self.span_s)} in all"
        ]
        if self.every_s and self.every_s < self.round_s:
            said.append("rounds take longer than the pace: each begins when the last one has ended")
        if not traces:
            return said
        low, most = self.eligible
        said.append(
            f"at {self.looks} check-ins {low:,} to {most:,} devices are eligible, of whom "
            f"{_share(self.load_share)} would meet an app and {_share(self.leave_share)} leave; "
            f"{self.devices_changed:,} come and go, {self.devices_low:,} run low"
        )
        if not (self.load_share or self.leave_share or self.devices_changed or self.devices_low):
            said[-1] = NOTHING.replace(
                "changed nothing in this run", "would change nothing at these check-ins"
            )
        return said


def foresee(engine: Engine) -> Foreseen:
    """Look at the planned check-ins; the engine is not to be played afterwards."""
    rules, conditions, batteries = engine.rules, engine.world.conditions, engine.world.batteries
    floors = floors_of(engine.world, rules)
    round_s = min(floors.random_s, rules.deadline_s or np.inf)
    step_s = max(round_s, rules.every_s)
    motion = Motion(len(engine.world.fleet))
    counts, loaded, leaving = [], 0, 0
    looks = np.unique(np.linspace(0, rules.rounds - 1, min(LOOKS, rules.rounds)).round().astype(np.int64))
    for number in looks:
        now_ns = round(float(number) * step_s * 1e9)
        eligible = conditions.eligible(now_ns)
        off = batteries.switched_off(now_ns, eligible)
        eligible[off] = False
        motion.check_in(eligible, off)
        ids = np.flatnonzero(eligible)
        counts.append(len(ids))
        loaded += int(np.count_nonzero(conditions.load(now_ns, ids) > 0))
        leaving += int(np.count_nonzero(conditions.leaves_at(now_ns, ids) < now_ns + round_s * 1e9))
    seen = sum(counts)
    moved = motion.counts()
    return Foreseen(
        span_s=float(rules.rounds - 1) * step_s + round_s,
        round_s=round_s,
        every_s=rules.every_s,
        looks=len(looks),
        eligible=(min(counts), max(counts)),
        load_share=loaded / seen if seen else None,
        leave_share=leaving / seen if seen else None,
        devices_changed=moved["devices_changed"],
        devices_low=moved["devices_low"],
    )


def _share(value: float | None) -> str:
    return "nobody" if value is None else f"{value:.1%}"
