"""Oort's decision as the authors' published class makes it (SymbioticLab/Oort, ``oort/oort.py``).

In call R, with u_i the utility, d_i the duration, t_i the round of the last feedback of device i:

- The pacer appends the mean utility of last call's exploited devices to h. If R >= 2W and R is a multiple of
  W, it compares a = sum h[-2W:-W] with b = sum h[-W:]: flat (|b-a| <= 0.1 a) moves the threshold up by
  Delta, a jump (|b-a| >= 5 a) moves it down. T is that percentile of all durations.
- Utilities are clipped and normalised: s_i = (min(u_i, clip) - low)/span + sqrt(0.1 ln R / t_i), times
  (T/d_i)^alpha if d_i > T. Low, span and clip include the placeholders of unexplored devices.
- K (1 - eps) devices are drawn in proportion to s among those with s >= c times the border score, the rest
  in proportion to u (T/d)^alpha among the best unexplored ones; what is missing is filled uniformly.

Where the published class crashes or never ends, this one goes on, as noted at each place ("fix"): the
blacklist's cap is cut to an integer (TypeError there), at least one explored device is left for the border
(IndexError), a fleet without any positive utility is scored by the second term alone (IndexError), weights
of 0 are left to the uniform fill (ValueError), and with fewer than K devices all of them are returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids
from emulator.selectors.oort.arms import Arms
from emulator.selectors.oort.draws import Draws
from emulator.selectors.oort.settings import Settings
from emulator.selectors.parts.draws import top_k

NOBODY = np.empty(0, dtype=np.int64)
SMALLEST_SPAN = 1e-4
SHORTEST_S = 1e-4
UCB = 0.1
"""Weight of the second term of the score."""


@dataclass(frozen=True, slots=True)
class Norm:
    """How utilities become scores between about 0 and 1."""

    low: float
    span: float
    clip: float


@dataclass(frozen=True, slots=True)
class OortDecision:
    """One call of the selector with everything that led to it, for replays.

    ``exploited`` are those that the pacer will look at: fill-ins too once there is nothing left to explore.
    """

    call: int
    blacklist: Ids
    last_exploit_utility: float
    last_explore_utility: float
    threshold_percent: float
    preferred_s: float
    norm: Norm
    scored: Ids
    scores: NDArray[np.float64]
    exploration: float
    exploit_len: int
    explore_len: int
    cut_off: float
    pool: Ids
    exploited: Ids
    explored: Ids
    picked: Ids


@dataclass(frozen=True, slots=True)
class OortCall:
    """What holds throughout one call."""

    k: int
    feasible: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    preferred_s: float
    factor: NDArray[np.float64] | None
    draws: Draws


class OfficialRules:
    """State and decisions of the published class, on arrays."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.arms = Arms.registered(np.empty(0), np.empty(0))
        self.calls = 0
        self.exploration = settings.exploration
        self.exploration_min = settings.exploration_min
        self.threshold_percent = settings.threshold_percent
        self.history: list[float] = []
        self.last_exploited = NOBODY
        self.last_explored = NOBODY

    def register(self, utility: NDArray[np.float64], duration_s: NDArray[np.float64]) -> None:
        """All devices at once, with placeholder utilities and profiled durations."""
        self.arms = Arms.registered(utility, duration_s)

    def decide(
        self, k: int, feasible: NDArray[np.bool_], draws: Draws, factor: NDArray[np.float64] | None = None
    ) -> OortDecision:
        """One call of the selector.

        Args:
            k: Devices wanted.
            feasible: Who is there.
            draws: Who rolls the dice.
            factor: Multiplies every device's score and exploration weight (EAFL's battery term).
        """
        self.calls += 1
        blacklist = self._blacklist()
        utilities = self._pace()
        allowed = feasible.copy()
        allowed[blacklist] = False
        now = OortCall(k, feasible, allowed, self._preferred_s(), factor, draws)
        norm = self._norm(allowed)
        scored = np.flatnonzero(allowed & (self.arms.count > 0))
        scores = self._scores(scored, norm, now)
        self.exploration = max(self.exploration * self.settings.exploration_decay, self.exploration_min)
        exploit_len = self._exploit_len(k, len(scored))
        cut_off, pool = self._pool(scores, exploit_len)
        exploited = self._draw(draws, scored[pool], scores[pool], exploit_len)
        self.last_exploited = exploited
        explored, picked = self._complete(exploited, now)
        return OortDecision(
            call=self.calls,
            blacklist=blacklist,
            last_exploit_utility=utilities[0],
            last_explore_utility=utilities[1],
            threshold_percent=self.threshold_percent,
            preferred_s=now.preferred_s,
            norm=norm,
            scored=scored,
            scores=scores,
            exploration=self.exploration,
            exploit_len=exploit_len,
            explore_len=len(explored),
            cut_off=cut_off,
            pool=scored[pool],
            exploited=self.last_exploited,
            explored=explored,
            picked=picked,
        )

    def _blacklist(self) -> Ids:
        """Devices that took part too often, the most frequent first."""
        if self.settings.blacklist_after < 0:
            return NOBODY
        tired = np.flatnonzero(self.arms.count > self.settings.blacklist_after)
        cap = int(self.settings.blacklist_share * len(self.arms.count))  # fix: int
        return tired[top_k(self.arms.count[tired].astype(np.float64), cap)]

    def _pace(self) -> tuple[float, float]:
        """Note the utilities of last call's devices and move the threshold."""
        exploit = self.arms.mean_utility(self.last_exploited)
        explore = self.arms.mean_utility(self.last_explored)
        self.arms.succeeded[:] = False
        self.history.append(exploit)
        step = self.settings.pacer_step
        if step and self.calls >= 2 * step and self.calls % step == 0:
            self._move_threshold(sum(self.history[-2 * step : -step]), sum(self.history[-step:]))
        return exploit, explore

    def _move_threshold(self, before: float, now: float) -> None:
        step = self.settings.threshold_step_percent
        if abs(now - before) <= 0.1 * before:
            self.threshold_percent = min(100.0, self.threshold_percent + step)
        elif abs(now - before) >= 5 * before:
            self.threshold_percent = max(step, self.threshold_percent - step)

    def _preferred_s(self) -> float:
        """T: the threshold's percentile of all durations."""
        n = len(self.arms.duration_s)
        if self.threshold_percent >= 100.0 or n == 0:
            return math.inf
        index = min(int(n * self.threshold_percent / 100.0), n - 1)
        return float(np.partition(self.arms.duration_s, index)[index])

    def _rated(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whose utilities the normalisation looks at; placeholders among them."""
        return allowed & (self.arms.utility > 0)

    def _norm(self, allowed: NDArray[np.bool_]) -> Norm:
        values = self.arms.utility[self._rated(allowed)]
        if len(values) == 0:  # fix: nothing to normalise by
            return Norm(0.0, SMALLEST_SPAN, 0.0)
        index = min(int(len(values) * self.settings.clip_bound), len(values) - 1)
        low = float(values.min()) * 0.999
        span = max(float(values.max()) - low, SMALLEST_SPAN)
        return Norm(low, span, float(np.partition(values, index)[index]))

    def _scores(self, ids: Ids, norm: Norm, now: OortCall) -> NDArray[np.float64]:
        scores = (np.minimum(self.arms.utility[ids], norm.clip) - norm.low) / norm.span
        scores += np.sqrt(UCB * math.log(self.calls) / self.arms.stamp[ids])
        return self._penalised(scores, ids, now)

    def _penalised(self, values: NDArray[np.float64], ids: Ids, now: OortCall) -> NDArray[np.float64]:
        """Times (T/d)^alpha where d > T, and times the factor if there is one; in place."""
        duration_s = self.arms.duration_s[ids]
        late = np.flatnonzero(duration_s > now.preferred_s)
        ratio = now.preferred_s / np.maximum(duration_s[late], SHORTEST_S)
        values[late] *= ratio**self.settings.penalty
        if now.factor is not None:
            values *= now.factor[ids]
        return values

    def _exploit_len(self, k: int, scored: int) -> int:
        return max(0, min(int(k * (1.0 - self.exploration)), scored - 1))  # fix: one is left for the border

    def _pool(self, scores: NDArray[np.float64], exploit_len: int) -> tuple[float, Ids]:
        """The cut-off score and the positions of those that reach it."""
        if len(scores) == 0:
            return 0.0, NOBODY
        border = np.partition(scores, len(scores) - 1 - exploit_len)[len(scores) - 1 - exploit_len]
        cut_off = float(border) * self.settings.cut_off
        pool = np.flatnonzero(scores >= cut_off)
        # fix: a negative border lies below its own cut-off, which may leave too few.
        return cut_off, pool if len(pool) >= exploit_len else top_k(scores, exploit_len)

    @staticmethod
    def _draw(draws: Draws, ids: Ids, weights: NDArray[np.float64], size: int) -> Ids:
        """By weight; fix: fewer if there are fewer positive weights."""
        positive = np.flatnonzero(weights > 0)
        size = min(size, len(positive))
        return draws.weighted(ids[positive], weights[positive], size) if size else NOBODY

    def _complete(self, exploited: Ids, now: OortCall) -> tuple[Ids, Ids]:
        """Devices never tried, then fill-ins up to K."""
        if np.any(self.arms.count == 0):
            self.last_explored = explored = self._explore(now.k - len(exploited), now)
            return explored, self._filled(np.concatenate([exploited, explored]), now)
        self.exploration = self.exploration_min = 0.0
        # The published list of exploited devices is the list that is filled: fill-ins count for the pacer.
        self.last_exploited = self._filled(exploited, now)
        return NOBODY, self.last_exploited

    def _explore(self, wanted: int, now: OortCall) -> Ids:
        ids = np.flatnonzero(now.feasible & (self.arms.count == 0))
        weights = self._explore_weights(ids, now)
        wanted = min(wanted, len(ids))
        best = top_k(weights, int(self.settings.sample_window * wanted))
        return self._draw(now.draws, ids[best], weights[best], wanted)

    def _explore_weights(self, ids: Ids, now: OortCall) -> NDArray[np.float64]:
        return self._penalised(self.arms.utility[ids], ids, now)

    def _filled(self, picked: Ids, now: OortCall) -> Ids:
        """Uniform picks up to K; fix: of everyone there if too few are allowed, and no more than those."""
        for there in (now.allowed, now.feasible):
            if len(picked) < now.k:
                ids = np.flatnonzero(there)
                missing = min(now.k - len(picked), len(ids) - int(np.count_nonzero(there[picked])))
                picked = np.concatenate([picked, now.draws.fill(ids, picked, missing)])
        return picked

    def state_dict(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            "arms": self.arms.state_dict(),
            "calls": self.calls,
            "exploration": self.exploration,
            "exploration_min": self.exploration_min,
            "threshold_percent": self.threshold_percent,
            "history": list(self.history),
            "last_exploited": self.last_exploited.copy(),
            "last_explored": self.last_explored.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.arms = Arms.from_state(state["arms"])
        self.calls = int(state["calls"])
        self.exploration = float(state["exploration"])
        self.exploration_min = float(state["exploration_min"])
        self.threshold_percent = float(state["threshold_percent"])
        self.history = [float(value) for value in state["history"]]
        self.last_exploited = np.array(state["last_exploited"], dtype=np.int64)
        self.last_explored = np.array(state["last_explored"], dtype=np.int64)
