"""Plays rounds with a selector, without an engine: who is there, probes, reports and fates come from a seed.

Whatever happens to a device in a round depends on the seed, the device and the round only, never on who was
chosen before, so two selectors that decide alike live through the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from emulator.round.outcome import Accounting, ClientCost, Fate, Reports, RoundCost, RoundOutcome
from emulator.round.selector import Probe, Profiling, Selector
from emulator.round.view import ALWAYS_SHOWN, VIEW_FIELDS, ServerView
from emulator.selectors.registry import SELECTORS
from joulefleet.seeds import generator

CLASSES = 4
LOCAL_EPOCHS = 5
WIDE = {"bias_delta", "label_histogram"}
FATES = (Fate.LEFT, Fate.BATTERY, Fate.SURPLUS, Fate.DIVERGED)
REPORTED = ("epoch_s", "epoch_j", "comm_s", "comm_j", "upload_j", "loss", "loss_rms")


@dataclass(frozen=True)
class Decided:
    """One round as the selector saw and decided it."""

    candidates: list[int]
    chosen: list[int]
    epochs: list[int]


@dataclass
class World:
    """Devices, what they have reported, and what will happen to them.

    Attributes:
        n: Devices.
        k: Wanted per round.
        rounds: Planned.
        seed: Of everything.
        hide: Whether selectors see NaN in everything that they do not declare.
        failures: Share of probes and of chosen devices that come to nothing.
    """

    n: int
    k: int
    rounds: int
    seed: int = 0
    hide: bool = True
    failures: float = 0.1
    reported: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        rng = generator(self.seed, "devices")
        self.epoch_s = rng.lognormal(1.0, 0.7, self.n)
        self.epoch_j = self.epoch_s * rng.uniform(1.0, 4.0, self.n)
        self.comm_s = rng.lognormal(0.0, 0.5, self.n)
        self.comm_j = self.comm_s * rng.uniform(0.5, 1.5, self.n)
        self.data_size = rng.integers(0, 100, self.n)
        self.histogram = rng.dirichlet(np.full(CLASSES, 0.3), self.n)
        self.reported = {
            name: np.full((self.n, CLASSES) if name in WIDE else self.n, np.nan)
            for name in VIEW_FIELDS - ALWAYS_SHOWN
        }
        known = {
            "capability_s": self.epoch_s * rng.lognormal(0.0, 0.3, self.n),
            "comm_s": self.comm_s, "comm_j": self.comm_j,
            "battery": rng.uniform(0.1, 1.0, self.n), "check_ins": np.ones(self.n),
            "last_round": np.zeros(self.n), "times_chosen": np.zeros(self.n), "failures": np.zeros(self.n),
            "label_histogram": self.histogram,
            "leaves_s": generator(self.seed, "leaves").choice([0.5, 2.0, 1200.0, np.inf], self.n),
        }  # fmt: skip
        for name, values in known.items():
            self.reported[name][:] = values

    def view(self, number: int, eligible: np.ndarray, needs: frozenset[str]) -> ServerView:
        """What the selector sees."""
        for name, truth in (("epoch_s", self.epoch_s), ("epoch_j", self.epoch_j)):
            self.reported[f"true_{name}"][:] = truth * self._noise(name, number)
        for name, truth in (("comm_s", self.comm_s), ("comm_j", self.comm_j)):
            self.reported[f"true_{name}"][:] = truth
        arrays = {**self.reported, "eligible": eligible, "data_size": self.data_size}
        for name, values in arrays.items():
            arrays[name] = values.view()
            arrays[name].flags.writeable = False
        whole = ServerView(
            round=number, rounds=self.rounds, now_ns=number * 10**9, k=self.k, local_epochs=LOCAL_EPOCHS,
            time_budget_s=20.0, energy_budget_j=40.0 * self.k, **arrays,
        )  # fmt: skip
        return whole.restricted(needs) if self.hide else whole

    def profile(self, selector: Selector) -> None:
        """What the method asks of every device before the first round."""
        if selector.profiling is not Profiling.NONE:
            everyone = np.arange(self.n)
            self._measure(everyone, 0)
            view = self.view(1, np.ones(self.n, dtype=bool), selector.needs)
            selector.observe(view, self.outcome(selector, 0, everyone, everyone, []))

    def play(self, selector: Selector, number: int, eligible: np.ndarray) -> Decided:
        """One round: candidates, probes, choice, reports."""
        rng = generator(self.seed, "selection", number)
        candidates = selector.candidates(self.view(number, eligible, selector.needs), 3 * self.k, rng)
        assert len(set(candidates.tolist())) == len(candidates)
        assert eligible[candidates].all()
        assert len(candidates) >= min(self.k, eligible.sum())
        if selector.probe is not Probe.NONE:
            candidates = candidates[self._uniform("probe", number)[candidates] >= self.failures]
            self._probe(selector.probe, candidates, number)
        view = self.view(number, eligible, selector.needs)
        chosen = selector.select(view, candidates, self.k, rng)
        epochs = selector.epochs(view, chosen)
        decided = Decided(candidates.tolist(), chosen.tolist(), epochs.tolist())
        self._finish(selector, number, eligible, candidates, np.asarray(chosen, dtype=np.int64))
        return decided

    def _finish(
        self,
        selector: Selector,
        number: int,
        eligible: np.ndarray,
        candidates: np.ndarray,
        chosen: np.ndarray,
    ) -> None:
        lucky = self._uniform("fate", number)[chosen] >= self.failures
        finished = chosen[lucky]
        self._measure(finished, number)
        self.reported["global_loss"][finished] = self._loss(number)[finished]
        self.reported["local_accuracy"][finished] = self._uniform("accuracy", number)[finished]
        self.reported["bias_delta"][finished] = self.histogram[finished] - 1 / CLASSES
        self.reported["times_chosen"][chosen] += 1
        self.reported["last_round"][finished] = number
        self.reported["check_ins"] *= (number - 1) / number
        self.reported["check_ins"] += eligible / number
        took_part = chosen if selector.probe is Probe.NONE else candidates
        clients = np.union1d(took_part, chosen).astype(np.int64)
        unlucky = sorted(set(chosen.tolist()) - set(finished.tolist()))
        outcome = self.outcome(selector, number, clients, chosen, unlucky)
        failures = self.reported["failures"]
        failures[clients] = np.where(outcome.failed, failures[clients] + 1, 0)
        selector.observe(self.view(number, eligible, selector.needs), outcome)

    def outcome(
        self, selector: Selector, number: int, clients: np.ndarray, chosen: np.ndarray, unlucky: list[int]
    ) -> RoundOutcome:
        """How it went, with NaN in reports that the selector does not declare."""
        is_chosen = np.isin(clients, chosen)
        rng = generator(self.seed, "outcome", number)
        fates = [Fate.FINISHED if c else Fate.REJECTED for c in is_chosen]
        for i, client in enumerate(clients):
            if int(client) in unlucky:
                fates[i] = FATES[(int(client) + number) % len(FATES)]
        seconds = np.where(is_chosen, self.epoch_s[clients] * LOCAL_EPOCHS, self.epoch_s[clients])
        zero = np.zeros(len(clients))
        cost = ClientCost(zero, zero, zero, seconds, zero, zero, zero, zero, seconds * 2, zero)
        total = RoundCost(float(seconds.max(initial=0.0)), float(2 * seconds.sum()))
        return RoundOutcome(
            round=number, start_ns=0, duration_ns=10**9, clients=clients, chosen=is_chosen,
            fates=tuple(fates), cost=cost, reports=self._reports(selector, number, clients),
            costs=dict.fromkeys(Accounting, total), accuracy=float(rng.uniform(0.2, 0.9)),
            accuracy_gain=float(rng.normal(0.0, 0.05)), reward=float(rng.normal()),
            global_weights=self._weights(number, np.array([self.n]))[0] if selector.needs_weights else None,
        )  # fmt: skip

    def _reports(self, selector: Selector, number: int, clients: np.ndarray) -> Reports:
        columns = {name: self.reported[name][clients] for name in REPORTED}
        if self.hide:
            hidden = {name: np.full(len(clients), np.nan) for name in set(columns) - selector.needs}
            columns |= hidden
        extra = {
            name: self.reported[name][clients]
            for name in ("global_loss", "local_accuracy", "bias_delta")
            if name in selector.needs or not self.hide
        }
        weights = self._weights(number, clients) if selector.needs_weights else None
        return replace(Reports(**columns, **extra), weights=weights)

    def _weights(self, number: int, clients: np.ndarray) -> np.ndarray:
        rows = [generator(self.seed, "weights", int(c), number).normal(size=12) for c in clients]
        return np.array(rows, dtype=np.float32).reshape(len(clients), 12)

    def _probe(self, probe: Probe, ids: np.ndarray, number: int) -> None:
        if probe is Probe.EPOCH:
            self._measure(ids, number)
        else:
            self.reported["global_loss"][ids] = self._loss(number)[ids]

    def _measure(self, ids: np.ndarray, number: int) -> None:
        loss = self._loss(number)
        fresh = {
            "epoch_s": self.epoch_s * self._noise("epoch_s", number),
            "epoch_j": self.epoch_j * self._noise("epoch_j", number),
            "loss": loss,
            "loss_rms": 1.2 * loss,
        }
        for name, values in fresh.items():
            self.reported[name][ids] = values[ids]

    def _loss(self, number: int) -> np.ndarray:
        return 2.3 * 0.98**number * self._noise("loss", number)

    def _noise(self, what: str, number: int) -> np.ndarray:
        return generator(self.seed, what, number).lognormal(0.0, 0.2, self.n)

    def _uniform(self, what: str, number: int) -> np.ndarray:
        return generator(self.seed, what, number).uniform(size=self.n)


def registered() -> list[str]:
    """Every selector of this distribution."""
    return [name for name, entry in SELECTORS.entries().items() if entry.source == "joulefleet"]


@cache
def _load(name: str) -> type[Selector]:
    return SELECTORS.load(name)  # which looks at every installed package


def build(name: str, **options: Any) -> Selector:
    """One of them, as a scenario would."""
    return _load(name)(**options)
