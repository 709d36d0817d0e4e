"""The round engine: selection, local training, aggregation and cost on a virtual clock.

This first engine runs methods that do not probe, on devices that are always there. The clock is virtual
and in integer nanoseconds; the training is real.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from device_agents.workloads.softmax import Softmax
from emulator.data.digits import Digits
from emulator.fleet import FleetState
from emulator.outcome import ClientCost, Fate, RoundOutcome
from emulator.selectors.base import Selector
from emulator.view import ServerView
from fedjoule.errors import ConfigError
from fedjoule.seeds import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a federated run goes.

    Attributes:
        rounds: Number of rounds.
        clients_per_round: K.
        local_epochs: l_ep, the probe epoch included.
        seed: Root of every random stream.
    """

    rounds: int
    clients_per_round: int
    local_epochs: int
    seed: int


@dataclass(slots=True)
class Engine:
    """One federated run. `run` yields nothing and keeps nothing: each outcome goes to a callback."""

    fleet: FleetState
    shards: list[NDArray[np.int64]]
    data: Digits
    model: Softmax
    selector: Selector
    protocol: Protocol

    def __post_init__(self) -> None:
        if self.selector.probes:
            raise ConfigError(f"selector {self.selector.name!r} probes, which this engine does not do yet")
        k, n = self.protocol.clients_per_round, len(self.fleet)
        if k > n:
            raise ConfigError(f"clients_per_round {k} is more than the fleet of {n}")

    def run(self, on_round: Callable[[RoundOutcome], None]) -> NDArray[np.float64]:
        """All rounds; returns the final global parameters."""
        view = ServerView.registered(self.fleet.data_size)
        parameters = self.model.initial()
        accuracy = self._validate(parameters)
        clock_ns = 0
        for number in range(1, self.protocol.rounds + 1):
            view = replace(view, round=number)
            rng = generator(self.protocol.seed, "selection", number)
            k = self.protocol.clients_per_round
            pool = self.selector.candidates(view, k, rng)
            chosen = self.selector.select(view, pool, k, rng)
            parameters, losses = self._train(parameters, chosen, number)
            before, accuracy = accuracy, self._validate(parameters)
            outcome = self._charge(number, clock_ns, chosen, losses, accuracy, accuracy - before)
            clock_ns += outcome.duration_ns
            view = self._report(view, chosen, losses)
            self.selector.observe(outcome)
            on_round(outcome)
        return parameters

    def test_accuracy(self, parameters: NDArray[np.float64]) -> float:
        """For reporting only; nothing is ever chosen or rewarded by it."""
        return self.model.accuracy(parameters, self.data.test.x, self.data.test.y)

    def _validate(self, parameters: NDArray[np.float64]) -> float:
        return self.model.accuracy(parameters, self.data.validation.x, self.data.validation.y)

    def _train(
        self, parameters: NDArray[np.float64], chosen: NDArray[np.int64], number: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Local epochs on every chosen device, then the average weighted by data size."""
        total = np.zeros_like(parameters)
        losses = np.empty(len(chosen))
        for i, device in enumerate(chosen):
            shard = self.shards[device]
            rng = generator(self.protocol.seed, "data order", int(device), number)
            local = parameters
            for _ in range(self.protocol.local_epochs):
                local, losses[i] = self.model.epoch(
                    local, self.data.train.x[shard], self.data.train.y[shard], rng
                )
            total += local * len(shard)
        return total / max(1, sum(len(self.shards[device]) for device in chosen)), losses

    def _charge(
        self,
        number: int,
        start_ns: int,
        chosen: NDArray[np.int64],
        losses: NDArray[np.float64],
        accuracy: float,
        gain: float,
    ) -> RoundOutcome:
        zero = np.zeros(len(chosen))
        cost = ClientCost(
            probe_s=zero,
            train_s=self.fleet.epoch_s[chosen] * self.protocol.local_epochs,
            comm_s=self.fleet.comm_s[chosen],
            probe_j=zero,
            wait_j=zero,
            train_j=self.fleet.epoch_j[chosen] * self.protocol.local_epochs,
            comm_j=self.fleet.comm_j[chosen],
        )
        # A synchronous round lasts as long as its slowest device.
        duration_s = float((cost.train_s + cost.comm_s).max(initial=0.0))
        return RoundOutcome(
            round=number,
            start_ns=start_ns,
            duration_ns=round(duration_s * 1e9),
            clients=chosen,
            fates=(Fate.FINISHED,) * len(chosen),
            cost=cost,
            losses=losses,
            accuracy=accuracy,
            reward=gain,
        )

    def _report(self, view: ServerView, chosen: NDArray[np.int64], losses: NDArray[np.float64]) -> ServerView:
        """The view after the devices that took part have reported; nobody else's entries change."""
        fresh = {
            "epoch_s": self.fleet.epoch_s[chosen],
            "epoch_j": self.fleet.epoch_j[chosen],
            "comm_s": self.fleet.comm_s[chosen],
            "comm_j": self.fleet.comm_j[chosen],
            "loss": losses,
        }
        columns = {name: getattr(view, name).copy() for name in fresh}
        for name, values in fresh.items():
            columns[name][chosen] = values
        return replace(view, **columns)
