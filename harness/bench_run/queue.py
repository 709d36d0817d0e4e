"""Which job is next: in the order of the plan, one per device and meter, repetitions as long as needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device_agents.protocol import Phase
from harness.bench.matrix import BenchJob, Cell
from harness.evidence.capture import Capture, open_capture
from harness.inventory import Inventory
from harness.profiles.epochs import CutCapture
from harness.rounds.retry import device_resource, meter_resource
from joulefleet.interval import student_half_width
from power import Window
from power.energy import DEFAULT_POLICY, EnergyIndex, WindowEnergy


@dataclass(slots=True)
class Waiting:
    """A job that has not begun, or begins again."""

    job: BenchJob
    not_before_s: float = 0.0


class JobQueue:
    """Jobs to do and resources in use. Not safe for threads by itself: its owner holds a lock.

    Args:
        jobs: To do, in order.
        inventory: Tells which meter a device has.
        parallel: How many at a time; 0 for as many as there are devices and meters.
        is_needed: Asked for an optional job when all earlier repetitions of its cell and session are over.
    """

    def __init__(
        self,
        jobs: Sequence[BenchJob],
        inventory: Inventory,
        *,
        parallel: int,
        is_needed: Callable[[BenchJob], bool],
    ) -> None:
        self._waiting = [Waiting(job) for job in jobs]
        self._running: dict[int, BenchJob] = {}
        self._inventory = inventory
        self._parallel = parallel
        self._is_needed = is_needed
        self._held_until_s: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing to do and nothing being done."""
        return not self._waiting and not self._running

    @property
    def left(self) -> int:
        """Jobs waiting or running."""
        return len(self._waiting) + len(self._running)

    def take(self) -> BenchJob | None:
        """The next job that can begin now; it holds its device and meter until `release`."""
        if self._parallel and len(self._running) >= self._parallel:
            return None
        now_s = time.monotonic()
        held = {key for key, until_s in self._held_until_s.items() if until_s > now_s}
        held |= {key for job in self._running.values() for key in self._resources(job.cell)}
        for waiting in list(self._waiting):
            job = waiting.job
            if waiting.not_before_s > now_s or held & self._resources(job.cell):
                continue
            if job.optional and not self._decide(waiting):
                continue
            self._waiting.remove(waiting)
            self._running[job.number] = job
            return job
        return None

    def release(self, job: BenchJob, *, again_in_s: float | None = None) -> None:
        """A job is over, or to be tried again after a while."""
        del self._running[job.number]
        if again_in_s is not None:
            self._waiting.append(Waiting(job, time.monotonic() + again_in_s))
            self._waiting.sort(key=lambda waiting: waiting.job.number)

    def hold(self, resource: str, seconds: float) -> None:
        """Nothing that needs a device or meter begins for a while."""
        self._held_until_s[resource] = time.monotonic() + seconds

    def drop(self, resource: str) -> list[BenchJob]:
        """Forget every waiting job that needs a device or meter."""
        dropped = [w.job for w in self._waiting if resource in self._resources(w.job.cell)]
        self._waiting = [w for w in self._waiting if w.job not in dropped]
        return dropped

    def _decide(self, waiting: Waiting) -> bool:
        """Whether an optional job can begin; one that is not needed leaves the queue."""
        job = waiting.job
        others = [*(w.job for w in self._waiting), *self._running.values()]
        if any(job.follows(other) for other in others):
            return False
        if self._is_needed(job):
            return True
        self._waiting.remove(waiting)
        return False

    def _resources(self, cell: Cell) -> set[str]:
        return {device_resource(cell.device), meter_resource(self._inventory, cell.device)}


def energy_per_epoch_j(capture: Capture) -> float | None:
    """Mean gross energy of the epochs after the probe (of the probe, if it is alone); None if none is usable.

    Throttled epochs do not count.
    """
    usable = _epochs(capture)
    return math.fsum(e.energy_j or 0.0 for e in usable) / len(usable) if usable else None


def marginal_per_epoch_j(capture: Capture) -> float | None:
    """The same without what the device draws idle, or with its load alone; None if that was not recorded."""
    gross_j, cut = energy_per_epoch_j(capture), CutCapture(capture)
    baseline = cut.baseline if capture.record.background.kind == "none" else cut.load_baseline
    if gross_j is None or baseline is None:
        return None
    usable = _epochs(capture)
    others_j = [baseline.power_at((e.start_ns + e.end_ns) // 2) * e.duration_s for e in usable]
    return gross_j - math.fsum(others_j) / len(usable)


def _epochs(capture: Capture) -> list[WindowEnergy]:
    record = capture.record
    first = min(2, record.local_epochs)
    windows = [
        Window(phase.start_ns, phase.end_ns)
        for phase in capture.phases()
        if phase.phase is Phase.EPOCH and phase.epoch >= first and phase.epoch not in record.throttled_epochs
    ]
    return [e for e in EnergyIndex(capture.recording, DEFAULT_POLICY).integrate(windows) if e.valid]


def relative_half_width(means_j: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean over repetitions, relative to the mean."""
    values = np.array(means_j)
    if len(values) < 2 or not values.mean():
        return math.inf
    return student_half_width(values) / abs(float(values.mean()))


def is_narrow(folders: Sequence[Path], until_relative: float) -> bool:
    """Whether the captures of a cell's repetitions pin its energy per epoch down well enough.

    That is the marginal energy, which predictions charge; the gross one where the former is not known of all.
    """
    captures = [open_capture(folder) for folder in folders]
    energies = [marginal_per_epoch_j(capture) for capture in captures]
    if None in energies:
        energies = [energy_per_epoch_j(capture) for capture in captures]
    return relative_half_width([e for e in energies if e is not None]) <= until_relative
