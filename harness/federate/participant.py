"""One device's part of a federated round: a job of the bench with real data, decided by the server."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.job import Job
from device_agents.protocol import ProbeDone
from device_agents.session.running_job import JobResult
from harness.bench.job.attempt import Attempt
from harness.bench.job.workload import Workload, agent_job
from harness.federate.server import FederatedServer, Report

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power.model import SampleBlock
    from power.profile.model import EnergyKind


LAG_S = 2.0
"""How long to wait for samples of a moment that has just passed: an instrument's link lags behind."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """What a device is to train in a round.

    Attributes:
        work: Weights, data and step.
        samples: Of the data.
        epochs: In all, the first included.
        seed: Of the order of the data.
        learning_rate: Of SGD.
        momentum: Of SGD.
        energy: Which energy is reported.
    """

    work: Workload
    samples: int
    epochs: int
    seed: int
    learning_rate: float
    momentum: float
    energy: EnergyKind


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


@dataclass(slots=True)
class Participation(Attempt):
    """Like any job of the bench, but the data are real, the server decides and the weights are kept.

    Attributes:
        server: Decides.
        local: What is trained.
        model: The weights that came back; None if the device was told to stop.
    """

    server: FederatedServer = field(kw_only=True)
    local: LocalWork = field(kw_only=True)
    model: dict[str, NDArray[Any]] | None = None
    _power: EnergySoFar = field(default_factory=EnergySoFar)

    def _order(self, cpus: int | None) -> tuple[Job, Workload]:
        local = self.local
        order = agent_job(self.bench.plan, self.job, local.work, local.samples, cpus, self._device.limits)
        changes = {
            "epochs": local.epochs,
            "seed": local.seed,
            "learning_rate": local.learning_rate,
            "momentum": local.momentum,
        }
        return order.model_copy(update=changes), local.work

    def _listener(self) -> Callable[[SampleBlock], None]:
        shown = Attempt._listener(self)

        def both(block: SampleBlock) -> None:
            self._power(block)
            shown(block)

        return both

    def _decide(self, probe: ProbeDone) -> bool:
        heard_ns = time.monotonic_ns()
        board, device = self.bench.board, self.job.cell.device
        board.set(device, phase="wait", epoch=1)
        # Nobody waits for a meter that lags behind if nothing is decided by what it shows.
        energy_j = self._energy_j(probe, heard_ns) if self.server.chooses else math.nan
        going_on = self.server.decide(device, Report(probe, energy_j), self.ending)
        board.set(device, phase="epoch" if going_on else "stopped")
        return going_on

    def _energy_j(self, probe: ProbeDone, heard_ns: int) -> float:
        """Of the first epoch, which ended when its report left: the fastest clock exchange tells the way."""
        way_ns = min(ping.round_trip_ns for ping in self._pings) // 2
        end_ns = heard_ns - way_ns
        start_ns = end_ns - probe.duration_ns
        power_w = self._power.mean_w(start_ns, end_ns)
        if self.local.energy != "gross":
            power_w -= self._power.mean_w(*self._baseline_ns(start_ns))
        return power_w * probe.duration_ns * 1e-9

    def _baseline_ns(self, start_ns: int) -> tuple[int, int]:
        """When it was idle or, for marginal energy, with its load alone: right before the first epoch."""
        if self.local.energy == "marginal" and self.job.cell.load.cpu_share:
            return start_ns - round(self.bench.plan.timing.load_only_s * 1e9), start_ns
        idle = self._idle[0]
        return idle.start_ns, idle.end_ns

    def _take(self, result: JobResult) -> None:
        self.model = result.model
