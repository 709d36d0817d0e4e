"""FedRank: a shared Q-network, taught by experts and then by the rounds themselves, ranks the probed devices.

Implements the round of section 3 of the paper: state s = (T_comp, T_comm, E_comp, E_comm, L, D) after the
probe epoch, VDN joint value, the K best devices, and the joint loss (5) over the profiler cache.

Deviations, each with its switch: devices are ranked by Q(s, 1) - Q(s, 0), which is the exact maximum of the
joint value with K devices (``rank_by = "q1"`` is the paper's wording, item A8); the rank loss has a credited
target (``rank_target``, item A9); features are normalised per round (item A14); a transition is completed at
the next probe, when its next state exists (item A18); one pick is swapped at random now and then
(``explore_first``, ``explore_last``; the paper names no exploration, item A20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.neural.learner import Learner, LearnerOptions, learner_options
from emulator.selectors.neural.mlp import Mlp, one_blas_thread
from emulator.selectors.neural.normalise import robust_log_z
from emulator.selectors.neural.vdn import Transition, advantages
from emulator.selectors.parts.draws import top_k
from emulator.selectors.parts.options import one_of, several, text, whole, within, yes_or_no
from joulefleet.errors import ConfigError

TAU_DEVICES = 1000
"""How far the ranking has moved is told from so many devices: enough for two digits, cheap for a fleet."""
FEATURES = ("epoch_s", "comm_s", "epoch_j", "comm_j", "loss", "data_size")
"""T_comp, T_comm, E_comp, E_comm, L, D; compute costs are per epoch, measured in the probe."""


def device_states(view: ServerView, devices: Ids) -> NDArray[np.float32]:
    """Normalised over these devices, in this round."""
    return robust_log_z([getattr(view, name)[devices] for name in FEATURES])


class FedRank(Selector):
    """Learning to rank.

    Args:
        policy: Name of a policy of the package, or a file of `joulefleet policy train`; empty for none, which
            is the ablation -I.
        online: Whether it learns while it runs; without, the imitated policy acts alone (``frozen``).
        rank_by: ``advantage``, or ``q1``.
        hidden: Units of the two hidden layers, for a network that does not come from a policy.
        explore_first: Probability of one random swap in the first round.
        explore_last: The same in the last.
        **learning: Options of `LearnerOptions`.
    """

    name: ClassVar[str] = "fedrank"
    family: ClassVar[Family] = Family.LEARNING
    paper: ClassVar[str] = "FedRank, ICML 2024"
    deviations: ClassVar[str] = "ranks by advantage, credited rank target, normalised state, exploration"
    probe: ClassVar[Probe] = Probe.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset(FEATURES) - {"data_size"}
    learns_from: ClassVar[frozenset[str]] = frozenset({"device_rewards"})
    option_defaults: ClassVar[Mapping[str, Any]] = asdict(LearnerOptions())

    def __init__(
        self,
        *,
        policy: str = "fedrank",
        online: bool = True,
        rank_by: Literal["advantage", "q1"] = "advantage",
        hidden: tuple[int, int] = (64, 64),
        explore_first: float = 0.1,
        explore_last: float = 0.02,
        **learning: Any,
    ) -> None:
        text(self.name, "policy", policy)
        yes_or_no(self.name, "online", online)
        one_of(self.name, "rank_by", rank_by, ("advantage", "q1"))
        several(self.name, "hidden", hidden, 2)
        for units in hidden:
            whole(self.name, "hidden", units, 1, 1e6)
        within(self.name, "explore_first", explore_first, 0.0, 1.0)
        within(self.name, "explore_last", explore_last, 0.0, 1.0)
        self._online = online
        self._rank_by = rank_by
        self._sizes = (len(FEATURES), *hidden, 2)
        self._explore = (explore_first, explore_last)
        self._options = learner_options(self, LearnerOptions(), learning)
        self._learner: Learner | None = None
        self._pending: dict[str, Any] | None = None
        self._drift = float("nan")
        self._imitated: Mlp | None = None
        if policy:
            # Not at the top: listing selectors reads no policy.
            from emulator.selectors.neural.policy import load_policy

            loaded = load_policy(policy, "fedrank", FEATURES)
            self.policy_sha256 = loaded.sha256
            self._imitated = loaded.network
            self._learner = Learner(loaded.network.copy(), self._options, loaded.demonstrations)

    @one_blas_thread
    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` with the highest rank, after learning from the round before."""
        state = device_states(view, candidates)
        learner = self._learner_or_new(rng)
        k = min(k, len(candidates))
        if self._online:
            self._complete(state, k, rng)
            learner.learn(view.round, rng)
        rank = self._ranks(learner.network, state)
        if self._online and self._imitated is not None and len(rank) > 1:
            seen = slice(TAU_DEVICES)
            self._drift = _kendall_tau(rank[seen], self._ranks(self._imitated, state[seen]))
        picks = self._picks(view, candidates, rank, k)
        if self._online:
            picks = self._explored(picks, len(candidates), view, rng)
        self._pending = {"state": state, "picks": picks, "ids": candidates}
        return candidates[picks]

    def _picks(self, view: ServerView, candidates: Ids, rank: NDArray[np.float32], k: int) -> Ids:
        """Positions of the ``k`` best candidates."""
        return top_k(rank, k)

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Keep the reward until the next probe shows the next state; at the end there is none."""
        if self._pending is None:
            return
        # A round in which nobody could be chosen is not this one's: its own reward stays.
        if "reward" not in self._pending:
            self._pending["reward"] = float(outcome.reward)
            self._pending["credits"] = self._credits(outcome)
        if view.round >= view.rounds and self._learner is not None and self._online:
            self._complete(None, 0, np.random.default_rng(0))

    def _credits(self, outcome: RoundOutcome) -> NDArray[np.float64] | None:
        """Each candidate's own reward, by its place; candidates that left were not chosen."""
        ids = None if self._pending is None else self._pending.get("ids")
        if self._options.credit != "device" or outcome.device_rewards is None or ids is None:
            return None
        found: NDArray[np.float64] = outcome.device_rewards[np.searchsorted(outcome.clients, ids)]
        return found

    def _complete(self, next_state: NDArray[np.float32] | None, k: int, rng: np.random.Generator) -> None:
        pending, self._pending = self._pending, None
        if pending is None or "reward" not in pending or self._learner is None:
            return
        action = np.zeros(len(pending["state"]), bool)
        action[pending["picks"]] = True
        seen = Transition(pending["state"], action, pending["reward"], next_state, k)
        self._learner.keep(replace(seen, credits=pending.get("credits")), rng)

    def _learner_or_new(self, rng: np.random.Generator) -> Learner:
        if self._learner is None:
            self._learner = Learner(Mlp.made(self._sizes, rng), self._options, None)
        return self._learner

    def _ranks(self, network: Mlp, state: NDArray[np.float32]) -> NDArray[np.float32]:
        q = network(state)
        return q[:, 1] if self._rank_by == "q1" else advantages(q)

    def _explored(self, picks: Ids, count: int, view: ServerView, rng: np.random.Generator) -> Ids:
        """With a small probability, one pick is swapped for a device that was not picked."""
        first, last = self._explore
        progress = (view.round - 1) / max(1, view.rounds - 1)
        if rng.random() >= first + (last - first) * progress or len(picks) in (0, count):
            return picks
        others = np.setdiff1d(np.arange(count), picks, assume_unique=True)
        swapped = picks.copy()
        swapped[rng.integers(len(picks))] = rng.choice(others)
        return swapped

    @property
    def network(self) -> Mlp:
        """What ranks now.

        Raises:
            ConfigError: There is none before the first choice without a policy.
        """
        if self._learner is None:
            raise ConfigError(f"{self.name} has no policy and has not chosen yet")
        return self._learner.network

    def metrics(self) -> dict[str, float]:
        """Losses of the last updates, and how far the ranking has moved from the imitated one."""
        learner = self._learner
        return {
            "td_loss": float("nan") if learner is None else learner.td_loss,
            "rank_loss": float("nan") if learner is None else learner.ranking_loss,
            "tau_to_imitated": self._drift,
        }

    def state_dict(self) -> dict[str, Any]:
        """The learner, and the round that still waits for its next state."""
        return {
            "learner": None if self._learner is None else self._learner.state_dict(),
            "pending": None if self._pending is None else dict(self._pending),
            "drift": self._drift,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        if state["learner"] is not None:
            self._learner_or_new(np.random.default_rng(0)).load_state_dict(state["learner"])
        self._pending = None if state["pending"] is None else dict(state["pending"])
        self._drift = float(state["drift"])


def _kendall_tau(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Agreement of two rankings, from 1 to -1."""
    from scipy.stats import kendalltau

    return float(kendalltau(a, b).statistic)
