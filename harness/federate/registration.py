"""What the server knows of each device before the first round: what an epoch and a transfer take it.

In the emulator a device's class and a speed test of its network tell. On a bench it is either taken from
profiles, or all devices play one whole round before the first, whose models are thrown away. Like the
emulator's registration this is charged to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from emulator import Probe
from emulator.round import ClientCost, budgets_of, honest_time_s, round_costs
from harness.rounds.measured import MeasuredPart
from power import DeviceProfile
from power.profile import EnergyKind, profile_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator import Scenario, Selector
    from emulator.round import Reported, RoundRules

RANDOM_ROUNDS = 200
"""For budgets by the rule ``feasible``."""


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """Seconds and joules, one entry per device; NaN for those that could not be asked."""

    epoch_s: NDArray[np.float64]
    epoch_j: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    comm_j: NDArray[np.float64]

    @classmethod
    def from_profiles(
        cls, profiles: Sequence[DeviceProfile], samples: NDArray[np.int64], energy: EnergyKind
    ) -> Self:
        """From one profile per device, an epoch in proportion to its samples as in the emulator."""
        costs = profile_costs(profiles, energy, missing="costs_nothing")
        work = samples / costs.samples
        comm_s, comm_j = costs.download_s + costs.upload_s, costs.download_j + costs.upload_j
        return cls(work * costs.epoch_s, work * costs.epoch_j, comm_s, comm_j)

    @classmethod
    def measured(cls, parts: Sequence[MeasuredPart | None], local_epochs: int) -> Self:
        """From one round of each device; the part of one that failed is None.

        One of which an energy is not known is asked again, like one that failed.
        """

        def column(unit: str, *names: str) -> NDArray[np.float64]:
            return np.array(
                [
                    sum(getattr(part.readings[name], unit) for name in names)
                    if part is not None and part.complete
                    else np.nan
                    for part in parts
                ]
            )

        return cls(
            column("duration_s", "probe", "train") / local_epochs,
            column("energy_j", "probe", "train") / local_epochs,
            column("duration_s", "download", "upload"),
            column("energy_j", "download", "upload"),
        )

    def known(self) -> NDArray[np.bool_]:
        """Of whom something is known."""
        return ~np.isnan(self.epoch_s)

    def filled_by(self, other: Registered) -> Registered:
        """The same, with what only the other knows."""
        mine = self.known()
        return Registered(
            **{f.name: np.where(mine, getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        )

    def tell(self, reported: Reported) -> None:
        """Let the server know; what it has heard since is newer."""
        everybody = np.arange(len(self.epoch_s))
        told = {"capability_s": self.epoch_s, "comm_s": self.comm_s, "comm_j": self.comm_j}
        for name in told.keys() & reported.fields.keys():
            unheard = np.where(np.isnan(reported.fields[name]), told[name], np.nan)
            reported.put(everybody, {name: unheard})

    def budgets(self, k: int, local_epochs: int, rng: np.random.Generator) -> tuple[float, float]:
        """T and E by the 30 % rule, of those who are known."""
        known = self.known()
        duration_s = self.comm_s + local_epochs * self.epoch_s
        energy_j = self.comm_j + local_epochs * self.epoch_j
        return budgets_of(duration_s[known], energy_j[known], k, rng)

    def feasible_budgets(
        self, scenario: Scenario, rules: RoundRules, selector: Selector, rng: np.random.Generator
    ) -> tuple[float, float]:
        """T and E as a quantile of random rounds of those who are known; see `emulator.round.budgets`.

        Registration does not tell the directions of a transfer apart: each counts half.
        """
        known, probed = np.flatnonzero(self.known()), selector.probe is not Probe.NONE
        asked = min(selector.probe_count(rules.candidates, rules.k) if probed else rules.k, len(known))
        later, found = rules.local_epochs - probed, []
        for _ in range(RANDOM_ROUNDS):
            ids = rng.choice(known, asked, replace=False)
            chosen = np.arange(asked) < rules.k  # they come in random order
            nothing = np.zeros(asked)
            cost = ClientCost(
                download_s=self.comm_s[ids] / 2,
                probe_s=self.epoch_s[ids] * probed,
                wait_s=nothing,
                train_s=self.epoch_s[ids] * later,
                upload_s=self.comm_s[ids] / 2,
                download_j=self.comm_j[ids] / 2,
                probe_j=self.epoch_j[ids] * probed,
                wait_j=nothing,
                train_j=self.epoch_j[ids] * later * chosen,
                upload_j=self.comm_j[ids] / 2 * chosen,
            )
            time_s = honest_time_s(cost, chosen, probed=probed)
            found.append(round_costs(cost, chosen, time_s, probed=probed)[scenario.accounting])
        quantile = scenario.reward.budget_quantile
        return (
            float(np.quantile([one.time_s for one in found], quantile)),
            float(np.quantile([one.energy_j for one in found], quantile)),
        )

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
