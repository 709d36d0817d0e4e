"""Surrogate for Harmony: cohorts that balance labels among devices that fit the budgets.

Harmony (Tian et al., MICRO 2022) has no public code and only its abstract was available: a coordinator
selects participants from estimates of their run-time capability and data distribution. This is a surrogate
built from that description, not Harmony; every table must say so. The cohort grows greedily: add the device i
that minimises

    KL(mean of q over S + i || uniform over the classes seen) + time_weight * max(0, t_i/T - 1)
        + energy_weight * max(0, e_i/E - 1)

with q the label shares estimated from the output bias of each device's last update
(`emulator.selectors.parts.estimates`), t and e what the device last reported for a round, T the time
budget and E the energy budget of a round divided by K. Ties at random. Devices without data, and those that
failed lately, are left out while there are others (`emulator.selectors.parts.estimates`).

Switches:
    time_weight, energy_weight: Of the two budget terms; 1 by default.

Left out: Harmony's reorganisation of training samples, so that the work per device stays comparable.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.estimates import GrownCohort, label_shares, round_j, round_s
from emulator.selectors.parts.options import within

MOST_OVER = 1e12
"""Excess at which a budget term ends: beside an infinite one, nothing would mark who is chosen already."""


class HarmonyLike(GrownCohort):
    """Greedy label balance under budgets: a surrogate."""

    name: ClassVar[str] = "harmony_like"
    family: ClassVar[Family] = Family.EXPERT
    paper: ClassVar[str] = "surrogate for Harmony (Tian et al., MICRO 2022)"
    surrogate: ClassVar[bool] = True
    deviations: ClassVar[str] = "a surrogate from the abstract alone; no sample reorganisation"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"bias_delta", "failures", "capability_s", "epoch_s", "comm_s", "epoch_j", "comm_j"}
    )

    def __init__(self, *, time_weight: float = 1.0, energy_weight: float = 1.0) -> None:
        within(self.name, "time_weight", time_weight, 0.0, 1e9)
        within(self.name, "energy_weight", energy_weight, 0.0, 1e9)
        self.time_weight, self.energy_weight = time_weight, energy_weight

    def grown(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Device by device."""
        order = rng.permutation(candidates)  # argmin takes the first of equals, so the order must be random
        shares = label_shares(view.bias_delta)[order]
        # Of a million devices, few have reported anything yet: what is the same for many is worked out once.
        distinct, kind = np.unique(shares, axis=0, return_inverse=True)
        seen = shares.max(axis=0, initial=0.0) > 0
        penalty = self._penalty(view)[order]
        total = np.zeros(shares.shape[1])
        chosen = np.empty(k, dtype=np.int64)
        for i in range(len(chosen)):
            score = divergence((total + distinct) / (i + 1), int(seen.sum()))[kind] + penalty
            chosen[i] = best = int(np.argmin(score))
            total += shares[best]
            penalty[best] = np.inf  # not again
        return order[chosen]

    def _penalty(self, view: ServerView) -> NDArray[np.float64]:
        """Both budget terms; nothing where a device has not reported or no budget is set."""
        over_time = over_budget(round_s(view), view.time_budget_s)
        over_energy = over_budget(round_j(view), view.energy_budget_j / max(view.k, 1))
        return self.time_weight * over_time + self.energy_weight * over_energy


def divergence(shares: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of each row from the uniform distribution over ``classes`` classes."""
    logs = np.log(shares * classes, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray((shares * logs).sum(axis=1))


def over_budget(values: NDArray[np.float64], budget: float) -> NDArray[np.float64]:
    """By which share each value exceeds the budget; 0 for unknown values or without a budget; finite."""
    if not (np.isfinite(budget) and budget > 0):
        return np.zeros(len(values))
    return np.asarray(np.nan_to_num(np.maximum(values / budget - 1.0, 0.0)).clip(max=MOST_OVER))
