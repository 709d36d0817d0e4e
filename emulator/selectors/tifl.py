"""TiFL: devices of similar speed train together, and the tiers take turns.

Implements Chai et al., HPDC 2020 (arXiv 2001.09249): profiling, static tier selection, and adaptive tier
selection with credits (its algorithm 2). Every device is profiled once; the measured latencies, sorted, make
``tiers`` equal tiers. Each round draws one tier, then K devices uniformly inside it.

Switches:
    policy: ``adaptive`` (default), or the static ``uniform``, ``random``, ``fast``, ``slow``.
    tiers: m; ``random`` is published for five only.
    interval: I, rounds between changes of the adaptive probabilities.
    only_when_stalled: Whether they change only if the last tier's accuracy has not risen over the interval,
        as in the paper (default). The public implementations omit the condition.
    retier_every: Rounds after which tiers are made anew from the latest measurements; 0 for never.

Deviations: credits are ceil(R/m) for every tier (the paper leaves them to the operator); with R a multiple of
m the adaptive policy therefore visits every tier equally often, its mean round time is fixed and only the
order changes. Profiling is one local epoch instead of several short tasks. A tier's accuracy is the mean of
its devices' last reports, not a fresh evaluation of all of them; where the scenario holds no samples out
(``task.held_out = 0``, the default), it is that of the devices' training samples. If a tier has fewer than K
eligible devices, the neighbouring tiers fill up. If no tier that is there has credits left, one without them
is drawn. Devices that did not answer the profiling belong to no tier and come last.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Profiling, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_uniform
from emulator.selectors.parts.options import one_of, whole, yes_or_no
from joulefleet.errors import ConfigError

POLICIES = ("adaptive", "uniform", "random", "fast", "slow")
RANDOM_POLICY = (0.7, 0.1, 0.1, 0.05, 0.05)
"""Tier probabilities of the paper's static policy of that name, fastest first."""
NO_TIER = -1


