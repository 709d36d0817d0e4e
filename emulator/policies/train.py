"""Making policies: FedMarl and Favor learn by trying, FedRank by imitating experts.

Everything runs in the emulator, on small shards, and is counted: how many local epochs it will take is known
before it starts, how many it took stands in the policy's manifest.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from emulator.policies.demonstrations import demonstrating, joined
from emulator.policies.imitation import CloningOptions, boosted_trees_recall, chance, clone, recall
from emulator.round.selector import Probe, Profiling, Selector
from emulator.runs.assembly import assemble, check_fits
from emulator.runs.learners import task_of
from emulator.selectors.favor import Favor
from emulator.selectors.fedmarl import FEATURES as FEDMARL_FEATURES
from emulator.selectors.fedmarl import FedMarl
from emulator.selectors.fedrank.selector import FEATURES as FEDRANK_FEATURES
from emulator.selectors.neural.policy import Demonstrations, Policy, PolicyManifest
from emulator.selectors.neural.vdn import advantages
from emulator.selectors.registry import SELECTORS
from joulefleet.errors import ConfigError, NobodyLeft
from joulefleet.seeds import generator

if TYPE_CHECKING:
    from emulator.round.outcome import RoundOutcome
    from emulator.scenario.model import Scenario
    from emulator.selectors.neural.mlp import Mlp

    OnRound = Callable[[str, RoundOutcome], None]

EXPERTS = ("harmony_like", "oort", "fedmarl")
"""The paper's three, the first as a surrogate."""

KEPT_DEMONSTRATIONS = 192
"""Rounds that go into the policy file for replay during the run: 30 devices each make 70 kB."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a policy learns from.

    Attributes:
        scenarios: Runs take them in turn, so that equal and skewed data are both seen.
        seeds: One run of each expert (FedRank) or one episode (FedMarl, Favor) per seed.
        stop: Seeds of the runs by whose loss the imitation stops.
        judge: Seeds of the runs on which the result is judged; they decide nothing.
        experts: Whom FedRank imitates.
        experts_policy: Policy of the FedMarl expert.
        command: For the manifest.
    """

    scenarios: tuple[Scenario, ...]
    seeds: tuple[int, ...]
    stop: tuple[int, ...] = ()
    judge: tuple[int, ...] = ()
    experts: tuple[str, ...] = EXPERTS
    experts_policy: str = "fedmarl"
    command: str = ""

    def scenario(self, index: int) -> Scenario:
        """That of one run."""
        return self.scenarios[index % len(self.scenarios)]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """FedRank's policies by label, and whom each imitates: all experts, and each of several alone."""
        alone = self.experts if len(self.experts) > 1 else ()
        return {"": self.experts} | {name: (name,) for name in alone}

    def runs(self, kind: str) -> list[Scenario]:
        """Those of all runs that a policy of this kind takes."""
        if kind != "fedrank":
            return [self.scenario(index) for index in range(len(self.seeds))]
        groups = (self.seeds, self.stop, self.judge)
        return [self.scenario(index) for group in groups for index in range(len(group))] * len(self.experts)


def client_epochs(recipe: Recipe, kind: str) -> int:
    """Local epochs that making the policy takes at most."""
    total = 0
    for scenario in recipe.runs(kind):
        # Over-commitment trains more than K, up to the moment when K have finished.
        k = math.ceil(round(scenario.protocol.k * scenario.protocol.over_commit, 6))
        epochs = scenario.protocol.local_epochs
        per_round = k * epochs if kind == "favor" else scenario.candidates + k * (epochs - 1)
        total += scenario.protocol.rounds * per_round
    return total + _profiling_epochs(recipe, kind)


def _profiling_epochs(recipe: Recipe, kind: str) -> int:
    """One epoch of every device in each run of a method that profiles."""
    players = recipe.experts if kind == "fedrank" else (kind,)
    profiling = sum(SELECTORS.load(name).profiling is not Profiling.NONE for name in players)
    # Every expert plays the same runs.
    return profiling * sum(scenario.fleet.devices for scenario in recipe.runs(kind)) // len(players)


