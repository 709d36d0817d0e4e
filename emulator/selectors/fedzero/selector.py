"""FedZero: the shortest round that excess energy allows, and in it the most useful clients.

Implements the selection of Wiesner et al., e-Energy 2024 (arXiv 2305.15092), as its published code has it
(dos-group/fedzero, `selection_strategy.py`, `utility.py`). Clients belong to power domains with forecasts of
excess energy, and have a forecast of spare capacity. In a round:

1. Only clients with capacity and energy now.
2. Exclusion. Of last round's participants those with a statistical utility at or below the
   ``exclusion_factor`` quantile are excluded. Then each excluded client is released with probability
   min(``alpha`` / (p_i - c), 1), p_i the rounds it took part in; 1 if p_i <= c. c is the mean participation
   of the clients seen in the last cycle of 24 h; in the last 12 h of a cycle it moves linearly to today's
   mean. If none of last round's participants is there, nothing changes. ``alpha = 0`` excludes nobody.
3. Statistical utility: n_i times the root mean square of its losses, n_i before its first round; u_i is that,
   min-max normalised over all clients (``utility = "statistical"``), or 1 (``"static"``).
4. The programme of `emulator.selectors.fedzero.programme` for the shortest possible round.

Clients then train as many whole epochs as their batches make, from ``min_epochs`` to the scenario's local
epochs.

Switches:
    excess_w: Peak of each domain's excess power; 0, the default, is the code's scenario "unconstrained".
    zones: Power domains; device i is in domain i mod ``zones``.
    step_s: Length of a step; 0: a tenth of the median epoch, since in the published scenarios an epoch takes
        some 5 to 55 of their minutes, and phones train in seconds.

Deviations: capacity is the last known speed throughout, energy of an epoch the last measured, else the
fleet's mean power; the emulator has neither schedules of load nor panels, so domains have a clear sky's half
sine by the time of day, domains spread over the zones of the Earth, and the forecast is exact. Execution
follows the plan in whole epochs and is not cut where energy ends; the code shares it out anew each minute.
Without a solution within 60 steps the code waits for five minutes: here nobody is chosen in that round if
energy is short; if clients are, exclusions end early, fewest participations first, and the fastest fill the
cohort. The published loop removes clients from the list that it walks through, so it skips some draws; here
everybody is asked. Above `MOST_CLIENTS` clients the programme is given the most useful half and the
thriftiest half of so many. Transfers are in no plan, as in the code.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.fedzero.programme import Clients, RoundPlan, shortest_round
from emulator.selectors.parts.draws import top_k
from emulator.selectors.parts.estimates import epoch_s
from emulator.selectors.parts.options import one_of, within

Array = NDArray[np.float64]

STEPS = 60
"""The longest round, in steps."""
BATCH = 10
"""Samples in a batch, as in the code; only the rounding up of small devices depends on it."""
DAY_S = 86_400.0
MOVING_S = DAY_S / 2
MOST_CLIENTS = 200


class FedZero(Selector):
    """Excess energy and spare capacity.

    Args:
        alpha: How quickly excluded clients are released; 0: nobody is excluded.
        exclusion_factor: Which share of the participants is excluded, by utility.
        utility: What the programme counts.
        min_epochs: Of every participant.
        excess_w: Peak of each domain's excess power; 0 for no limit.
        zones: Power domains.
        step_s: Length of a step; 0 by the fleet.
    """

    name: ClassVar[str] = "fedzero"
    family: ClassVar[Family] = Family.HEURISTIC
    paper: ClassVar[str] = "Wiesner et al., e-Energy 2024, arXiv 2305.15092"
    deviations: ClassVar[str] = "phones' steps, exact forecasts, whole epochs, no waiting; see the docstring"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"capability_s", "epoch_s", "epoch_j", "loss_rms", "last_round", "times_chosen"}
    )

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        exclusion_factor: float = 1.0,
        utility: Literal["statistical", "static"] = "statistical",
        min_epochs: float = 1.0,
        excess_w: float = 0.0,
        zones: int = 10,
        step_s: float = 0.0,
    ) -> None:
        within(self.name, "alpha", alpha, 0.0, 1e9)
        within(self.name, "exclusion_factor", exclusion_factor, 0.0, 1.0)
        one_of(self.name, "utility", utility, ("statistical", "static"))
        within(self.name, "min_epochs", min_epochs, 0.01, 1e6)
        within(self.name, "excess_w", excess_w, 0.0, 1e12)
        within(self.name, "zones", zones, 1, 1e6)
        within(self.name, "step_s", step_s, 0.0, 1e9)
        self._alpha, self._factor, self._static = alpha, exclusion_factor, utility == "static"
        self._min_epochs, self._excess_w, self._zones, self._step_s = min_epochs, excess_w, zones, step_s
        self._excluded: NDArray[np.bool_] | None = None
        self._active = np.zeros(0, bool)
        self._cycle_s: float | None = None
        self._cycle_mean = 0.0
        self._epochs: dict[int, int] = {}
        self._steps = float("nan")

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The programme's clients."""
        if self._excluded is None:
            self._excluded, self._active = np.zeros(len(view), bool), np.zeros(len(view), bool)
        k = min(k, len(candidates))
        if not k:
            return candidates[:0]
        whole_s = epoch_s(view)[candidates]
        speed = 1.0 / np.maximum(np.where(np.isnan(whole_s), np.inf, whole_s), 1e-9)  # epochs a second
        step_s = self._step_s or 0.1 / max(float(np.median(speed)), 1e-9)
        excess_j = self._excess(view.now_ns * 1e-9, step_s)
        statistical = statistical_utility(view)
        batches = np.maximum(np.ceil(view.data_size[candidates] / BATCH), 1.0)
        clients = Clients(
            capacity=(speed * step_s * batches)[:, np.newaxis],
            batch_j=self._epoch_j(view, candidates, speed) / batches,
            epoch_batches=batches,
            utility=np.ones(len(candidates)) if self._static else normalised(statistical)[candidates],
            zone=candidates % self._zones,
            excess_j=excess_j,
        )
        here = (clients.possible()[:, 0] > 0) & (speed > 0)
        self._exclude(view, candidates[here], statistical, rng)
        free = here & ~self._excluded[candidates]
        if excess_j is None:
            free |= _readmitted(here & ~free, view.times_chosen[candidates], k - int(free.sum()))
        plan = self._planned(clients, np.flatnonzero(free), k, view.local_epochs)
        self._epochs = {}
        if plan is None:
            self._steps = float("nan")
            return candidates[:0] if excess_j is not None else candidates[top_k(speed, k)]
        whole = np.floor(plan.batches / batches[plan.chosen] + 1e-6).astype(np.int64)
        self._epochs = dict(zip(candidates[plan.chosen].tolist(), whole.tolist(), strict=True))
        return candidates[plan.chosen]

    def epochs(self, view: ServerView, chosen: Ids) -> NDArray[np.int64]:
        """Whole epochs of the plan."""
        planned = [self._epochs.get(int(device), 1) for device in chosen]
        return np.clip(np.array(planned, np.int64), 1, view.local_epochs)

    def _planned(self, clients: Clients, among: Ids, k: int, max_epochs: int) -> RoundPlan | None:
        if len(among) < k:
            return None
        scale = 1.0
        if clients.excess_j is None:  # then only the number of steps matters, and nobody needs a row of 60
            capacity, batches = clients.capacity[among, 0], clients.epoch_batches[among]
            steps = np.ceil(self._min_epochs * batches / capacity - 1e-9)
            scale = max(1.0, float(np.partition(steps, k - 1)[k - 1]))
            if scale > STEPS:
                return None
            among = among[steps <= scale]
            some = clients.some(among, scale, 1)
        else:
            if len(among) > MOST_CLIENTS:
                useful = top_k((clients.utility * clients.capacity[:, 0])[among], MOST_CLIENTS // 2)
                thrifty = top_k(-(clients.batch_j * clients.epoch_batches)[among], MOST_CLIENTS // 2)
                among = among[np.union1d(useful, thrifty)]
            some = clients.some(among, 1.0, STEPS)
        found = shortest_round(some, k, self._min_epochs, max_epochs)
        if found is None:
            return None
        self._steps = found.steps * scale
        return RoundPlan(found.steps, among[found.chosen], found.batches, found.value)

    def _exclude(self, view: ServerView, clients: Ids, statistical: Array, rng: np.random.Generator) -> None:
        """The exclusion list, from last round's participants."""
        if self._excluded is None:
            return
        reference = self._reference(view)
        self._active[clients] = True
        if not self._alpha:
            return
        took_part = clients[(view.last_round[clients] == view.round - 1) & (view.round > 1)]
        if not len(took_part):
            return
        border = np.quantile(statistical[took_part], self._factor)
        self._excluded[took_part[statistical[took_part] <= border]] = True
        listed = np.flatnonzero(self._excluded)
        ahead = view.times_chosen[listed] - reference
        released = rng.random(len(listed)) <= release_probability(self._alpha, ahead)
        self._excluded[listed[released]] = False

    def _reference(self, view: ServerView) -> float:
        """c: what counts as having taken part no more than others."""
        now_s = view.now_ns * 1e-9
        if self._cycle_s is None:
            self._cycle_s = now_s
        into_s = now_s - self._cycle_s
        mean = float(view.times_chosen[self._active].mean()) if self._active.any() else 0.0
        if into_s >= DAY_S:
            # As in the code, the round that opens a cycle still counts by the mean of the one before.
            before, self._cycle_mean, self._cycle_s = self._cycle_mean, mean, now_s
            self._active[:] = False
            return before
        if into_s >= DAY_S - MOVING_S:
            moved = (into_s - (DAY_S - MOVING_S)) / MOVING_S
            return self._cycle_mean + (mean - self._cycle_mean) * moved
        return self._cycle_mean

    def _excess(self, now_s: float, step_s: float) -> Array | None:
        """Energy of each domain in each of the next steps."""
        if not self._excess_w:
            return None
        day = (now_s + step_s * np.arange(STEPS)) / DAY_S + np.arange(self._zones)[
            :, np.newaxis
        ] / self._zones
        # Sunrise at 6, noon at 12; nothing at night.
        return np.asarray(np.maximum(np.sin(2 * np.pi * (day - 0.25)), 0.0) * self._excess_w * step_s)

    def _epoch_j(self, view: ServerView, devices: Ids, speed: Array) -> Array:
        """As last measured, else by the mean power of those who have; 1 W before anybody has."""
        measured = view.epoch_j / epoch_s(view)
        known = np.isfinite(measured) & (measured > 0)
        usual_w = float(measured[known].mean()) if known.any() else 1.0
        return np.where(known[devices], measured[devices], usual_w) / np.maximum(speed, 1e-12)

    def metrics(self) -> dict[str, float]:
        """Length of the planned round in steps, and how many are excluded."""
        excluded = 0 if self._excluded is None else int(self._excluded.sum())
        return {"steps": self._steps, "excluded": float(excluded)}

    def state_dict(self) -> dict[str, Any]:
        """The exclusion list and the cycle."""
        return {
            "excluded": None if self._excluded is None else self._excluded.copy(),
            "active": self._active.copy(),
            "cycle_s": self._cycle_s,
            "cycle_mean": self._cycle_mean,
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self._excluded = None if state["excluded"] is None else state["excluded"].astype(bool)
        self._active = state["active"].astype(bool)
        self._cycle_s, self._cycle_mean = state["cycle_s"], float(state["cycle_mean"])
        self._steps = float(state["steps"])


def statistical_utility(view: ServerView) -> Array:
    """Oort's, n times the root mean square of the losses; n before the first round."""
    size = view.data_size.astype(np.float64)
    return np.where(np.isnan(view.loss_rms), size, size * view.loss_rms)


def normalised(values: Array) -> Array:
    """From 0 to 1; all 1 where all are alike."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def release_probability(alpha: float, ahead: Array) -> Array:
    """Of clients that took part so many more times than the reference."""
    return np.where(ahead > 0, np.minimum(alpha / np.maximum(ahead, 1e-12), 1.0), 1.0)


def _readmitted(excluded: NDArray[np.bool_], times_chosen: Array, count: int) -> NDArray[np.bool_]:
    """As many of the excluded as are missing, fewest participations first."""
    found = np.zeros(len(excluded), bool)
    if count > 0:
        places = np.flatnonzero(excluded)
        found[places[top_k(-times_chosen[places], count)]] = True
    return found
