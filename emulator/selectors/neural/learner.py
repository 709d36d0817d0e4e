"""Learning while it runs, from whole rounds: TD error of the joint value, rank loss, demonstrations.

Equations (2) to (5) of the FedRank paper over its profiler cache; FedMarl uses the TD part alone. What the
equations leave open or get wrong is resolved as the options say; ``docs/selectors-notes.md``, items A7 to
A10 and A18 to A21.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emulator.selectors.neural.adam import Adam
from emulator.selectors.neural.pairs import imitation_loss, rank_loss
from emulator.selectors.neural.vdn import Transition, advantages, at_outputs, td_slopes
from emulator.selectors.parts.options import one_of, options_of, whole, within
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.round.selector import Selector
    from emulator.selectors.neural.mlp import Mlp
    from emulator.selectors.neural.policy import Demonstrations

    Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """None of these values is in the paper, except ``rank_weight``'s name (epsilon).

    Attributes:
        discount: gamma.
        rate: Adam's learning rate.
        rank_weight: epsilon of equation (5); 0 is the ablation -P.
        rank_target: ``credited`` adds the round's standardised reward to the chosen devices' target scores;
            ``literal`` is equation (3) as printed, in which the common reward cancels (item A9).
        baseline: What is taken off a reward in the TD target: ``none``, or the ``mean`` of the rewards so
            far. With K chosen in every round it moves all joint values alike, and no choice; but a mean
            below 0 no longer pushes down whatever was picked (item A35).
        credit: Whose reward the ``credited`` rank target adds: the ``round``'s for every chosen device, or
            each ``device``'s own, in which only stragglers and overloaders are punished (item A36).
        pairs: ``mixed`` compares chosen devices with others, ``all`` every pair (item A10).
        cache: Rounds in the profiler cache.
        batch: Rounds per update.
        updates: Updates per round.
        sync_every: Rounds between copies to the target network.
        demo_share: Share of a batch that is demonstrations, at first.
        demo_rounds: Rounds over which that share goes to 0.
        max_others: Devices that were not chosen are kept up to this many per round, at random. It bounds the
            cache and the pairs when a whole fleet is ranked.
    """

    discount: float = 0.9
    rate: float = 1e-4
    rank_weight: float = 0.5
    rank_target: Literal["credited", "literal"] = "credited"
    baseline: Literal["none", "mean"] = "none"
    credit: Literal["round", "device"] = "round"
    pairs: Literal["mixed", "all"] = "mixed"
    cache: int = 1000
    batch: int = 16
    updates: int = 4
    sync_every: int = 5
    demo_share: float = 0.25
    demo_rounds: int = 50
    max_others: int = 1000


WORDS = {
    "rank_target": ("credited", "literal"),
    "baseline": ("none", "mean"),
    "credit": ("round", "device"),
    "pairs": ("mixed", "all"),
}
BOUNDS = {
    "discount": (0, 1),
    "rate": (0, 1),
    "rank_weight": (0, 1e6),
    "cache": (1, 1e9),
    "batch": (1, 1e9),
    "updates": (0, 1e6),
    "sync_every": (1, 1e9),
    "demo_share": (0, 1),
    "demo_rounds": (0, 1e9),
    "max_others": (1, 1e9),
}


def learner_options(selector: Selector, defaults: LearnerOptions, given: dict[str, Any]) -> LearnerOptions:
    """Defaults with the options on top that a selector was given and has not taken itself.

    Raises:
        ConfigError: An option does not exist, or its value makes no sense.
    """
    unknown = sorted(set(given) - {field.name for field in fields(LearnerOptions)})
    if unknown:
        raise ConfigError(
            f"selector {selector.name!r} has no option {unknown[0]!r}",
            hint=f"known: {', '.join(options_of(type(selector)))}",
        )
    for name, value in given.items():
        if name in WORDS:
            one_of(selector.name, name, value, WORDS[name])
        else:
            check = whole if isinstance(getattr(defaults, name), int) else within
            check(selector.name, name, value, *BOUNDS[name])
    return replace(defaults, **given)


class Learner:
    """A network, its target, and the rounds it learns from."""

    def __init__(self, network: Mlp, options: LearnerOptions, demos: Demonstrations | None) -> None:
        self.network = network
        self.options = options
        self._demos = demos
        self._target = network.copy()
        self._adam = Adam(network.parameters(), options.rate)
        self._cache: list[Transition] = []
        self._rewards: list[float] = []
        self.td_loss = self.ranking_loss = float("nan")

    def keep(self, seen: Transition, rng: np.random.Generator) -> None:
        """Store a finished round."""
        # A reward that is no number says nothing, and one update by it would spoil every weight.
        if not np.isfinite(seen.reward):
            return
        most = self.options.max_others
        others, following = np.flatnonzero(~seen.action), seen.next_state
        if len(others) > most:
            kept = rng.choice(others, most, replace=False)
            rows = np.sort(np.concatenate([np.flatnonzero(seen.action), kept]))
            own = None if seen.credits is None else seen.credits[rows]
            seen = replace(seen, state=seen.state[rows], action=seen.action[rows], credits=own)
        if following is not None and len(following) > most + (seen.next_k or 0):
            rows = np.sort(rng.choice(len(following), most + (seen.next_k or 0), replace=False))
            seen = replace(seen, next_state=following[rows])
        self._cache = [*self._cache, seen][-self.options.cache :]
        self._rewards.append(seen.reward)

    def learn(self, round_number: int, rng: np.random.Generator) -> None:
        """This round's updates; the target network follows every few rounds."""
        if not self._cache or not self.options.updates:
            return
        losses = [self._update(round_number, rng) for _ in range(self.options.updates)]
        self.td_loss, self.ranking_loss = (float(v) for v in np.mean(losses, axis=0))
        if round_number % self.options.sync_every == 0:
            self._target = self.network.copy()

    def _update(self, round_number: int, rng: np.random.Generator) -> tuple[float, float]:
        options = self.options
        shown = self._demonstrated(round_number, rng)
        picks = rng.integers(len(self._cache), size=max(1, options.batch - len(shown)))
        batch = [self._cache[i] for i in picks]
        rounds = [seen.state for seen in batch] + [state for state, _ in shown]
        activations = self.network.activations(np.concatenate(rounds))
        q = np.split(activations[-1], np.cumsum([len(r) for r in rounds])[:-1])
        baseline = float(np.mean(self._rewards)) if options.baseline == "mean" else 0.0
        td, slopes = td_slopes(q[: len(batch)], batch, self._target, options.discount, baseline)
        ranking = 0.0
        if options.rank_weight > 0:
            ranking = self._add_rank_slopes(q, batch, slopes)
        for values, (_, choice) in zip(q[len(batch) :], shown, strict=True):
            _, slope = imitation_loss(advantages(values), choice, pairwise=False)
            slopes.append(at_outputs(slope / np.float32(len(shown))))
        self._adam.step(
            self.network.parameters(), self.network.gradients(activations, np.concatenate(slopes))
        )
        return td, ranking

    def _demonstrated(
        self, round_number: int, rng: np.random.Generator
    ) -> list[tuple[Array, NDArray[np.bool_]]]:
        """This update's share of experts' rounds."""
        options = self.options
        if self._demos is None or options.demo_rounds == 0:
            return []
        left = max(0.0, 1 - (round_number - 1) / options.demo_rounds)
        count = round(options.batch * options.demo_share * left)
        picks = rng.integers(len(self._demos), size=count)
        return [(self._demos.states[i], self._demos.choices[i]) for i in picks]

    def _add_rank_slopes(self, q: list[Array], batch: list[Transition], slopes: list[Array]) -> float:
        """Add the slopes of epsilon L_Rank in place; returns L_Rank."""
        total = 0.0
        for index, seen in enumerate(batch):
            score, goal = self._scores(q[index], seen)
            loss, slope = rank_loss(score, goal, seen.action, every_pair=self.options.pairs == "all")
            slope *= np.float32(self.options.rank_weight / len(batch))
            if self.options.rank_target == "literal":
                slopes[index][np.arange(len(slope)), seen.action.astype(np.int64)] += slope
            else:
                slopes[index] += at_outputs(slope)
            total += loss / len(batch)
        return total

    def _scores(self, q: Array, seen: Transition) -> tuple[Array, Array]:
        """Scores f of equation (3) and their target."""
        goal = self._target(seen.state)
        if self.options.rank_target == "literal":
            taken = (np.arange(len(q)), seen.action.astype(np.int64))
            return q[taken], goal[taken]
        own = seen.credits if self.options.credit == "device" else None
        credit = self._standardised(np.full(len(q), seen.reward) if own is None else own)
        return advantages(q), advantages(goal) + credit * seen.action.astype(np.float32)

    def _standardised(self, reward: NDArray[np.float64]) -> Array:
        """Rewards against those of the rounds so far, within 2 standard deviations."""
        spread = float(np.std(self._rewards))
        # Equal rewards may have a spread of one rounding, which would pass for a standard deviation.
        if spread == 0 or np.ptp(self._rewards) == 0:
            return np.zeros(np.shape(reward), np.float32)
        return np.clip((reward - np.mean(self._rewards)) / spread, -2.0, 2.0).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "network": self.network.state_dict(),
            "target": self._target.state_dict(),
            "adam": self._adam.state_dict(),
            "rewards": np.array(self._rewards),
            "cache": [asdict(seen) for seen in self._cache],
            "losses": [self.td_loss, self.ranking_loss],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.network.load_state_dict(state["network"])
        self._target.load_state_dict(state["target"])
        self._adam.load_state_dict(state["adam"])
        self._rewards = [float(r) for r in state["rewards"]]
        self._cache = [Transition(**seen) for seen in state["cache"]]
        self.td_loss, self.ranking_loss = (float(v) for v in state["losses"])
