"""The round engine: selection, local training, aggregation and cost on a virtual clock.

The clock counts integer nanoseconds. A run is a pure function of (world, trainer, selector, rules, seed):
nothing is drawn from a stream that is not named by its purpose and round, so a run can be stopped after any
round (`state_dict`) and continued with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.motion import Motion
from emulator.fleet.world import World
from emulator.round.accounting import round_costs
from emulator.round.chooser import Chooser, check_size
from emulator.round.learning import RoundLearning
from emulator.round.outcome import Fate, RoundOutcome
from emulator.round.phases import OpenRound, deadline_ns, finish, probe
from emulator.round.reports import Reported, Truth, file_reports, probe_reports, round_reports
from emulator.round.rules import RewardRules, RoundRules
from emulator.round.selector import Probe, Profiling, Selector
from emulator.round.timeline import FORWARD_SHARE, Timeline
from emulator.round.view import Ids, ServerView
from emulator.training.base import Score, Trainer


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What was done in a round, before its costs and results are counted.

    Attributes:
        timeline: Of the participants.
        learning: Likewise.
        places: The chosen.
        measured: Who reported how long an epoch took.
        epochs: How many epochs' work is behind that; 0 for the probe.
        finished: Who sent an update.
        end_ns: When the round was over.
    """

    timeline: Timeline
    learning: RoundLearning
    places: Ids
    measured: Ids
    epochs: NDArray[np.float64]
    finished: Ids
    end_ns: int


