"""One device's part of a federated round: real data, energy while the meter still records, weights kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator import Fate
from emulator.round import ClientCost, honest_time_s
from harness.bench.job.attempt import Bench
from harness.bench.job.failures import ends_the_run
from harness.bench.job.hooks import SoFar, Stopped
from harness.bench.job.workload import Assignment
from harness.evidence.capture import Capture, open_capture
from harness.rounds.measured import MeasuredPart, client_cost, read_part
from harness.rounds.round import Participant, RoundJob, fail, play_round
from harness.rounds.server import RoundServer
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Origin, weakest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents import JobResult
    from device_agents.protocol import ProbeDone
    from power import SampleBlock
    from power.profile import EnergyKind


LAG_S = 2.0
"""How long to wait for samples of a moment that has just passed: an instrument's link lags behind."""


class EnergySoFar:
    """Adds up the energy of one part of a round, block by block. Any thread may ask.

    Times are those that the samples had when they came in, and power is taken as even within a block of
    samples. Energies that are stored are computed from the closed recording on its final time scale.
    """

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._t_ns: list[int] = []
        self._energy_j: list[float] = []

    def __call__(self, block: SampleBlock) -> None:
        """Take a block into account."""
        last_ns = int(block.t_ns[-1])
        with self._arrived:
            if not self._t_ns:
                self._t_ns.append(int(block.t_ns[0]))
                self._energy_j.append(0.0)
            step_s = (last_ns - self._t_ns[-1]) * 1e-9
            self._t_ns.append(last_ns)
            self._energy_j.append(self._energy_j[-1] + float(block.power_w.mean(dtype=float)) * step_s)
            self._arrived.notify_all()

    def mean_w(self, start_ns: int, end_ns: int) -> float:
        """Mean power between two moments of host time; NaN if not all of it was recorded, or nothing is."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._t_ns) and self._t_ns[-1] >= end_ns, LAG_S)
            known = self._t_ns and self._t_ns[0] <= start_ns < end_ns <= self._t_ns[-1]
            if not known:
                return float("nan")
            begin_j, end_j = np.interp([start_ns, end_ns], self._t_ns, self._energy_j)
        return float(end_j - begin_j) / ((end_ns - start_ns) * 1e-9)


class FederatedParticipant(Participant):
    """A client of a federation in a round.

    Args:
        job: Its part.
        assignment: What it trains.
        client: Its number in the partition.
        epochs: That it trains if it is chosen, the first included.
        energy: Which energy is reported and charged.
        load_only_s: How long a background load runs alone before the first epoch.

    Attributes:
        model: The weights that it sent; None if it was told to stop.
        capture: What was measured.
        part: The same in seconds and joules.
    """

    def __init__(
        self,
        job: RoundJob,
        assignment: Assignment,
        *,
        client: int,
        epochs: int,
        energy: EnergyKind,
        load_only_s: float,
    ) -> None:
        super().__init__(job, assignment)
        self.client = client
        self.epochs = epochs
        self.energy = energy
        self._load_only_s = load_only_s
        self.model: dict[str, NDArray[Any]] | None = None
        self.capture: Capture | None = None
        self.part: MeasuredPart | None = None
        self.power = EnergySoFar()

    def see(self, block: SampleBlock) -> None:
        """Samples of its meter, as they come in."""
        self.power(block)

    def take(self, result: JobResult) -> None:
        """Its weights came back."""
        self.model = result.model

    def epoch_j(self, probe: ProbeDone, so_far: SoFar) -> float:
        """Of the first epoch, which ended when its report left: the fastest clock exchange tells the way."""
        way_ns = min(ping.round_trip_ns for ping in so_far.pings) // 2
        end_ns = so_far.heard_ns - way_ns
        start_ns = end_ns - probe.duration_ns
        power_w = self.power.mean_w(start_ns, end_ns)
        if self.energy != "gross":
            power_w -= self.power.mean_w(*self._baseline_ns(start_ns, so_far))
        return power_w * probe.duration_ns * 1e-9

    def _baseline_ns(self, start_ns: int, so_far: SoFar) -> tuple[int, int]:
        """When it was idle or, for marginal energy, with its load alone: right before the first epoch."""
        if self.energy == "marginal" and self.job.cell.load.cpu_share:
            return start_ns - round(self._load_only_s * 1e9), start_ns
        idle = so_far.idle[0]
        return idle.start_ns, idle.end_ns

    def read(self) -> None:
        """Seconds and joules of its part, which did not fail.

        Raises:
            DataQualityError: The capture has no energy of the kind that is charged.
        """
        if self.attempt is not None:
            capture = open_capture(self.attempt.folder)
            self.part, self.capture = read_part(capture, self.energy), capture


def play_federated_round(
    bench: Bench, server: RoundServer, participants: Sequence[FederatedParticipant], stop: threading.Event
) -> None:
    """Run all parts. Who fails is left out, with its evidence put aside; the others go on.

    Raises:
        KeyboardInterrupt: ``stop`` was set; nothing of the round counts.
        StorageError: Nothing can be stored.
    """
    play_round(bench, server, participants, stop)
    for one in participants:
        if one.error is None and not stop.is_set():
            try:
                one.read()
            except DataQualityError as error:  # this participant's failure, not the round's
                fail(bench, one, error)
        if one.error is not None or stop.is_set():
            one.put_aside(Stopped("the run was stopped"))
    if stop.is_set():
        raise KeyboardInterrupt
    fatal = [one.error for one in participants if one.error is not None and ends_the_run(one.error)]
    if fatal:
        raise fatal[0]
    if server.failure is not None:
        raise server.failure


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCosts:
    """Measured parts of a round, one entry per participant.

    Attributes:
        cost: Seconds and joules by phase; NaN for those whose part failed, of which nothing is known.
        chosen: Who was told to train.
        honest_s: Slowest to the choice, then slowest from there on; the phases of the round alone. NaN if
            somebody's are not known.
        known_s: The same of those whose are.
        elapsed_ns: From the first download to the last end, with setup and messages.
        origin: The weakest claim among the instruments; None if nothing was measured.
        notes: What a reader of the numbers should know.
    """

    cost: ClientCost
    chosen: NDArray[np.bool_]
    honest_s: float
    known_s: float
    elapsed_ns: int
    origin: Origin | None
    notes: tuple[str, ...]


def measured_costs(
    participants: Sequence[FederatedParticipant], chosen: NDArray[np.bool_], *, probed: bool
) -> MeasuredCosts:
    """Add up what was measured of a round.

    Args:
        participants: As `play_round` left them.
        chosen: Who was told to train.
        probed: Whether the first epoch came before the choice; otherwise it counts as training.
    """
    parts = [one.part for one in participants]
    cost = client_cost(parts, probed=probed)
    known = [part for part in parts if part is not None]
    began_ns = min((part.began_ns for part in known), default=0)
    elapsed_ns = max((part.ended_ns for part in known), default=0) - began_ns
    known_s = honest_time_s(cost.known(), chosen, probed=probed)
    return MeasuredCosts(
        cost=cost,
        chosen=chosen,
        honest_s=honest_time_s(cost, chosen, probed=probed),
        known_s=known_s,
        elapsed_ns=max(elapsed_ns, round(known_s * 1e9)),
        origin=_origin(participants),
        notes=_notes(participants, cost),
    )


def _notes(participants: Sequence[FederatedParticipant], cost: ClientCost) -> tuple[str, ...]:
    problems = [problem for one in participants if one.part is not None for problem in one.part.problems]
    unknown = [one.device for one, is_unknown in zip(participants, cost.unknown, strict=True) if is_unknown]
    if unknown:
        count = f"{len(unknown)} of {len(participants)}"
        problems.append(f"not all costs are known of {count} ({', '.join(unknown)}): sums are lower bounds")
    return tuple(problems)


def _origin(participants: Sequence[FederatedParticipant]) -> Origin | None:
    origins = [one.capture.provenance().origin for one in participants if one.capture is not None]
    return weakest(origins) if origins else None


def fate_of(one: FederatedParticipant, server: RoundServer, *, finite: bool, in_time: bool) -> Fate:
    """How the round ended for a participant.

    Args:
        one: The participant.
        server: Of the round.
        finite: Whether all that it reported and sent are numbers.
        in_time: Whether it had reported when the choice was made.
    """
    if one.error is not None:
        return Fate.LEFT
    if not finite:
        return Fate.DIVERGED
    if not in_time:
        return Fate.DEADLINE
    if server.chosen is not None and one.device not in server.chosen:
        return Fate.REJECTED
    return Fate.LEFT if one.model is None else Fate.FINISHED
