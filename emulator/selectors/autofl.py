"""AutoFL: a table that learns which kinds of devices are worth choosing.

Implements the Q-learning of Kim and Wu, MICRO 2021 (arXiv 2107.08147) as far as selection goes. A device's
state is discretised; the table is shared by all devices (the paper shares it within a performance class,
which is part of the state here). Each round the K highest entries are chosen, with a share epsilon of the
cohort at random. Afterwards, for every chosen device,

    Q(s) += learning_rate * (r + discount * Q(s') - Q(s)),
    r = accuracy - 100                                                        if accuracy did not rise,
        -E_round/mean - e_i/mean + accuracy_weight * accuracy + gain_weight * gain   otherwise,

accuracy and gain in percent; the round's energy is relative to its mean over the rounds so far, a device's to
the mean of its cohort, so that no unit matters.

Switches:
    epsilon, learning_rate, discount, accuracy_weight, gain_weight: As above.
    levels: Levels per feature: by quantiles of the fleet, so that they need no unit either.

Deviations: the state is (registered speed, slow-down against it, connection, data size); the paper's model
features are constant within a run and its number of classes per device is not reported here. The action
"which processor at which frequency" is left out. Learning rate 0.9, discount 0.1 and epsilon 0.1 are quoted
from memory of the paper; weights of 1 are ours.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import Fate, RoundOutcome
from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_uniform, top_k
from emulator.selectors.parts.estimates import epoch_s, round_j
from emulator.selectors.parts.options import whole, within

FEATURES = 4


class AutoFl(Selector):
    """Tabular Q-learning over discretised device states."""

    name: ClassVar[str] = "autofl"
    family: ClassVar[Family] = Family.LEARNING
    needs_accuracy: ClassVar[bool] = True
    paper: ClassVar[str] = "Kim and Wu, MICRO 2021, arXiv 2107.08147"
    deviations: ClassVar[str] = "selection only, no processor choice; one shared table; relative energies"
    needs: ClassVar[frozenset[str]] = frozenset({"capability_s", "epoch_s", "comm_s", "epoch_j", "comm_j"})

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
        learning_rate: float = 0.9,
        discount: float = 0.1,
        accuracy_weight: float = 1.0,
        gain_weight: float = 1.0,
        levels: int = 3,
    ) -> None:
        within(self.name, "epsilon", epsilon, 0.0, 1.0)
        within(self.name, "learning_rate", learning_rate, 0.0, 1.0)
        within(self.name, "discount", discount, 0.0, 1.0)
        within(self.name, "accuracy_weight", accuracy_weight, 0.0, 1e6)
        within(self.name, "gain_weight", gain_weight, 0.0, 1e6)
        whole(self.name, "levels", levels, 1, 16)
        self.epsilon, self.learning_rate, self.discount = epsilon, learning_rate, discount
        self.accuracy_weight, self.gain_weight, self.levels = accuracy_weight, gain_weight, levels
        self.table = np.zeros(levels**FEATURES)
        self.before = np.empty(0, dtype=np.int64)
        self.total_j = 0.0
        self.rounds_seen = 0

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The highest entries, devices of equal state at random, and a few at random."""
        self.before = self.states(view)
        shuffled = rng.permutation(candidates)
        k = min(k, len(shuffled))
        best = top_k(self.table[self.before[shuffled]], k - int(rng.binomial(k, self.epsilon)))
        left = np.ones(len(shuffled), dtype=bool)
        left[best] = False
        at_random = draw_uniform(rng, np.flatnonzero(left), k - len(best))
        chosen: Ids = shuffled[np.concatenate([best, at_random])]
        return chosen

    def states(self, view: ServerView) -> NDArray[np.int64]:
        """State of every device, from 0 to levels^4 - 1."""
        # Without data an epoch takes no time, and nothing can be said of a slow-down.
        slowdown = np.divide(
            epoch_s(view), view.capability_s, out=np.ones(len(view)), where=view.capability_s > 0
        )
        features = (view.capability_s, slowdown, view.comm_s, view.data_size)
        state = np.zeros(len(view), dtype=np.int64)
        for values in features:
            borders = np.quantile(values, np.arange(1, self.levels) / self.levels)
            state = state * self.levels + np.searchsorted(borders, values, side="left")
        return state

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Move the entries of the chosen devices' states."""
        fates = np.array(outcome.fates, dtype=object)
        ids = outcome.clients[outcome.chosen & (fates == Fate.FINISHED)]
        if outcome.round == 0 or len(ids) == 0 or len(self.before) == 0:
            return
        reward = self._rewards(round_j(view)[ids], outcome)
        state, after = self.before[ids], self.states(view)[ids]
        target = reward + self.discount * self.table[after]
        # Devices in the same state move their entry together, by their mean: no order among them.
        count = np.bincount(state, minlength=len(self.table))
        mean = np.bincount(state, weights=target, minlength=len(self.table)) / np.maximum(count, 1)
        self.table += np.where(count > 0, self.learning_rate * (mean - self.table), 0.0)

    def _rewards(self, energy_j: NDArray[np.float64], outcome: RoundOutcome) -> NDArray[np.float64]:
        energy_j = np.where(np.isfinite(energy_j), energy_j, 0.0)  # one infinite mean would last for ever
        round_energy_j = float(energy_j.sum())
        self.total_j += round_energy_j
        self.rounds_seen += 1
        accuracy, gain = 100 * outcome.accuracy, 100 * outcome.accuracy_gain
        if not gain > 0:
            return np.full(len(energy_j), np.nan_to_num(accuracy) - 100)
        of_round = round_energy_j * self.rounds_seen / max(self.total_j, 1e-12)
        of_device = energy_j / max(float(energy_j.mean()), 1e-12)
        return self.accuracy_weight * accuracy + self.gain_weight * gain - of_round - of_device

    def metrics(self) -> dict[str, float]:
        """Spread of the table."""
        return {"q_min": float(self.table.min()), "q_max": float(self.table.max())}

    def state_dict(self) -> dict[str, Any]:
        """The table and the mean energy of a round; states belong to a round and are not kept."""
        return {"table": self.table.copy(), "total_j": self.total_j, "rounds_seen": self.rounds_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.table = np.array(state["table"], dtype=np.float64)
        self.total_j, self.rounds_seen = float(state["total_j"]), int(state["rounds_seen"])
