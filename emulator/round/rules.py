"""How federated rounds go, independent of who takes part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import ACCURACY, Metric
from emulator.round.accounting import shares_of_round
from emulator.round.outcome import Accounting, ClientCost, RoundCost
from emulator.round.reward import Budgets, Reward
from joulefleet.errors import ConfigError
from joulefleet.registry import Registry


class Aggregation(StrEnum):
    """How updates are weighted."""

    BY_SIZE = "by_size"
    """By training samples, as FedAvg does."""
    UNIFORM = "uniform"
    """All alike, as the appendix of the paper prints it; devices without data still count for nothing."""


class Aggregate(Protocol):
    """Makes a new global model out of updates, in any other way than by a weighted mean."""

    def __call__(
        self, weights: NDArray[np.float32], sizes: NDArray[np.int64], before: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The new global weights.

        Args:
            weights: What the devices sent, one row each (parameters, then buffers), by their ids.
            sizes: Training samples of each, none of them 0.
            before: The global weights of before.
        """


AGGREGATIONS: Registry[Aggregation | Aggregate] = Registry(
    what="aggregation",
    group="joulefleet.aggregations",
    builtin={
        "by_size": (
            "emulator.round.rules:Aggregation.BY_SIZE",
            "Mean, weighted by training samples (FedAvg)",
        ),
        "uniform": ("emulator.round.rules:Aggregation.UNIFORM", "Mean of all who have data"),
    },
)


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of a run.

    Attributes:
        rounds: How many.
        k: Devices wanted per round.
        candidates: M, how many are considered by methods that probe.
        local_epochs: l_ep, the probe epoch included.
        deadline_s: After so long a round is closed; ``None`` for never.
        probe_deadline_s: After so long probing is closed; ``None`` for never.
        over_commit: So many times K are told to train, and the round ends when K have finished.
        aggregation: How updates are weighted, or what is done with them instead.
        batch_size: Samples per step.
        every_s: A round begins no earlier than this after the last one began; 0: as soon as that has ended.
        test_every: The test split is evaluated every so many rounds, and after the last; 0: only then.
    """

    rounds: int
    k: int
    candidates: int
    local_epochs: int
    deadline_s: float | None = None
    probe_deadline_s: float | None = None
    over_commit: float = 1.0
    aggregation: Aggregation | Aggregate = Aggregation.BY_SIZE
    batch_size: int = 32
    test_every: int = 0
    every_s: float = 0.0

    @property
    def wanted(self) -> int:
        """How many are told to train: K, and those that over-commitment adds."""
        # 50 times 1.1 is a little more than 55 in floating point; that is no 56th device.
        return math.ceil(round(self.k * self.over_commit, 6))

    def check(self, devices: int) -> None:
        """Refuse what no fleet of this size can do."""
        if self.k > devices:
            raise ConfigError(
                f"{self.k} clients per round are more than the fleet of {devices}",
                hint="lower protocol.k or raise fleet.devices",
            )
        if self.candidates < self.k:
            raise ConfigError(
                f"{self.candidates} candidates are fewer than the {self.k} clients per round",
                hint="raise protocol.candidates",
            )


@dataclass(frozen=True, slots=True)
class RewardRules:
    """How a round is rewarded.

    Attributes:
        reward: The function.
        budgets: T, E, alpha and beta.
        accounting: Which R_T and R_E count.
        split: Whose accuracy counts; ``test`` only to show what learning on it would do (A17).
        metric: What is called accuracy here, where the task has another one.
    """

    reward: Reward
    budgets: Budgets
    accounting: Accounting = Accounting.HONEST
    split: Literal["validation", "test"] = "validation"
    metric: Metric = ACCURACY

    def of_devices(
        self, cost: ClientCost, chosen: NDArray[np.bool_], judged: RoundCost, gain: float
    ) -> NDArray[np.float64]:
        """The reward that each of the chosen alone would have earned; see `RoundOutcome.device_rewards`."""
        found = np.zeros(len(chosen))
        each = zip(*shares_of_round(cost, chosen, judged, self.accounting), strict=True)
        found[chosen] = [self.reward(gain * 100.0, RoundCost(*one), self.budgets) for one in each]
        return found
