"""Within one energy budget for the whole training: the most valuable cohort, then the fastest. Own.

Inspired by FedJoule (Banerjee et al., Euro-Par 2025, arXiv 2506.10413), of which only the abstract could be
had: a global energy budget, a bi-level integer programme, approximate Shapley values and predicted costs.
Everything else here is ours, this is not FedJoule, and no number is taken from it.

1. Costs. Time and energy of a device's round from the same forecasts as ``frugal``
   (`emulator.selectors.frugal.forecast`); energy is planned with its mean, E[exp x] = exp(m + s^2 / 2).
2. Value. After each round every participant's Shapley value in a game over labels and losses is estimated
   (`emulator.selectors.energy_budget.shapley`), phi <- ``memory`` phi + (1 - ``memory``) new; v_i = phi_i /
   max phi + 0.01. Who has never taken part has the median v, and ``explore`` of the cohort (rounded up) are
   such devices while there are any, at random.
3. Budget of the round, of B - used: an equal share of what is left, (B - used) / (R - r + 1); what was not
   used stays. If the cheapest K cost more, as much as they cost, as long as B - used allows that.
4. Choice. `emulator.selectors.energy_budget.programme` among at most `MOST_DEVICES`: half of them the most
   value per joule, half the cheapest. So a million devices take no longer than some hundred.

Charged is what the round's participants reported, failed ones at their forecast. In expectation no round is
planned beyond what is left. When not even the cheapest K are affordable, fewer are taken, cheapest first, as
many as are; when nobody is, nobody trains any more: the rounds that are left are empty and cost nothing.

Switches:
    total_j: B; 0, the default: the scenario's budget per round (``reward.energy_budget_j`` or its rule) times
        the planned rounds, once that many are known.

Deviations from the abstract's outline are not known, since the method is not. The server has no validation
passes to spare in a selector, so the game is played with reports, not with models.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.energy_budget.programme import best_cohort
from emulator.selectors.energy_budget.shapley import shapley_values
from emulator.selectors.frugal.forecast import CostForecast
from emulator.selectors.parts.draws import draw_uniform, top_k
from emulator.selectors.parts.estimates import label_shares, worth_asking
from emulator.selectors.parts.options import within

Array = NDArray[np.float64]

MOST_DEVICES = 200
MOST = 1e9
"""Seconds or joules at which a cost ends."""


class EnergyBudgetSelector(Selector):
    """One budget for everything.

    Args:
        total_j: The budget; 0: the scenario's budget per round times its rounds.
        memory: Weight of what was known of a device's value.
        explore: Share of the cohort that has never taken part.
        slack: Share of the value that a shorter round may cost.
        memory_s: After so long, how fast a device was has lost all but 1/e of its meaning.
    """

    name: ClassVar[str] = "energy_budget"
    family: ClassVar[Family] = Family.HEURISTIC
    paper: ClassVar[str] = "own, inspired by the abstract of FedJoule (Euro-Par 2025)"
    deviations: ClassVar[str] = "own design; FedJoule's method section was not available"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"bias_delta", "capability_s", "epoch_s", "epoch_j", "comm_s", "comm_j", "failures", "loss_rms",
         "times_chosen"}
    )  # fmt: skip

    def __init__(
        self,
        *,
        total_j: float = 0.0,
        memory: float = 0.8,
        explore: float = 0.1,
        slack: float = 0.02,
        memory_s: float = 7200.0,
    ) -> None:
        within(self.name, "total_j", total_j, 0.0, 1e15)
        within(self.name, "memory", memory, 0.0, 1.0)
        within(self.name, "explore", explore, 0.0, 1.0)
        within(self.name, "slack", slack, 0.0, 1.0)
        within(self.name, "memory_s", memory_s, 1.0, 1e9)
        self._total_j, self._memory, self._explore, self._slack = total_j, memory, explore, slack
        self._memory_s = memory_s
        self._forecast: CostForecast | None = None
        self._phi = np.zeros(0)
        self._used_j = 0.0
        self._planned: dict[int, float] = {}

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The most valuable affordable cohort."""
        forecast = self._forecasts(view)
        worth = worth_asking(view, candidates, rng)
        k = min(k, len(candidates))
        first = candidates[worth] if np.count_nonzero(worth) >= k else candidates
        time_s, energy_j = self._costs(view, first, forecast)
        left_j = self._budget_j(view) - self._used_j
        cheapest = top_k(-energy_j, k)
        least_j = float(energy_j[cheapest].sum())
        round_j = min(left_j, max(left_j / max(1, view.rounds - view.round + 1), least_j))
        if least_j > left_j:  # as many as are affordable, cheapest first
            chosen = cheapest[np.cumsum(energy_j[cheapest]) <= left_j]
        else:
            chosen = self._programme(view, first, time_s, energy_j, round_j, k, rng)
        self._planned = dict(zip(first[chosen].tolist(), energy_j[chosen].tolist(), strict=True))
        return first[chosen]

    def _programme(
        self,
        view: ServerView,
        devices: Ids,
        time_s: Array,
        energy_j: Array,
        round_j: float,
        k: int,
        rng: np.random.Generator,
    ) -> Ids:
        """Explore some that never took part, then the programmes for the rest."""
        new = np.isnan(self._phi[devices])
        value = self._values(devices)
        wanted = 0 if new.all() else min(math.ceil(self._explore * k), int(new.sum()))
        for count in range(wanted, -1, -1):  # fewer, where the budget does not allow so many
            explored = draw_uniform(rng, np.flatnonzero(new), count)
            left = np.setdiff1d(np.arange(len(devices)), explored, assume_unique=True)
            if len(left) > MOST_DEVICES:
                useful = top_k(value[left] / np.maximum(energy_j[left], 1e-12), MOST_DEVICES // 2)
                left = left[np.union1d(useful, top_k(-energy_j[left], MOST_DEVICES // 2))]
            budget_j = round_j - float(energy_j[explored].sum())
            found = left[
                best_cohort(value[left], energy_j[left], time_s[left], k - count, budget_j, slack=self._slack)
            ]
            if len(found) == k - count:
                return np.concatenate([explored, found])
        return top_k(-energy_j, k)

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Charge the round, and value its participants."""
        forecast, reports, clients = self._forecasts(view), outcome.reports, outcome.clients
        spent = reports.comm_j + view.local_epochs * reports.epoch_j
        forecasts = np.array([self._planned.get(int(device), 0.0) for device in clients])
        told = np.isfinite(spent) & ~outcome.failed
        self._used_j += float(np.where(told, spent, forecasts)[outcome.chosen].sum())
        forecast.observe(view, clients, reports.epoch_s, reports.epoch_j)
        who = clients[outcome.chosen & ~outcome.failed]
        useful = np.nan_to_num(view.data_size[who] * view.loss_rms[who], nan=0.0, posinf=0.0)
        samples = label_shares(view.bias_delta[who]) * useful[:, np.newaxis]
        found = shapley_values(samples, np.random.default_rng(outcome.round))
        known = self._phi[who]
        self._phi[who] = np.where(np.isnan(known), found, self._memory * known + (1 - self._memory) * found)

    def _values(self, devices: Ids) -> Array:
        phi = self._phi[devices]
        highest = float(np.nanmax(self._phi)) if not np.isnan(self._phi).all() else 0.0
        if highest <= 0:
            return np.ones(len(devices))
        usual = float(np.nanmedian(self._phi))
        return np.asarray(np.where(np.isnan(phi), usual, phi) / highest + 0.01)

    def _costs(self, view: ServerView, devices: Ids, forecast: CostForecast) -> tuple[Array, Array]:
        mean, sd = forecast.epoch(view, devices)
        with np.errstate(over="ignore"):
            epoch_s = np.exp(mean + sd * sd / 2)
        comm_s, comm_j = (np.nan_to_num(v[devices], nan=0.0, posinf=MOST) for v in (view.comm_s, view.comm_j))
        time_s = comm_s + view.local_epochs * epoch_s
        energy_j = comm_j + view.local_epochs * epoch_s * forecast.power_w(devices)
        return time_s.clip(0.0, MOST), energy_j.clip(0.0, MOST)

    def _budget_j(self, view: ServerView) -> float:
        if self._total_j:
            return self._total_j
        return view.energy_budget_j * view.rounds if np.isfinite(view.energy_budget_j) else math.inf

    def _forecasts(self, view: ServerView) -> CostForecast:
        if self._forecast is None:
            self._forecast = CostForecast(len(view), self._memory_s)
            self._phi = np.full(len(view), np.nan)
        return self._forecast

    def metrics(self) -> dict[str, float]:
        """What was used of the budget, and what the last choice was expected to use."""
        return {"used_j": self._used_j, "planned_j": float(sum(self._planned.values()))}

    def state_dict(self) -> dict[str, Any]:
        """Forecasts, values and what was used."""
        known = self._forecast
        return {
            "forecast": None if known is None else known.state_dict(),
            "phi": self._phi.copy(),
            "used_j": self._used_j,
            "planned": {str(device): energy for device, energy in self._planned.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        if state["forecast"] is not None:
            self._forecast = CostForecast(0, self._memory_s)
            self._forecast.load_state_dict(state["forecast"])
        self._phi = state["phi"].copy()
        self._used_j = float(state["used_j"])
        self._planned = {int(device): float(energy) for device, energy in state["planned"].items()}
