"""FedMarl (Zhang, Lin and Zhang, AAAI 2022): candidates probe, agents with shared weights reject some.

One agent per candidate sees its probing loss, the latencies of this and earlier probes, those of its last
known transfer and of the ones before, the energy of that transfer, its data size and the time; the joint
value is the agents' sum (VDN). The reward is w1 (U(acc_t) - U(acc_t-1)) - w2 H_t - w3 B_t, with the round's
latency H and the upload cost B that the chosen devices report.

No code is public and the paper leaves out the form of U, the weights and the history. Taken here:
U(a) = -ln(1 - a + 0.01), H and B over their means under the random policy it starts with, w = (1, 0.2, 0.1),
three earlier values, 128 hidden units. ``mode = "native"`` keeps every device that gains by going on, at most
K, so that the cohort's size varies; ``topk`` (default) keeps exactly K, since a smaller cohort saves energy
for free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import Accounting, RoundOutcome
from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.neural.learner import Learner, LearnerOptions, learner_options
from emulator.selectors.neural.mlp import Mlp, one_blas_thread
from emulator.selectors.neural.normalise import robust_log_z
from emulator.selectors.neural.vdn import Transition, advantages
from emulator.selectors.parts.draws import top_k
from emulator.selectors.parts.options import one_of, several, text, whole, within, yes_or_no

HISTORY = 3
FEATURES = (
    "loss",
    "epoch_s",
    *(f"epoch_s-{i}" for i in range(1, HISTORY + 1)),
    "comm_s",
    *(f"comm_s-{i}" for i in range(1, HISTORY + 1)),
    "comm_j",
    "data_size",
    "progress",
)
DEFAULTS = LearnerOptions(
    rate=1e-3, rank_weight=0.0, cache=2000, sync_every=10, demo_share=0.0, demo_rounds=0
)


def accuracy_utility(accuracy: float) -> float:
    """U: late gains stay visible."""
    return float(-np.log(1.0 - accuracy + 0.01))


class FedMarl(Selector):
    """Multi-agent early rejection.

    Args:
        policy: Name of a policy of the package, or a file; empty to start from random weights.
        mode: ``topk`` or ``native``.
        online: Whether it learns while it runs. By default it acts as it was trained.
        weights: w1, w2, w3 of the reward.
        explore_rounds: Rounds over which random choices go from certain to ``explore_last`` while it learns.
        explore_last: Share of random rounds after that.
        **learning: Options of the learner.
    """

    name: ClassVar[str] = "fedmarl"
    family: ClassVar[Family] = Family.LEARNING
    needs_accuracy: ClassVar[bool] = True
    paper: ClassVar[str] = "Zhang et al., AAAI 2022"
    deviations: ClassVar[str] = (
        "U, weights and history are not published; topk keeps K, native its own number"
    )
    probe: ClassVar[Probe] = Probe.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset({"loss", "epoch_s", "comm_s", "comm_j", "upload_j"})
    option_defaults: ClassVar[Mapping[str, Any]] = asdict(DEFAULTS)

    def __init__(
        self,
        *,
        policy: str = "fedmarl",
        mode: Literal["topk", "native"] = "topk",
        online: bool = False,
        weights: tuple[float, float, float] = (1.0, 0.2, 0.1),
        explore_rounds: int = 500,
        explore_last: float = 0.05,
        **learning: Any,
    ) -> None:
        text(self.name, "policy", policy)
        one_of(self.name, "mode", mode, ("topk", "native"))
        yes_or_no(self.name, "online", online)
        whole(self.name, "explore_rounds", explore_rounds, 0, 1e9)
        within(self.name, "explore_last", explore_last, 0.0, 1.0)
        several(self.name, "weights", weights, 3)
        for weight in weights:
            within(self.name, "weights", weight, 0.0, 1e6)
        self._mode = mode
        self._online = online
        self._reward_weights = weights
        self._explore = (explore_rounds, explore_last)
        self._options = learner_options(self, DEFAULTS, learning)
        self._learner: Learner | None = None
        if policy:
            # Not at the top: listing selectors reads no policy.
            from emulator.selectors.neural.policy import load_policy

            loaded = load_policy(policy, "fedmarl", FEATURES)
            self.policy_sha256 = loaded.sha256
            self._learner = Learner(loaded.network, self._options, None)
        self._history: NDArray[np.float32] | None = None
        self._pending: dict[str, Any] | None = None
        self._seen = 0
        # Sums of H and B over the rounds that were played at random, and their number.
        self._random_means = np.zeros(3)

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """``m`` at random; ``native`` probes 2 K, since it chooses its own cohort from them."""
        return super().candidates(view, self.probe_count(m, view.k), rng)

    def probe_count(self, m: int, k: int) -> int:
        """Twice K where the network decides how many finish."""
        return 2 * k if self._mode == "native" else m

    @one_blas_thread
    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Those whose agents gain most by going on."""
        state = self._states(view, candidates)
        if self._learner is None:
            self._learner = Learner(Mlp.made((len(FEATURES), 128, 2), rng), self._options, None)
        most, k = k, min(k, len(candidates))
        if self._online:
            self._complete(state, k if self._mode == "topk" else most, rng)
            self._learner.learn(self._seen, rng)
        random = self._online and rng.random() < self._random_share()
        picks = rng.choice(len(candidates), k, replace=False) if random else self._greedy(state, k)
        self._pending = {"state": state, "picks": picks, "random": bool(random)}
        return candidates[picks]

    def _greedy(self, state: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        if self._learner is None or len(state) == 0:
            return np.zeros(0, np.int64)
        gain = advantages(self._learner.network(state))
        if self._mode == "topk":
            return top_k(gain, k)
        best = top_k(gain, k)  # a round takes no more than were asked for
        willing = best[gain[best] > 0]
        return willing if len(willing) else best[:1]

    def _random_share(self) -> float:
        rounds, last = self._explore
        return max(last, 1.0 - (1.0 - last) * self._seen / max(1, rounds))

    def _states(self, view: ServerView, devices: Ids) -> NDArray[np.float32]:
        if self._history is None:
            self._history = np.full((len(view), 2 * HISTORY), np.nan, np.float32)
        past = self._history[devices]
        epochs_s, transfers_s = past.T[:HISTORY], past.T[HISTORY:]
        columns = [view.loss[devices], view.epoch_s[devices], *epochs_s, view.comm_s[devices], *transfers_s]
        z = robust_log_z([*columns, view.comm_j[devices], view.data_size[devices]])
        progress = np.full((len(devices), 1), view.round / max(1, view.rounds), np.float32)
        past[:, 1:HISTORY], past[:, HISTORY + 1 :] = past[:, : HISTORY - 1], past[:, HISTORY:-1]
        past[:, 0], past[:, HISTORY] = view.epoch_s[devices], view.comm_s[devices]
        self._history[devices] = past
        return np.concatenate([z, progress], axis=1)

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """The round's reward, kept until the next probe shows the next state."""
        if self._pending is None or not self._online:
            return
        # A round in which nobody could be chosen is not the pending one's: that keeps its own reward.
        if "reward" not in self._pending:
            self._seen += 1
            self._pending["reward"] = self._reward(outcome, played_at_random=self._pending["random"])
        if view.round >= view.rounds:
            self._complete(None, view.k, np.random.default_rng(0))
            self._history = None

    def _reward(self, outcome: RoundOutcome, *, played_at_random: bool) -> float:
        latency_s = outcome.costs[Accounting.HONEST].time_s
        upload_j = float(np.nansum(outcome.reports.upload_j))  # NaN for those who sent nothing
        if played_at_random or self._random_means[2] == 0:
            self._random_means += (latency_s, upload_j, 1.0)
        typical_s, typical_j = np.maximum(self._random_means[:2] / self._random_means[2], 1e-12)
        w1, w2, w3 = self._reward_weights
        before = outcome.accuracy - outcome.accuracy_gain
        gain = accuracy_utility(outcome.accuracy) - accuracy_utility(before)
        return float(w1 * gain - w2 * latency_s / typical_s - w3 * upload_j / typical_j)

    def _complete(self, following: NDArray[np.float32] | None, k: int, rng: np.random.Generator) -> None:
        pending, self._pending = self._pending, None
        if pending is None or "reward" not in pending or self._learner is None:
            return
        action = np.zeros(len(pending["state"]), bool)
        action[pending["picks"]] = True
        # `native` chooses up to so many, `topk` exactly so many.
        exactly, most = (None, k) if self._mode == "native" else (k, None)
        seen = Transition(pending["state"], action, pending["reward"], following, exactly, most)
        self._learner.keep(seen, rng)

    @property
    def network(self) -> Mlp | None:
        """What it has learnt so far, for a policy file."""
        return None if self._learner is None else self._learner.network

    def metrics(self) -> dict[str, float]:
        """The TD loss of the last updates."""
        return {"td_loss": float("nan") if self._learner is None else self._learner.td_loss}

    def state_dict(self) -> dict[str, Any]:
        """The learner, the devices' histories and the round that waits for its next state."""
        return {
            "learner": None if self._learner is None else self._learner.state_dict(),
            "history": None if self._history is None else self._history.copy(),
            "pending": None if self._pending is None else dict(self._pending),
            "seen": self._seen,
            "random_means": self._random_means.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        if state["learner"] is not None:
            if self._learner is None:
                fresh = Mlp.made((len(FEATURES), 128, 2), np.random.default_rng(0))
                self._learner = Learner(fresh, self._options, None)
            self._learner.load_state_dict(state["learner"])
        self._history = None if state["history"] is None else np.array(state["history"], np.float32)
        self._pending = None if state["pending"] is None else dict(state["pending"])
        self._seen = int(state["seen"])
        self._random_means = np.array(state["random_means"], np.float64)