class Engine:
    """One federated run: `play` gives one round after the other.

    Args:
        world: Fleet, conditions, batteries, network.
        trainer: Trains for real, or stands in for it.
        selector: Chooses.
        rules: How rounds go.
        reward_rules: How a round is rewarded.
        seed: Root of every random stream.
        classes: Number of classes.
        label_histogram: True share of each class on each device, for privileged selectors.

    Attributes:
        round: Number of the last round played.
        clock_ns: Virtual time: when the last round ended.
        began_ns: When the last round began; ``None`` before the first.
        weights: The global model.
        score: Its score on the split that is rewarded.
        eligible: How many devices checked in for the last round.
        motion: Which devices came and went so far.
        levels: How full batteries were when the last round began (`Batteries.glance`).
    """

    def __init__(
        self,
        world: World,
        trainer: Trainer,
        selector: Selector,
        rules: RoundRules,
        reward_rules: RewardRules,
        seed: int,
        *,
        classes: int,
        label_histogram: NDArray[np.float64] | None = None,
    ) -> None:
        rules.check(len(world.fleet))
        check_size(selector, len(world.fleet))
        self.world, self.trainer, self.selector = world, trainer, selector
        self.rules, self.reward_rules = rules, reward_rules
        self.chooser = Chooser(selector, rules, seed)
        self.reported = Reported(world.fleet.data_size, selector.needs, classes)
        self._truth = Truth(world, selector.needs, label_histogram)
        self._truth.register(self.reported)
        self._profiled = selector.profiling is Profiling.NONE
        self._asked: set[str] = set()
        self.round = 0
        self.clock_ns = 0
        self.began_ns: int | None = None
        self.eligible = 0
        self.motion = Motion(len(world.fleet))
        self.levels: dict[str, float] = {}
        self.weights = trainer.initial()
        self.score = trainer.evaluate(self.weights, reward_rules.split)

    @property
    def done(self) -> bool:
        """Whether every round has been played."""
        return self.round >= self.rules.rounds

    def play(self) -> RoundOutcome:
        """The next round, or the profiling before the first.

        Raises:
            NobodyLeft: There is no device to play it with, and never will be.
        """
        if not self._profiled:
            return self.profile()
        opened = self.open_round()
        return self.close_round(opened, *self.chooser.choose(opened.view, opened.candidates))

    def open_round(self) -> OpenRound:
        """Check-in, candidates and, for a method that probes, their probe."""
        self.chooser.begin()
        number = self.round + 1
        due_ns = self._due_ns()
        now_ns, eligible = self.world.check_in(due_ns)
        self.motion.check_in(eligible, self.world.batteries.empty)
        self.levels = self.world.batteries.glance(now_ns)
        self._truth.refresh(self.reported, now_ns, eligible, number)
        view = self._view(number, now_ns, eligible)
        candidates = self.chooser.candidates(view)
        count = int(np.count_nonzero(eligible))
        opened = OpenRound(number, due_ns, now_ns, view, count, candidates, now_ns)
        if self.selector.probe is not Probe.NONE and not self.chooser.probe_is_idle(candidates):
            self._probe(opened)
        return opened

    def close_round(self, opened: OpenRound, chosen: Ids, epochs: Ids) -> RoundOutcome:
        """The chosen train; the model, the view and the clock move on."""
        timeline, learning = self._participants(opened, chosen)
        places = np.searchsorted(timeline.devices, chosen)
        before = Probe.NONE if opened.probed is None else self.selector.probe
        if before is not Probe.NONE:
            rejected = np.setdiff1d(np.arange(len(timeline.devices)), places)
            timeline.end(rejected, Fate.REJECTED)
        forward = before is Probe.NONE and "global_loss" in self.selector.needs
        timeline = finish(timeline, self.rules, places, epochs, before=before, forward=forward)
        finished = places[timeline.under_way[places]]
        if forward:
            learning.measure_loss(finished)
        probed = before is Probe.EPOCH
        rest = epochs[np.searchsorted(places, finished)] - probed
        finished = self._trained(timeline, learning, finished, rest, first=not probed)
        timeline.end(finished, Fate.FINISHED)
        count = np.zeros(len(timeline.devices))
        if not probed:
            count[places] = epochs + (FORWARD_SHARE if forward else 0.0)
        measured = np.searchsorted(timeline.devices, opened.candidates) if probed else finished
        end_ns = int(timeline.t_ns[places].max(initial=opened.decision_ns))
        return self._conclude(opened, _Work(timeline, learning, places, measured, count, finished, end_ns))

    def profile(self) -> RoundOutcome:
        """What a method makes every device do once, charged as round 0.

        Everyone takes part where it is and under the load it has, whether eligible or not: the method knows
        no other way. Whoever is not done at the deadline reports nothing.
        """
        self.chooser.begin()
        everybody = np.arange(len(self.world.fleet))
        view = self._view(1, self.clock_ns, np.ones(len(everybody), bool))
        # Nobody is probed: that would be for a choice, whose accountings differ in whom they charge.
        opened = OpenRound(0, self.clock_ns, self.clock_ns, view, len(everybody), everybody, self.clock_ns)
        closed_ns = deadline_ns(self.clock_ns, self.rules.deadline_s)
        timeline = Timeline(self.world, everybody, self.clock_ns, closed_ns, held=True)
        timeline.download(everybody)
        timeline.first_epoch(everybody, "probe")
        if self.selector.profiling is Profiling.UPDATE:
            timeline.upload(everybody)
        learning = self._learning(0, everybody)
        there = np.flatnonzero(timeline.under_way)
        finished = self._trained(timeline, learning, there, np.ones(len(there), np.int64), first=True)
        timeline.end(finished, Fate.PROFILED)
        self._profiled = True
        end_ns = int(timeline.t_ns.max(initial=self.clock_ns))
        nobody = np.empty(0, np.int64)
        # Who only measured an epoch sent nothing: there is no transfer to report, and no new model to score.
        sent = finished if self.selector.profiling is Profiling.UPDATE else nobody
        count = np.zeros(len(everybody))
        return self._conclude(opened, _Work(timeline, learning, nobody, finished, count, sent, end_ns))

    def test(self) -> Score:
        """For reports only; nothing is ever chosen or rewarded by it."""
        return self.trainer.evaluate(self.weights, "test")

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rounds depend on."""
        return {
            "round": self.round,
            "clock_ns": self.clock_ns,
            "began_ns": self.began_ns,
            "weights": self.weights,
            "accuracy": self.score.accuracy,
            "loss": self.score.loss,
            "profiled": self._profiled,
            "reported": self.reported.state_dict(),
            "check_ins": self._truth.check_ins.copy(),
            "batteries": self.world.batteries.state_dict(),
            "motion": self.motion.state_dict(),
            "selector": self.selector.state_dict(),
            "planned_by_rounds": bool(self._asked),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.round, self.clock_ns, self.began_ns = state["round"], state["clock_ns"], state.get("began_ns")
        self.weights = state["weights"]
        self.score = Score(state["loss"], state["accuracy"])
        self._profiled = state["profiled"]
        self.reported.load_state_dict(state["reported"])
        self._truth.check_ins[...] = state["check_ins"]
        self.world.batteries.load_state_dict(state["batteries"])
        if "motion" in state:  # a run of an earlier version noted none
            self.motion.load_state_dict(state["motion"])
        self.selector.load_state_dict(state["selector"])
        if state.get("planned_by_rounds", True):
            self._asked.add("rounds")

    def _due_ns(self) -> int:
        """When the next round may begin; nobody is charged for the time until then."""
        if self.began_ns is None:
            return self.clock_ns
        return max(self.clock_ns, self.began_ns + round(self.rules.every_s * 1e9))

    def _view(self, number: int, now_ns: int, eligible: NDArray[np.bool_]) -> ServerView:
        budgets = self.reward_rules.budgets
        return self.reported.view(
            eligible,
            round=number,
            rounds=self.rules.rounds,
            now_ns=now_ns,
            k=self.rules.k,
            local_epochs=self.rules.local_epochs,
            time_budget_s=budgets.time_s,
            energy_budget_j=budgets.energy_j,
            asked=self._asked,
        ).restricted(self.selector.needs)

    def _probe(self, opened: OpenRound) -> None:
        """Probe the candidates; those who cannot be chosen any more are left out."""
        devices, kind = opened.candidates, self.selector.probe
        timeline = probe(self.world, self.rules, kind, devices, opened.now_ns)
        learning = self._learning(opened.number, devices)
        there = np.flatnonzero(timeline.under_way)
        if kind is Probe.EPOCH:
            there = self._trained(timeline, learning, there, np.ones(len(there), np.int64), first=True)
        else:
            learning.measure_loss(there, one_batch=kind is Probe.BATCH)
        opened.probed, opened.timeline, opened.learning = devices, timeline, learning
        opened.decision_ns = int(timeline.t_ns.max(initial=opened.now_ns))
        opened.candidates = devices[there]
        self.reported.put(devices, probe_reports(timeline.cost, learning, there, kind))

    def _participants(self, opened: OpenRound, chosen: Ids) -> tuple[Timeline, RoundLearning]:
        if opened.timeline is not None and opened.learning is not None:
            return opened.timeline, opened.learning
        return Timeline(self.world, chosen, opened.now_ns), self._learning(opened.number, chosen)

    def _learning(self, number: int, devices: Ids) -> RoundLearning:
        mu = self.selector.proximal_mu
        return RoundLearning(self.trainer, number, self.weights, devices, proximal_mu=mu)

    def _trained(
        self, timeline: Timeline, learning: RoundLearning, places: Ids, epochs: Ids, *, first: bool
    ) -> Ids:
        """Train; who reports something that is not finite goes no further."""
        finite = learning.train(places, epochs, first=first)
        timeline.end(places[~finite], Fate.DIVERGED)
        return places[finite]

    def _conclude(self, opened: OpenRound, work: _Work) -> RoundOutcome:
        """Aggregate, evaluate, count the costs; let the server and the selector know."""
        timeline, devices = work.timeline, work.timeline.devices
        timeline.settle()
        self.motion.ended(*(devices[timeline.had(fate)] for fate in (Fate.LEFT, Fate.BATTERY)))
        before = self.score.accuracy
        if len(work.places) and len(work.finished):
            sizes = self.world.fleet.data_size[devices[work.finished]]
            self.weights = work.learning.aggregate(work.finished, sizes, self.rules.aggregation)
            self.score = self.trainer.evaluate(self.weights, self.reward_rules.split)
        reports = round_reports(
            timeline.cost,
            work.learning,
            self.selector,
            measured=work.measured,
            finished=work.finished,
            epochs=work.epochs,
            weights=self.weights,
        )
        self.trainer.end()
        chosen = np.zeros(len(devices), bool)
        chosen[work.places] = True
        probed = opened.probed is not None
        costs = round_costs(timeline.cost, chosen, (work.end_ns - opened.now_ns) * 1e-9, probed=probed)
        gain = self.reward_rules.metric.gain(before, self.score.accuracy)
        judged = costs[self.reward_rules.accounting]
        outcome = RoundOutcome(
            round=opened.number,
            start_ns=opened.start_ns,
            duration_ns=work.end_ns - opened.start_ns,
            clients=devices,
            chosen=chosen,
            fates=timeline.fates(),
            cost=timeline.cost,
            loaded_s=timeline.loaded_s,
            reports=reports,
            costs=costs,
            accuracy=self.score.accuracy,
            accuracy_gain=gain,
            reward=self.reward_rules.reward(gain * 100.0, judged, self.reward_rules.budgets),
            global_weights=self.weights if self.selector.needs_weights else None,
            device_rewards=self.reward_rules.of_devices(timeline.cost, chosen, judged, gain)
            if "device_rewards" in self.selector.learns_from
            else None,
        )
        self.round, self.clock_ns, self.eligible = opened.number, work.end_ns, opened.eligible
        if opened.number:  # what everybody does once before the first round paces nothing
            self.began_ns = opened.now_ns
        file_reports(self.reported, devices, reports)
        self.reported.count(opened.number, devices[work.places], devices[work.finished])
        self.reported.count_failures(devices, outcome.failed)
        self.chooser.observe(opened.view, outcome)
        return outcome
