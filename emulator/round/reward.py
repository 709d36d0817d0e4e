"""Rewards of a round: the paper's equation (1) and whatever users register as `joulefleet.rewards`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from emulator.round.outcome import RoundCost
from joulefleet.registry import Registry

CLIP = 10.0
"""Rewards are kept within this many points: one round that breaks the model must not drown all others."""


class BudgetRule(StrEnum):
    """Where T and E come from if they are not given."""

    FEASIBLE = "feasible"
    """A quantile of random rounds under the same protocol and with the method's own probes."""
    BEST_30 = "best_30"
    """The mean of rounds among the fastest, and among the cheapest, 30 %, without probes or load."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the developer would like a round to take, and how hard exceeding it is punished.

    Attributes:
        time_s: T.
        energy_j: E.
        alpha: Exponent of the time.
        beta: Exponent of the energy.
    """

    time_s: float
    energy_j: float
    alpha: float = 2.0
    beta: float = 2.0


class Reward(Protocol):
    """Judges a round."""

    def __call__(self, gain: float, cost: RoundCost, budgets: Budgets) -> float:
        """The reward.

        Args:
            gain: Change of the accuracy, in percentage points. Of an error or a perplexity: by how many
                percent of its value before it became less.
            cost: R_T and R_E.
            budgets: T, E and their exponents.
        """


def penalty(cost: RoundCost, budgets: Budgets) -> float:
    """(T/R_T)^alpha (E/R_E)^beta, each only where the budget is exceeded: from 0 to 1."""
    parts = (
        (cost.time_s, budgets.time_s, budgets.alpha),
        (cost.energy_j, budgets.energy_j, budgets.beta),
    )
    return float(np.prod([(limit / spent) ** power for spent, limit, power in parts if spent > limit]))


def signed(gain: float, cost: RoundCost, budgets: Budgets) -> float:
    """Equation (1), but a loss of accuracy is divided by the penalty: it, too, grows with the cost (A6)."""
    factor = penalty(cost, budgets)
    if gain >= 0:
        return float(np.clip(gain * factor, -CLIP, CLIP))
    return float(np.clip(gain / max(factor, 1e-12), -CLIP, CLIP))


def literal(gain: float, cost: RoundCost, budgets: Budgets) -> float:
    """Equation (1) as printed: a slow and costly round that loses accuracy is punished less."""
    return gain * penalty(cost, budgets)


REWARDS: Registry[Reward] = Registry(
    what="reward",
    group="joulefleet.rewards",
    builtin={
        "signed": ("emulator.round.reward:signed", "Equation (1), losses divided by the penalty; clipped"),
        "literal": ("emulator.round.reward:literal", "Equation (1) as printed"),
    },
)