def check_experts(recipe: Recipe) -> None:
    """Refuse whom FedRank cannot imitate, before hours go into the others.

    Raises:
        ConfigError: There is no such expert or no such policy for it, it cannot be shown, goes by what the
            task does not have, or is named twice.
        StorageError: FedMarl's policy is no policy file.
    """
    for name in recipe.experts:
        if recipe.experts.count(name) > 1:
            raise ConfigError(f"the expert {name!r} is named twice", hint="experts count in equal parts")
        expert = _expert(name, recipe)
        demonstrating(expert)
        for task in (task_of(scenario.task) for scenario in recipe.scenarios):
            check_fits(
                expert,
                task.classes,
                task.metric,
                loss_rms=task.per_sample_loss,
                hint=f"leave it out of `--experts {','.join(recipe.experts)}`",
            )


def _expert(name: str, recipe: Recipe) -> Selector:
    if name != "fedmarl":
        return SELECTORS.load(name)()
    if not recipe.experts_policy:  # FedMarl itself would begin with random weights
        raise ConfigError(
            "the expert FedMarl needs a policy", hint="`joulefleet policy train fedmarl` makes one"
        )
    return FedMarl(policy=recipe.experts_policy)


def train_by_trying(kind: str, recipe: Recipe, on_round: OnRound = lambda *_: None) -> Policy:
    """FedMarl or Favor: one agent through all episodes, each on another seed."""
    cost = TrainingCost()
    rounds = sum(scenario.protocol.rounds for scenario in recipe.runs(kind))
    # Random at first, then less and less; the last half of the rounds uses what was learnt.
    agent: FedMarl | Favor
    if kind == "fedmarl":
        agent = FedMarl(policy="", online=True, explore_rounds=rounds // 2)
    elif kind == "favor":
        agent = Favor(online=True, explore_rounds=rounds // 2)
    else:
        raise ConfigError(f"no policy of kind {kind!r}", hint="known: fedrank, fedmarl, favor")
    rewards = []
    with cost.timed():
        for index, seed in enumerate(recipe.seeds):
            outcomes = _play(recipe.scenario(index), seed, agent, f"episode {index + 1}", cost, on_round)
            rewards.append(float(np.mean([o.reward for o in outcomes])))
    if agent.network is None:
        raise ConfigError("no episode was long enough to learn from", hint="give more rounds or seeds")
    tenth = max(1, len(rewards) // 10)
    results = {
        "reward_first_tenth": float(np.mean(rewards[:tenth])),
        "reward_last_tenth": float(np.mean(rewards[-tenth:])),
    }
    features = FEDMARL_FEATURES if kind == "fedmarl" else ("principal components",)
    projection = agent.projection if isinstance(agent, Favor) else None
    manifest = _manifest(kind, recipe, features, cost, results)
    return Policy(agent.network, manifest, projection=projection)


def train_fedrank(
    recipe: Recipe, options: CloningOptions, on_round: OnRound = lambda *_: None
) -> dict[str, Policy]:
    """FedRank's offline phase: experts' rounds, behaviour cloning, recall on seeds that decided nothing.

    Returns:
        The policy of all experts together under ``""``, and of each alone under its name: the demonstrations
        cost far more than the cloning. Each states the cost of its own experts' rounds and of its cloning.

    Raises:
        ConfigError, StorageError: See `check_experts`.
    """
    check_experts(recipe)
    shown = {name: _shown_by(name, recipe, on_round) for name in recipe.experts}
    return {
        label: _imitating({name: shown[name] for name in experts}, recipe, options)
        for label, experts in recipe.groups.items()
    }


def _imitating(shown: dict[str, _Shown], recipe: Recipe, options: CloningOptions) -> Policy:
    """The policy of these experts."""
    seed = recipe.seeds[0]
    cost = sum((one.cost for one in shown.values()), TrainingCost())
    mixture = joined([one.learn for one in shown.values()])
    with cost.timed():
        network = clone(
            mixture, joined([one.stop for one in shown.values()]), options, generator(seed, "imitation")
        )
        results = _recalls(network, mixture, {name: one.judge for name, one in shown.items()}, seed)
    manifest = _manifest("fedrank", recipe, FEDRANK_FEATURES, cost, results)
    return Policy(network, manifest.model_copy(update={"experts": tuple(shown)}), _to_replay(mixture, seed))


def _to_replay(shown: Demonstrations, seed: int) -> Demonstrations:
    picks = generator(seed, "kept demonstrations").permutation(len(shown))[:KEPT_DEMONSTRATIONS]
    return Demonstrations(shown.states[picks], shown.choices[picks])


def _recalls(
    network: Mlp, shown: Demonstrations, judge: dict[str, Demonstrations], seed: int
) -> dict[str, float]:
    """Per expert: the policy's recall, what boosted trees reach that saw the same, and chance."""
    found: dict[str, float] = {}
    for name, demos in judge.items():
        found[f"recall_{name}"] = recall(lambda state: advantages(network(state)), demos)
        found[f"trees_{name}"] = boosted_trees_recall(shown, demos, seed)
        found[f"chance_{name}"] = chance(demos)
    return found


@dataclass(frozen=True, slots=True)
class _Shown:
    """Rounds of one expert, to learn from, to stop by and to judge by, and what they took."""

    learn: Demonstrations
    stop: Demonstrations
    judge: Demonstrations
    cost: TrainingCost


def _shown_by(name: str, recipe: Recipe, on_round: OnRound) -> _Shown:
    cost = TrainingCost()
    groups = (recipe.seeds, recipe.stop, recipe.judge)
    with cost.timed():
        learn, stop, judge = (_demonstrate(name, recipe, seeds, cost, on_round) for seeds in groups)
    return _Shown(learn, stop, judge, cost)


def _demonstrate(
    name: str, recipe: Recipe, seeds: Sequence[int], cost: TrainingCost, on_round: OnRound
) -> Demonstrations:
    parts = []
    for index, seed in enumerate(seeds):
        shadow = demonstrating(_expert(name, recipe))
        _play(recipe.scenario(index), seed, shadow, f"{name}, seed {seed}", cost, on_round)
        parts.append(shadow.demonstrations())
    return joined(parts)


def _play(
    scenario: Scenario, seed: int, selector: Selector, label: str, cost: TrainingCost, on_round: OnRound
) -> list[RoundOutcome]:
    engine = assemble(scenario, seed, selector=selector).engine
    outcomes: list[RoundOutcome] = []
    try:
        while not engine.done:
            try:
                outcome = engine.play()
            except NobodyLeft:
                if not outcomes:
                    raise
                break  # what was played until then has taught something
            cost.count(outcome, scenario, selector.probe)
            # Weights of whole fleets would add up over a run.
            outcomes.append(
                replace(outcome, global_weights=None, reports=replace(outcome.reports, weights=None))
            )
            on_round(label, outcome)
    finally:
        engine.trainer.close()
    return outcomes


def _manifest(
    kind: str,
    recipe: Recipe,
    features: Sequence[str],
    cost: TrainingCost,
    results: dict[str, float],
) -> PolicyManifest:
    tasks = {f"{s.task.data or s.task.name}, {s.task.partition}" for s in recipe.scenarios}
    return PolicyManifest(
        kind=kind,
        command=recipe.command,
        features=tuple(features),
        seeds=recipe.seeds,
        stop_seeds=recipe.stop,
        held_out_seeds=recipe.judge,
        scenario=" + ".join(s.name for s in recipe.scenarios),
        data="; ".join(sorted(tasks)),
        client_epochs=cost.client_epochs,
        cpu_s=round(cost.cpu_s, 1),
        # What nothing can be said about is no number, and none that a manifest may hold.
        results={name: round(value, 4) for name, value in results.items() if math.isfinite(value)},
    )


@dataclass(slots=True)
class TrainingCost:
    """Local epochs and processor seconds, so far."""

    client_epochs: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: TrainingCost) -> TrainingCost:
        return TrainingCost(self.client_epochs + other.client_epochs, self.cpu_s + other.cpu_s)

    def count(self, outcome: RoundOutcome, scenario: Scenario, probe: Probe) -> None:
        """Add a round's local epochs; ``probe`` is what its candidates did."""
        chosen = int(outcome.chosen.sum())
        epochs = scenario.protocol.local_epochs
        if outcome.round == 0:
            self.client_epochs += len(outcome.clients)
        elif probe is Probe.EPOCH:
            self.client_epochs += len(outcome.clients) + chosen * (epochs - 1)
        else:
            self.client_epochs += chosen * epochs

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the processor time of what happens inside."""
        begin_s = _cpu_s()
        yield
        self.cpu_s += _cpu_s() - begin_s


def _cpu_s() -> float:
    """Processor time of this process and of the workers that have ended."""
    return sum(os.times()[:4])
