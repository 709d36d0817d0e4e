"""`Federation`: federated rounds on real devices, as `emulator.round.engine` plays them for a fleet.

The selector sees a `ServerView` of what devices reported and meters showed; no profile, no truth. Costs are
those of the phases of that very round, from the power trace aligned with the device's clock.
"""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator import Fate, Probe, RoundOutcome
from emulator.round import (
    BudgetRule,
    Budgets,
    Chooser,
    Reported,
    RewardRules,
    RoundLearning,
    file_reports,
    round_costs,
    round_reports,
)
from emulator.runs import reward_rules_of
from emulator.training import Score
from harness.bench.job.attempt import Bench
from harness.federate.choice import ProbeChoice
from harness.federate.participant import (
    FederatedParticipant,
    MeasuredCosts,
    fate_of,
    measured_costs,
    play_federated_round,
)
from harness.federate.registration import Registered
from harness.federate.setup import FederationSetup
from harness.rounds.record import REGISTRATION, FederatedRoundRecord
from harness.rounds.server import RoundServer
from joulefleet.errors import DeviceError, NobodyLeft
from joulefleet.provenance import Origin
from joulefleet.seeds import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator import ServerView

    Ids = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Open:
    """A round that is being played."""

    number: int
    view: ServerView
    eligible: int
    participants: list[FederatedParticipant]
    learning: RoundLearning
    choice: ProbeChoice | None

    @property
    def probed(self) -> bool:
        return self.choice is not None


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A round that is over.

    Attributes:
        outcome: As the emulator's log takes it.
        record: Who took part, with which captures.
        origin: Of the costs; None if nothing was measured.
        eligible: How many devices could have taken part.
    """

    outcome: RoundOutcome
    record: FederatedRoundRecord
    origin: Origin | None
    eligible: int


class Federation:
    """Plays rounds.

    Args:
        bench: Devices and meters.
        setup: Who and what takes part.

    Attributes:
        round: Number of the last round played.
        clock_ns: Time that rounds took; the bench's own work between them is not in it.
        weights: The global model.
        score: Its score on the split that is rewarded.
        out: Devices that failed too often in this session, and why.
    """

    def __init__(self, bench: Bench, setup: FederationSetup) -> None:
        self._bench = bench
        self._setup = setup
        n = len(setup.devices)
        self._size = np.array([setup.data.samples(i) for i in range(n)])
        self.chooser = Chooser(setup.selector, setup.rules, setup.seed)
        self._reported = Reported(self._size, setup.selector.needs, setup.classes)
        self._check_ins = np.zeros(n)
        self._in_a_row = dict.fromkeys(setup.devices, 0)
        self._registered: Registered | None = None
        self._judging: RewardRules | None = None
        self.round = 0
        self.clock_ns = 0
        self.weights = setup.uploads.initial()
        self.score = setup.uploads.evaluate(self.weights, setup.scenario.reward.split)
        self.out: dict[str, str] = {}

    @property
    def unregistered(self) -> NDArray[np.int64]:
        """Devices with data of which the server does not know what a round takes them."""
        known = False if self._registered is None else self._registered.known()
        return np.flatnonzero(self._setup.data.trainable() & ~np.asarray(known))

    @property
    def done(self) -> bool:
        """Whether every round has been played."""
        return self.round >= self._setup.rules.rounds

    @property
    def budgets(self) -> Budgets:
        """T and E of the reward, once the devices are registered."""
        return self._judged().budgets

    def measure_registration(self, stop: threading.Event) -> FederatedRoundRecord:
        """Those who are not registered play a round of their own; see `harness.federate.registration`."""
        setup, ids = self._setup, self.unregistered
        epochs = np.full(len(ids), setup.rules.local_epochs)
        participants = setup.participants(REGISTRATION, ids, epochs, self.weights)
        server = setup.server(participants, None)
        play_federated_round(self._bench, server, participants, stop)
        parts = {one.client: one.part for one in participants}
        of_all = [parts.get(client) for client in range(len(setup.devices))]
        found = Registered.measured(of_all, setup.rules.local_epochs)
        if self._registered is not None:
            found = self._registered.filled_by(found)
        if found.known().any():
            self.register(found)
        return setup.record(REGISTRATION, participants, np.ones(len(participants), bool), probed=False)

    def register(self, registered: Registered) -> None:
        """The server learns what a round takes the devices."""
        if self._judging is None:  # later ones do not change what rounds are judged by
            self._judging = reward_rules_of(self._setup.scenario, lambda: self._budgets(registered))
        self._registered = registered
        registered.tell(self._reported)

    def _budgets(self, registered: Registered) -> tuple[float, float]:
        scenario, rules = self._setup.scenario, self._setup.rules
        rng = generator(self._setup.seed, "budgets")
        if scenario.reward.budgets is BudgetRule.BEST_30:
            return registered.budgets(rules.k, rules.local_epochs, rng)
        return registered.feasible_budgets(scenario, rules, self._setup.selector, rng)

    def play(self, stop: threading.Event) -> Played:
        """The next round.

        Raises:
            NobodyLeft: Every device is out.
            KeyboardInterrupt: ``stop`` was set; the round does not count.
        """
        opened = self._open()
        server = self._setup.server(opened.participants, opened.choice)
        play_federated_round(self._bench, server, opened.participants, stop)
        self._count_failures(opened.participants)
        return self._close(opened, server)

    def test(self) -> Score:
        """For reports only; nothing is ever chosen or rewarded by it."""
        return self._setup.uploads.evaluate(self.weights, "test")

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rounds depend on, but for who is out."""
        return {
            "round": self.round,
            "clock_ns": self.clock_ns,
            "weights": self.weights,
            "accuracy": self.score.accuracy,
            "loss": self.score.loss,
            "registered": None if self._registered is None else self._registered.state_dict(),
            "budgets": None if self._judging is None else asdict(self._judging.budgets),
            "reported": self._reported.state_dict(),
            "check_ins": self._check_ins.copy(),
            "selector": self._setup.selector.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        if state["registered"] is not None:
            self.register(Registered(**state["registered"]))
            # By those who were registered first, as before: see `register`.
            self._judging = replace(self._judged(), budgets=Budgets(**state["budgets"]))
        self.round, self.clock_ns = state["round"], state["clock_ns"]
        self.weights, self.score = state["weights"], Score(state["loss"], state["accuracy"])
        self._reported.load_state_dict(state["reported"])
        self._check_ins[...] = state["check_ins"]
        self._setup.selector.load_state_dict(state["selector"])

    def _judged(self) -> RewardRules:
        if self._judging is None:
            raise DeviceError(
                "not a single device could be asked what a round takes it",
                hint="the run's journal says why; mend it, then resume",
            )
        return self._judging

    def _open(self) -> _Open:
        """Check-in, candidates, and the choice of a method that does not probe."""
        setup, number = self._setup, self.round + 1
        self.chooser.begin()
        eligible = setup.data.trainable() & np.array([name not in self.out for name in setup.devices])
        eligible[self.unregistered] = False
        if not eligible.any():
            why = "; ".join(f"{name}: {reason}" for name, reason in self.out.items())
            raise NobodyLeft(f"no device is left for round {number}: {why}", hint="mend them, then resume")
        self._check_ins += eligible
        self._reported.put(np.arange(len(eligible)), {"check_ins": self._check_ins / number})
        view = self._view(number, eligible)
        ids = self.chooser.candidates(view)
        probed = setup.selector.probe is Probe.EPOCH and not self.chooser.probe_is_idle(ids)
        epochs = np.full(len(ids), setup.rules.local_epochs)
        if not probed:
            ids, epochs = self.chooser.choose(view, ids)
        learning = RoundLearning(setup.uploads, number, self.weights, ids, proximal_mu=0.0)
        participants = setup.participants(number, ids, epochs, self.weights)
        choice = None
        if probed and self._registered is not None:
            choice = ProbeChoice(setup, self.chooser, self._reported, self._registered, view, participants)
        return _Open(number, view, int(eligible.sum()), participants, learning, choice)

    def _view(self, number: int, eligible: NDArray[np.bool_]) -> ServerView:
        rules, budgets = self._setup.rules, self._judged().budgets
        return self._reported.view(
            eligible,
            round=number,
            rounds=rules.rounds,
            now_ns=self.clock_ns,
            k=rules.k,
            local_epochs=rules.local_epochs,
            time_budget_s=budgets.time_s,
            energy_budget_j=budgets.energy_j,
        ).restricted(self._setup.selector.needs)

    def _count_failures(self, participants: list[FederatedParticipant]) -> None:
        for one in participants:
            self._in_a_row[one.device] = self._in_a_row[one.device] + 1 if one.error is not None else 0
            if self._in_a_row[one.device] >= self._setup.settings.retry.attempts:
                self.out[one.device] = one.reason

    def _close(self, opened: _Open, server: RoundServer) -> Played:
        """Aggregate, evaluate, charge, and tell the server and the selector."""
        participants, learning = opened.participants, opened.learning
        finite = self._take_in(opened, server)
        fates = tuple(
            fate_of(
                one, server, finite=ok, in_time=opened.choice is None or one.device in opened.choice.heard
            )
            for one, ok in zip(participants, finite, strict=True)
        )
        told = server.chosen or frozenset()  # nobody, if no probe came in
        chosen = np.array([not opened.probed or one.device in told for one in participants], bool)
        measured = measured_costs(participants, chosen, probed=opened.probed)
        finished = np.flatnonzero([fate is Fate.FINISHED for fate in fates])
        before = self.score.accuracy
        if len(finished):
            self._aggregate(learning, participants, finished)
        outcome = self._outcome(opened, measured, fates, finished, self.score.accuracy - before)
        record = self._setup.record(
            opened.number, participants, chosen, probed=opened.probed, notes=measured.notes
        )
        self.round, self.clock_ns = opened.number, self.clock_ns + measured.elapsed_ns
        file_reports(self._reported, outcome.clients, outcome.reports)
        self._reported.count(opened.number, outcome.clients[chosen], outcome.clients[finished])
        self._reported.count_failures(outcome.clients, outcome.failed)
        self.chooser.observe(opened.view, outcome)
        self._setup.uploads.end()
        return Played(outcome, record, measured.origin, opened.eligible)

    def _take_in(self, opened: _Open, server: RoundServer) -> list[bool]:
        """File losses and updates; tells for each participant whether they are all numbers."""
        finite = []
        for place, one in enumerate(opened.participants):
            report = server.reports.get(one.device)
            ok = report is None or report.is_finite
            if report is not None and ok:
                opened.learning.loss[place] = report.loss
                opened.learning.loss_rms[place] = report.loss_rms
            if one.error is None and one.model is not None:
                row = self._setup.data.row(one.model)
                ok = ok and bool(np.isfinite(row).all())
                self._setup.uploads.put(one.client, row)
            finite.append(ok)
        return finite

    def _aggregate(
        self, learning: RoundLearning, participants: list[FederatedParticipant], finished: Ids
    ) -> None:
        sizes = self._size[[participants[place].client for place in finished.tolist()]]
        self.weights = learning.aggregate(finished, sizes, self._setup.rules.aggregation)
        self.score = self._setup.uploads.evaluate(self.weights, self._judged().split)

    def _outcome(
        self, opened: _Open, measured: MeasuredCosts, fates: tuple[Fate, ...], finished: Ids, gain: float
    ) -> RoundOutcome:
        setup, judging = self._setup, self._judged()
        there = np.flatnonzero([one.error is None for one in opened.participants])
        epochs = np.array([0 if opened.probed else one.epochs for one in opened.participants], float)
        costs = round_costs(measured.cost, measured.chosen, measured.honest_s, probed=opened.probed)
        known = round_costs(measured.cost.known(), measured.chosen, measured.known_s, probed=opened.probed)
        judged = costs[judging.accounting]
        # A round of unknown cost is not judged: a cheap one would be rewarded for what failed.
        is_known = np.isfinite([judged.time_s, judged.energy_j]).all()
        return RoundOutcome(
            round=opened.number,
            start_ns=self.clock_ns,
            duration_ns=measured.elapsed_ns,
            clients=np.array([one.client for one in opened.participants], np.int64),
            chosen=measured.chosen,
            fates=fates,
            cost=measured.cost,
            reports=round_reports(
                measured.cost,
                opened.learning,
                setup.selector,
                measured=there if opened.probed else finished,
                finished=finished,
                epochs=epochs,
                weights=self.weights,
            ),
            costs=costs,
            known_costs=known,
            accuracy=self.score.accuracy,
            accuracy_gain=gain,
            reward=judging.reward(gain * 100.0, judged, judging.budgets) if is_known else math.nan,
            global_weights=self.weights if setup.selector.needs_weights else None,
            device_rewards=judging.of_devices(measured.cost, measured.chosen, judged, gain)
            if is_known and "device_rewards" in setup.selector.learns_from
            else None,
        )