class TiFL(Selector):
    """Tier-based selection."""

    name: ClassVar[str] = "tifl"
    family: ClassVar[Family] = Family.HEURISTIC
    needs_accuracy: ClassVar[bool] = True
    paper: ClassVar[str] = "Chai et al., HPDC 2020, arXiv 2001.09249"
    deviations: ClassVar[str] = (
        "equal credits; tier accuracy from last reports, of training samples where none are held out; "
        "neighbours fill small tiers"
    )
    profiling: ClassVar[Profiling] = Profiling.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset({"epoch_s", "comm_s", "local_accuracy"})

    def __init__(
        self,
        *,
        policy: str = "adaptive",
        tiers: int = 5,
        interval: int = 10,
        only_when_stalled: bool = True,
        retier_every: int = 20,
    ) -> None:
        one_of(self.name, "policy", policy, POLICIES)
        whole(self.name, "tiers", tiers, 1, 127)
        whole(self.name, "interval", interval, 1, 1e9)
        whole(self.name, "retier_every", retier_every, 0, 1e9)
        yes_or_no(self.name, "only_when_stalled", only_when_stalled)
        self.policy, self.tiers, self.interval = policy, tiers, interval
        self.only_when_stalled, self.retier_every = only_when_stalled, retier_every
        self.tier_of: NDArray[np.int8] | None = None
        self.credits = np.zeros(tiers, dtype=np.int64)
        self.probabilities = static_probabilities(policy, tiers)
        self.accuracies: list[list[float]] = []
        self.current = NO_TIER

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Draw a tier, then devices inside it."""
        tier_of = self._tiers(view)[candidates]
        if len(candidates) == 0:
            return candidates
        if self.policy == "adaptive" and view.round % self.interval == 0 and self._stalled():
            self.probabilities = adaptive_probabilities(self.accuracies[-1], self.credits)
        self.current = self._draw_tier(np.bincount(tier_of + 1, minlength=self.tiers + 1)[1:], rng)
        return candidates[self._fill(tier_of, k, rng)]

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Note how accurate the new model is on each tier."""
        if outcome.round > 0 and self.tier_of is not None:
            known = np.flatnonzero((self.tier_of >= 0) & ~np.isnan(view.local_accuracy))
            tier = self.tier_of[known]
            total = np.bincount(tier, weights=view.local_accuracy[known], minlength=self.tiers)
            count = np.bincount(tier, minlength=self.tiers)
            mean = np.divide(total, count, out=np.full(self.tiers, np.nan), where=count > 0)
            self.accuracies.append(mean.tolist())

    def metrics(self) -> dict[str, float]:
        """The tier of this round and how many credits are left."""
        return {"tier": float(self.current), "credits_left": float(self.credits.sum())}

    def state_dict(self) -> dict[str, Any]:
        """Tiers, credits, probabilities and accuracies."""
        return {
            "tier_of": None if self.tier_of is None else self.tier_of.copy(),
            "credits": self.credits.copy(),
            "probabilities": self.probabilities.copy(),
            "accuracies": [list(row) for row in self.accuracies],
            "current": self.current,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.tier_of = None if state["tier_of"] is None else np.array(state["tier_of"], dtype=np.int8)
        self.credits = np.array(state["credits"], dtype=np.int64)
        self.probabilities = np.array(state["probabilities"], dtype=np.float64)
        self.accuracies = [list(row) for row in state["accuracies"]]
        self.current = int(state["current"])

    def _tiers(self, view: ServerView) -> NDArray[np.int8]:
        if self.tier_of is None:
            self.credits = np.full(self.tiers, math.ceil(view.rounds / self.tiers), dtype=np.int64)
            self.tier_of = tiers_by_latency(view.comm_s + view.local_epochs * view.epoch_s, self.tiers)
        elif self.retier_every and view.round % self.retier_every == 0:
            self.tier_of = tiers_by_latency(view.comm_s + view.local_epochs * view.epoch_s, self.tiers)
        return self.tier_of

    def _stalled(self) -> bool:
        """Whether the last tier's accuracy has not risen; also if nothing is there to compare with."""
        if not self.accuracies:
            return False
        if not self.only_when_stalled or len(self.accuracies) <= self.interval:
            return True
        now, before = self.accuracies[-1], self.accuracies[-1 - self.interval]
        return self.current < 0 or not now[self.current] > before[self.current]

    def _draw_tier(self, eligible: NDArray[np.int64], rng: np.random.Generator) -> int:
        """One of the tiers with eligible devices, and under ``adaptive`` with credits, which it spends."""
        adaptive = self.policy == "adaptive"
        open_tiers = eligible > 0
        if adaptive and np.any(open_tiers & (self.credits > 0)):
            open_tiers &= self.credits > 0
        if not open_tiers.any():
            return NO_TIER
        # The paper draws again until a tier has credits: the same as drawing among those that have.
        weights = np.where(open_tiers, self.probabilities, 0.0)
        if weights.sum() <= 0.0:
            weights = open_tiers.astype(np.float64)
        tier = int(rng.choice(self.tiers, p=weights / weights.sum()))
        if adaptive and self.credits[tier] > 0:
            self.credits[tier] -= 1
        return tier

    def _fill(self, tier_of: NDArray[np.int8], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Positions of ``k`` devices from the drawn tier, then from its neighbours, then from no tier."""
        others = sorted(set(range(self.tiers)) - {self.current}, key=lambda t: (abs(t - self.current), t))
        found = [draw_uniform(rng, np.flatnonzero(tier_of == self.current), k)]
        for tier in (*others, NO_TIER):
            missing = k - sum(map(len, found))
            if missing <= 0:
                break
            if tier != self.current:
                found.append(draw_uniform(rng, np.flatnonzero(tier_of == tier), missing))
        return np.concatenate(found)


def tiers_by_latency(latency_s: NDArray[np.float64], tiers: int) -> NDArray[np.int8]:
    """Equal tiers by latency, 0 the fastest; ties by device number. NaN is in no tier."""
    known = int(np.count_nonzero(~np.isnan(latency_s)))
    order = np.argsort(latency_s, kind="stable")[:known]  # NaN sorts last
    tier_of = np.full(len(latency_s), NO_TIER, dtype=np.int8)
    tier_of[order] = np.arange(known) * tiers // max(known, 1)
    return tier_of


def adaptive_probabilities(accuracy: list[float], credits_left: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of the n tiers with credits the least accurate gets n/(n(n+1)/2), the next n-1 of it, and so on.

    A tier that has never reported comes first.
    """
    credited = np.flatnonzero(credits_left > 0)
    known = np.nan_to_num(np.asarray(accuracy), nan=-1.0)[credited]
    n = len(credited)
    probabilities = np.zeros(len(credits_left))
    probabilities[credited[np.argsort(known, kind="stable")]] = np.arange(n, 0, -1) / max(n * (n + 1) / 2, 1)
    return probabilities


def static_probabilities(policy: str, tiers: int) -> NDArray[np.float64]:
    """Fixed probabilities of a static policy, fastest tier first; uniform to begin with for ``adaptive``."""
    if policy == "random":
        if tiers != len(RANDOM_POLICY):
            raise ConfigError(
                f"TiFL's policy 'random' is published for {len(RANDOM_POLICY)} tiers, not for {tiers}",
                hint="set tiers = 5, or take another policy",
            )
        return np.array(RANDOM_POLICY)
    only = {"fast": 0, "slow": tiers - 1}.get(policy)
    return np.full(tiers, 1.0 / tiers) if only is None else np.eye(tiers)[only]
