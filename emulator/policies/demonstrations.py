"""Experts' rounds to imitate: what they chose, beside the state FedRank would have seen (item A13).

An expert chooses among a random candidate set, as FedRank will. The emulator probes every candidate in its
shadow; the expert itself sees no more than it would have seen without that.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.fedrank.selector import FEATURES, device_states
from emulator.selectors.neural.policy import Demonstrations
from joulefleet.errors import ConfigError

REPORTED = (
    *("epoch_s", "epoch_j", "comm_s", "comm_j", "upload_j"),
    *("loss", "loss_rms", "global_loss", "local_accuracy"),
)
"""What a device tells when it takes part; an expert that does not probe learns it from those it chose."""


REPEATS = 4
"""A choice is certain if the expert makes it again with so many other random numbers. A random pick of 10 out
of 30 candidates passes for certain once in 81."""


class Demonstrating(Selector):
    """An expert whose rounds are written down. Make one with `demonstrating`."""

    name: ClassVar[str] = "demonstrating"
    family: ClassVar[Family] = Family.CONTROL
    probe: ClassVar[Probe] = Probe.EPOCH

    def __init__(self, expert: Selector) -> None:
        self._expert = expert
        self._known: dict[str, NDArray[np.float64]] = {}
        self.states: list[NDArray[np.float32]] = []
        self.choices: list[NDArray[np.bool_]] = []
        self.certain: list[NDArray[np.bool_]] = []

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The expert's choice."""
        seen = self._as_seen(view, candidates)
        others = [deepcopy(self._expert) for _ in range(REPEATS)] if len(candidates) > k else []
        chosen = _choice(self._expert, seen, k, rng)
        if others:
            picked = np.isin(candidates, chosen)
            repeats = [
                np.isin(candidates, _choice(other, seen, k, own))
                for other, own in zip(others, rng.spawn(REPEATS), strict=True)
            ]
            self.states.append(device_states(view, candidates))
            self.choices.append(picked)
            self.certain.append(picked & np.all(repeats, axis=0))
        return chosen

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """The expert learns from the devices it chose, and from all of them where it profiles."""
        # Nobody is chosen in a profiling, and it is the expert's own: no shadow probe is in it.
        whole = outcome.round == 0 or self._expert.probe is Probe.EPOCH
        own = outcome if whole else of_the_chosen(outcome)
        seen = self._as_seen(view, np.flatnonzero(view.eligible))
        for name in REPORTED:
            values, column = getattr(own.reports, name), self._known[name]
            if values is not None:
                column[own.clients] = np.where(np.isnan(values), column[own.clients], values)
        # The engine counts whoever was late with a shadow probe, too.
        failures = self._known["failures"]
        failures[own.clients] = np.where(own.failed, failures[own.clients] + 1, 0)
        self._expert.observe(seen, own.restricted(self._expert.needs))

    def _as_seen(self, view: ServerView, candidates: Ids) -> ServerView:
        """The view without what only the shadow probes reported."""
        if not self._known:
            # Transfers are known from the registration's speed test, all else from taking part.
            blank = np.full(len(view), np.nan)
            self._known = {
                name: getattr(view, name).copy() if name.startswith("comm_") else blank.copy()
                for name in REPORTED
            }
            self._known["failures"] = np.zeros(len(view))
        eligible = np.zeros(len(view), bool)
        eligible[candidates] = True
        known: dict[str, Any] = {} if self._expert.probe is Probe.EPOCH else self._known
        return view.changed(eligible=eligible, **known).restricted(self._expert.needs)

    def demonstrations(self) -> Demonstrations:
        """All rounds with as many candidates as most had.

        Raises:
            ConfigError: In no round was there anything to choose.
        """
        if not self.states:
            raise ConfigError(
                "the expert never had to choose: there were never more candidates than participants",
                hint="give the scenario more devices or candidates, or a smaller k",
            )
        sizes = [len(state) for state in self.states]
        usual = max(set(sizes), key=sizes.count)
        kept = [i for i, size in enumerate(sizes) if size == usual]
        return Demonstrations(
            np.stack([self.states[i] for i in kept]),
            np.stack([self.choices[i] for i in kept]),
            np.stack([self.certain[i] for i in kept]),
        )


def _choice(expert: Selector, seen: ServerView, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return expert.select(seen, expert.candidates(seen, int(seen.eligible.sum()), rng), k, rng)


def demonstrating(expert: Selector) -> Demonstrating:
    """Wrap an expert; the wrapper asks for what the expert needs and for FedRank's state.

    Raises:
        ConfigError: The shadow probes cannot give it what it decides by.
    """
    if "global_loss" in expert.needs or expert.probe in (Probe.LOSS, Probe.BATCH):
        # A probe trains an epoch and reports the loss over it; the received model itself is never evaluated.
        raise ConfigError(
            f"{expert.name!r} cannot be imitated: it chooses by the loss of the received model, "
            "which the probes of FedRank's state do not measure",
            hint="name others, such as oort, tifl or fedmarl; rpow_d goes by remembered losses",
        )
    declared = {
        "needs": expert.needs | (frozenset(FEATURES) - {"data_size"}),
        "profiling": expert.profiling,
        "needs_weights": expert.needs_weights,
        "privileged": expert.privileged,
        "most_devices": expert.most_devices,
        "proximal_mu": expert.proximal_mu,
    }
    made: Demonstrating = type("DemonstratingExpert", (Demonstrating,), declared)(expert)
    return made


def of_the_chosen(outcome: RoundOutcome) -> RoundOutcome:
    """The outcome as a method that probes nobody would have had it."""
    mask = outcome.chosen

    def cut(record: Any) -> Any:
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        return type(record)(**{n: None if v is None else v[mask] for n, v in values.items()})

    return replace(
        outcome,
        clients=outcome.clients[mask],
        chosen=outcome.chosen[mask],
        fates=tuple(fate for fate, kept in zip(outcome.fates, mask, strict=True) if kept),
        cost=cut(outcome.cost),
        reports=cut(outcome.reports),
    )


def joined(parts: list[Demonstrations]) -> Demonstrations:
    """Demonstrations of several runs; all must have the same number of candidates."""
    return Demonstrations(
        np.concatenate([p.states for p in parts]),
        np.concatenate([p.choices for p in parts]),
        np.concatenate([p.choices if p.certain is None else p.certain for p in parts]),
    )
