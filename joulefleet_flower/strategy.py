"""`SelectingFedAvg`: Flower's FedAvg, in which one of joulefleet's selectors chooses who trains.

Flower's round loop stays in charge. `configure_train` lets the candidates do what the selector asks of them
before the choice, chooses, and tells the chosen to go on; Flower sends that and collects the updates;
`aggregate_train` aggregates with Flower's FedAvg. Who gets how far, what it costs and what the selector hears
of it is worked out by `emulator.round.engine.Engine` from device profiles: a simulated client has no
battery, and the seconds it takes on a server are not those of a phone.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import INFO, getLogger
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from emulator import Accounting, Probe, Profiling, RoundOutcome, Scenario, Selector
from emulator.round import Aggregation, Engine, OpenRound
from emulator.runs import (
    EMULATION_FILE,
    Assembly,
    EmulationRecord,
    Learners,
    RunLog,
    assemble,
    log_round,
    make_selector,
    opened_log,
)
from joulefleet.errors import ConfigError, NobodyLeft
from joulefleet.records import write_record
from joulefleet.runstore import Run
from joulefleet_flower.clients import register
from joulefleet_flower.grid_trainer import GridTrainer, Ids, ScoreModel

log = getLogger("flwr").log


@dataclass(slots=True, eq=False)
class _Play:
    """A run under way."""

    engine: Engine
    trainer: GridTrainer
    log: RunLog
    opened: OpenRound | None = None
    chosen: Ids | None = None
    epochs: Ids | None = None


class SelectingFedAvg(FedAvg):
    """FedAvg with client selection, probing, and accounting of time and energy per round.

    Args:
        scenario: Selector, protocol, fleet (profiles, traces, batteries), reward. Of its task only the name
            counts, by which profiles are found: data and model are the clients'.
        seed: Which device has which profile, and every draw of the selector.
        run: The run to which rounds and clients are logged, as ``joulefleet emulate`` does.
        folder: Inside the run.
        classes: Number of classes.
        score: Mean loss and accuracy of a model on the server's ``validation`` split (for rewards) or
            ``test`` split (for reports only).
        selector: Instead of the one that the scenario names.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int,
        run: Run,
        folder: str = "",
        classes: int,
        score: ScoreModel,
        selector: Selector | None = None,
    ) -> None:
        # Federated evaluation would be work that nobody is charged for.
        super().__init__(fraction_evaluate=0.0)
        self._scenario, self._seed, self._run, self._folder = scenario, seed, run, folder
        self._classes, self._score = classes, score
        self._selector = make_selector(scenario) if selector is None else selector
        self._check()
        self._play: _Play | None = None

    def _check(self) -> None:
        if self._scenario.protocol.aggregation != Aggregation.BY_SIZE:
            raise ConfigError(
                "Flower's FedAvg weights updates by size",
                hint="leave protocol.aggregation out of the scenario",
            )
        if self._selector.probe is Probe.EPOCH and self._selector.proximal_mu:
            raise ConfigError(
                f"selector {self._selector.name!r} probes and has a proximal term",
                hint="a client that goes on from its probe does not have the global model any more",
            )

    def summary(self) -> None:
        """Flower shows this before the first round."""
        protocol = self._scenario.protocol
        who = f"{self._selector.name}: {protocol.k} of {self._scenario.fleet.devices} clients a round"
        log(INFO, "\t└──> Selection by %s, %d local epochs", who, protocol.local_epochs)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 0,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As Flower's; the number of rounds is the scenario's, ``train_config`` goes with every message."""
        rounds = self._scenario.protocol.rounds
        if num_rounds not in (0, rounds):
            raise ConfigError(
                f"{num_rounds} rounds are asked for, the scenario has {rounds}",
                hint="selectors plan by the scenario's protocol.rounds; change it there",
            )
        config = ConfigRecord() if train_config is None else train_config
        trainer, made = self._assembled(grid, initial_arrays, config, timeout)
        engine, path = made.engine, self._run.subfolder(self._folder)
        record = EmulationRecord(scenario=self._scenario, seed=self._seed, facts=made.facts)
        write_record(path / EMULATION_FILE, record)
        ended_early = ""
        with opened_log(self._run, engine, self._folder) as rounds_log:
            self._play = _Play(engine, trainer, rounds_log)
            try:
                result = super().start(
                    grid, initial_arrays, rounds, timeout, config, evaluate_config, evaluate_fn
                )
            except NobodyLeft as error:
                if not engine.round:
                    raise
                ended_early, result = error.message, Result(arrays=trainer.record(engine.weights))
        made.devices.write(path)
        done: dict[str, Any] = {"rounds": engine.round, "ended_early": ended_early}
        accuracy = engine.test().accuracy
        done["test_accuracy"] = None if math.isnan(accuracy) else accuracy
        write_record(path / EMULATION_FILE, record.model_copy(update=done), replace=True)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Check-in, candidates, probe, choice; what the chosen are told."""
        play = self._playing()
        engine = play.engine
        if server_round == 1 and self._selector.profiling is not Profiling.NONE:
            self._append(engine.profile())
        play.opened = engine.open_round()
        play.chosen, play.epochs = engine.chooser.choose(play.opened.view, play.opened.candidates)
        first = int(self._selector.probe is Probe.EPOCH and play.opened.probed is not None)
        work = {
            client: range(first, count)
            for client, count in zip(play.chosen.tolist(), play.epochs.tolist(), strict=True)
        }
        return play.trainer.orders(server_round, engine.weights, work, self._selector.proximal_mu)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The new model; what the round cost goes to the log and into Flower's own history."""
        play = self._playing()
        play.trainer.deliver(replies)
        outcome = play.engine.close_round(play.opened, play.chosen, play.epochs)
        self._append(outcome)
        honest = outcome.costs[Accounting.HONEST]
        metrics = {
            "accuracy": outcome.accuracy,
            "reward": outcome.reward,
            "time-s": honest.time_s,
            "energy-j": honest.energy_j,
        }
        return play.trainer.record(play.engine.weights), MetricRecord(metrics)

    def _playing(self) -> _Play:
        if self._play is None:
            raise ConfigError("the strategy has not been started", hint="call its `start`")
        return self._play

    def _assembled(
        self, grid: Grid, initial: ArrayRecord, config: ConfigRecord, timeout_s: float
    ) -> tuple[GridTrainer, Assembly]:
        """The clients behind an engine of joulefleet."""
        from importlib.metadata import version

        found = register(grid, self._scenario.fleet.devices, config, timeout_s)
        if "label_histogram" in self._selector.needs and found.label_shares is None:
            raise ConfigError(
                f"{self._selector.name!r} is an oracle that reads label counts, and the clients give none",
                hint="set `label_counts` of the clients, or choose another selector",
            )
        for name in sorted(found.lacking & self._asked_of_clients()):
            raise ConfigError(
                f"{self._selector.name!r} asks clients for `{name}`, and theirs is not written",
                hint=f"give your LocalClient a method `{name}`, or choose another selector",
            )
        trainer = GridTrainer(
            found.clients,
            initial,
            self._classes,
            aggregate=self._aggregated,
            score=self._score,
            profile_uploads=self._selector.profiling is Profiling.UPDATE,
        )
        facts = {"data": None, "flower": version("flwr")}
        shares = found.label_shares
        held = None if shares is None else lambda devices: shares[devices] > 0
        learners = Learners(trainer, found.sizes, self._classes, shares, facts, held=held)
        made = assemble(self._scenario, self._seed, selector=self._selector, learners=learners)
        return trainer, made

    def _asked_of_clients(self) -> set[str]:
        """Members of `LocalClient` that this selector needs and others do not."""
        needs, probe = self._selector.needs, self._selector.probe
        losses = probe in (Probe.LOSS, Probe.BATCH) or "global_loss" in needs
        return ({"losses"} if losses else set()) | ({"accuracy"} if "local_accuracy" in needs else set())

    def _aggregated(self, replies: list[Message]) -> ArrayRecord:
        return super().aggregate_train(self._playing().engine.round + 1, replies)[0]

    def _append(self, outcome: RoundOutcome) -> None:
        play = self._playing()
        log_round(play.log, play.engine, outcome)
