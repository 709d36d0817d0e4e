"""Making policies: FedMarl and Favor learn by trying, FedRank by imitating experts.

Everything runs in the emulator, on small shards, and is counted: how many local epochs it will take is known
before it starts, how many it took stands in the policy's manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from emulator.assembly.assemble import assemble
from emulator.policies.demonstrations import demonstrating, joined
from emulator.policies.imitation import CloningOptions, boosted_trees_recall, chance, clone, recall
from emulator.policies.store import Demonstrations, Policy, PolicyManifest
from emulator.selectors.base import SELECTORS, Probe, Selector
from emulator.selectors.favor import Favor
from emulator.selectors.fedmarl import FEATURES as FEDMARL_FEATURES
from emulator.selectors.fedmarl import FedMarl
from emulator.selectors.fedrank.state import FEATURES as FEDRANK_FEATURES
from emulator.selectors.neural.vdn import advantages
from fedjoule.errors import ConfigError
from fedjoule.seeds import generator

if TYPE_CHECKING:
    from emulator.outcome import RoundOutcome
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
        k, epochs = scenario.protocol.k, scenario.protocol.local_epochs
        per_round = k * epochs if kind == "favor" else scenario.candidates + k * (epochs - 1)
        total += scenario.protocol.rounds * per_round + (scenario.fleet.devices if kind == "favor" else 0)
    return total


def train_by_trying(kind: str, recipe: Recipe, on_round: OnRound = lambda *_: None) -> Policy:
    """FedMarl or Favor: one agent through all episodes, each on another seed."""
    started, count = _cpu_s(), _Counter()
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
    for index, seed in enumerate(recipe.seeds):
        outcomes = _play(recipe.scenario(index), seed, agent, f"episode {index + 1}", count, on_round)
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
    manifest = _manifest(kind, recipe, features, count, started, results)
    return Policy(agent.network, manifest, projection=projection)


def train_fedrank(
    recipe: Recipe, options: CloningOptions, on_round: OnRound = lambda *_: None
) -> dict[str, Policy]:
    """FedRank's offline phase: experts' rounds, behaviour cloning, recall on seeds that decided nothing.

    Returns:
        The policy of all experts together under ``""``, and of each alone under its name: the demonstrations
        cost far more than the cloning.
    """
    started, count = _cpu_s(), _Counter()
    shown: dict[str, Demonstrations] = {}
    stop: dict[str, Demonstrations] = {}
    judge: dict[str, Demonstrations] = {}
    for name in recipe.experts:
        shown[name] = _demonstrate(name, recipe, recipe.seeds, count, on_round)
        stop[name] = _demonstrate(name, recipe, recipe.stop, count, on_round)
        judge[name] = _demonstrate(name, recipe, recipe.judge, count, on_round)
    groups = {"": recipe.experts} | {name: (name,) for name in recipe.experts if len(recipe.experts) > 1}
    made = {}
    for label, experts in groups.items():
        mixture, checked = (joined([part[name] for name in experts]) for part in (shown, stop))
        seed = recipe.seeds[0]
        network = clone(mixture, checked, options, generator(seed, "imitation"))
        results = _recalls(network, mixture, {name: judge[name] for name in experts}, seed)
        manifest = _manifest("fedrank", recipe, FEDRANK_FEATURES, count, started, results)
        made[label] = Policy(
            network, manifest.model_copy(update={"experts": experts}), _to_replay(mixture, seed)
        )
    return made


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


def _demonstrate(
    name: str, recipe: Recipe, seeds: Sequence[int], count: _Counter, on_round: OnRound
) -> Demonstrations:
    parts = []
    for index, seed in enumerate(seeds):
        expert = FedMarl(policy=recipe.experts_policy) if name == "fedmarl" else SELECTORS.load(name)()
        shadow = demonstrating(expert)
        _play(recipe.scenario(index), seed, shadow, f"{name}, seed {seed}", count, on_round)
        parts.append(shadow.demonstrations())
    return joined(parts)


@dataclass(slots=True)
class _Counter:
    client_epochs: int = 0

    def add(self, outcome: RoundOutcome, scenario: Scenario, probe: Probe) -> None:
        chosen = int(outcome.chosen.sum())
        epochs = scenario.protocol.local_epochs
        if outcome.round == 0:
            self.client_epochs += len(outcome.clients)
        elif probe is Probe.EPOCH:
            self.client_epochs += len(outcome.clients) + chosen * (epochs - 1)
        else:
            self.client_epochs += chosen * epochs


def _play(
    scenario: Scenario, seed: int, selector: Selector, label: str, count: _Counter, on_round: OnRound
) -> list[RoundOutcome]:
    engine = assemble(scenario, seed, selector=selector).engine
    outcomes = []
    try:
        while not engine.done:
            outcome = engine.play()
            count.add(outcome, scenario, selector.probe)
            # Weights of whole fleets would add up over a run.
            outcomes.append(
                replace(outcome, global_weights=None, reports=replace(outcome.reports, weights=None))
            )
            on_round(label, outcome)
    finally:
        engine.trainer.close()
    return outcomes


def _cpu_s() -> float:
    """Processor time of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def _manifest(
    kind: str,
    recipe: Recipe,
    features: Sequence[str],
    count: _Counter,
    started: float,
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
        client_epochs=count.client_epochs,
        cpu_s=round(_cpu_s() - started, 1),
        results={name: round(value, 4) for name, value in results.items()},
    )
