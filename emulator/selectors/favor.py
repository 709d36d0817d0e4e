"""Favor (Wang et al., INFOCOM 2020): a double DQN chooses by the principal components of everybody's weights.

Once before the first round every device trains an epoch and uploads its weights (charged); a PCA of these is
kept for the whole run (a policy brings the one that it was trained with). The state is the global model's and
every device's latest components; an action is one device, and the K best of Q(s, .) are chosen. Reward:
64 ** (accuracy - target) - 1.

The state's size depends on the model and on N, so a policy serves the task it was trained on and no other.
Without a policy ``favor`` learns during the run; a given one acts as it is, or learns on with ``online =
true``. Deviations: no softmax on the output, since Q-values are no probabilities; Adam instead of RMSprop;
every chosen device is a transition of its own, as the joint choice has no single action.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Profiling, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.neural.adam import Adam
from emulator.selectors.neural.mlp import Mlp, one_blas_thread
from emulator.selectors.parts.draws import top_k
from emulator.selectors.parts.options import text, whole, within, yes_or_no
from joulefleet.errors import ConfigError

MAX_DEVICES = 1000
"""The state has N + 1 rows of components: at a thousand devices the network and its optimiser take 0.6 GB."""

REWARD_BASE = 64.0


class Favor(Selector):
    """Deep Q-learning on compressed weights.

    Args:
        policy: File of a policy for this task and fleet; empty to learn during the run.
        online: Whether it learns while it runs. By default only without a policy.
        target_accuracy: Omega of the reward.
        components: At most so many principal components.
        discount: gamma.
        rate: Adam's learning rate.
        cache: Rounds kept; each holds one transition per chosen device.
        batch: Transitions per update.
        updates: Updates per round.
        sync_every: Rounds between copies to the target network.
        explore_rounds: Rounds over which random choices go from 0.9 to 0.05; half of the planned ones by
            default. Published agents explore over hundreds of episodes before they are used, never over the
            rounds that are judged: over 200 rounds, four of five choices of a run of 50 were random.
    """

    name: ClassVar[str] = "favor"
    family: ClassVar[Family] = Family.LEARNING
    needs_accuracy: ClassVar[bool] = True
    paper: ClassVar[str] = "Wang et al., INFOCOM 2020"
    deviations: ClassVar[str] = "learns online unless given a policy of this task; Adam; no output softmax"
    profiling: ClassVar[Profiling] = Profiling.UPDATE
    needs_weights: ClassVar[bool] = True
    most_devices: ClassVar[int | None] = MAX_DEVICES

    def __init__(
        self,
        *,
        policy: str = "",
        online: bool | None = None,
        target_accuracy: float = 0.99,
        components: int = 100,
        discount: float = 0.999,
        rate: float = 1e-4,
        cache: int = 1000,
        batch: int = 128,
        updates: int = 1,
        sync_every: int = 10,
        explore_rounds: int | None = None,
    ) -> None:
        within(self.name, "target_accuracy", target_accuracy, 0.0, 1.0)
        whole(self.name, "components", components, 1, 1e9)
        within(self.name, "discount", discount, 0.0, 1.0)
        within(self.name, "rate", rate, 0.0, 1.0)
        whole(self.name, "cache", cache, 1, 1e9)
        whole(self.name, "batch", batch, 1, 1e9)
        whole(self.name, "updates", updates, 0, 1e6)
        whole(self.name, "sync_every", sync_every, 1, 1e9)
        if explore_rounds is not None:
            whole(self.name, "explore_rounds", explore_rounds, 0, 1e9)
        text(self.name, "policy", policy)
        if online is not None:
            yes_or_no(self.name, "online", online)
        given = None
        if policy:
            # Not at the top: listing selectors reads no policy.
            from emulator.selectors.neural.policy import load_policy

            given = load_policy(policy, "favor")
        if given is not None and given.projection is None:
            raise ConfigError(
                f"policy {policy!r} does not say which components its network reads",
                hint="make it again: `joulefleet policy train favor`",
            )
        self._given = None if given is None else given.network
        self.policy_sha256 = None if given is None else given.sha256
        self._online = given is None if online is None else online
        self._target_accuracy = target_accuracy
        self._components = components
        self._discount = discount
        self._rate = rate
        self._limits = (cache, batch, updates, sync_every)
        self._explore_rounds = explore_rounds
        self._basis: NDArray[np.float32] | None = None
        self._center: NDArray[np.float32] | None = None
        if given is not None and given.projection is not None:
            self._basis, self._center = given.projection
        self._state: NDArray[np.float32] | None = None
        self._network: Mlp | None = None
        self._target: Mlp | None = None
        self._adam: Adam | None = None
        self._cache: list[dict[str, Any]] = []
        self._before: NDArray[np.float32] | None = None
        self._seen = 0
        self._td_loss = float("nan")

    @one_blas_thread
    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` with the largest Q, or at random before there is a state, or to explore."""
        k = min(k, len(candidates))
        if self._state is None or self._state.size == 0:
            return rng.choice(candidates, k, replace=False)
        network = self._prepared(len(view), rng)
        if self._online:
            self._learn(rng)
        self._before = self._state.copy()
        if self._online and self._given is None and rng.random() < self._random_share(view):
            return rng.choice(candidates, k, replace=False)
        q = network(self._state.reshape(1, -1))[0]
        return candidates[top_k(q[candidates], k)]

    @one_blas_thread
    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Refresh the components of whoever uploaded, and remember the transitions."""
        weights, global_weights = outcome.reports.weights, outcome.global_weights
        if weights is None or global_weights is None:
            return
        if self._state is None:
            self._begin(weights, global_weights, len(view))
        uploaded = np.isfinite(weights).all(axis=1)
        state = self._require_state()
        state[0] = self._compressed(global_weights)
        state[1 + outcome.clients[uploaded]] = self._compressed(weights[uploaded])
        if outcome.round == 0 or self._before is None:
            return
        self._seen += 1
        reward = REWARD_BASE ** (outcome.accuracy - self._target_accuracy) - 1.0
        seen: dict[str, Any] = {
            "state": self._before,
            "actions": outcome.clients[outcome.chosen],
            "reward": float(reward),
            "next": state.copy(),
            "done": view.round >= view.rounds,
        }
        # An accuracy that nobody could measure says nothing and would spoil every weight.
        if len(seen["actions"]) and np.isfinite(reward):
            self._cache = [*self._cache, seen][-self._limits[0] :]
        self._before = None

    def _begin(self, weights: NDArray[np.float32], center: NDArray[np.float32], count: int) -> None:
        """Make room for everybody's components: those of the policy, or of the first local weights."""
        basis = self._fitted(weights, center) if self._basis is None else self._basis
        if len(basis) != len(center):
            raise ConfigError(
                f"favor's policy is for a model of {len(basis)} weights, this one has {len(center)}",
                hint="train one for this task: `joulefleet policy train favor`",
            )
        self._basis = basis
        self._state = np.zeros((count + 1, basis.shape[1]), np.float32)

    def _fitted(self, weights: NDArray[np.float32], center: NDArray[np.float32]) -> NDArray[np.float32]:
        """Principal components of the first local weights; through the small Gram matrix, N by N."""
        rows = weights[np.isfinite(weights).all(axis=1)].astype(np.float64)
        self._center = rows.mean(axis=0).astype(np.float32) if len(rows) else center.copy()
        rows -= self._center
        values, vectors = np.linalg.eigh(rows @ rows.T)
        keep = np.argsort(values)[::-1][: self._components]
        keep = keep[values[keep] > max(1e-12, 1e-9 * float(values.max(initial=0.0)))]
        basis = rows.T @ (vectors[:, keep] / np.sqrt(values[keep]))
        # Signs of eigenvectors are arbitrary; fixed, so that every machine gets the same state.
        basis *= np.where(basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])] < 0, -1.0, 1.0)
        return np.asarray(basis, np.float32)

    def _compressed(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._basis is None or self._center is None:
            raise RuntimeError("favor: compress before the profiling round")
        return np.asarray((weights - self._center) @ self._basis, np.float32)

    def _require_state(self) -> NDArray[np.float32]:
        if self._state is None:
            raise RuntimeError("favor: no state before the profiling round")
        return self._state

    def _prepared(self, count: int, rng: np.random.Generator) -> Mlp:
        if self._network is None:
            size = self._require_state().size
            fresh = Mlp.made((size, 512, count), rng)
            if self._given is not None:
                fresh.load_state_dict(self._given.state_dict())
            self._network, self._target = fresh, fresh.copy()
            self._adam = Adam(fresh.parameters(), self._rate)
        return self._network

    def _random_share(self, view: ServerView) -> float:
        over = view.rounds // 2 if self._explore_rounds is None else self._explore_rounds
        return max(0.05, 0.9 - 0.85 * self._seen / max(1, over))

    def _learn(self, rng: np.random.Generator) -> None:
        _, batch, updates, sync_every = self._limits
        network, target, adam = self._network, self._target, self._adam
        if not self._cache or network is None or target is None or adam is None:
            return
        for _ in range(updates):
            picks = [self._cache[i] for i in rng.integers(len(self._cache), size=batch)]
            rows = np.arange(len(picks))
            following = np.stack([p["next"].ravel() for p in picks])
            best = network(following).argmax(axis=1)
            future = target(following)[rows, best] * ~np.array([p["done"] for p in picks])
            goal = np.array([p["reward"] for p in picks], np.float32) + np.float32(self._discount) * future
            activations = network.activations(np.stack([p["state"].ravel() for p in picks]))
            actions = np.array([rng.choice(p["actions"]) for p in picks])
            error = activations[-1][rows, actions] - goal
            slope = np.zeros_like(activations[-1])
            slope[rows, actions] = 2 * error / len(picks)
            adam.step(network.parameters(), network.gradients(activations, slope))
            self._td_loss = float(np.mean(error**2))
        if self._seen % sync_every == 0:
            self._target = network.copy()

    @property
    def projection(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """The components that the network reads, and the weights they start from; for a policy file."""
        return None if self._basis is None or self._center is None else (self._basis, self._center)

    @property
    def network(self) -> Mlp | None:
        """What it has learnt so far, for a policy file."""
        return self._network

    def metrics(self) -> dict[str, float]:
        """The TD loss of the last update."""
        return {"td_loss": self._td_loss}

    def state_dict(self) -> dict[str, Any]:
        """Networks, basis, components and transitions."""
        return {
            "network": None if self._network is None else self._network.state_dict(),
            "target": None if self._target is None else self._target.state_dict(),
            "adam": None if self._adam is None else self._adam.state_dict(),
            "basis": self._basis,
            "center": self._center,
            "state": None if self._state is None else self._state.copy(),
            "before": self._before,
            "cache": [dict(seen) for seen in self._cache],
            "seen": self._seen,
            "td_loss": self._td_loss,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self._basis, self._center, self._before = state["basis"], state["center"], state["before"]
        self._state = None if state["state"] is None else np.array(state["state"], np.float32)
        self._cache = [dict(seen) for seen in state["cache"]]
        self._seen, self._td_loss = int(state["seen"]), float(state["td_loss"])
        if state["network"] is not None and self._state is not None:
            network = self._prepared(len(self._state) - 1, np.random.default_rng(0))
            network.load_state_dict(state["network"])
            if self._target is not None and self._adam is not None:
                self._target.load_state_dict(state["target"])
                self._adam.load_state_dict(state["adam"])
