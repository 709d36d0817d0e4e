"""AFL, active federated learning: devices whose data the global model fits worst are likelier.

Implements Goetz et al. 2019 (arXiv 1909.12641). Per round:

1. Valuation v_i = (1/sqrt(n_i)) sum of losses = sqrt(n_i) * mean loss of the global model on the device's
   data, refreshed only for those who took part, with the model they received before training.
2. The floor(alpha1 * N) smallest valuations become minus infinity: never drawn by weight.
3. floor((1 - alpha3) K) are drawn without replacement in proportion to exp(alpha2 * v_i).
4. The others come uniformly from everyone left.

Switches:
    alpha1, alpha2, alpha3: As above; the values of the authors and of every public implementation.
    initial: Valuation of a device that never took part. ``first_round`` (default): sqrt(n_i) times the mean
        loss that the first participants reported, a free estimate of evaluating the first model everywhere.
        ``minus_infinity``: literal; then only step 4 ever brings in new devices, one per round at K = 10.

Deviations: N in step 2 counts the eligible devices. The public implementations disagree on what alpha1
drops; three quarters, as here, is right.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_uniform, draw_weighted
from emulator.selectors.parts.options import one_of, within

INITIAL = ("first_round", "minus_infinity")
ROUNDING = 1e-9
"""Keeps floor(0.29 * 100) at 29: the product falls just short of it."""


class ActiveFederatedLearning(Selector):
    """Loss-weighted sampling among the highest valuations."""

    name: ClassVar[str] = "afl"
    family: ClassVar[Family] = Family.HEURISTIC
    paper: ClassVar[str] = "Goetz et al., 2019, arXiv 1909.12641"
    deviations: ClassVar[str] = "unseen devices get the first model's mean loss; drop share of the eligible"
    needs: ClassVar[frozenset[str]] = frozenset({"global_loss"})

    def __init__(
        self,
        *,
        alpha1: float = 0.75,
        alpha2: float = 0.01,
        alpha3: float = 0.1,
        initial: str = "first_round",
    ) -> None:
        within(self.name, "alpha1", alpha1, 0.0, 1.0)
        within(self.name, "alpha2", alpha2, 0.0, 1e6)
        within(self.name, "alpha3", alpha3, 0.0, 1.0)
        one_of(self.name, "initial", initial, INITIAL)
        self.alpha1, self.alpha2, self.alpha3 = alpha1, alpha2, alpha3
        self.initial = initial
        self.first_loss = math.nan

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Steps 1 to 4."""
        value = self.valuation(view)[candidates]
        by_weight = self.draw_by_value(value, min(k, len(candidates)), rng)
        left = np.ones(len(candidates), dtype=bool)
        left[by_weight] = False
        filled = draw_uniform(rng, np.flatnonzero(left), k - len(by_weight))
        chosen: Ids = candidates[np.concatenate([by_weight, filled])]
        return chosen

    def valuation(self, view: ServerView) -> NDArray[np.float64]:
        """v_i of every device, step 1; minus infinity where nothing can be said."""
        loss = np.where(np.isfinite(view.global_loss), view.global_loss, self.first_loss)
        value = np.sqrt(view.data_size) * loss
        return np.where(np.isnan(value), -np.inf, value)

    def draw_by_value(self, value: NDArray[np.float64], k: int, rng: np.random.Generator) -> Ids:
        """Positions drawn by weight, steps 2 and 3; fewer than asked if too few have a valuation."""
        kept = np.flatnonzero(self.without_dropped(value) > -np.inf)
        wanted = math.floor((1 - self.alpha3) * k + ROUNDING)
        return kept[draw_weighted(rng, self.alpha2 * value[kept], wanted)]

    def without_dropped(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Step 2: minus infinity for the smallest; of equal ones the lower position goes first."""
        drop = math.floor(self.alpha1 * len(value) + ROUNDING)
        if drop == 0:
            return value
        border = np.partition(value, drop - 1)[drop - 1]
        kept = np.where(value > border, value, -np.inf)
        tied = np.flatnonzero(value == border)
        spared = tied[drop - int(np.count_nonzero(value < border)) :]
        kept[spared] = border
        return kept

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Keep the mean loss of the first model that anyone reported."""
        if self.initial == "first_round" and math.isnan(self.first_loss) and outcome.round > 0:
            losses = view.global_loss[outcome.clients]
            known = losses[np.isfinite(losses)]
            if len(known):
                self.first_loss = float(known.mean())

    def state_dict(self) -> dict[str, Any]:
        """The loss of the first model; valuations themselves are in the view."""
        return {"first_loss": self.first_loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.first_loss = float(state["first_loss"])
